"""Facts: the input of components and flags, computed once from the evidence; and the components.

Rules:
- only changes in the window `as_of - 30 d < at <= as_of` count, and only days with a weight in the
  policy: the current one and the 30 before it;
- a change that several sources report is one change: changes are counted per source, and the
  largest count is used.

The methodology page shows the docstrings of the components.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.base.units import DAY_MS, HOUR_MS, WINDOW_MS, chain_of, day_of
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.identity import Transport, transport_of
from tollgauge.core.endpoint.terms import EVM_FORMS, READ_FORMS, FormReading, usual_form
from tollgauge.core.probe.exchange import NOT_EVALUATED, Severity
from tollgauge.core.probe.outcome import REFUSALS
from tollgauge.core.probe.rollup import Days, Rollup, merge, percentiles
from tollgauge.core.score.demand import MIN_OWNERS, sum_of_weights
from tollgauge.core.score.evidence import (
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    LatestState,
    TermChange,
)
from tollgauge.core.score.policy import Policy, interpolate
from tollgauge.core.score.prices import Price, Steps, count_steps

_PERCENTS: Final = (50, 95)
UNPROBEABLE_DAYS: Final = 7


class WeightedTime(NamedTuple):
    """Milliseconds `up` and `down`, and the sum of compliance x milliseconds (core/probe/probe),
    each multiplied by the weight of its day.
    """

    up: int
    down: int
    compliance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The evidence with its sums.

    Attributes:
        latencies_ms: Median and 95th percentile of the probes that were up; None without any.
        changes: The changes in the window in canonical order, without duplicates.
        days: The days of the window.
        weighted: Their time, weighted by age.
    """

    evidence: Evidence
    policy: Policy
    totals: Rollup
    latencies_ms: tuple[int | None, int | None]
    changes: tuple[TermChange, ...]
    days: tuple[Rollup, ...]
    weighted: WeightedTime

    @property
    def usd(self) -> Ratio | None:
        """The exact advertised price in dollars; None unless it is in a known dollar token."""
        quote = self.evidence.quote
        decimals = None if quote is None else quote.decimals
        return None if quote is None or decimals is None else (quote.amount, 10**decimals)

    @property
    def covered_ms(self) -> int:
        """The time that scored probes cover, without refusals of an endpoint that was never
        payable.
        """
        spans = self.totals.spans
        return spans.up + spans.down - (0 if self.was_payable else spans.refused)

    @property
    def was_payable(self) -> bool:
        """Whether the endpoint was payable at any time."""
        state = self.evidence.state
        return state is not None and (state.payable or state.payable_since is not None)

    @property
    def is_agent(self) -> bool:
        """Whether it is an A2A agent, which is listed and not evaluated."""
        return transport_of(self.evidence.resource) is Transport.A2A

    @property
    def is_unprobeable(self) -> bool:
        """Whether it is an A2A agent, or was never payable and bot walls refused 90% of its probes
        in 7 days.
        """
        if self.is_agent:
            return True
        if self.was_payable:
            return False
        first = day_of(self.evidence.as_of) - UNPROBEABLE_DAYS + 1
        recent = [row for row in self.days if row.day >= first]
        blocked = sum(row.blocked for row in recent)
        return blocked > 0 and 10 * blocked >= 9 * sum(row.scored for row in recent)

    @property
    def is_measured(self) -> bool:
        """Whether any scored probe describes the endpoint, and it can be evaluated."""
        state = self.evidence.state
        if state is None or self.is_unprobeable or not self.is_evaluated:
            return False
        refuses = not self.was_payable and state.outcome in REFUSALS
        return not refuses or self.covered_ms > 0

    @property
    def demand(self) -> DemandEvidence | None:
        """The payers of the seller on all networks; None if they are unknown. A payer counts once
        per network. `weights` is only set for a single network.
        """
        demands = [chain.demand for chain in self.chains if chain.demand is not None]
        if len(demands) <= 1:
            return demands[0] if demands else None
        return DemandEvidence(
            transfers=sum(one.transfers for one in demands),
            payers=sum(one.payers for one in demands),
            volume=sum(one.volume for one in demands),
            own=sum(one.own for one in demands),
            returned=sum(one.returned for one in demands),
            proven_payers=sum(one.proven_payers for one in demands),
            proven_volume=sum(one.proven_volume for one in demands),
        )

    @property
    def chains(self) -> tuple[ChainEvidence, ...]:
        """The settlements to the address of the quote, and to other addresses that it offers."""
        first = self.evidence.chain
        return () if first is None else (first, *self.evidence.other_chains)

    @property
    def indexed_ms(self) -> int:
        """The part of the window that is indexed for all addresses that it offers."""
        return min((chain.indexed_ms for chain in self.chains), default=0)

    @property
    def is_demand_measured(self) -> bool:
        """Whether there are anchors of enough owners to prove payers."""
        return len(self.evidence.anchors) >= MIN_OWNERS

    @property
    def is_up(self) -> bool:
        """Whether the latest probe that describes the target was up."""
        state = self.evidence.state
        return state is not None and state.up

    @property
    def is_payable(self) -> bool:
        """Whether the latest probe that describes the target was payable."""
        state = self.evidence.state
        return state is not None and state.payable

    @property
    def is_evaluated(self) -> bool:
        """Whether the window has an offer that the linter can evaluate. Only payable, evaluated
        probes add to the sum of compliance (core/probe/probe).
        """
        probe = self.envelope_probe
        rules = probe.rules if probe else ()
        is_unread = any(rule == NOT_EVALUATED for rule, _, _ in rules)
        is_broken = any(severity == Severity.ERROR for _, severity, _ in rules)
        return not is_unread or is_broken or self.totals.spans.compliance > 0

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the latest probe is a first failure that is not confirmed yet."""
        state = self.evidence.state
        return state is not None and state.unconfirmed

    @property
    def is_stale(self) -> bool:
        """Whether the present state is unknown, because the last scored probe is too old."""
        state, policy = self.evidence.state, self.policy
        if state is None:
            return False
        silence = self.evidence.as_of - state.at
        return (
            silence > policy.stale_ms and silence > policy.stale_intervals * self.evidence.interval
        )

    @property
    def confidence(self) -> Ratio:
        """Share of the window's hours that scored probes cover, at most 1."""
        whole = self.policy.hours_full * HOUR_MS
        return min(self.covered_ms, whole), whole

    @property
    def envelope_probe(self) -> LastProbe | None:
        """The latest scored probe with an envelope, otherwise the latest scored probe."""
        last = self.evidence.last
        if last is not None and last.accepts is not None:
            return last
        return self.evidence.envelope or last

    @property
    def coverage(self) -> dict[str, FormReading]:
        """Whether the settlements of each offered form of payment are read."""
        chain = self.evidence.chain
        usual = () if chain is None else (usual_form(chain.network),)
        indexed = {one.network for one in self.chains if one.indexed_ms}
        return {form: _find_reading(form, indexed) for form in sorted(self.evidence.forms or usual)}

    def count_changes(self, kind: str, *, announced: bool = True) -> int:
        """Return the number of changes of a kind in the window, the maximum over sources.

        `announced`: count changes that the seller announced, too.
        """
        counts: dict[str, int] = {}
        for change in self.changes:
            if change.kind == kind and (announced or not change.announced):
                counts[change.source] = counts.get(change.source, 0) + 1
        return max(counts.values(), default=0)

    @property
    def prices(self) -> list[tuple[int, str, Price]]:
        """The changed prices of the window as (time, source, price), oldest first."""
        return [(one.at, one.source, one.price) for one in self.changes if one.price is not None]

    @property
    def price_cost(self) -> int:
        """Points that price changes take off stability, the maximum over sources."""
        prices = self.prices
        sources = {source for _, source, _ in prices}
        steps = [
            count_steps(price for _, named, price in prices if named == source)
            for source in sources
        ]
        return max(map(self._cost, steps), default=0)

    def _cost(self, steps: Steps) -> int:
        policy = self.policy
        cost = policy.price_increase * steps.increases + policy.price_change * steps.others
        return min(cost, policy.price_max)

    def latest(self, kind: str) -> int | None:
        """Return the time of the latest unannounced change of a kind, or None."""
        times = [
            change.at for change in self.changes if change.kind == kind and not change.announced
        ]
        return max(times, default=None)


