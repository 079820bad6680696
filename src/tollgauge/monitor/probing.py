"""Probe an endpoint and record the result, for the probe loop and for live reports.

1. `Prober.probe` or `probe_alone`: send the request (clients/x402), lint the response (core/lint)
   and judge it by itself (core/probe/probe). If a test of the host is due, find out whether its
   402s carry information: it may answer 402 for unlisted paths, or sell the same at many endpoints.
2. `Prober.attribute_failures`: decide who caused each failure, from other recent probes, the
   endpoint's earlier state, the operator's reference URLs and other vantages
   (core/probe/attribution).
3. `record`: store the result, the price, the changes (monitor/watched_changes), the next due time
   and the mark for scoring, and release the host, in one transaction. The caller holds its lease.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX, SAMPLE
from tollgauge.core.endpoint.identity import Endpoint, Resource
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.attribution import (
    ONE,
    PARTLY_REACHABLE,
    RECENT_MS,
    Vantages,
    Wave,
    attribute_dns_failures,
    attribute_network_login,
    attribute_to_this_machine,
    exclude_minority_failure,
    exclude_unproven,
    find_cause,
    is_network_failure,
    is_suspicious,
)
from tollgauge.core.probe.exchange import Answer
from tollgauge.core.probe.outcome import Outcome, Sign, classify_answer
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.schedule import (
    DRAW_RANGE,
    HOST_PAUSE_MAX_MS,
    Cadence,
    Draws,
    after_probe,
    pause_ms,
)
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, terms
from tollgauge.monitor import vantages as other_vantages
from tollgauge.monitor import watched_changes as changes
from tollgauge.monitor.observation import (
    Observation,
    read_recent,
    to_network_probes,
    wildcard_results,
)
from tollgauge.monitor.offer_keys import OfferKeys
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import probes
from tollgauge.store.probes import vantages as vantage_probes
from tollgauge.store.probes.probes import NewProbe
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState

WILDCARD_EVERY_MS: Final = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Dependencies and settings of probing.

    `clock` returns ms UTC. `references` are the operator's https URLs that show whether this
    machine is connected.
    """

    store: Store
    egress: Egress
    clock: Callable[[], int]
    cadence: Cadence
    references: tuple[str, ...] = ()
    vantages: Vantages = ONE
    offer_keys: OfferKeys = field(default_factory=OfferKeys)

    async def probe(self, endpoint: Endpoint, host: HostState) -> Observation:
        """Probe one endpoint of a batch, and test its host about once a day at a random time."""
        observation = await self._ask(endpoint, round_ms=host.round_ms)
        if observation.sells and _wildcard_due(host, now=self.clock()):
            return await self._with_wildcard_test(observation)
        return observation

    async def probe_secondary(self, endpoint: Endpoint) -> Observation:
        """Probe one endpoint of a batch from a secondary vantage."""
        return await self._ask(endpoint)

    def is_final(self, observation: Observation) -> bool:
        """Return whether no other result can change the attribution of this one."""
        alone = observation.result.up or not self.vantages.several
        return alone and observation.is_final

    async def probe_alone(self, endpoint: Endpoint, *, first: bool) -> Observation:
        """Probe one endpoint outside of a batch.

        The host is tested too if the endpoint would become public and the host was never tested.
        `first` means that the endpoint was unknown before.
        """
        seen = await self._ask(endpoint, first=first)
        (observation,) = await self.attribute_failures((seen,), even_dead=True)
        if observation.makes_public(first=first):
            host = await self.store.reading(hosts.get, endpoint.host)
            if host.wildcard_at is None:
                return await self._with_wildcard_test(observation)
        return observation

    async def _ask(
        self, endpoint: Endpoint, *, first: bool = False, round_ms: int = 0
    ) -> Observation:
        """Send one request and judge the response by itself.

        If a 402 would make the endpoint public, neighbouring paths are probed too. The 402 is
        ignored if they also sell: otherwise anyone could publish arbitrary texts as a seller's.
        """
        probe = await x402.exchange(self.egress, endpoint, now=self.clock())
        linted = await self.offer_keys.check(self.egress, probe.exchange, lint(probe.exchange))
        result = judge(probe.exchange, linted)
        observation = Observation(
            endpoint=endpoint,
            result=result,
            learned=probe.learned,
            pause_ms=pause_ms(probe.exchange.result, now=self.clock()),
            round_ms=round_ms,
        )
        if not observation.makes_public(first=first):
            return observation
        siblings_sell = await x402.siblings_sell(
            self.egress,
            endpoint.resource,
            method=result.method,
            now=self.clock(),
        )
        return replace(observation, learned=None) if siblings_sell else observation

    async def _with_wildcard_test(self, observation: Observation) -> Observation:
        """Add whether the host's 402s carry no information: unlisted paths answer 402 too, or many
        of its endpoints sell the same on the same terms.
        """
        wildcard = await x402.wildcard(
            self.egress,
            observation.endpoint.resource,
            method=observation.result.method,
            now=self.clock(),
        )
        if wildcard is False:
            wildcard = await self._many_sell_the_same(observation.endpoint.host)
        return replace(observation, wildcard=wildcard)

    async def _many_sell_the_same(self, host: str) -> bool:
        """Return whether more than SAME_TERMS_MAX endpoints of a host have the same terms and a
        random sample of them sells the same.
        """
        chosen = await self.store.reading(
            endpoints.sample_common_terms, host, more_than=SAME_TERMS_MAX, sample=SAMPLE
        )
        return await x402.sell_the_same(self.egress, chosen, now=self.clock())

    async def attribute_failures(
        self, observations: Sequence[Observation], *, even_dead: bool = False
    ) -> tuple[Observation, ...]:
        """Attribute failures of a batch, in the order given.

        Failures of endpoints that were dead before are attributed only if this machine is
        disconnected, or with `even_dead`.
        """
        if any(is_network_failure(seen.result) for seen in observations):
            observations = await self._attribute_here(observations, even_dead=even_dead)
        if any(seen.result.outcome is Outcome.NETWORK_LOGIN for seen in observations):
            works = any(await self._probe_references()) if self.references else True
            observations = [
                replace(seen, result=attribute_network_login(seen.result, works=works))
                for seen in observations
            ]
        if self.vantages.several and self.vantages.is_primary:
            observations = await self._attribute_by_majority(observations)
        return tuple(observations)

    async def _attribute_by_majority(
        self, observations: Sequence[Observation]
    ) -> Sequence[Observation]:
        """Attribute failures that most other vantages do not see to neither side."""
        down = [
            seen.endpoint.id for seen in observations if seen.result.scored and not seen.result.up
        ]
        if not down:
            return observations
        others = await self.store.reading(vantage_probes.states, down)
        return [
            replace(
                seen, result=exclude_minority_failure(seen.result, others.get(seen.endpoint.id, ()))
            )
            for seen in observations
        ]

    async def _attribute_here(
        self, observations: Sequence[Observation], *, even_dead: bool
    ) -> Sequence[Observation]:
        """Attribute failures from what this vantage knows."""
        wave = await self.store.reading(to_network_probes, observations, vantages=self.vantages)
        answered = any(asked.sign is Sign.ANSWERED for asked, _ in wave)
        if answered and all(asked.dead for asked, result in wave if is_network_failure(result)):
            results: Sequence[ProbeResult] = attribute_dns_failures(
                wave,
                [result for _, result in wave],
                minute=[asked for asked, _ in wave],
                resolving=False,
            )
        else:
            results = await self._attribute_with_recent(
                wave, answered=answered, even_dead=even_dead
            )
        return tuple(
            replace(seen, result=result) for seen, result in zip(observations, results, strict=True)
        )

    async def _attribute_with_recent(
        self, wave: Wave, *, answered: bool, even_dead: bool
    ) -> Sequence[ProbeResult]:
        """Attribute failures with this vantage's other recent results.

        The reference URLs are requested only if those results leave the cause open.
        """
        now = self.clock()
        nobody_to_ask = not (answered or self.references)
        lately = RECENT_MS if nobody_to_ask else MINUTE_MS
        recent = await self.store.reading(read_recent, now - lately, vantages=self.vantages)
        minute = [asked for asked, _ in wave]
        minute += [asked for asked in recent if asked.at > now - MINUTE_MS]
        references: tuple[bool, ...] = ()
        if not answered or is_suspicious(minute):
            references = await self._probe_references()
        reason = find_cause(minute, answered=answered, references=references)
        if reason is not None:
            return attribute_to_this_machine(wave, reason, even_dead=even_dead)
        results: Sequence[ProbeResult] = [result for _, result in wave]
        if nobody_to_ask:
            results = exclude_unproven(wave, recent=recent)
        resolving = bool(references) and all(references)
        return attribute_dns_failures(wave, results, minute=minute, resolving=resolving)

    async def _probe_references(self) -> tuple[bool, ...]:
        """Return, for each reference URL, whether it gives an HTTP response that is not a network
        login.
        """
        requests = (self.egress.fetch(Request(url=url)) for url in self.references)
        results = [exchange.result for exchange in await asyncio.gather(*requests)]
        return tuple(
            isinstance(one, Answer) and classify_answer(one) is not Outcome.NETWORK_LOGIN
            for one in results
        )


