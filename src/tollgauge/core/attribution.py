"""Attribution across hosts: failures that unrelated hosts share are ours.

One target that does not answer is down. Many unrelated targets that stop answering in the same
wave have a cause in common, which is on our side: our resolver, our route, our trust anchors, our
clock, a limit of ours (docs/methodology.md, *Whose fault*). An HTTP answer came from the target, so
it is never re-attributed, and neither is broken HTTP. What one exchange means by itself is
core/probe's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tollgauge.core.exchange import FaultKind
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.units import MINUTE_MS

COMMON_MODE: Final = "common-mode"
NO_CONNECTIVITY: Final = "no-connectivity"
NO_REFERENCE: Final = "no-reference"
SITES_MIN: Final = 5
"""Fewer unrelated sites that fail together may be chance, or one provider's outage."""
TLS_SITES_MIN: Final = 2
"""Without references: one bad certificate is its owner's, a second one of an unrelated site with
no answer from anybody in between may be our trust anchors or our clock."""
RECENT_MS: Final = 5 * MINUTE_MS
"""How far back `recent` results reach."""
NETWORK_OUTCOMES: Final = frozenset({Outcome.DNS, Outcome.CONNECT, Outcome.TLS, Outcome.TIMEOUT})
"""Failures that our own network, resolver, trust anchors or clock could have caused; an empty
reply is one as well, which shares its outcome with broken HTTP."""

Wave = Sequence[tuple[str, ProbeResult]]
"""The results of one wave as (host, result)."""


def common_mode(
    results: Wave, *, connected: bool | None, recent: Wave = ()
) -> tuple[tuple[str, ProbeResult], ...]:
    """The results of one wave, in the order given, with shared failures made ours.

    Network failures become `ours` when `connected` is False (our own connectivity check failed;
    None: not checked), when at least SITES_MIN unrelated sites failed so and these are more than
    half of the sites probed, or when the same was found for the last minute of `recent` (results
    recorded up to now). Hosts with the same `site` count once; a site failed when all its probes of
    the wave failed so.
    """
    shared = _shared(results) or _shared_lately(results, recent)
    reason = NO_CONNECTIVITY if connected is False else COMMON_MODE if shared else None
    if reason is None:
        return tuple(results)
    return tuple((host, _ours(result, reason)) for host, result in results)


def unproven(results: Wave, *, recent: Wave = ()) -> tuple[tuple[str, ProbeResult], ...]:
    """The results of a wave without any answer where there was no reference to ask.

    A name that is not found, or that leads to a private address, is attributed to nobody, because a
    resolver of ours that answers wrongly looks the same. So is a TLS failure when at least
    TLS_SITES_MIN unrelated sites had one, here or in `recent`, since anybody last answered.
    """
    answered_at = max((result.at for _, result in recent if result.status is not None), default=-1)
    failures = [(host, result) for host, result in results if network_failure(result)]
    failures += [(host, result) for host, result in recent if result.at > answered_at]
    failed_tls = {site(host) for host, result in failures if result.outcome is Outcome.TLS}
    doubt_tls = len(failed_tls) >= TLS_SITES_MIN
    return tuple((host, _doubted(result, tls=doubt_tls)) for host, result in results)


def shared_slowness(wave: Sequence[tuple[str, bool]]) -> bool:
    """Whether slow answers, (host, slow) of one wave, have a cause in common: as with failures,
    at least SITES_MIN unrelated sites and more than half of those that answered.
    """
    answered = {site(host) for host, _ in wave}
    slow = answered - {site(host) for host, was_slow in wave if not was_slow}
    return len(slow) >= SITES_MIN and 2 * len(slow) > len(answered)


def site(host: str) -> str:
    """The last two labels of a host: hosts with the same are related.

    This is coarser than the public suffix list: all of `co.uk` is one site, so fewer failures are
    taken for our own, never more.
    """
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def network_failure(result: ProbeResult) -> bool:
    """Whether a result is a failure that our own network, resolver, trust anchors or clock could
    have caused and that is not known to be ours.
    """
    no_answer = result.status is None and not result.up
    blamed = result.attribution is not Attribution.OURS
    empty = result.reason == FaultKind.EMPTY.value
    return no_answer and blamed and (empty or result.outcome in NETWORK_OUTCOMES)


def _shared(results: Wave) -> bool:
    # A fault of our own that came before an answer says nothing about the network.
    asked = [
        (site(host), result)
        for host, result in results
        if result.attribution is not Attribution.OURS or result.status is not None
    ]
    probed = {name for name, _ in asked}
    answered = {name for name, result in asked if not network_failure(result)}
    failed = len(probed - answered)
    return failed >= SITES_MIN and 2 * failed > len(probed)


def _shared_lately(results: Wave, recent: Wave) -> bool:
    """Whether most sites probed in the minute before these results had failures that were found to
    be shared.
    """
    since = max((result.at for _, result in results), default=0) - MINUTE_MS
    minute = [(site(host), result) for host, result in recent if result.at > since]
    failed = {name for name, result in minute if result.reason == COMMON_MODE}
    return len(failed) >= SITES_MIN and 2 * len(failed) > len({name for name, _ in minute})


def _doubted(result: ProbeResult, *, tls: bool) -> ProbeResult:
    private = result.reason == FaultKind.NOT_PUBLIC.value
    named = result.outcome is Outcome.DNS or private
    if not network_failure(result) or not (named or (tls and result.outcome is Outcome.TLS)):
        return result
    return replace(result, attribution=Attribution.UNKNOWN, reason=NO_REFERENCE)


def _ours(result: ProbeResult, reason: str) -> ProbeResult:
    if not network_failure(result):
        return result
    return replace(result, attribution=Attribution.OURS, reason=reason)
