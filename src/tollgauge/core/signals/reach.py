"""Flags about reaching the endpoint: is it up, is its certificate good?"""

from __future__ import annotations

from typing import Final

from tollgauge.core.finding import Severity
from tollgauge.core.probe import Outcome
from tollgauge.core.signals.facts import Facts
from tollgauge.core.signals.flag import Fired, FlagRule
from tollgauge.core.units import DAY_MS


def down_now(facts: Facts) -> Fired | None:
    """No probe of the last 3 hours was answered, and at least 6 were scored."""
    scored, up = facts.evidence.recent
    if up or scored < facts.policy.down_probes:
        return None
    return Fired(
        f"None of the {scored} checks of the last 3 hours was answered. "
        "Use an alternative and look again later."
    )


def tls_invalid(facts: Facts) -> Fired | None:
    """The last scored probe failed in the TLS handshake or at the certificate."""
    last = facts.evidence.last
    if last is None or last.outcome != Outcome.TLS:
        return None
    return Fired(
        "The last check failed at TLS: stock clients refuse the connection. "
        "The owner must serve a valid certificate for this host with its full chain.",
        since=last.at,
    )


def tls_expiring(facts: Facts) -> Fired | None:
    """The certificate that the last scored probe saw ends within 14 days."""
    last = facts.evidence.last
    if last is None or last.tls_not_after is None:
        return None
    left = last.tls_not_after - facts.evidence.as_of
    if left >= facts.policy.tls_expiring_ms:
        return None
    when = f"ends in {left // DAY_MS} days" if left > 0 else "has ended"
    return Fired(f"The certificate {when}. The owner should renew it now.")


FLAGS: Final = (
    FlagRule("down-now", Severity.ERROR, down_now),
    FlagRule("tls-invalid", Severity.ERROR, tls_invalid),
    FlagRule("tls-expiring", Severity.WARN, tls_expiring),
)
