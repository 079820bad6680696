"""Attribution across sites: whose fault the failures of a minute are (docs/methodology.md).

One target that does not answer is down. Many unrelated ones that stop answering at once may have a
cause in common on our side: our resolver, our route, our trust anchors, our clock, a limit of ours.

- *Surprise, not majority.* A failure is surprising if its endpoint was up at its last scored probe,
  less than SURPRISE_MS before. Endpoints that are long dead say nothing, however many share a
  minute.
- *More than chance.* Of n unrelated sites of the minute that answered or failed surprisingly, k
  failed. The failures are suspicious if k >= SITES_MIN and P(X >= k) < CHANCE for a binomial X of n
  and BASE_RATE, exactly.
- *Unless our network is seen to work.* Suspicious failures are ours if at least SITES_MIN of them
  came in a row, without an answer from anybody in between, or if one of the references, asked at
  once, does not answer. Else unrelated sites answered at the same moments: an outage that some
  sellers share (one provider, one region) is their downtime, which buyers meet as well. What is
  ours are then all failures of the minute but those of the dead, of which it is no news.
- *No connection.* What fails while nobody answers, the references neither, is ours.
- *Name servers.* That they give no answer may be our resolver's fault; it is the target's where our
  resolver works (`unresolved`).
- *Nobody to ask.* Without references and answers some failures are nobody's (`unproven`).

An HTTP answer, and broken HTTP, came from the target: it is never attributed anew. What one
exchange means by itself, our own lateness included, is core/probe/probe's.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import site
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.probe.outcome import FAULTS, OUTCOMES, Attribution, Outcome, Sign
from tollgauge.core.probe.probe import ProbeResult

COMMON_MODE: Final = "common-mode"
NO_CONNECTIVITY: Final = "no-connectivity"
NO_REFERENCE: Final = "no-reference"
SITES_MIN: Final = 5
"""Fewer unrelated sites that fail together may be chance, or one provider's outage."""
SURPRISE_MS: Final = 2 * HOUR_MS
"""A failure surprises if its endpoint was up less than this before."""
BASE_RATE: Final = Fraction(1, 100)
"""How often an endpoint that was up fails at its next probe, at most: on half-hourly series of
ordinary sites it was 3 times in 1,000."""
CHANCE: Final = Fraction(1, 1_000)
"""Failures that are less likely than this are not taken for chance."""
SAME_MOMENT_MS: Final = SECOND_MS
"""An attempt that began so close to an answered one met our network in the same state."""
TLS_SITES_MIN: Final = 2
"""Without references: one bad certificate is its owner's, a second one of an unrelated site with
no answer from anybody in between may be our trust anchors or our clock."""
RECENT_MS: Final = 5 * MINUTE_MS
"""How far back an answer of anybody speaks for us where there is no reference to ask."""
_SHARED: Final = frozenset({COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE})


