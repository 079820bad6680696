"""Facts: what the signals look at, computed once from the evidence.

Rules:
- of the changes only those in the window `as_of - 30 d < at <= as_of` count; of the days those that
  the policy weighs, the current one and the 30 before it;
- a change that several sources report is one change: changes are counted for each source, and the
  largest count is taken, so a directory and our own probe never add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tollgauge.core.base.rounding import Ratio, is_below
from tollgauge.core.base.units import WINDOW_MS, day_of
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.finding import NOT_EVALUATED, Severity
from tollgauge.core.endpoint.terms import EIP3009
from tollgauge.core.probe.latency import percentiles
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.rollup import Rollup, Totals, totals
from tollgauge.core.score.evidence import Evidence, LastProbe, TermChange
from tollgauge.core.score.policy import Policy
from tollgauge.core.score.signals.volume import Volume, ends_of, volume_of

_PAYMENT_REQUIRED: Final = Outcome.PAYMENT_REQUIRED.value
_PERCENTS: Final = (50, 95)


class WeightedTime(NamedTuple):
    """Milliseconds `up` and `down`, and the sum of compliance x milliseconds, as in
    core/probe/spans, each times the weight of its day.
    """

    up: int
    down: int
    compliance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The evidence with its sums. `latencies_ms` are the median and the 95th percentile of the
    probes that were up, None without any; `changes` are those of the window, without repetitions;
    `activity_ends` the subscores of the ends of the organic interval; `weighted` is the time of the
    window's days, recent ones more than old ones.
    """

    evidence: Evidence
    policy: Policy
    totals: Totals
    latencies_ms: tuple[int | None, int | None]
    changes: frozenset[TermChange]
    volume: Volume
    activity_ends: tuple[Ratio, Ratio]
    weighted: WeightedTime

    @property
    def usd(self) -> Ratio | None:
        """The exact advertised price in dollars, None when it is in no known dollar."""
        quote = self.evidence.quote
        decimals = None if quote is None else quote.decimals
        return None if quote is None or decimals is None else (quote.amount, 10**decimals)

    @property
    def spoken(self) -> int:
        """The weighed time that probes speak for."""
        return self.weighted.up + self.weighted.down

    @property
    def is_up(self) -> bool:
        """Whether the latest probe that speaks was up."""
        state = self.evidence.state
        return state is not None and state.up

    @property
    def is_payable(self) -> bool:
        """Whether the latest probe that speaks was payable."""
        state = self.evidence.state
        return state is not None and state.payable

    @property
    def is_evaluated(self) -> bool:
        """Whether the window has an offer by which the linter can say if a client pays. A payable
        probe that was evaluated adds to the sum of compliance, and no other does
        (core/probe/probe).
        """
        probe = self.envelope_probe
        rules = probe.rules if probe else ()
        is_unread = any(rule == NOT_EVALUATED for rule, _, _ in rules)
        is_broken = any(severity == Severity.ERROR for _, severity, _ in rules)
        return not is_unread or is_broken or self.totals.spans.compliance > 0

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the latest probe is a first failure that nobody confirmed yet."""
        state = self.evidence.state
        return state is not None and state.unconfirmed

    @property
    def is_stale(self) -> bool:
        """Whether no probe spoke for so long that nothing is known of now."""
        state, policy = self.evidence.state, self.policy
        if state is None:
            return False
        silence = self.evidence.as_of - state.at
        return (
            silence > policy.stale_ms and silence > policy.stale_intervals * self.evidence.interval
        )

    @property
    def confidence(self) -> Ratio:
        """Half hours with a scored probe as a share of the window's, at most 1."""
        return min(self.totals.slots, self.policy.slots_full), self.policy.slots_full

    @property
    def is_barely_observed(self) -> bool:
        """Whether the confidence is low."""
        part, whole = self.policy.low_confidence.as_integer_ratio()
        return self.totals.slots * whole < part * self.policy.slots_full

    @property
    def envelope_probe(self) -> LastProbe | None:
        """The latest scored probe that carried an envelope, else the latest scored one."""
        last = self.evidence.last
        if last is not None and last.accepts is not None:
            return last
        return self.evidence.envelope or last

    @property
    def unread_forms(self) -> tuple[str, ...]:
        """The offered forms of payment whose settlements are not read on chain: all but EIP-3009 on
        the network of the quote.
        """
        quote = self.evidence.quote
        read = "" if quote is None else f"{quote.network} {EIP3009}"
        return tuple(sorted(form for form in self.evidence.forms if form != read))

    def changed(self, kind: str) -> int:
        """How many changes of a kind the window holds: the most that any one source saw."""
        if not self.changes:
            return 0
        counts: dict[str, int] = {}
        for change in self.changes:
            if change.kind == kind:
                counts[change.source] = counts.get(change.source, 0) + 1
        return max(counts.values(), default=0)

    @property
    def price_steps(self) -> int:
        """What the window's price changes cost, each by its size: the most of any one source."""
        if not self.changes:
            return 0
        costs: dict[str, int] = {}
        for change in self.changes:
            if change.kind == PRICE_CHANGED:
                before, after = change.amounts
                jumped = 2 * before < after
                cost = self.policy.price_jump_step if jumped else self.policy.price_step
                costs[change.source] = costs.get(change.source, 0) + cost
        return max(costs.values(), default=0)

    def latest(self, kind: str) -> int | None:
        """When the latest change of a kind was seen, None without one; changes that the seller
        announced ahead do not count.
        """
        if not self.changes:
            return None
        instants = (
            change.at for change in self.changes if change.kind == kind and not change.announced
        )
        return max(instants, default=None)


