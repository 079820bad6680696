"""Probe an endpoint, for the probe loop and for live reports.

1. `Prober.probe` or `probe_alone`: send the request (clients/x402), lint the response (core/lint)
   and judge it by itself (core/probe/probe). If a test of the host is due, find out whether its
   402s carry information: it may answer 402 for unlisted paths, or sell the same at many endpoints.
2. `Prober.attribute_failures`: decide who caused each failure, from other recent probes, the
   endpoint's earlier state, the operator's reference URLs and other vantages
   (core/probe/attribution).

monitor/recording records the result.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import Request
from tollgauge.clients.x402 import PAYMENT_REQUIRED, OfferKeys
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX, SAMPLE
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.lint.extensions import UNCHECKED_OFFER
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.attribution import (
    ONE_VANTAGE,
    RECENT_MS,
    LastUp,
    NetworkProbe,
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
    sign_of_result,
)
from tollgauge.core.probe.exchange import Answer, Exchange, Lint
from tollgauge.core.probe.outcome import Outcome, Sign, classify_answer
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.schedule import (
    Cadence,
    pause_ms,
)
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.probes import vantages as vantage_probes
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState

WILDCARD_EVERY_MS: Final = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One probe of an endpoint and its outcome.

    `learned` is the request that elicited a 402, stored as `Endpoint.learned`. `pause_ms` is the
    pause that the host asked for (Retry-After). `wildcard` is True if the host answers 402 for any
    path, None if that was not tested. `round_ms` is the time for one round of the host's endpoints
    (HostState).
    """

    endpoint: Endpoint
    result: ProbeResult
    learned: str | None
    pause_ms: int = 0
    wildcard: bool | None = None
    round_ms: int = 0

    @property
    def sells(self) -> bool:
        """Whether the endpoint answered 402."""
        return self.result.status == PAYMENT_REQUIRED

    def makes_public(self, *, first: bool) -> bool:
        """Return whether this probe publishes the endpoint: it is the first 402 of an endpoint that
        no directory lists. `first` means that the endpoint was unknown before.
        """
        endpoint = self.endpoint
        never_sold = endpoint.status is Listing.UNLISTED and endpoint.learned is None
        return self.sells and (first or never_sold)

    @property
    def is_final(self) -> bool:
        """Whether this result does not depend on other results of its batch."""
        watched = self.endpoint.watched_until > self.result.at
        return not watched and not is_network_failure(self.result)


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
    vantages: Vantages = ONE_VANTAGE
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
        linted = await lint_exchange(self.egress, probe.exchange, self.offer_keys)
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
        wave = await self.store.reading(_to_network_probes, observations, vantages=self.vantages)
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
        recent = await self.store.reading(_read_recent, now - lately, vantages=self.vantages)
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


async def lint_exchange(egress: Egress, exchange: Exchange, keys: OfferKeys) -> Lint:
    """Lint an exchange, with its host's keys if a signature cannot be checked without them."""
    verdict = lint(exchange)
    if all(finding.rule != UNCHECKED_OFFER for finding in verdict.findings):
        return verdict
    return lint(exchange, await keys.load(egress, exchange))


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


def _read_recent(tx: Connection, since: int, *, vantages: Vantages) -> tuple[NetworkProbe, ...]:
    """Return this vantage's results since a time; other vantages use other networks."""
    if vantages.is_primary:
        return probes.load_last_since(tx, since)
    return vantage_probes.load_last_since(tx, vantages.own, since)


def _to_network_probes(
    tx: Connection, observations: Sequence[Observation], *, vantages: Vantages
) -> Wave:
    """Convert observations to the input of core/probe/attribution."""
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
                sign=sign_of_result(seen.result),
                last_up=known.get(seen.endpoint.id, LastUp()),
            ),
            seen.result,
        )
        for seen in observations
    ]
