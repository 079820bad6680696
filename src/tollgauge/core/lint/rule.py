"""Rule: one check of an answer, as a small pure function with a name.

A rule's function yields the places where it fires and never raises. `stops` names the official
clients that cannot pay while the rule fires. The docstring of the function is its public
documentation: docs/lint-rules.md is generated from it. core/lint/example has the texts of findings.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, TypeVar

from tollgauge.core.lint.example import RULE_ENTRIES, RuleEntry
from tollgauge.core.probe.exchange import ALL_CLIENTS, Finding, OfficialClient, Severity

Subject = TypeVar("Subject")
Check = Callable[[Subject], Iterator[str]]


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """A named check.

    Attributes:
        stops: The official clients that cannot pay if the rule fires.
        revision: Raised when the check starts to find more, so that a new rule version is not
            reported as a change of endpoints (core/watch/change_state).
    """

    severity: Severity
    check: Check[Subject]
    stops: frozenset[OfficialClient] = frozenset()
    revision: int = 1

    @cached_property
    def slug(self) -> str:
        """The name of the check, with hyphens."""
        return self.check.__name__.replace("_", "-")

    @cached_property
    def entry(self) -> RuleEntry:
        """The texts and examples of the rule."""
        return RULE_ENTRIES[self.slug]

    @property
    def fatal(self) -> bool:
        """Whether no official client can pay if the rule fires."""
        return self.stops == ALL_CLIENTS

    @property
    def effect(self) -> str:
        """Which official clients cannot pay, for people."""
        if self.fatal or not self.stops:
            return "no client can pay" if self.fatal else "clients may still pay"
        names = [client.label for client in OfficialClient if client in self.stops]
        return f"{' and '.join(names)} cannot pay"

    @property
    def doc(self) -> str:
        """The description of the rule with its source: the docstring of its check."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def finding(self, where: str) -> Finding:
        """Return a finding at a path."""
        return Finding(rule=self.slug, severity=self.severity, message=self.entry.fix, where=where)


@dataclass(frozen=True)
class RuleSet:
    """The rules whose findings are errors, by slug with their revisions. Stored with each
    judgement.
    """

    revisions: Mapping[str, int]

    @cached_property
    def id(self) -> str:
        """16 hex digits, equal for sets with the same rules and revisions."""
        text = json.dumps(dict(self.revisions), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def shares(self, slug: str, other: RuleSet) -> bool:
        """Return whether both sets contain this rule in the same revision."""
        known = self.revisions.get(slug)
        return known is not None and known == other.revisions.get(slug)


def rules_of(*modules: ModuleType) -> tuple[Rule[Any], ...]:
    """Return every rule that the modules define, in source order."""
    members = (member for module in modules for member in vars(module).values())
    return tuple(member for member in members if isinstance(member, Rule))


def error(
    *, stops: Collection[OfficialClient] = ALL_CLIENTS, revision: int = 1
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a check an error: its finding prevents an official client from paying correctly.

    `stops` is empty if some clients can pay, depending on what the finding is about.
    """
    return lambda check: Rule(Severity.ERROR, check, frozenset(stops), revision)


def warning(*, stops: Collection[OfficialClient] = ()) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a check a warning: its finding costs some clients, or concerns the description only.

    `stops`: clients that cannot pay, although the envelope is valid.
    """
    return lambda check: Rule(Severity.WARN, check, frozenset(stops))


def note(check: Check[Subject]) -> Rule[Subject]:
    """Make a check a note: its finding needs no fix."""
    return Rule(Severity.INFO, check)