def _wildcard_due(host: HostState, *, now: int) -> bool:
    """Return whether to test a host with unlisted paths.

    The first test is due immediately. Later ones become increasingly likely from half a day to one
    and a half days after the last, so that a host cannot predict them.
    """
    if host.wildcard_at is None:
        return True
    late_ms = now - host.wildcard_at - WILDCARD_EVERY_MS // 2
    # Random bytes from the system cost more than the rest of this step: draw them only if needed.
    return late_ms >= 0 and late_ms >= secrets.randbelow(WILDCARD_EVERY_MS)


def record(
    tx: Connection,
    observations: Sequence[Observation],
    *,
    cadence: Cadence,
    owner: str,
    now: int,
    slow_here: bool = False,
    vantages: Vantages = ONE,
) -> None:
    """Record results of endpoints of different hosts and release the hosts after a gap.

    Everything is one transaction: after a crash either all or nothing is recorded. A repeated
    result (same endpoint and time) changes nothing.

    - `owner`: holder of the hosts' leases.
    - `slow_here`: unrelated endpoints were slow together, so the latencies of this batch are not
      evidence.
    - `vantages`: all vantages; the primary one made these probes.
    """
    _rescore_changed_hosts(tx, observations, now=now)
    probed = [_new_probe(seen, cadence, now=now) for seen in observations]
    recorded = probes.record_each(tx, probed)
    new = [
        (seen.endpoint, probe.result)
        for seen, probe in zip(observations, probed, strict=True)
        if seen.endpoint.id in recorded
    ]
    changes.observe_each(tx, new, slow_here=slow_here)
    if vantages.several:
        other_vantages.record_primary(tx, vantages.own, new, now=now)
    quotes = {
        seen.endpoint.id: (seen.result.quote, seen.result.at)
        for seen in observations
        if seen.result.quote is not None
        and seen.result.scored
        and not recorded.get(seen.endpoint.id)
    }
    if quotes:
        terms.observe_quotes(tx, quotes)
    free_at = {
        seen.endpoint.host: now + max(cadence.host_gap_ms, min(seen.pause_ms, HOST_PAUSE_MAX_MS))
        for seen in observations
    }
    hosts.release(tx, free_at, owner=owner, now=now)  # locks all host rows
    hosts.set_wildcards(tx, wildcard_results(observations), at=now)