def _find_reading(form: str, indexed: Collection[str]) -> FormReading:
    """Return whether a form is read if these networks are indexed."""
    network, _, name = form.rpartition(" ")
    if network not in indexed or (name in EVM_FORMS and chain_of(network) is None):
        return FormReading.NOT_READ
    return READ_FORMS.get(name, FormReading.NOT_READ)


def facts_of(evidence: Evidence, policy: Policy) -> Facts:
    """Return the facts of an evidence under a policy."""
    as_of = evidence.as_of
    start, today = as_of - WINDOW_MS, day_of(as_of)
    weights = {today - age: weight for age, weight in enumerate(policy.day_weights)}
    days = evidence.days
    if not all(row.day in weights for row in days):
        days = tuple(row for row in days if row.day in weights)
    sums = days.totals if isinstance(days, Days) else merge(days)
    median, high = percentiles(sums.histogram, _PERCENTS)
    return Facts(
        evidence=evidence,
        policy=policy,
        totals=sums,
        latencies_ms=(median, high),
        changes=tuple(
            sorted(
                {
                    item
                    for item in evidence.changes
                    if start < item.at <= as_of
                    and not (evidence.pay_to_varies and item.kind == PAYTO_CHANGED)
                },
                key=attrgetter("order"),
            )
        ),
        days=days,
        weighted=_weighted_time(days, weights, evidence.state),
    )


