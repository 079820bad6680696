"""The composition root: build resources, server and loops from a configuration.

Only this module connects the parts. It also restores the recursion limit, which an EVM library
raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.chain.solana import SolanaReader
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.egress.client import Egress, Identify
from tollgauge.clients.facilitator import Facilitator
from tollgauge.config import Config
from tollgauge.core.base.strictjson import RECURSION_LIMIT
from tollgauge.core.base.units import SECOND_MS, Clock, network_of, settlement_token
from tollgauge.core.sale.web_bot_auth import sign_request
from tollgauge.db.engine import Store
from tollgauge.jobs import (
    alert,
    discover,
    index,
    index_solana,
    probe,
    prune,
    score,
    seller_files,
    settle,
)
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.runner import Job, Tally
from tollgauge.monitor import facilitators
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.monitor.probing import Prober
from tollgauge.monitor.status import index_loop
from tollgauge.service_status import now_ms as now_ms
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.health import Loading
from tollgauge.web.free.downloads import read_packages
from tollgauge.web.paid.admission import Waiting
from tollgauge.web.paid.gate import SALE, Gate
from tollgauge.web.paid.live_probe import LiveProbe

DRAIN_SECONDS: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A configuration and its open resources."""

    config: Config
    store: Store
    egress: Egress
    facilitator: Facilitator
    chain: Prover | None
    logs: Mapping[int, ChainLogs]
    solana: Mapping[int, SolanaReader]
    transactions: Transactions
    alternatives: Alternatives
    counting: score.CountingPause
    indexing: Mapping[int, IndexState]
    clock: Clock
    owner: str
    loading: Loading = field(default_factory=Loading)

    @property
    def base_url(self) -> str:
        """The base URL without a trailing slash."""
        return self.config.server.base_url.rstrip("/")

    def prober(self) -> Prober:
        """Build the prober of the probe loop and of live reports."""
        return Prober(
            store=self.store,
            egress=self.egress,
            clock=self.clock,
            cadence=self.config.probe.cadence,
            references=self.config.references,
            vantages=self.config.probe.places,
        )

    def server(self) -> Dependencies:
        """Build the dependencies of the routes."""
        slots = self.facilitator.sales_at_once
        return Dependencies(
            store=self.store,
            gate=Gate(
                store=self.store,
                facilitator=self.facilitator,
                clock=self.clock,
                chain=self.chain,
                contact=self.config.sale.contact,
            ),
            live=LiveProbe(prober=self.prober(), waiting=Waiting(max(1, slots // 2))),
            deliveries=Waiting(max(1, slots // 4)),
            clock=self.clock,
            settings=self.config.sale,
            edge=self.config.server.front,
            late_ms=self.config.probe.late_ms,
            base_url=self.base_url,
            perimeter=self.config.egress.perimeter,
            alternatives=self.alternatives,
            sealer=self.config.watch.sealer,
            transactions=self.transactions,
            signing_key=self.config.signing.signing_key,
            public_keys=self.config.signing.public_keys,
            successions=self.config.signing.successions,
            guard_packages=read_packages(self.config.server.guards),
            demo=self.config.demo,
            loading=self.loading,
        )

    def alerts(self) -> alert.Alerts:
        """Build the dependencies of the alert loop."""
        return alert.Alerts(
            store=self.store,
            egress=self.egress,
            settings=self.config.watch,
            sealer=self.config.watch.sealer,
            base_url=self.base_url,
            clock=self.clock,
            owner=self.owner,
        )

    def jobs(self) -> tuple[Job, ...]:
        """Return the loops of this process.

        A secondary vantage only probes: all other loops work on the primary vantage's results.
        """
        probing = partial(probe.run, self.prober(), settings=self.config.probe, owner=self.owner)
        waves = self.config.probe.concurrent_waves
        probe_job = Job("probe", probing, every_s=1, timeout_s=120, concurrency=waves)
        if not self.config.probe.places.is_primary:
            return (probe_job,)
        return (probe_job, *self._standard_jobs(), *self._configured_jobs())

    def _standard_jobs(self) -> Iterator[Job]:
        """Yield the loops of every configuration, except the probe loop."""
        config, store, clock = self.config, self.store, self.clock
        cadence, catch_up = config.probe.cadence, config.probe.catch_up
        plan = partial(probe.plan_intervals, store, cadence=cadence, catch_up=catch_up, clock=clock)
        yield Job("schedule", plan, every_s=120, timeout_s=120, exclusive=True)
        lateness = probe.LatenessMonitor(store=store, clock=clock, late_ms=config.probe.late_ms)
        yield Job("lateness", lateness.run, every_s=10, timeout_s=60)
        yield Job("alert", partial(alert.run, self.alerts()), every_s=1, timeout_s=120)
        compute = partial(score.run, store, settings=config.score, cadence=cadence, clock=clock)
        yield Job("score", compute, every_s=1, timeout_s=120)
        count = partial(
            score.count_alternatives, store, self.alternatives, pause=self.counting, clock=clock
        )
        yield Job("similar", count, every_s=30, timeout_s=600, exclusive=True)
        ranking = partial(score.rank_endpoints, store, clock=clock)
        yield Job("rank", ranking, every_s=15, timeout_s=120, exclusive=True)
        forget = partial(prune.run, store, clock=clock)
        yield Job("prune", forget, every_s=60, timeout_s=300, exclusive=True)
        calibrate = partial(score.calibrate, store, settings=config.calibration, clock=clock)
        yield Job("calibrate", calibrate, every_s=300, timeout_s=1_800, exclusive=True)
        key = config.signing.signing_key
        build = partial(score.build_bundles, store, settings=config.bundle, key=key, clock=clock)
        bundle_s = min(30, config.bundle.every_ms / SECOND_MS)
        yield Job("bundle", build, every_s=bundle_s, timeout_s=600, exclusive=True)
        files = seller_files.SellerFiles(
            store=store,
            egress=self.egress,
            clock=clock,
            prover=self.chain,
            host_gap_ms=cadence.host_gap_ms,
            owner=f"{self.owner}-seller-files",  # distinguishes its leases from the probe loop's
        )
        yield Job("seller-files", files.run, every_s=10, timeout_s=60)

    def _configured_jobs(self) -> Iterator[Job]:
        """Yield the loops that need a source or a node of the chain."""
        config, store, clock = self.config, self.store, self.clock
        if config.sources:
            crawl = partial(
                discover.run_all,
                store,
                self.egress,
                config.sources,
                clock=clock,
                perimeter=config.egress.perimeter,
            )
            yield Job("discover", crawl, every_s=900, timeout_s=1_800, exclusive=True)
        if self.chain is not None:
            reconcile = partial(settle.run, store, self.chain, clock=clock)
            yield Job("settle", reconcile, every_s=10, timeout_s=60)
        for chain_id, logs in self.logs.items():
            is_sold_on = config.sale.network == network_of(chain_id)
            follow = partial(
                index.run,
                store,
                logs,
                self.indexing[chain_id],
                settings=config.index,
                clock=clock,
                pay_to=config.sale.pay_to if is_sold_on else "",
                anchors=config.demand.anchors,
                read_signers=partial(
                    facilitators.read_signers, store, self.facilitator, clock=clock
                ),
            )
            yield self._index_job(chain_id, follow)
        for chain_id, reader in self.solana.items():
            follow_solana = partial(
                index_solana.run,
                store,
                reader,
                self.indexing[chain_id],
                settings=config.index,
                clock=clock,
                anchors=config.demand.anchors,
            )
            yield self._index_job(chain_id, follow_solana)

    def _index_job(self, chain_id: int, run: Callable[[], Awaitable[Tally]]) -> Job:
        """Return the loop that indexes a chain."""
        every_s = self.config.index.every_ms / SECOND_MS
        return Job(index_loop(chain_id), run, every_s=every_s, timeout_s=300, exclusive=True)

    async def round(self, name: str) -> Tally:
        """Run one round of the named loop.

        Raises:
            ValueError: The loop is not configured.
        """
        (job,) = (job for job in self.jobs() if job.name == name)
        return await job.run()


@contextlib.asynccontextmanager
async def open_resources(
    config: Config, *, clock: Clock = now_ms, drain_s: float = DRAIN_SECONDS
) -> AsyncIterator[Opened]:
    """Open the resources of a configuration, migrate the store, and close everything in reverse
    order.

    On exit, running sales whose callers disconnected get at most `drain_s` seconds to finish.
    """
    sys.setrecursionlimit(min(sys.getrecursionlimit(), RECURSION_LIMIT))
    settings = config.store
    async with contextlib.AsyncExitStack() as closing:
        store = Store.open(
            settings.url, pool_size=settings.connections, statement_ms=settings.statement_ms
        )
        closing.push_async_callback(store.close)
        logs, solana = {}, {}
        for of_chain in config.indexed_chains:
            if of_chain.is_solana:
                solana[of_chain.chain_id] = _open_solana(of_chain, config)
                closing.push_async_callback(solana[of_chain.chain_id].close)
            else:
                logs[of_chain.chain_id] = _open_logs(of_chain, config)
                closing.push_async_callback(logs[of_chain.chain_id].close)
        chain = None if config.sale_chain is None else Prover(config.sale_chain.open())
        if chain is not None:
            closing.push_async_callback(chain.close)
        transactions = Transactions.open(config.chains)
        closing.push_async_callback(transactions.close)
        facilitator = Facilitator(config.facilitator)
        closing.push_async_callback(facilitator.close)
        egress = Egress(config.egress, identify=_identify(config))
        closing.push_async_callback(egress.close)
        alternatives = Alternatives(config.search.load())
        closing.push_async_callback(alternatives.close)
        closing.push_async_callback(_finish_sales, drain_s)
        await store.migrate()
        egress.start()
        yield Opened(
            config=config,
            store=store,
            egress=egress,
            facilitator=facilitator,
            chain=chain,
            logs=logs,
            solana=solana,
            transactions=transactions,
            alternatives=alternatives,
            counting=score.CountingPause(),
            indexing={chain_id: IndexState() for chain_id in (*logs, *solana)},
            clock=clock,
            owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        )


def _open_logs(chain: ChainSettings, config: Config) -> ChainLogs:
    """Open the nodes from which a chain's settlements are read."""
    token = settlement_token(chain.network)
    asset = config.sale.asset if token is None else token.address
    if chain.network == config.sale.network:
        asset = config.sale.asset
    return ChainLogs(chain.open(), chain_id=chain.chain_id, token=asset, settings=config.index)


def _open_solana(chain: ChainSettings, config: Config) -> SolanaReader:
    """Open the nodes of a Solana network."""
    token = settlement_token(chain.network)
    if token is None:  # ChainSettings checks this
        raise ValueError(f"{chain.network} has no known dollar token")
    return SolanaReader(
        chain.open(),
        chain_id=chain.chain_id,
        mint=token.address,
        check=config.index.check,
        rest_s=config.index.rest_s,
    )


def _identify(config: Config) -> Identify | None:
    """Return what signs the prober's requests; None without a signing key."""
    key = config.signing.signing_key
    if key is None:
        return None
    agent = config.server.base_url

    def identify(authority: str, at: int) -> tuple[tuple[str, str], ...]:
        nonce = secrets.token_bytes(32)
        return sign_request(
            key, agent=agent, authority=authority, created=at // SECOND_MS, nonce=nonce
        )

    return identify


async def _finish_sales(drain_s: float) -> None:
    """Wait at most `drain_s` seconds for sales whose callers disconnected; they need the store."""
    if sales := [task for task in asyncio.all_tasks() if task.get_name() == SALE]:
        await asyncio.wait(sales, timeout=drain_s)