def _rescore_changed_hosts(
    tx: Connection, observations: Sequence[Observation], *, now: int
) -> None:
    """Mark all endpoints of hosts whose wildcard result changed for scoring.

    Their rows and those of the batch are locked together, sorted by ID and before any host, so that
    concurrent writers cannot deadlock.
    """
    changed = hosts.find_changed(tx, wildcard_results(observations))
    if changed:
        of_wave = (seen.endpoint.id for seen in observations)
        endpoints.mark_dirty(tx, (*changed, *of_wave), now=now)


def draw_times() -> Draws:
    """Draw random times for the next probes, so that a host cannot predict them."""
    return Draws(gap=secrets.randbelow(DRAW_RANGE), confirm=secrets.randbelow(DRAW_RANGE))


def _new_probe(seen: Observation, cadence: Cadence, *, now: int) -> NewProbe:
    """Build the probe to record, with the next due time."""
    following = after_probe(
        seen.endpoint,
        seen.result,
        cadence,
        now=now,
        pause_ms=seen.pause_ms,
        round_ms=seen.round_ms,
        draws=draw_times(),
    )
    due, result = following.due, seen.result
    if result.reason == PARTLY_REACHABLE and not seen.pause_ms:
        due = min(due, now + cadence.watched_every_ms)  # the others' results may be older
    if (result.holds, result.confirms) != (following.holds, following.confirms):
        result = replace(result, holds=following.holds, confirms=following.confirms)
    return NewProbe(
        endpoint_id=seen.endpoint.id,
        result=result,
        next_due=due,
        learned=seen.learned,
        unconfirmed_at=following.unconfirmed_at,
        paused_until=now + seen.pause_ms if seen.pause_ms else 0,
    )


def record_requested(
    tx: Connection,
    resource: Resource,
    observation: Observation,
    *,
    cadence: Cadence,
    owner: str,
    now: int,
    vantages: Vantages = ONE,
) -> Endpoint:
    """Record a probe made at a caller's request, and add its endpoint if it is unknown.

    Returns:
        The endpoint after the probe.
    """
    endpoint = endpoints.get(tx, resource.id)
    if endpoint is None:
        # Lock order: the turn of listings first, as in crawls, then endpoints, then hosts.
        meta.take_turn(tx, listings.LISTINGS_TURN)
        _rescore_changed_hosts(tx, (observation,), now=now)
        endpoint = discovery.adopt(tx, resource, source=discovery.REQUESTED, now=now)
    round_ms = hosts.get(tx, endpoint.host).round_ms
    seen = replace(observation, endpoint=replace(endpoint, asked_at=now), round_ms=round_ms)
    record(tx, (seen,), cadence=cadence, owner=owner, now=now, vantages=vantages)
    endpoints.record_request(tx, endpoint.id, now=now)  # its row is locked by now
    return endpoints.get(tx, endpoint.id) or endpoint
