"""Attribution across hosts: failures that unrelated hosts share are ours.

One target that does not answer is down. Many unrelated targets that stop answering in the same
wave have one cause in common, and that is us: our resolver, our route, our limit
(docs/methodology.md). An HTTP answer came from the target whatever else is
wrong, so it is never re-attributed, and neither is a broken certificate or broken HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tollgauge.core.probe import Attribution, Outcome, ProbeResult

COMMON_MODE: Final = "common-mode"
NO_CONNECTIVITY: Final = "no-connectivity"
NO_REFERENCE: Final = "no-reference"
SITES_MIN: Final = 5
"""Fewer unrelated sites that fail together may be chance, or one provider's outage."""
NETWORK_OUTCOMES: Final = frozenset({Outcome.DNS, Outcome.CONNECT, Outcome.TIMEOUT})
"""Failures that our own network could have caused."""


def common_mode(
    results: Sequence[tuple[str, ProbeResult]], *, connected: bool | None
) -> tuple[tuple[str, ProbeResult], ...]:
    """The results of one wave, (host, result) in the order given, with shared failures made ours.

    Network failures become `ours` when `connected` is False (our own connectivity check failed;
    None: not checked), or when at least SITES_MIN unrelated sites failed so and these are more
    than half of the sites probed. Sites are told apart by `site`; a site failed when all its
    probes of the wave failed so.
    """
    reason = NO_CONNECTIVITY if connected is False else COMMON_MODE if _shared(results) else None
    if reason is None:
        return tuple(results)
    return tuple((host, _ours(result, reason)) for host, result in results)


def unproven(result: ProbeResult) -> ProbeResult:
    """A result of a wave without any answer where there was no reference to ask: a name that is
    not found is nobody's fault then, as a resolver of ours that answers wrongly looks the same.
    """
    if result.outcome is not Outcome.DNS or not network_failure(result):
        return result
    return replace(result, attribution=Attribution.UNKNOWN, reason=NO_REFERENCE)


def shared_slowness(wave: Sequence[tuple[str, bool]]) -> bool:
    """Whether slow answers, (host, slow) of one wave, have a cause in common: as with failures,
    at least SITES_MIN unrelated sites and more than half of those that answered.
    """
    answered = {site(host) for host, _ in wave}
    slow = answered - {site(host) for host, each in wave if not each}
    return len(slow) >= SITES_MIN and 2 * len(slow) > len(answered)


def site(host: str) -> str:
    """The last two labels of a host: hosts with the same are related.

    This is coarser than the public suffix list: all of `co.uk` is one site, so fewer failures are
    taken for our own, never more.
    """
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def network_failure(result: ProbeResult) -> bool:
    """Whether a result is a failure that our own network could have caused."""
    no_answer = result.status is None and not result.up
    blamed = result.attribution is not Attribution.OURS
    return no_answer and blamed and result.outcome in NETWORK_OUTCOMES


def _shared(results: Sequence[tuple[str, ProbeResult]]) -> bool:
    told = [(site(host), result) for host, result in results if not _untold(result)]
    probed = {name for name, _ in told}
    answered = {name for name, result in told if not network_failure(result)}
    failed = len(probed - answered)
    return failed >= SITES_MIN and 2 * failed > len(probed)


def _untold(result: ProbeResult) -> bool:
    """Whether a result says nothing of the network: our own fault kept it from finding out."""
    return result.attribution is Attribution.OURS and result.status is None


def _ours(result: ProbeResult, reason: str) -> ProbeResult:
    if not network_failure(result):
        return result
    return replace(result, attribution=Attribution.OURS, reason=reason)
