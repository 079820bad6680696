"""The judgement of one exchange: all rules over one reading.

**Payable** means that a stock client could pay: the status is 402, no fatal rule fires for the
envelope, and none fires for at least one entry of `accepts`. A rule is fatal when one of the
official clients that know the scheme and the network cannot read the envelope, select the entry
or sign it, or when what it signs could never settle whatever the chain holds (zero address,
another signature domain than the known token's, no time left).
Two departures, both as published verdicts have it: variants of base64 in the header are read,
since the specification names no alphabet; and an entry that cannot be read does not spoil the
others, although the official Python client then refuses the whole envelope (only null, at which
the TypeScript client stops too, does).

Schemes and networks that we do not know are judged by the protocol alone, never by EVM shapes,
and a network that is not evaluated is never called wrong. On EVM networks and Solana, where the
official clients' schemes are known, an entry in any other scheme is not payable: only clients of
that scheme's maker could pay by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from tollgauge.core.exchange import Exchange
from tollgauge.core.finding import Finding, Lint, Severity
from tollgauge.core.lint import envelope, extensions, resource, status, transport
from tollgauge.core.lint.accepts import terms_of_accepts
from tollgauge.core.lint.entry import entry_object
from tollgauge.core.lint.envelope import ENTRY_RULES, payable_entry
from tollgauge.core.lint.reading import Entry, Envelope, Reading, read
from tollgauge.core.lint.rule import Rule, RuleSet
from tollgauge.core.terms import Terms

READING_RULES: Final[tuple[Rule[Reading], ...]] = (
    *status.RULES,
    *transport.RULES,
    *envelope.RULES,
    *resource.RULES,
    *extensions.RULES,
)
"""Everything that is asked of the exchange as a whole."""

RULES: Final[tuple[Rule[Reading] | Rule[Entry], ...]] = (*READING_RULES, *ENTRY_RULES)
"""The rule table, in the order of the findings."""

ERROR_RULES: Final = RuleSet.of(RULES)
"""What this version of the program holds an endpoint to."""

HITS_MAX: Final = 5
"""Findings of one rule that are kept: a thousand bad entries say no more than five."""


def lint(exchange: Exchange) -> Lint:
    """What is wrong with an exchange, and whether a client could pay by it. Never raises."""
    reading = read(exchange)
    entries = reading.envelope.entries if reading.envelope else ()
    findings = tuple(_findings(reading, entries))
    blocked = any(finding.rule in _FATAL_READING for finding in findings)
    return Lint(
        payable=not blocked and any(payable_entry(entry) for entry in entries),
        compliant=not any(finding.severity is Severity.ERROR for finding in findings),
        version=reading.envelope.version if reading.envelope else None,
        accepts=_count(reading.envelope),
        findings=findings,
        terms=_terms(reading),
    )


_FATAL_READING: Final = frozenset(rule.slug for rule in READING_RULES if rule.fatal)


def _findings(reading: Reading, entries: tuple[Entry, ...]) -> Iterator[Finding]:
    for rule in READING_RULES:
        yield from islice(rule.findings(reading), HITS_MAX)
    for entry_rule in ENTRY_RULES:
        yield from islice(_over(entry_rule, entries), HITS_MAX)


def _over(rule: Rule[Entry], entries: Iterable[Entry]) -> Iterator[Finding]:
    for entry in entries:
        if isinstance(entry.raw, dict) or rule is entry_object:
            yield from rule.findings(entry)


def _count(found: Envelope | None) -> int | None:
    """The length of `accepts`, None without an envelope, 0 when it is no array."""
    if found is None:
        return None
    accepts = found.document.get("accepts")
    return len(accepts) if isinstance(accepts, list) else 0


def _terms(reading: Reading) -> tuple[Terms, ...]:
    found = reading.envelope
    if found is None:
        return ()
    return terms_of_accepts(found.document.get("accepts"), version=found.version)
