"""Flag: one machine-readable issue of an endpoint, and the rule that raises it.

A rule is a function of the facts. Its docstring is the rule in words on the methodology page; it
returns the message for one endpoint, which says what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.facts import Facts

_SEVERITIES: Final = tuple(Severity)
RANKS: Final[dict[str, int]] = {severity: rank for rank, severity in enumerate(Severity)}
"""The ranks of severities, 0 for the worst."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An issue of an endpoint; `since` is in milliseconds UTC, None if it is unknown."""

    code: str
    severity: Severity
    message: str
    since: int | None = None


class Fired(NamedTuple):
    """The result of a rule that raises its flag: `message` and `since` as in `Flag`.

    `to_pay` is advice for buyers who pay anyway. It is added to the flag's message only if the
    recommendation allows payment and the endpoint was payable at its last check.
    """

    message: str
    since: int | None = None
    to_pay: str = ""


Raised = tuple[int, str, Fired]
"""A raised flag before the recommendation is known: rank of its severity, code, result of its rule.
These sort by severity, then code.
"""


def flag(raised: Raised, *, payable: bool) -> Flag:
    """Return a flag with its final message; `payable`: the message includes `to_pay`."""
    rank, code, (message, since, to_pay) = raised
    return Flag(
        code=code,
        severity=_SEVERITIES[rank],
        message=f"{message} {to_pay}".rstrip() if payable else message,
        since=since,
    )


@dataclass(frozen=True, slots=True)
class FlagRule:
    """A rule that raises a flag.

    Attributes:
        check: Returns the message if the flag is raised, otherwise None.
        fix: The seller's remedy; empty if there is none.
    """

    severity: Severity
    check: Callable[[Facts], Fired | None]
    fix: str = ""

    @property
    def code(self) -> str:
        """The name of the check, with hyphens."""
        return self.check.__name__.replace("_", "-")

    @property
    def words(self) -> str:
        """The rule in words: the docstring of its check, in one line."""
        return " ".join((inspect.getdoc(self.check) or "").split())


def flag_rule(
    severity: Severity, *, fix: str = ""
) -> Callable[[Callable[[Facts], Fired | None]], FlagRule]:
    """Make a function of the facts the rule of the flag with its name."""
    return lambda check: FlagRule(severity, check, fix)
