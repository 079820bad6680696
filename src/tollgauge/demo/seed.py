"""Fills the demo's database: an optional simulated history, then one round of the service's loops.

`prepare` runs one full round (crawl, probes, settlements, scores). `load_past` records a history
with the same functions, which take the time as an argument. Endpoints with simulated probes are
marked as simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection

from tollgauge.app import Opened
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config import Config
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS, chain_number, day_of
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.directory.seller_file import read
from tollgauge.core.endpoint.identity import Endpoint, Perimeter
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Exchange, Timings
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.schedule import NORMAL, Cadence
from tollgauge.db import schema
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.demo import past
from tollgauge.demo.announcing import file_at, turns
from tollgauge.demo.chain import CHAIN_NAME, TOKENS
from tollgauge.demo.customers import ANCHORS
from tollgauge.demo.directory import items_at
from tollgauge.demo.envelopes import SOLANA
from tollgauge.demo.seller import Seller, payee
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.world import Sellers, World
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import (
    BundleSettings,
    CalibrationSettings,
    DemandSettings,
    IndexSettings,
    ProbeSettings,
    ScoreSettings,
    Source,
    SourceKind,
)
from tollgauge.monitor import discovery, seller_files, settlement, terms
from tollgauge.monitor.status import index_loop
from tollgauge.store.chain import periods
from tollgauge.store.endpoints import crawls, endpoints, ranking
from tollgauge.store.probes import archive, probes
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.settings import DemoSettings, ServerSettings
from tollgauge.web.signing import SigningSettings, new_key

SOURCE: Final = "demo-bazaar"
STEP_MS: Final = 30 * MINUTE_MS
WATCHED_EVERY_MS: Final = 15 * SECOND_MS
"""Watched endpoints are probed more often than in production, so that alerts arrive soon."""
CRAWLS_PER_DAY: Final = 4
ROUNDS_MAX: Final = 400
_CLOSED_PER_TRANSACTION: Final = 250
"""Days of endpoints that one transaction closes. Other writers wait for it."""
WATCH_KEY: Final = "a public key of the demo: it encrypts no secrets"
"""Encrypts the destinations of the demo, which has no secrets. It is the same in each demo."""
BUNDLE_EVERY_MS: Final = 15 * SECOND_MS
"""Short, so that a change of a seller reaches the bundle during a demo."""

SALES: Final = "customers pay the sellers"
PAST: Final = {SALES: 15, "simulating days": 70}
FIRST_ROUND: Final = {
    "crawling the directory": 2,
    "probing": 6,
    "indexing settlements": 2,
    "scoring": 2,
    "counting alternatives": 2,
}
"""The steps of loading in order, with the approximate share of time of each."""

Progress = Callable[[str, int, int], None]
"""A label, the completed amount, and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The figures of one full round; `grades` counts listed endpoints by letter."""

    endpoints: int
    probes: int
    scored: int
    grades: dict[str, int]


def configuration(world: Sellers, *, port: int, store_url: str, signing_key: str = "") -> Config:
    """Return the service's configuration in the world.

    Hosts are probed without a pause, because all of them are on this machine. The service sells if
    the world has a chain. Without a `signing_key`, it signs with a new key.
    """
    config = Config(
        server=ServerSettings(
            base_url=f"http://127.0.0.1:{port}",
            port=port,
            admin_port=0,
            front=EdgeSettings(free_per_minute=6_000),
        ),
        store=StoreSettings(url=store_url),
        egress=EgressSettings(
            user_agent="tollgauge/demo (x402 endpoint monitor; contact and opt-out: "
            "the operator of this demo)",
            mapped=world.mapped,
            ca_file=str(world.ca_file),
        ),
        probe=ProbeSettings(
            references=(world.directory_url,),
            cadence=Cadence(host_gap_ms=0, every_ms=STEP_MS, watched_every_ms=WATCHED_EVERY_MS),
        ),
        bundle=BundleSettings(every_ms=BUNDLE_EVERY_MS),
        index=IndexSettings(volume_every_ms=SECOND_MS, dirty_every_ms=10 * SECOND_MS),
        demand=DemandSettings(
            anchors={
                seller.host: seller.payees or (payee(seller.label),)
                for seller in SELLERS
                if seller.label in ANCHORS
            }
        ),
        signing=SigningSettings(key=signing_key or new_key()),
        watch=WatchSettings(key=WATCH_KEY),
        sources=(
            Source(name=SOURCE, kind=SourceKind.BAZAAR, location=world.directory_url, pause_ms=0),
        ),
    )
    if not isinstance(world, World):
        return config
    return replace(
        config,
        sale=SaleSettings(pay_to=world.pay_to),
        facilitator=FacilitatorSettings(url=world.facilitator_url),
        chains=tuple(
            ChainSettings(network=network, nodes=(url,)) for network, url in world.nodes.items()
        ),
        demo=DemoSettings(buyer_key=world.buyer.key, chain_name=CHAIN_NAME),
    )


async def prepare(service: Opened, *, history_days: int, report: Progress) -> Round:
    """Load a simulated history of `history_days`, then crawl, probe and score once.

    A database of an earlier demo keeps its history, but not its chain data, because that chain no
    longer exists.
    """
    if await _has_earlier_demo(service.store):
        await service.store.writing(forget_chain)
    elif history_days:
        cadence = service.config.probe.cadence
        now = service.clock()
        await load_past(service.store, days=history_days, now=now, report=report, cadence=cadence)
    report("crawling the directory", 0, 1)
    await service.round("discover")
    await service.store.writing(endpoints.make_due, now=service.clock())
    listed = (await service.store.reading(endpoints.counts))["listed"]
    probed = await _until_idle(service, "probe", "probed", "probing", listed, report)
    if service.logs or service.solana:
        await index_to_head(service, report)
    scored = await _until_idle(service, "score", "scored", "scoring", listed, report)
    report("counting alternatives", 0, 1)
    await service.round("similar")
    return await _summary(service.store, probed=probed, scored=scored)


def forget_chain(tx: Connection) -> None:
    """Delete all indexed data of the local chains."""
    ids = [number for one in (*TOKENS, SOLANA) if (number := chain_number(one)) is not None]
    for table in schema.metadata.sorted_tables:
        if "chain" in table.c:
            tx.execute(table.delete().where(table.c.chain.in_(ids)))
    for chain_id in ids:
        periods.unpublish(tx, chain_id)


async def _has_earlier_demo(store: Store) -> bool:
    """Return whether an earlier demo has crawled into this database."""
    return (await store.reading(endpoints.counts))["listed"] > 0


async def load_past(
    store: Store, *, days: int, now: int, report: Progress, cadence: Cadence = NORMAL
) -> None:
    """Record the market's simulated history day by day.

    Each day has crawls and probes. At its end, the functions of the loops close, score and
    calibrate.
    """
    start = now - days * DAY_MS
    perimeter = Perimeter(mapped=frozenset(seller.host for seller in SELLERS))
    await store.writing(_record_files, start=start, end=now)
    for done, begin in enumerate(range(start, now, DAY_MS)):
        report("simulating days", done, days)
        end = min(begin + DAY_MS, now - STEP_MS)
        for at in range(begin, begin + DAY_MS, DAY_MS // CRAWLS_PER_DAY):
            await _crawl(store, at=at, present=now, perimeter=perimeter)
        first_probes = {}
        for seller, endpoint in await _sellers(store, perimeter):
            listed = past.first_listed(seller, start=start, present=now)
            first = listed + -(-max(begin - listed, 0) // STEP_MS) * STEP_MS
            first_probes[seller] = endpoint, first
        # In a thread, because pages are served at the same time.
        results = await asyncio.to_thread(_simulate_results, first_probes, end)
        await store.writing(_record_results, results)
        await _end_day(store, cadence, at=end)


async def _end_day(store: Store, cadence: Cadence, *, at: int) -> None:
    """Close the previous days, score and calibrate, as the loops do at the end of a day."""

    def clock() -> int:
        return at

    while await store.writing(
        archive.close_days, before_day=day_of(at), limit=_CLOSED_PER_TRANSACTION
    ):
        pass
    settings = ScoreSettings()
    while await score.run(store, settings=settings, cadence=cadence, clock=clock):
        pass
    await score.calibrate(store, settings=CalibrationSettings(), clock=clock)


def _record_files(tx: Connection, *, start: int, end: int) -> None:
    """Record the files of sellers that announce changes, as published a day before each change."""
    for seller in SELLERS:
        for turn_at in turns(seller, start, end) if seller.owners else ():
            at = turn_at - DAY_MS
            file = read(file_at(seller, at) or b"", seller.host)
            signed = file.announcements if file is not None else ()
            announced = [item.statement for item in signed]
            seller_files.record(tx, seller.host, file, announced, now=at)


async def _crawl(store: Store, *, at: int, present: int, perimeter: Perimeter) -> None:
    read = (read_item(raw, perimeter) for raw in items_at(at, present=present))
    items = [item for item in read if isinstance(item, ListedItem)]
    crawl = await store.writing(crawls.begin_crawl, SOURCE, now=at)
    await store.writing(
        discovery.record_page, crawl, items, next_offset=len(items), now=at, spread_ms=0
    )
    await discovery.end_crawl(store, crawl, whole=True, accept_shrink=True, now=at)


async def _sellers(store: Store, perimeter: Perimeter) -> list[tuple[Seller, Endpoint]]:
    """Return the sellers that the simulated directory has listed, with their endpoints."""
    ids = {seller: _id(seller, perimeter) for seller in SELLERS}
    known = await store.reading(endpoints.get_many, ids.values())
    return [(seller, known[ids[seller]]) for seller in SELLERS if ids[seller] in known]


def _id(seller: Seller, perimeter: Perimeter) -> str:
    item = read_item({"resource": seller.url}, perimeter)
    return item.resource.id if isinstance(item, ListedItem) else ""


def _simulate_results(
    first_probes: dict[Seller, tuple[Endpoint, int]], end: int
) -> list[tuple[Endpoint, list[ProbeResult]]]:
    return [
        (
            endpoint,
            [
                classify(exchange)
                for exchange in past.exchanges(seller, start=first, end=end, step_ms=STEP_MS)
            ],
        )
        for seller, (endpoint, first) in first_probes.items()
    ]


def _record_results(tx: Connection, simulated: list[tuple[Endpoint, list[ProbeResult]]]) -> None:
    """Record the simulated probes and price changes of sellers, each oldest first."""
    for endpoint, results in simulated:
        endpoints.update(tx, replace(endpoint, simulated=True))
        probes.record_many(tx, endpoint.id, results)
        for result, quote in _quote_changes(results):
            current = endpoints.get(tx, endpoint.id) or endpoint
            terms.observe_quotes(tx, {current.id: (quote, result.at)})


def _quote_changes(results: list[ProbeResult]) -> Iterator[tuple[ProbeResult, Quote]]:
    """Yield the results whose quote differs from the previous one."""
    before: Quote | None = None
    for result in results:
        if result.quote is not None and result.scored and result.quote != before:
            before = result.quote
            yield result, result.quote


def classify(exchange: Exchange) -> ProbeResult:
    """Classify a simulated exchange like a real one. Equal responses are judged once."""
    judged = _judge_once(replace(exchange, at=0, timings=Timings(), tls_not_after=None))
    return replace(
        judged, at=exchange.at, timings=exchange.timings, tls_not_after=exchange.tls_not_after
    )


@lru_cache(maxsize=4_096)
def _judge_once(exchange: Exchange) -> ProbeResult:
    return judge(exchange, lint(exchange))


async def index_to_head(service: Opened, report: Progress) -> None:
    """Index all chains up to their heads, and measure them: figures of the first round may be those
    of a part.
    """
    for chain_id in (*service.logs, *service.solana):
        for _ in range(ROUNDS_MAX):
            report("indexing settlements", 0, 1)
            if not (await service.round(index_loop(chain_id))).get("busy"):
                break
        await settlement.measure(service.store, chain_id, now=service.clock())


async def _until_idle(
    service: Opened, job: str, key: str, words: str, expected: int, report: Progress
) -> int:
    """Run rounds of a job until one has nothing to do and return the sum of `key` over their
    tallies.

    `expected` is the approximate sum, for the progress bar.
    """
    total = 0
    for _ in range(ROUNDS_MAX):
        report(words, min(total, expected), expected)
        tally = await service.round(job)
        done = int(str(tally.get(key, 0)))
        if not done:
            break
        total += done
    return total


async def _summary(store: Store, *, probed: int, scored: int) -> Round:
    listed = (await store.reading(endpoints.counts))["listed"]
    population = await store.reading(ranking.population)
    return Round(
        endpoints=listed,
        probes=probed,
        scored=scored,
        grades=dict(population.grades) | {"unscored": listed - population.scored},
    )
