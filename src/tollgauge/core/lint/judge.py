"""The linter: applies all rules to one exchange.

**Payable** means that an official client could pay: the status is 402, and for the client of at
least one family of networks, no rule stops it at the envelope or at the entry that it selects
(core/lint/selection). Spending limits, which an owner can raise, are ignored. A rule stops a client
that cannot read the envelope, select the entry or sign it, or whose payment can never settle
regardless of the chain's state (zero address, wrong signature domain of a known token, no time
left). bench/oracle/referee lists the rules under which a client signs nevertheless, with the reason
why its payment fails. One exception: variants of base64 in the header are accepted, because the
specification names no alphabet.

Unknown schemes and networks are judged by the protocol only, not by EVM formats, and a network that
is not evaluated is never an error. On EVM networks, Solana and TON, an entry in a scheme that the
official clients do not support is not payable: only clients of the scheme's author can pay it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.lint import envelope, extensions, resource, tool, transport
from tollgauge.core.lint.accepts import AcceptsEntry
from tollgauge.core.lint.extensions import app_code
from tollgauge.core.lint.reading import Reading, read
from tollgauge.core.lint.rule import Rule, Subject, rules_of, set_id
from tollgauge.core.lint.selection import (
    ENTRY_RULES,
    SHAPE_RULES,
    TERM_RULES,
    has_valid_entry,
    is_offered,
    payable_by,
)
from tollgauge.core.lint.signed_offer import HostKeys
from tollgauge.core.probe.exchange import (
    Exchange,
    Finding,
    Lint,
    OfficialClient,
    Severity,
)

ANSWER_RULES: Final[tuple[Rule[Reading], ...]] = rules_of(
    transport, envelope, resource, extensions, tool
)
"""Every rule about the answer as a whole, in the order of the findings."""

ALL_RULES: Final[tuple[Rule[Reading] | Rule[AcceptsEntry], ...]] = (*ANSWER_RULES, *ENTRY_RULES)
"""Every rule of the linter, in the order of the findings."""

ERROR_RULES: Final = set_id(rule for rule in ALL_RULES if rule.severity is Severity.ERROR)
"""The ID of the rules whose findings are errors, in their current revisions."""

FINDINGS_MAX: Final = 5
"""Maximum number of findings per rule: a thousand bad entries state no more than five."""

_STOPS: Final = {rule.slug: rule.stops for rule in ANSWER_RULES}


def lint(exchange: Exchange, host_keys: HostKeys | None = None) -> Lint:
    """Judge an exchange. Never raises.

    Args:
        exchange: The request with its response or fault.
        host_keys: The keys that the seller's host publishes; None if they were not fetched.
    """
    reading = read(exchange, host_keys)
    challenge = reading.envelope
    about_answer = _findings_of(ANSWER_RULES, (reading,))
    objects = [entry for entry in challenge.entries if isinstance(entry.raw, dict)]
    about_entries = _findings_of(SHAPE_RULES, challenge.entries)
    about_entries += _findings_of(TERM_RULES, objects)
    findings = tuple(about_answer + about_entries)
    stopped = frozenset[OfficialClient]().union(*(_STOPS[one.rule] for one in about_answer))
    payers = payable_by(challenge) - stopped
    unknown = not stopped and not is_offered(challenge)
    entries = len(challenge.accepts) if isinstance(challenge.accepts, list) else 0
    return Lint(
        payable=bool(payers) or (unknown and has_valid_entry(challenge.entries)),
        payable_by=payers,
        compliant=not any(finding.severity is Severity.ERROR for finding in findings),
        version=challenge.version if challenge.exists else None,
        accepts=entries if challenge.exists else None,
        findings=findings,
        terms=tuple(terms for entry in challenge.entries for terms in entry.terms),
        extensions=tuple(challenge.extensions),
        app_code=app_code(challenge.extensions),
    )


def _findings_of(rules: Sequence[Rule[Subject]], subjects: Sequence[Subject]) -> list[Finding]:
    """Return the findings of rules in their order; at most FINDINGS_MAX per rule."""
    findings: list[Finding] = []
    for rule in rules:
        found = [rule.finding(where) for subject in subjects for where in rule.find(subject)]
        findings += found[:FINDINGS_MAX]
    return findings
