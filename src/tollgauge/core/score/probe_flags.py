"""Flags about probes: can the endpoint be reached and paid, does its 402 follow the protocol?

The methodology page shows the docstring of each rule.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import LINT_FLAG, SIGNED_OFFER_MISMATCH, Severity
from tollgauge.core.probe.outcome import REFUSALS, Outcome, buyer_text
from tollgauge.core.score.facts import Facts
from tollgauge.core.score.flag import RANKS, Fired, Raised, flag_rule
from tollgauge.core.score.score import Down

_OWN: Final = tuple(RANKS.values())
_DEMOTED: Final = (1, 1, 2)
"""The ranks of an error, a warning and an information if errors are only warnings."""
MISMATCH_RULE: Final = "envelope-mismatch"
"""The lint rule that fires when header and body disagree."""


@flag_rule(Severity.WARN, fix="Serve a valid certificate for this host with its full chain.")
def tls_invalid(facts: Facts) -> Fired | None:
    """The last scored probe failed in the TLS handshake or at the certificate."""
    last = facts.evidence.last
    if last is None or last.outcome != Outcome.TLS:
        return None
    return Fired(
        "The last check failed at TLS: stock clients refuse the connection.",
        since=last.at,
    )


@flag_rule(Severity.WARN, fix="Renew the certificate.")
def tls_expiring(facts: Facts) -> Fired | None:
    """The certificate at the last scored probe expires within 14 days."""
    last = facts.evidence.last
    if last is None or last.tls_not_after is None:
        return None
    left = last.tls_not_after - facts.evidence.as_of
    if left >= facts.policy.tls_expiring_ms:
        return None
    when = f"ends in {left // DAY_MS} days" if left > 0 else "has ended"
    return Fired(f"The certificate {when}.")


@flag_rule(Severity.WARN, fix="Bring the endpoint back: its last failure is in `liveProbe`.")
def down_now(facts: Facts) -> Fired | None:
    """The latest probe that describes the target was not payable."""
    state = facts.evidence.state
    if state is None or state.payable:
        return None
    why = buyer_text(state.outcome)
    again = " It is being probed again." if state.unconfirmed else ""
    return Fired(
        f"It could not be paid when it was last checked: {why}.{again} "
        "Use an alternative and look again later.",
        since=state.at,
    )


def down_of(facts: Facts) -> Down | None:
    """Return the outage that the latest probe belongs to, or None.

    For an endpoint that was ever payable, every probe that finds it not payable is a failure. For
    any other endpoint, refusals are not failures, and neither is any answer to a URL whose
    placeholder is not filled in.
    """
    evidence = facts.evidence
    state = evidence.state
    if state is None or state.payable:
        return None
    refuses = state.up or state.outcome in REFUSALS or evidence.templated
    if not facts.was_payable and refuses:
        return None
    return Down(
        since=state.at if state.since is None else state.since,
        reason=buyer_text(state.outcome),
        confirmed=not state.unconfirmed,
    )


@flag_rule(Severity.WARN, fix="Let one request in five minutes pass.")
def refuses_probes(facts: Facts) -> Fired | None:
    """It has not been payable for 6 hours or longer, and refused the latest check (401, 403, 429 or
    a bot wall).
    """
    state = facts.evidence.state
    if state is None or state.outcome not in REFUSALS:
        return None
    since = state.at if state.since is None else state.since
    if state.at - since < facts.policy.refusing_ms:
        return None
    return Fired(
        "It has refused checks for hours, so it is unknown whether it can be paid.", since=since
    )


@flag_rule(
    Severity.WARN,
    fix="Let the prober's signed requests (Web Bot Auth), or its User-Agent, pass the bot wall.",
)
def unprobeable(facts: Facts) -> Fired | None:
    """It is an A2A agent, which is not evaluated; or it was never payable, and a bot wall refused
    at least nine in ten checks in 7 days.
    """
    if not facts.is_unprobeable:
        return None
    if facts.is_agent:
        return Fired("It is an A2A agent. Agents are listed and not checked, so there is no score.")
    return Fired(
        "A bot wall refuses the checks, so there is no score. To be scored, let the prober's "
        "signed requests pass (docs/how-to/sell.md)."
    )


@flag_rule(Severity.WARN)
def stale(facts: Facts) -> Fired | None:
    """No scored probe for 3 hours or 6 times the usual interval, whichever is longer."""
    state = facts.evidence.state
    if state is None or not facts.is_stale:
        return None
    hours = (facts.evidence.as_of - state.at) // HOUR_MS
    return Fired(
        f"There was no check for {hours} hours, so its present state is unknown. "
        "Ask for a live report before you pay.",
        since=state.at,
    )


@flag_rule(Severity.ERROR, fix="List at least one payment in `accepts`.")
def not_payable(facts: Facts) -> Fired | None:
    """The latest envelope of a scored probe has an empty `accepts`."""
    probe = facts.envelope_probe
    if probe is None or probe.accepts != 0:
        return None
    return Fired(
        "The 402 answer lists no way to pay (`accepts` is empty), so no client can buy.",
        since=probe.at,
    )


@flag_rule(Severity.ERROR, fix="Fix the errors that the lint findings name.")
def never_compliant(facts: Facts) -> Fired | None:
    """At least one probe was up, and none was compliant or payable by a stock client."""
    sums = facts.totals
    if not sums.up or sums.compliant or sums.payable:
        return None
    return Fired(
        f"It answered {sums.up} checks, never with a 402 that a stock client could pay. "
        "Do not send a payment."
    )


@flag_rule(
    Severity.ERROR,
    fix="Answer 404 on paths that do not exist, and let each path's 402 name what it sells.",
)
def wildcard_402(facts: Facts) -> Fired | None:
    """Unlisted paths of the host answer 402 too, or more than 20 of its endpoints have the same
    terms and a 402 that describes the same product.
    """
    if not facts.evidence.wildcard:
        return None
    return Fired(
        "Made-up paths of this host ask for payment too, or all of its many paths describe the "
        "same product, so a 402 does not show that this resource exists. Do not pay it without a "
        "sample."
    )


@flag_rule(Severity.WARN, fix="Answer 402 before the request is validated.")
def validates_before_402(facts: Facts) -> Fired | None:
    """The last scored probe got a validation error instead of a request for payment."""
    last = facts.evidence.last
    if last is None or last.outcome != Outcome.VALIDATES:
        return None
    return Fired(
        "It validates the input before it asks for payment: send the declared example to get the "
        "price.",
        since=last.at,
    )


@flag_rule(Severity.WARN, fix="Ask for the same payments in the header and in the body.")
def envelope_mismatch(facts: Facts) -> Fired | None:
    """Header and body of the last 402 disagree."""
    last = facts.evidence.last
    if last is None or not last.breaks(MISMATCH_RULE):
        return None
    return Fired(
        "The header and the body of the 402 ask for different payments; which one a client pays "
        "depends on its version.",
        since=last.at,
    )


@flag_rule(
    Severity.ERROR,
    fix="Sign each offer over the terms of its entry, with payTo's key or one that the host "
    "publishes.",
)
def signed_offer_mismatch(facts: Facts) -> Fired | None:
    """The last 402 has a signed offer that is malformed, names other terms than its entries, or has
    a signature of another signer.
    """
    last = facts.evidence.last
    if last is None or not last.breaks(SIGNED_OFFER_MISMATCH):
        return None
    return Fired(
        "A signed offer of the 402 does not prove the terms that it asks for: its signature, its "
        "signer or its terms are wrong.",
        since=last.at,
    )


@flag_rule(
    Severity.INFO,
    fix="Offer `exact` with USDC on Base, or on another network of the official clients, too.",
)
def not_evaluated(facts: Facts) -> Fired | None:
    """Every offer of the latest envelope is on a network or in a scheme for which no installed
    official SDK signs, and the window has no other payable offer.
    """
    probe = facts.envelope_probe
    if probe is None or facts.is_evaluated:
        return None
    return Fired(
        "It is not graded: no installed official client signs payments of this network or scheme, "
        "so it is unknown whether it can be paid.",
        since=probe.at,
    )


def lint_flags(facts: Facts) -> list[Raised]:
    """Return one flag `lint:<rule>` per lint rule that fired in the last scored probe, with its
    worst severity and the first message in sort order. An error is only a warning unless a stock
    client could not pay by the envelope of the last scored probe, and that was not the first
    failure of an endpoint that was payable.
    """
    last = facts.evidence.last
    if last is None:
        return []
    unpaid = last.accepts is not None and not last.payable
    ranks = _OWN if unpaid and not facts.is_unconfirmed else _DEMOTED
    worst: dict[str, tuple[int, str]] = {}
    for rule, severity, message in last.rules:
        ranked = RANKS[severity], message
        if rule not in worst or ranked < worst[rule]:
            worst[rule] = ranked
    return [
        (ranks[rank], LINT_FLAG + rule, Fired(message, last.at))
        for rule, (rank, message) in worst.items()
    ]