def is_marked(facts: Facts) -> bool:
    """Whether the evidence has any of the marks that few endpoints have."""
    evidence = facts.evidence
    return (
        not evidence.listed
        or evidence.templated
        or evidence.wildcard
        or evidence.injection
        or evidence.paid_not_delivered
        or evidence.site_median_tenths is not None
    )


def has_changed(facts: Facts) -> bool:
    """Whether the window has any change of terms, or the payTo varies."""
    return bool(facts.changes) or facts.evidence.pay_to_varies


def is_unpaid(facts: Facts) -> bool:
    """Whether the latest probe that speaks saw anything but a 402 that can be paid."""
    state = facts.evidence.state
    return state is not None and not (state.payable and state.outcome == _PAYMENT_REQUIRED)


def was_no_402(facts: Facts) -> bool:
    """Whether the last scored probe was answered with anything but a 402."""
    last = facts.evidence.last
    return last is not None and last.outcome != _PAYMENT_REQUIRED


def is_dear(facts: Facts) -> bool:
    """Whether the advertised price is above what stock clients pay."""
    usd = facts.usd
    return usd is not None and is_below((facts.policy.client_cap_usd, 1), usd)


def facts_of(evidence: Evidence, policy: Policy) -> Facts:
    """The facts of an evidence under a policy."""
    as_of = evidence.as_of
    start, today = as_of - WINDOW_MS, day_of(as_of)
    weights = {today - age: weight for age, weight in enumerate(policy.day_weights)}
    days = [row for row in evidence.days if row.day in weights]
    median, high = percentiles([row.latency for row in days], _PERCENTS)
    volume = volume_of(evidence.chain)
    return Facts(
        evidence=evidence,
        policy=policy,
        totals=totals(days),
        latencies_ms=(median, high),
        changes=frozenset(
            [
                item
                for item in evidence.changes
                if start < item.at <= as_of
                and not (evidence.pay_to_varies and item.kind == PAYTO_CHANGED)
            ]
        ),
        volume=volume,
        activity_ends=ends_of(volume, policy),
        weighted=_weighted_time(days, weights),
    )


def _weighted_time(days: Iterable[Rollup], weights: Mapping[int, int]) -> WeightedTime:
    """The time of days, each times its weight."""
    up = down = compliance = 0
    for sums in days:
        weight, spoken = weights[sums.day], sums.spans
        up += weight * spoken.up
        down += weight * spoken.down
        compliance += weight * spoken.compliance
    return WeightedTime(up, down, compliance)
