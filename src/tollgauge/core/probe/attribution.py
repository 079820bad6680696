"""Attribution: who caused the failures of a minute, over sites and vantages (docs/methodology.md).

One target that does not answer is down. If many unrelated targets stop answering together, the
cause may be on this side: the resolver, the route, trust anchors, the clock, or a local limit.

- *Surprise, not majority.* A failure is surprising if its endpoint was up at its last scored probe,
  less than SURPRISE_MS before. Endpoints already down for longer are not evidence.
- *More than chance.* Of n unrelated sites of the minute that answered or failed surprisingly, k
  failed. The failures are suspicious if k >= SITES_MIN and P(X >= k) < CHANCE for a binomial X of n
  and BASE_RATE, exactly.
- *Unless the local network works.* Suspicious failures are local if at least SITES_MIN of them came
  in a row, without any answer in between, or if one of the references, queried immediately, does
  not answer. Otherwise unrelated sites answered at the same time: an outage that some sellers
  share (one provider, one region) is their downtime, which buyers experience too. If the failures
  are local, so are all failures of the minute except those of dead endpoints.
- *No connection.* Failures while no site and no reference answers are local.
- *Name servers.* Name servers that do not answer may be a fault of the local resolver. If the
  resolver works, it is the target's fault (`attribute_dns_failures`).
- *No reference.* Without references and answers, some failures are attributed to neither side
  (`exclude_unproven`).
- *Several vantages.* The first configured vantage is the primary: its probes are the evidence of
  scores. Of the others, the latest result of each endpoint counts for VALID_MS. An endpoint is down
  only if it is down for more than half of them (`exclude_minority_failure`).

An HTTP response, even a broken one, came from the target: its attribution never changes here.
core/probe/probe attributes single exchanges, including the lateness of this machine.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import site
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.probe.outcome import FAULTS, OUTCOMES, Attribution, Outcome, Sign
from tollgauge.core.probe.probe import HOLDS_MIN_MS, ProbeResult

COMMON_MODE: Final = "common-mode"
NO_CONNECTIVITY: Final = "no-connectivity"
NO_REFERENCE: Final = "no-reference"
SITES_MIN: Final = 5  # fewer sites that fail together may be chance, or one provider's outage
SURPRISE_MS: Final = 2 * HOUR_MS
"""A failure is surprising if its endpoint was up less than this before."""
BASE_RATE: Final = Fraction(1, 100)
"""Upper bound of the rate at which an endpoint that was up fails at its next probe. Measured on
half-hourly series of ordinary sites: 3 in 1,000.
"""
CHANCE: Final = Fraction(1, 1_000)  # less probable failures are not treated as chance
SAME_MOMENT_MS: Final = SECOND_MS
"""Requests that started within this time of an answered one used the network in the same state."""
TLS_SITES_MIN: Final = 2
"""Without references: one bad certificate is its owner's fault; a second one at an unrelated site,
without any answer in between, may be caused by local trust anchors or the local clock.
"""
RECENT_MS: Final = 5 * MINUTE_MS
"""Without references, an answer within this period proves that the local network works."""
_SHARED: Final = frozenset({COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE})
_FAILURES: Final = frozenset({Sign.FAILED, Sign.TLS_FAILED})

# Vantages
DEFAULT: Final = "default"
"""The name of the only vantage if the operator configures none."""
NAME_PATTERN: Final = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
VALID_MS: Final = 10 * MINUTE_MS  # of the latest result of another vantage
PARTLY_REACHABLE: Final = "partly-reachable"
"""The reason of a failure that most of the other vantages do not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUp:
    """When an endpoint was last up, and its first scored probe since then that was not (None while
    it is up). Milliseconds UTC.
    """

    up_at: int | None = None
    down_since: int | None = None

    def after(self, result: ProbeResult) -> LastUp:
        """Return the state after one more probe."""
        if not result.scored:
            return self
        if result.up:
            return LastUp(up_at=result.at)
        return replace(self, down_since=self.down_since or result.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProbe:
    """One probe as evidence about the local network.

    Attributes:
        at: Milliseconds UTC.
        sign: Its evidence about the network; None for no evidence.
        last_up: When the endpoint was last up, including this probe.
    """

    host: str
    at: int
    sign: Sign | None
    last_up: LastUp = LastUp()

    @property
    def surprising(self) -> bool:
        """Whether it failed although its endpoint was up at its last scored probe before this
        minute, less than SURPRISE_MS ago.
        """
        up_at, down_since = self.last_up.up_at, self.last_up.down_since
        was_up = up_at is not None and up_at > self.at - SURPRISE_MS
        is_recent = down_since is None or down_since > self.at - MINUTE_MS
        return self.sign in _FAILURES and was_up and is_recent

    @property
    def dead(self) -> bool:
        """Whether the endpoint was already down for SURPRISE_MS or more."""
        down_since = self.last_up.down_since
        return down_since is not None and down_since <= self.at - SURPRISE_MS


Wave = Sequence[tuple[NetworkProbe, ProbeResult]]
"""The results of probes that were sent together."""


def find_sign(outcome: str, reason: str, attribution: str, *, status: int | None) -> Sign | None:
    """Return the evidence of a probe (ProbeResult) about the local network.

    None for a failure of this machine before the network was used.
    """
    shown = OUTCOMES[outcome].sign
    if reason in _SHARED:  # a network failure; its own reason was overwritten
        return Sign.TLS_FAILED if shown is Sign.TLS_FAILED else Sign.FAILED
    if status is None and attribution == Attribution.LOCAL:
        return None
    fault = FAULTS.get(reason)
    return shown if fault is None or fault.sign is None else fault.sign


def sign_of_result(result: ProbeResult) -> Sign | None:
    """Return the evidence of a result about the local network."""
    return find_sign(result.outcome, result.reason, result.attribution, status=result.status)


def is_network_failure(result: ProbeResult) -> bool:
    """Return whether the local network, resolver, trust anchors or clock could have caused a
    failure that is not yet attributed to this machine.
    """
    return result.attribution is not Attribution.LOCAL and sign_of_result(result) in _FAILURES


@lru_cache(maxsize=1_024)
def min_suspicious_failures(sites: int) -> int:
    """Return the minimum number of failures that chance does not explain, at least SITES_MIN.

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


def is_suspicious(minute: Iterable[NetworkProbe]) -> bool:
    """Return whether more sites failed surprisingly in a minute than chance explains."""
    failed, answered = _group_by_site(minute)
    return len(failed) >= min_suspicious_failures(len(failed.keys() | answered.keys()))


def find_cause(
    minute: Sequence[NetworkProbe], *, answered: bool, references: Sequence[bool]
) -> str | None:
    """Return why failures are local: NO_CONNECTIVITY, COMMON_MODE, or None if they are not.

    Args:
        minute: The probes of all processes in the last minute, these failures included.
        answered: Whether any request of the same wave was answered.
        references: Whether each reference answered when it was queried afterwards; empty without
            references.
    """
    if references and not any(references) and not answered:
        return NO_CONNECTIVITY
    if not is_suspicious(minute):
        return None
    seen_to_work = all(references) and not _is_silent(minute)
    return None if seen_to_work else COMMON_MODE


def attribute_to_this_machine(
    wave: Wave, reason: str, *, even_dead: bool = False
) -> tuple[ProbeResult, ...]:
    """Return the results of a wave in order, with network failures attributed to this machine.

    With COMMON_MODE, failures of endpoints that were already dead keep their attribution, unless
    `even_dead`.
    """
    even_dead = even_dead or reason == NO_CONNECTIVITY
    return tuple(
        replace(result, attribution=Attribution.LOCAL, reason=reason)
        if is_network_failure(result) and (even_dead or not asked.dead)
        else result
        for asked, result in wave
    )


def attribute_network_login(result: ProbeResult, *, works: bool) -> ProbeResult:
    """Attribute an HTTP 511 to this network unless a reference site answers (`works`): a captive
    portal answers for every site.
    """
    if works or result.outcome is not Outcome.NETWORK_LOGIN:
        return result
    return replace(result, attribution=Attribution.LOCAL, reason=NO_CONNECTIVITY)


def attribute_dns_failures(
    wave: Wave, results: Sequence[ProbeResult], *, minute: Iterable[NetworkProbe], resolving: bool
) -> tuple[ProbeResult, ...]:
    """Return the results of a wave in order, with DNS failures attributed to the target if the
    local resolver works.

    It works if another site answered in the minute, or if it is known to be `resolving`. Otherwise
    silence of the name servers would look like health.
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


def exclude_unproven(wave: Wave, *, recent: Iterable[NetworkProbe] = ()) -> tuple[ProbeResult, ...]:
    """Return the results of a wave without any answer and without references.

    Failures are attributed to neither side if they may be local:
    - a name that is not found or leads to a private address, and a TLS failure, unless another site
      answered in the minute before (`recent`): a faulty resolver, missing trust anchors or a wrong
      clock look the same;
    - TLS failures of endpoints that were not dead, if at least TLS_SITES_MIN unrelated sites had
      one since the last answer, here or in `recent`;
    - all failures of endpoints that were not dead, if at least SITES_MIN sites had one.
    """
    recent = tuple(recent)
    answered_at = max((asked.at for asked in recent if asked.sign is Sign.ANSWERED), default=-1)
    since = [asked for asked, _ in wave] + [asked for asked in recent if asked.at > answered_at]
    failed = [asked for asked in since if asked.sign in _FAILURES and not asked.dead]
    tls_sites = {site(asked.host) for asked in failed if asked.sign is Sign.TLS_FAILED}
    doubt_tls = len(tls_sites) >= TLS_SITES_MIN
    doubt_all = len({site(asked.host) for asked in failed}) >= SITES_MIN

    def works(asked: NetworkProbe) -> bool:
        """Return whether another site answered within the minute."""
        return any(
            other.sign is Sign.ANSWERED
            and asked.at - MINUTE_MS < other.at
            and site(other.host) != site(asked.host)
            for other in recent
        )

    def has_local_cause(result: ProbeResult) -> bool:
        fault = FAULTS.get(result.reason)
        return OUTCOMES[result.outcome].local_cause or (fault is not None and fault.local_cause)

    return tuple(
        replace(result, attribution=Attribution.UNKNOWN, reason=NO_REFERENCE)
        if is_network_failure(result)
        and (
            (has_local_cause(result) and not works(asked))
            or (doubt_all and not asked.dead)
            or (doubt_tls and not asked.dead and asked.sign is Sign.TLS_FAILED)
        )
        else result
        for asked, result in wave
    )


def is_slowness_shared(wave: Sequence[tuple[str, bool]]) -> bool:
    """Return whether slow responses of one wave, as (host, slow), have a common cause.

    At least SITES_MIN unrelated sites and more than half of those that answered are slow.
    """
    answered = {site(host) for host, _ in wave}
    slow = answered - {site(host) for host, was_slow in wave if not was_slow}
    return len(slow) >= SITES_MIN and 2 * len(slow) > len(answered)


def _group_by_site(minute: Iterable[NetworkProbe]) -> tuple[dict[str, int], dict[str, int]]:
    """Return when each site last failed surprisingly, unless it answered then or later; and when
    each last answered.
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


def _is_silent(minute: Sequence[NetworkProbe]) -> bool:
    """Return whether SITES_MIN sites failed surprisingly in a row, without an answer at the same
    time or in between.
    """
    failed, _ = _group_by_site(minute)
    answers = sorted(asked.at for asked in minute if asked.sign is Sign.ANSWERED)
    runs = Counter(
        bisect(answers, at)
        for at in failed.values()
        if bisect(answers, at - SAME_MOMENT_MS - 1) == bisect(answers, at + SAME_MOMENT_MS)
    )
    return max(runs.values(), default=0) >= SITES_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantages:
    """The vantage of this process (`own`), and all vantages, the primary first; empty if there is
    only one.
    """

    own: str = DEFAULT
    all: tuple[str, ...] = ()

    @property
    def primary(self) -> str:
        """The name of the vantage whose probes are scored."""
        return self.all[0] if self.all else self.own

    @property
    def is_primary(self) -> bool:
        """Whether this process probes from the primary vantage."""
        return self.own == self.primary

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.all) > 1


ONE_VANTAGE: Final = Vantages()  # a service with one vantage


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageState:
    """The last result of a vantage for an endpoint, at a time in milliseconds UTC. `primary`: its
    probes are scored. `latency_ms` is None if it was not up.
    """

    vantage: str
    primary: bool
    at: int
    outcome: Outcome
    attribution: Attribution
    up: bool
    payable: bool
    latency_ms: int | None

    def is_current(self, now: int, *, max_age_ms: int) -> bool:
        """Return whether this describes the endpoint and is at most `max_age_ms` old."""
        return self.attribution is Attribution.TARGET and now - self.at <= max_age_ms


def exclude_minority_failure(result: ProbeResult, states: Iterable[VantageState]) -> ProbeResult:
    """Return a result of the primary vantage, excluded if it is a failure that at most half of the
    vantages see.

    `states` are those before this probe.
    """
    if not result.scored or result.up:
        return result
    current = (one for one in states if one.is_current(result.at, max_age_ms=VALID_MS))
    others = [state for state in current if not state.primary]
    down = 1 + sum(not state.up for state in others)
    if 2 * down > 1 + len(others):
        return result
    return replace(result, attribution=Attribution.UNKNOWN, reason=PARTLY_REACHABLE)


def partly_reachable(states: Iterable[VantageState], *, now: int) -> bool:
    """Return whether an endpoint is up for some vantages and down for others, by their results of
    the last HOLDS_MIN_MS.
    """
    current = (state for state in states if state.is_current(now, max_age_ms=HOLDS_MIN_MS))
    return len({state.up for state in current}) > 1
