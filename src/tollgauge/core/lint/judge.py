"""The linter: applies all rules to one exchange.

**Payable** means that a stock client could pay: the status is 402, no fatal rule fires for the
envelope, and none fires for the entry that the client of at least one family of networks selects
(core/lint/selection). Spending limits, which an owner can raise, are ignored. A rule is fatal if an
official client that supports the scheme and the network cannot read the envelope, select the entry
or sign it, or if its signature can never settle regardless of the chain's state (zero address,
wrong signature domain of a known token, no time left). Two exceptions: variants of base64 in the
header are accepted, because the specification names no alphabet; and an unreadable entry does not
make the others unpayable, although the official Python client then rejects the whole envelope. Only
a null entry does, because the TypeScript client stops at it too.

Unknown schemes and networks are judged by the protocol only, not by EVM formats, and a network that
is not evaluated is never an error. On EVM networks, Solana and TON, an entry in a scheme that the
official clients do not support is not payable: only clients of the scheme's author can pay it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.lint import envelope, extensions, resource, transport
from tollgauge.core.lint.reading import AcceptsEntry, Reading, read
from tollgauge.core.lint.rule import Rule, RuleSet, Subject, rules_of
from tollgauge.core.lint.selection import ENTRY_RULES, SHAPE_RULES, TERM_RULES, is_payable
from tollgauge.core.lint.signed_offer import HostKeys
from tollgauge.core.probe.exchange import Exchange, Finding, Lint, Severity

ANSWER_RULES: Final[tuple[Rule[Reading], ...]] = rules_of(transport, envelope, resource, extensions)
"""Every rule about the answer as a whole, in the order of the findings."""

ALL_RULES: Final[tuple[Rule[Reading] | Rule[AcceptsEntry], ...]] = (*ANSWER_RULES, *ENTRY_RULES)
"""Every rule of the linter, in the order of the findings."""

ERROR_RULES: Final = RuleSet(
    {rule.slug: rule.revision for rule in ALL_RULES if rule.severity is Severity.ERROR}
)
"""The rules whose findings are errors, in the revisions of this version of the program."""

FINDINGS_MAX: Final = 5
"""Maximum number of findings per rule: a thousand bad entries state no more than five."""

_FATAL_ANSWER_RULES: Final = frozenset(rule.slug for rule in ANSWER_RULES if rule.fatal)
_FATAL_ENTRY_RULES: Final = frozenset(rule.slug for rule in ENTRY_RULES if rule.fatal)


def lint(exchange: Exchange, host_keys: HostKeys | None = None) -> Lint:
    """Judge an exchange. Never raises.

    Args:
        exchange: The request with its response or fault.
        host_keys: The keys that the seller's host publishes; None if they were not fetched.
    """
    reading = read(exchange, host_keys)
    challenge = reading.envelope
    about_answer = _findings_of(ANSWER_RULES, (reading,))
    about_entries = _findings_of(SHAPE_RULES, challenge.entries)
    objects = [entry for entry in challenge.entries if isinstance(entry.raw, dict)]
    about_entries += _findings_of(TERM_RULES, objects)
    findings = tuple(about_answer + about_entries)
    blocked = any(finding.rule in _FATAL_ANSWER_RULES for finding in about_answer)
    entries = len(challenge.accepts) if isinstance(challenge.accepts, list) else 0
    return Lint(
        payable=not blocked and _any_payable(challenge.entries, about_entries),
        compliant=not any(finding.severity is Severity.ERROR for finding in findings),
        version=challenge.version if challenge.exists else None,
        accepts=entries if challenge.exists else None,
        findings=findings,
        terms=tuple(terms for entry in challenge.entries for terms in entry.terms),
        extensions=tuple(challenge.extensions),
    )


def _findings_of(rules: Sequence[Rule[Subject]], subjects: Sequence[Subject]) -> list[Finding]:
    """Return the findings of rules in their order; at most FINDINGS_MAX per rule."""
    findings: list[Finding] = []
    for rule in rules:
        room = FINDINGS_MAX
        for subject in subjects:
            # Most rules find nothing, so no intermediate iterator is created.
            for where in rule.check(subject):
                if room:
                    findings.append(rule.finding(where))
                    room -= 1
    return findings


def _any_payable(entries: Sequence[AcceptsEntry], findings: Sequence[Finding]) -> bool:
    """Return whether a client can pay any entry; `findings` are those of all entries."""
    if len(entries) == 1:
        return not any(finding.rule in _FATAL_ENTRY_RULES for finding in findings)
    return is_payable(entries)
