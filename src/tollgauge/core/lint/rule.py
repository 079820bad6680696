"""Rule: one thing that can be wrong with an answer, as a small pure function with a name.

A rule's function yields the places where it fires and never raises. `fatal` says that a stock
client cannot pay while the rule fires: what "stock client" means, and why, is judge.py's matter.
The function's docstring is its public documentation (docs/lint-rules.md is made from it).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tollgauge.core.finding import Finding, Severity

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Subject]):
    """A named check. `fix` is the message of its findings: it says what to write instead.
    `revision` is raised when the check begins to find what it passed before, so that no endpoint
    is told to have changed because the check did.
    """

    slug: str
    severity: Severity
    fix: str
    fatal: bool
    check: Callable[[Subject], Iterator[str]]
    revision: int = 1

    @property
    def doc(self) -> str:
        """What the rule looks for and where that comes from."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def findings(self, subject: Subject) -> tuple[Finding, ...]:
        """One finding for each place where the rule fires."""
        return tuple(
            Finding(rule=self.slug, severity=self.severity, message=self.fix, where=where)
            for where in self.check(subject)
        )


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules whose findings are errors, by slug with their revisions: what an endpoint was
    judged by. Sets with the same rules have the same `id`.
    """

    revisions: Mapping[str, int]
    id: str = field(init=False)

    def __post_init__(self) -> None:
        text = json.dumps(dict(self.revisions), sort_keys=True)
        object.__setattr__(self, "id", hashlib.sha256(text.encode()).hexdigest()[:16])

    @classmethod
    def of(cls, rules: Iterable[Rule[Any]]) -> RuleSet:
        """The set of a rule table."""
        errors = (rule for rule in rules if rule.severity is Severity.ERROR)
        return cls({rule.slug: rule.revision for rule in errors})

    def shares(self, slug: str, other: RuleSet) -> bool:
        """Whether both sets have this rule in the same revision."""
        known = self.revisions.get(slug)
        return known is not None and known == other.revisions.get(slug)


def error(
    slug: str, fix: str, *, fatal: bool = False, revision: int = 1
) -> Callable[[Callable[[Subject], Iterator[str]]], Rule[Subject]]:
    """The rule of a function whose finding keeps a stock client from paying the right thing."""
    return _rule(slug, Severity.ERROR, fix, fatal=fatal, revision=revision)


def warning(
    slug: str, fix: str, *, fatal: bool = False
) -> Callable[[Callable[[Subject], Iterator[str]]], Rule[Subject]]:
    """The rule of a function whose finding costs some clients or is a defect of what only
    describes the resource; `fatal` when it costs the stock clients although nothing is broken.
    """
    return _rule(slug, Severity.WARN, fix, fatal=fatal)


def note(slug: str, fix: str) -> Callable[[Callable[[Subject], Iterator[str]]], Rule[Subject]]:
    """The rule of a function whose finding is only worth knowing."""
    return _rule(slug, Severity.INFO, fix, fatal=False)


def _rule(
    slug: str, severity: Severity, fix: str, *, fatal: bool, revision: int = 1
) -> Callable[[Callable[[Subject], Iterator[str]]], Rule[Subject]]:
    def named(check: Callable[[Subject], Iterator[str]]) -> Rule[Subject]:
        return Rule(
            slug=slug, severity=severity, fix=fix, fatal=fatal, check=check, revision=revision
        )

    return named
