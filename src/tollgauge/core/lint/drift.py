"""What a challenge asks beside what was listed: rule 16, which needs two observations."""

from __future__ import annotations

from tollgauge.core.finding import Finding, Severity
from tollgauge.core.terms import Quote


def drift(listed: Quote | None, probed: Quote | None) -> tuple[Finding, ...]:
    """Where the probed quote departs from the listed one; nothing when either is unknown.

    A payee that rotates or a price that differs from the listing surprises clients that chose by
    the listing.
    """
    if listed is None or probed is None:
        return ()
    found = []
    if listed.pay_to != probed.pay_to:
        found.append(_warn("listing-payto", "payTo"))
    if (listed.network, listed.asset) != (probed.network, probed.asset):
        found.append(_warn("listing-asset", "asset"))
    elif listed.amount != probed.amount:
        found.append(_warn("listing-amount", "amount"))
    return tuple(found)


def _warn(rule: str, field: str) -> Finding:
    message = f"Settle once with the new {field}, so that directories list what is asked."
    return Finding(rule=rule, severity=Severity.WARN, message=message, where=field)