def _weighted_time(
    days: Iterable[Rollup], weights: Mapping[int, int], state: LatestState | None
) -> WeightedTime:
    """Return the time of days, each multiplied by its weight. Refusals of an endpoint that was
    never payable are neither up nor down.
    """
    never = state is None or not (state.payable or state.payable_since is not None)
    up = down = compliance = 0
    for sums in days:
        weight, spoken = weights[sums.day], sums.spans
        up += weight * spoken.up
        down += weight * (spoken.down - (spoken.refused if never else 0))
        compliance += weight * spoken.compliance
    return WeightedTime(up, down, compliance)


def uptime(facts: Facts) -> Ratio:
    """How much of the time did it answer? A probe covers the time until the next one. Up is an
    HTTP response in time with status 402, 2xx, 400 or 422; a refusal (429, 401, 403) is not. Days
    count less the older they are: half as much every 7 days. Time that no scored probe covers
    counts neither way.
    """
    up, down, _ = facts.weighted
    return (100 * up, up + down) if up + down else (100 if facts.is_up else 0, 1)


def compliance(facts: Facts) -> Ratio:
    """Does it ask for payment as the protocol requires? The compliance of each probe's envelope
    (100 for a 402 without errors, minus 4 for each warning, at most 20; 50 with errors if a stock
    client could still pay; 0 if it could not, or without a response), weighted by the time that the
    probe covers and by the age of the day.
    """
    up, down, worth = facts.weighted
    return (worth, up + down) if up + down else (100 if facts.is_payable else 0, 1)


def latency(facts: Facts) -> Ratio:
    """How fast does it answer? The median of the probes that were up, network distance included,
    on a table: 200 ms or less is 100, 5 seconds or more is 0. Never up is 0.
    """
    median, _ = facts.latencies_ms
    return (0, 1) if median is None else interpolate(facts.policy.latency, (median, 1))


def age(facts: Facts) -> Ratio:
    """How long has it been known? The time since it was first seen, on a table that reaches 100
    at 30 days.
    """
    known = max(facts.evidence.as_of - facts.evidence.first_seen, 0)
    return interpolate(facts.policy.age, (known, DAY_MS))


def activity(facts: Facts) -> Ratio:
    """Do customers pay it who also buy elsewhere? Wallets cost nothing, so only payers count that
    also spend money at anchors: sellers that are independent of this one and of each other. Each
    payer has a weight of at most 1 over all sellers of a network. P, the sum of weights over all
    networks without the anchor that adds most, is read from a table. With anchors of fewer than two
    owners it is 0 for all sellers.
    """
    return interpolate(facts.policy.payers, count_weighted_payers(facts.evidence))


def stability(facts: Facts) -> Ratio:
    """Do its price and its payTo stay the same? 100, minus 20 for each price increase and 10 for
    every other counted change of the price (together at most 60), minus 50 for each unannounced
    change of the payTo address.
    """
    changed = facts.count_changes(PAYTO_CHANGED, announced=False)
    return max(100 - facts.price_cost - facts.policy.payto_step * changed, 0), 1


def count_weighted_payers(evidence: Evidence) -> Ratio:
    """Return P: the sum of the payers' weights on all networks, without the anchor that adds
    most.
    """
    chains = (evidence.chain, *evidence.other_chains) if evidence.chain else ()
    weights = [(one.demand.weights, one.shares) for one in chains if one.demand is not None]
    return sum_of_weights(weights, anchors=len(evidence.anchors))


SUBSCORES: Final[dict[str, Callable[[Facts], Ratio]]] = {
    function.__name__: function
    for function in (uptime, compliance, latency, age, activity, stability)
}
"""The function of each component, by the name of the policy's row."""
