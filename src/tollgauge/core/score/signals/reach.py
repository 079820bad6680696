"""Flags about reaching the endpoint: is it up, is its certificate good?"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.probe.outcome import REFUSALS, Outcome, buyer_text
from tollgauge.core.score.score import Down
from tollgauge.core.score.signals.facts import Facts, is_unpaid, was_no_402
from tollgauge.core.score.signals.flag import Fired, FlagRule


def tls_invalid(facts: Facts) -> Fired | None:
    """The last scored probe failed in the TLS handshake or at the certificate."""
    last = facts.evidence.last
    if last is None or last.outcome != Outcome.TLS:
        return None
    return Fired(
        "The last check failed at TLS: stock clients refuse the connection.",
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
    return Fired(f"The certificate {when}.")


def not_payable_now(facts: Facts) -> Fired | None:
    """The latest probe that speaks was not payable, whatever the cause."""
    state = facts.evidence.state
    if state is None or state.payable:
        return None
    why = buyer_text(state.outcome)
    again = " It is being asked again." if state.unconfirmed else ""
    return Fired(
        f"It could not be paid when it was last checked: {why}.{again} "
        "Use an alternative and look again later.",
        since=state.at,
    )


def down_of(facts: Facts) -> Down | None:
    """Return the outage that the latest probe belongs to, or None.

    For an endpoint that was payable in the window, every probe that finds it not payable is a
    failure. For any other endpoint, refusals are not failures, and neither is any answer to a URL
    whose placeholder is not filled in.
    """
    evidence = facts.evidence
    state = evidence.state
    if state is None or state.payable:
        return None
    if not facts.totals.spans.payable and (
        state.up or state.outcome in REFUSALS or evidence.templated
    ):
        return None
    return Down(
        since=state.at if state.since is None else state.since,
        reason=buyer_text(state.outcome),
        confirmed=not state.unconfirmed,
    )


def refuses_probes(facts: Facts) -> Fired | None:
    """For 6 hours or longer it has answered every check with 429."""
    state, last = facts.evidence.state, facts.evidence.last
    if state is None or state.outcome != Outcome.THROTTLED:
        return None
    since = facts.evidence.first_seen if last is None else last.at
    if state.at - since < facts.policy.refusing_ms:
        return None
    return Fired(
        "For hours it has refused to answer our checks (429), so nobody knows whether it can be "
        "paid.",
        since=since,
    )


def stale(facts: Facts) -> Fired | None:
    """No probe has said anything for 3 hours or 6 times the usual pause, whichever is longer."""
    state = facts.evidence.state
    if state is None or not facts.is_stale:
        return None
    hours = (facts.evidence.as_of - state.at) // HOUR_MS
    return Fired(
        f"Nothing was heard of it for {hours} hours, so what it is now is not known. "
        "Ask for a live report before you pay.",
        since=state.at,
    )


FLAGS: Final = (
    FlagRule(
        "down-now",
        Severity.WARN,
        not_payable_now,
        fix="Bring the endpoint back: its last failure is in `liveProbe`.",
        only_if=is_unpaid,
    ),
    FlagRule(
        "tls-invalid",
        Severity.WARN,
        tls_invalid,
        fix="Serve a valid certificate for this host with its full chain.",
        only_if=was_no_402,
    ),
    FlagRule("tls-expiring", Severity.WARN, tls_expiring, fix="Renew the certificate."),
    FlagRule(
        "refuses-probes",
        Severity.WARN,
        refuses_probes,
        fix="Let one request in five minutes pass without 429.",
        only_if=is_unpaid,
    ),
    FlagRule("stale", Severity.WARN, stale),
)
