"""Flag: one machine-readable issue, and the rule that raises it.

A rule is a function of the facts whose docstring is the rule in words, as the methodology page
shows it; what it returns is the message for the endpoint at hand, with what to do about it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.score.facts import Facts

_SEVERITIES: Final = tuple(Severity)
RANKS: Final[dict[str, int]] = {severity: rank for rank, severity in enumerate(Severity)}
"""The ranks of severities, 0 for the worst."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An issue of an endpoint; `since` in milliseconds UTC where it is known. `to_pay` is always
    empty, a property that stored scores have.
    """

    code: str
    severity: Severity
    message: str
    since: int | None = None
    to_pay: str = ""


class Fired(NamedTuple):
    """What a rule says when it fires, as `Flag` has it. `to_pay` is advice to those who pay all the
    same; the message of the flag has it where the recommendation lets pay and the endpoint could be
    paid when it was last checked.
    """

    message: str
    since: int | None = None
    to_pay: str = ""


Raised = tuple[int, str, Fired]
"""A flag before there is advice: the rank of its severity, its code, and what its rule says. They
sort by severity, then code.
"""


def flag(raised: Raised, *, payable: bool) -> Flag:
    """A flag with its final message, which has `to_pay` only where it can be followed."""
    rank, code, (message, since, to_pay) = raised
    return Flag(
        code=code,
        severity=_SEVERITIES[rank],
        message=f"{message} {to_pay}".rstrip() if payable else message,
        since=since,
    )


def always(_facts: Facts) -> bool:
    """The condition of rules that have none in common with others."""
    return True


@dataclass(frozen=True, slots=True)
class FlagRule:
    """The code of a flag, its severity, the function that decides whether it is raised, and what
    the seller can do about it; empty where nothing that a seller does would help. `only_if` holds
    wherever the rule fires: rules that share it are not asked one by one where it does not.
    """

    code: str
    severity: Severity
    check: Callable[[Facts], Fired | None]
    _: KW_ONLY
    fix: str = ""
    only_if: Callable[[Facts], bool] = always

    @property
    def words(self) -> str:
        """The rule in words."""
        return " ".join((inspect.getdoc(self.check) or "").split())


class FlagGroup(NamedTuple):
    """Rules that share their `only_if`."""

    only_if: Callable[[Facts], bool]
    rules: tuple[FlagRule, ...]


def grouped(rules: Iterable[FlagRule]) -> tuple[FlagGroup, ...]:
    """Rules by what they share."""
    groups: dict[Callable[[Facts], bool], tuple[FlagRule, ...]] = {}
    for rule in rules:
        groups[rule.only_if] = (*groups.get(rule.only_if, ()), rule)
    return tuple(FlagGroup(*group) for group in groups.items())


def raised_by(groups: Iterable[FlagGroup], facts: Facts) -> list[Raised]:
    """The flags that rules raise, in no order."""
    return [
        (RANKS[rule.severity], rule.code, fired)
        for only_if, rules in groups
        if only_if(facts)
        for rule in rules
        if (fired := rule.check(facts)) is not None
    ]