_FAILURES: Final = frozenset({Sign.FAILED, Sign.TLS_FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUp:
    """When an endpoint was last up, and when the first scored probe since then was not up (None
    while there is none). Milliseconds UTC.
    """

    up_at: int | None = None
    down_since: int | None = None

    def after(self, result: ProbeResult) -> LastUp:
        """The same after one more probe."""
        if not result.scored:
            return self
        if result.up:
            return LastUp(up_at=result.at)
        return replace(self, down_since=self.down_since or result.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProbe:
    """One probe: the host that was asked, when (ms UTC), what that says of our network (None:
    nothing), and when the endpoint was last up, before this probe or with it.
    """

    host: str
    at: int
    sign: Sign | None
    last_up: LastUp = LastUp()

    @property
    def surprising(self) -> bool:
        """Whether this is a failure of an endpoint that was up less than SURPRISE_MS before, and
        at its last scored probe before this minute.
        """
        up_at, down_since = self.last_up.up_at, self.last_up.down_since
        was_up = up_at is not None and up_at > self.at - SURPRISE_MS
        lately = down_since is None or down_since > self.at - MINUTE_MS
        return self.sign in _FAILURES and was_up and lately

    @property
    def dead(self) -> bool:
        """Whether the endpoint was down for SURPRISE_MS or more, so that a failure is no news."""
        down_since = self.last_up.down_since
        return down_since is not None and down_since <= self.at - SURPRISE_MS


Wave = Sequence[tuple[NetworkProbe, ProbeResult]]
"""The results of probes that were sent together."""


def sign(probe: Any) -> Sign | None:
    """Return what a ProbeResult, or a row with its fields, shows about our network; None for a
    failure of this machine before the network was used.
    """
    shown = OUTCOMES[probe.outcome].sign
    if probe.reason in _SHARED:  # a network failure; its own reason was overwritten
        return Sign.TLS_FAILED if shown is Sign.TLS_FAILED else Sign.FAILED
    if probe.status is None and probe.attribution == Attribution.LOCAL:
        return None
    fault = FAULTS.get(probe.reason)
    return shown if fault is None or fault.sign is None else fault.sign


def network_failure(result: ProbeResult) -> bool:
    """Whether a result is a failure that our own network, resolver, trust anchors or clock could
    have caused and that is not known to be ours.
    """
    return result.attribution is not Attribution.LOCAL and sign(result) in _FAILURES


@lru_cache(maxsize=1_024)
def least_suspicious(sites: int) -> int:
    """The fewest failures of so many sites that are more than chance explains, SITES_MIN at least.

    All terms of the binomial have the denominator of BASE_RATE to the power of `sites`.
    """
    fail, whole = BASE_RATE.numerator, BASE_RATE.denominator
    denominator = whole**sites
    term = (whole - fail) ** sites
    failures, tail = 0, denominator  # P(X = failures) and P(X >= failures), times the denominator
    while tail * CHANCE.denominator >= denominator * CHANCE.numerator:
        tail -= term
        term = term * (sites - failures) * fail // ((failures + 1) * (whole - fail))
        failures += 1
    return max(failures, SITES_MIN)


def suspicious(minute: Iterable[NetworkProbe]) -> bool:
    """Whether more sites failed surprisingly in a minute than chance explains."""
    failed, answered = _by_site(minute)
    return len(failed) >= least_suspicious(len(failed.keys() | answered.keys()))


def cause(
    minute: Sequence[NetworkProbe], *, answered: bool, references: Sequence[bool]
) -> str | None:
    """Why failures are ours: NO_CONNECTIVITY, COMMON_MODE, or None if they are not.

    `minute` is what all our processes saw in the last minute, these failures included; `answered`
    whether anybody who was asked together with them answered; `references` says of every reference
    whether it answered when it was asked afterwards, and is empty where there is none to ask.
    """
    if references and not any(references) and not answered:
        return NO_CONNECTIVITY
    if not suspicious(minute):
        return None
    seen_to_work = all(references) and not _silent(minute)
    return None if seen_to_work else COMMON_MODE


def attributed_to_us(
    wave: Wave, reason: str, *, even_dead: bool = False
) -> tuple[ProbeResult, ...]:
    """The results of a wave, in the order given, with network failures attributed to us for a
    reason; for COMMON_MODE not those of endpoints that are dead anyway, unless `even_dead`.
    """
    all_fail = even_dead or reason == NO_CONNECTIVITY
    return tuple(
        replace(result, attribution=Attribution.LOCAL, reason=reason)
        if network_failure(result) and (all_fail or not asked.dead)
        else result
        for asked, result in wave
    )


def network_login(result: ProbeResult, *, works: bool) -> ProbeResult:
    """An HTTP 511 as its target's failure, or this network's if no reference site answers
    (`works`): a captive portal of this network answers for every site.
    """
    if works or result.outcome is not Outcome.NETWORK_LOGIN:
        return result
    return replace(result, attribution=Attribution.LOCAL, reason=NO_CONNECTIVITY)


def unresolved(
    wave: Wave, results: Sequence[ProbeResult], *, minute: Iterable[NetworkProbe], resolving: bool
) -> tuple[ProbeResult, ...]:
    """The results of a wave, in the order given, where name servers that gave no answer are the
    target's own failure if our resolver works: another site answered in the minute, or we are known
    to be `resolving`. Else their failure would be silence, which must not look like health.
    """
    answered = {site(asked.host) for asked in minute if asked.sign is Sign.ANSWERED}
    return tuple(
        replace(result, attribution=Attribution.TARGET)
        if result.reason == FaultKind.DNS_FAILED
        and result.attribution is Attribution.UNKNOWN
        and (resolving or answered - {site(asked.host)})
        else result
        for (asked, _), result in zip(wave, results, strict=True)
    )


def unproven(wave: Wave, *, recent: Iterable[NetworkProbe] = ()) -> tuple[ProbeResult, ...]:
    """The results of a wave without any answer where there was no reference to ask.

    A name that is not found or leads to a private address, and a TLS failure, is attributed to
    nobody unless another site answered in the minute before (`recent`), because a resolver of ours
    that answers wrongly, trust anchors that are missing, or a clock that is wrong look the same. So
    are, unless they are of dead endpoints,
    TLS failures when at least TLS_SITES_MIN unrelated sites had one since anybody last answered,
    here or in `recent`, and all failures when at least SITES_MIN sites had one.
    """
    recent = tuple(recent)
    answered_at = max((asked.at for asked in recent if asked.sign is Sign.ANSWERED), default=-1)
    since = [asked for asked, _ in wave] + [asked for asked in recent if asked.at > answered_at]
    failed = [asked for asked in since if asked.sign in _FAILURES and not asked.dead]
    tls_sites = {site(asked.host) for asked in failed if asked.sign is Sign.TLS_FAILED}
    doubt_tls = len(tls_sites) >= TLS_SITES_MIN
    doubt_all = len({site(asked.host) for asked in failed}) >= SITES_MIN

    def works(asked: NetworkProbe) -> bool:
        """Whether our resolver, trust anchors and clock worked: another site answered within the
        minute.
        """
        return any(
            other.sign is Sign.ANSWERED
            and asked.at - MINUTE_MS < other.at
            and site(other.host) != site(asked.host)
            for other in recent
        )

    return tuple(
        replace(result, attribution=Attribution.UNKNOWN, reason=NO_REFERENCE)
        if network_failure(result)
        and (
            (_has_local_cause(result) and not works(asked))
            or (doubt_all and not asked.dead)
            or (doubt_tls and not asked.dead and asked.sign is Sign.TLS_FAILED)
        )
        else result
        for asked, result in wave
    )


def shared_slowness(wave: Sequence[tuple[str, bool]]) -> bool:
    """Whether slow answers, (host, slow) of one wave, have a cause in common: at least SITES_MIN
    unrelated sites and more than half of those that answered.
    """
    answered = {site(host) for host, _ in wave}
    slow = answered - {site(host) for host, was_slow in wave if not was_slow}
    return len(slow) >= SITES_MIN and 2 * len(slow) > len(answered)


def _by_site(minute: Iterable[NetworkProbe]) -> tuple[dict[str, int], dict[str, int]]:
    """When each site last failed surprisingly, unless it answered then or later; and when each last
    answered.
    """
    failed: dict[str, int] = {}
    answered: dict[str, int] = {}
    for asked in minute:
        name = site(asked.host)
        if asked.sign is Sign.ANSWERED:
            answered[name] = max(asked.at, answered.get(name, asked.at))
        elif asked.surprising:
            failed[name] = max(asked.at, failed.get(name, asked.at))
    still_failed = {name: at for name, at in failed.items() if at > answered.get(name, at - 1)}
    return still_failed, answered


def _silent(minute: Sequence[NetworkProbe]) -> bool:
    """Whether SITES_MIN sites failed surprisingly in a row, without an answer from anybody at the
    same moments or in between.
    """
    failed, _ = _by_site(minute)
    answers = sorted(asked.at for asked in minute if asked.sign is Sign.ANSWERED)
    runs = Counter(
        bisect(answers, at)
        for at in failed.values()
        if bisect(answers, at - SAME_MOMENT_MS - 1) == bisect(answers, at + SAME_MOMENT_MS)
    )
    return max(runs.values(), default=0) >= SITES_MIN


def _has_local_cause(result: ProbeResult) -> bool:
    """Return whether a faulty resolver, trust store or clock of ours looks like this failure."""
    fault = FAULTS.get(result.reason)
    return OUTCOMES[result.outcome].local_cause or (fault is not None and fault.local_cause)
