"""Drift: where a challenge departs from what a directory lists.

This needs two observations, so it is no rule of the table (core/lint/judge), which judges one
exchange.
"""

from __future__ import annotations

from tollgauge.core.finding import Finding, Severity
from tollgauge.core.terms import Quote


def drift(listed: Quote | None, probed: Quote | None) -> tuple[Finding, ...]:
    """Where the probed quote departs from the listed one; nothing when either is unknown.

    Clients choose by the listing: another payee or price surprises them.
    """
    if listed is None or probed is None:
        return ()
    findings = []
    if listed.pay_to != probed.pay_to:
        findings.append(_warn("listing-payto", "payTo"))
    if (listed.network, listed.asset) != (probed.network, probed.asset):
        findings.append(_warn("listing-asset", "asset"))
    elif listed.amount != probed.amount:
        findings.append(_warn("listing-amount", "amount"))
    return tuple(findings)


def _warn(rule: str, field: str) -> Finding:
    message = f"Settle once with the new {field}, so that directories list what is asked."
    return Finding(rule=rule, severity=Severity.WARN, message=message, where=field)
