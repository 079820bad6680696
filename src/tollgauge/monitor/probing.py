"""Probing: one probe from request to recorded result, for the probe loop and for live reports.

The steps, in order:
1. `probe`, or `probe_alone`: one exchange (clients/x402), linted (core/lint) and judged by itself
   (core/probe/probe), and whether a 402 of its host means anything, where that is due: paths that
   nobody lists answer otherwise, and endpoints with the same terms do not all sell the same;
2. `attributed`: whose fault a failure is, from what everybody of ours saw in the last minute, how
   the endpoints stood before, the operator's reference URLs (core/probe/attribution), and what the
   other vantages see (core/probe/vantage);
3. `record`: the evidence, the price it quoted, the changes it causes (monitor/watched_changes), the
   next due time, the mark that a score is owed and the end of the host's lease, in one transaction:
   a crash leaves all or nothing. Several results may share one, which costs as many statements as
   one does.

Which endpoints are probed, when, and who holds their hosts' leases is the callers' work: jobs/probe
and web/paid/live_probe.
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
from tollgauge.core.lint import lint
from tollgauge.core.probe.attribution import (
    RECENT_MS,
    LastUp,
    NetworkProbe,
    Wave,
    attributed_to_us,
    cause,
    network_failure,
    network_login,
    sign,
    suspicious,
    unproven,
    unresolved,
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
from tollgauge.core.probe.vantage import ONE, PARTLY_REACHABLE, Vantages, by_majority
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, terms
from tollgauge.monitor import vantages as other_vantages
from tollgauge.monitor import watched_changes as changes
from tollgauge.monitor.observation import Observation
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
    """What probing needs: the store, egress, the clock (milliseconds UTC), how often and how gently
    to probe, the operator's https reference URLs, which show whether *we* are connected, where this
    process probes from, and the keys of signed offers.
    """

    store: Store
    egress: Egress
    clock: Callable[[], int]
    cadence: Cadence
    references: tuple[str, ...] = ()
    vantages: Vantages = ONE
    offer_keys: OfferKeys = field(default_factory=OfferKeys)

    async def probe(self, endpoint: Endpoint, host: HostState) -> Observation:
        """Probe one endpoint of a wave. A host that sells is asked for paths that nobody lists
        too, at random moments, about once a day.
        """
        observation = await self._ask(endpoint, round_ms=host.round_ms)
        if observation.sells and _wildcard_due(host, now=self.clock()):
            return await self._with_wildcard_test(observation)
        return observation

    async def probe_secondary(self, endpoint: Endpoint) -> Observation:
        """Probe one endpoint of a wave from a vantage beside the primary one."""
        return await self._ask(endpoint)

    def is_final(self, observation: Observation) -> bool:
        """Whether nobody else's result could change what is made of this one."""
        alone = observation.result.up or not self.vantages.several
        return alone and observation.is_final

    async def probe_alone(self, endpoint: Endpoint, *, first: bool) -> Observation:
        """Probe one endpoint outside of any wave; `first` says that nobody knew it.

        The host is asked for unlisted paths too where the endpoint would become public, and the
        host was never asked.
        """
        seen = await self._ask(endpoint, first=first)
        (observation,) = await self.attributed((seen,), even_dead=True)
        if observation.makes_public(first=first):
            host = await self.store.reading(hosts.get, endpoint.host)
            if host.wildcard_at is None:
                return await self._with_wildcard_test(observation)
        return observation

    async def _ask(
        self, endpoint: Endpoint, *, first: bool = False, round_ms: int = 0
    ) -> Observation:
        """One exchange with an endpoint, judged by itself; `first` says that nobody knew it.

        A 402 that would make its resource public counts only where paths beside it do not sell
        too: else anybody could have any words shown as a seller's.
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
        """The observation with whether a 402 of its host means nothing: paths that nobody lists
        answer 402 too, or many of its endpoints have the same terms and sell the same.
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
        """Whether a host has more than SAME_TERMS_MAX endpoints with the same terms, and some of
        them, chosen at random, sell the same.
        """
        chosen = await self.store.reading(
            endpoints.of_common_terms, host, more_than=SAME_TERMS_MAX, sample=SAMPLE
        )
        return await x402.sell_the_same(self.egress, chosen, now=self.clock())

    async def attributed(
        self, observations: Sequence[Observation], *, even_dead: bool = False
    ) -> tuple[Observation, ...]:
        """Observations that were made together, in the order given, with failures that are not the
        targets' doing attributed to us or to nobody; those of endpoints that are dead anyway only
        if we are cut off, or if `even_dead`.
        """
        if any(network_failure(seen.result) for seen in observations):
            observations = await self._attributed(observations, even_dead=even_dead)
        if any(seen.result.outcome is Outcome.NETWORK_LOGIN for seen in observations):
            works = any(await self._references_answer()) if self.references else True
            observations = [
                replace(seen, result=network_login(seen.result, works=works))
                for seen in observations
            ]
        if self.vantages.several and self.vantages.is_primary:
            observations = await self._by_majority(observations)
        return tuple(observations)

    async def _by_majority(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Observations in the order given; failures that most other vantages do not see are
        nobody's.
        """
        down = [
            seen.endpoint.id for seen in observations if seen.result.scored and not seen.result.up
        ]
        if not down:
            return observations
        others = await self.store.reading(vantage_probes.states, down)
        return [
            replace(seen, result=by_majority(seen.result, others.get(seen.endpoint.id, ())))
            for seen in observations
        ]

    async def _attributed(
        self, observations: Sequence[Observation], *, even_dead: bool
    ) -> Sequence[Observation]:
        """Observations in the order given, as this vantage can attribute their failures."""
        wave = await self.store.reading(_as_asked, observations, vantages=self.vantages)
        answered = any(asked.sign is Sign.ANSWERED for asked, _ in wave)
        if answered and all(asked.dead for asked, result in wave if network_failure(result)):
            results: Sequence[ProbeResult] = unresolved(
                wave,
                [result for _, result in wave],
                minute=[asked for asked, _ in wave],
                resolving=False,
            )
        else:
            results = await self._judged_with_others(wave, answered=answered, even_dead=even_dead)
        return tuple(
            replace(seen, result=result) for seen, result in zip(observations, results, strict=True)
        )

    async def _judged_with_others(
        self, wave: Wave, *, answered: bool, even_dead: bool
    ) -> Sequence[ProbeResult]:
        """The results of a wave, in the order given, judged with what others of ours saw lately and
        with the references, which are asked where these results alone leave a doubt.
        """
        now = self.clock()
        nobody_to_ask = not (answered or self.references)
        lately = RECENT_MS if nobody_to_ask else MINUTE_MS
        recent = await self.store.reading(_asked_since, now - lately, vantages=self.vantages)
        minute = [asked for asked, _ in wave]
        minute += [asked for asked in recent if asked.at > now - MINUTE_MS]
        references: tuple[bool, ...] = ()
        if not answered or suspicious(minute):
            references = await self._references_answer()
        reason = cause(minute, answered=answered, references=references)
        if reason is not None:
            return attributed_to_us(wave, reason, even_dead=even_dead)
        results: Sequence[ProbeResult] = [result for _, result in wave]
        if nobody_to_ask:
            results = unproven(wave, recent=recent)
        resolving = bool(references) and all(references)
        return unresolved(wave, results, minute=minute, resolving=resolving)

    async def _references_answer(self) -> tuple[bool, ...]:
        """Whether each of the references gives an HTTP answer now that is not a network login."""
        requests = (self.egress.fetch(Request(url=url)) for url in self.references)
        results = [exchange.result for exchange in await asyncio.gather(*requests)]
        return tuple(
            isinstance(one, Answer) and classify_answer(one) is not Outcome.NETWORK_LOGIN
            for one in results
        )


def _asked_since(tx: Connection, since: int, *, vantages: Vantages) -> tuple[NetworkProbe, ...]:
    """What was seen from this vantage after an instant: another one has another network."""
    if vantages.is_primary:
        return probes.asked_since(tx, since)
    return vantage_probes.asked_since(tx, vantages.own, since)


def _as_asked(tx: Connection, observations: Sequence[Observation], *, vantages: Vantages) -> Wave:
    """Observations that are not recorded yet, as core/probe/attribution judges them."""
    ids = [seen.endpoint.id for seen in observations]
    if vantages.is_primary:
        known = probes.last_up_of(tx, ids)
    else:
        known = vantage_probes.last_up_of(tx, vantages.own, ids)
    return [
        (
            NetworkProbe(
                host=seen.endpoint.host,
                at=seen.result.at,
                sign=sign(seen.result),
                last_up=known.get(seen.endpoint.id, LastUp()),
            ),
            seen.result,
        )
        for seen in observations
    ]


def _wildcard_due(host: HostState, *, now: int) -> bool:
    """Whether to ask a host for unlisted paths: at once where that was never done, else ever more
    likely from half a day after the last time until it is certain, so that nobody can know when.
    """
    if host.wildcard_at is None:
        return True
    late_ms = now - host.wildcard_at - WILDCARD_EVERY_MS // 2
    # The system's random numbers cost more than most of a probe: only whom they concern asks.
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
    """Record results of endpoints of different hosts and give the hosts, whose leases `owner`
    holds, back after a gap.

    `slow_here` says that unrelated endpoints answered slowly together, so that it tells nothing
    of these. `vantages` says where they were probed from: the primary vantage. A repeated call for
    the same endpoint and instant changes nothing.
    """
    _judge_hosts_anew(tx, observations, now=now)
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
    hosts.release(tx, free_at, owner=owner, now=now)  # which locks all of them
    hosts.set_wildcards(tx, _wildcards(observations), at=now)


def _judge_hosts_anew(tx: Connection, observations: Sequence[Observation], *, now: int) -> None:
    """Make the scores of all endpoints due whose host's 402 means something else from now on. They
    are locked at once with those of the wave, in the order of their ids, and before any host.
    """
    changed = hosts.changed_by(tx, _wildcards(observations))
    if changed:
        of_wave = (seen.endpoint.id for seen in observations)
        endpoints.mark_dirty(tx, (*changed, *of_wave), now=now)


def _wildcards(observations: Sequence[Observation]) -> dict[str, bool]:
    """Whether a 402 means nothing, by host, where that was asked."""
    return {seen.endpoint.host: seen.wildcard for seen in observations if seen.wildcard is not None}


def draw_times() -> Draws:
    """Draw the times of the next probes, which nobody can predict."""
    return Draws(gap=secrets.randbelow(DRAW_RANGE), confirm=secrets.randbelow(DRAW_RANGE))


def _new_probe(seen: Observation, cadence: Cadence, *, now: int) -> NewProbe:
    """The probe to record of an observation, with what it means for the next ones."""
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
        due = min(due, now + cadence.watched_every_ms)  # what the others see may be older
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
    """Record a result that somebody asked for, and adopt its resource if nobody knew it. Returns
    the endpoint as it is afterwards.
    """
    endpoint = endpoints.get(tx, resource.id)
    if endpoint is None:
        # Before the new endpoint locks its host; and the turn before endpoints, as crawls take it.
        meta.take_turn(tx, listings.LISTINGS_TURN)
        _judge_hosts_anew(tx, (observation,), now=now)
        endpoint = discovery.adopt(tx, resource, source=discovery.REQUESTED, now=now)
    round_ms = hosts.get(tx, endpoint.host).round_ms
    seen = replace(observation, endpoint=replace(endpoint, asked_at=now), round_ms=round_ms)
    record(tx, (seen,), cadence=cadence, owner=owner, now=now, vantages=vantages)
    endpoints.asked_for(tx, endpoint.id, now=now)  # its row is locked by now
    return endpoints.get(tx, endpoint.id) or endpoint
