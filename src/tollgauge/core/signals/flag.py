"""Flag: one machine-readable issue, and the rule that raises it.

A rule is a function of the facts whose docstring is the rule in words, as the methodology page
shows it; what it returns is the message for the endpoint at hand, with what to do about it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from tollgauge.core.finding import Severity
from tollgauge.core.signals.facts import Facts


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An issue of an endpoint; `since` in milliseconds UTC where it is known. `to_pay` is advice to
    those who pay all the same; scoring adds it to the message where the recommendation lets pay and
    the endpoint could be paid when it was last checked.
    """

    code: str
    severity: Severity
    message: str
    since: int | None = None
    to_pay: str = ""

    def advised(self, *, payable: bool) -> Flag:
        """The flag with its final message, which has `to_pay` only where it can be followed."""
        message = f"{self.message} {self.to_pay}".rstrip() if payable else self.message
        if message == self.message and not self.to_pay:
            return self
        return Flag(code=self.code, severity=self.severity, message=message, since=self.since)


class Fired(NamedTuple):
    """What a rule says when it fires, as `Flag` has it."""

    message: str
    since: int | None = None
    to_pay: str = ""


@dataclass(frozen=True, slots=True)
class FlagRule:
    """The code of a flag, its severity, the function that decides whether it is raised, and what
    the seller can do about it; empty where nothing that a seller does would help.
    """

    code: str
    severity: Severity
    check: Callable[[Facts], Fired | None]
    _: KW_ONLY
    fix: str = ""

    @property
    def words(self) -> str:
        """The rule in words."""
        return " ".join((inspect.getdoc(self.check) or "").split())

    def flag(self, fired: Fired) -> Flag:
        """The flag of a rule that fired."""
        return Flag(
            code=self.code,
            severity=self.severity,
            message=fired.message,
            since=fired.since,
            to_pay=fired.to_pay,
        )
