"""Fills the demo's database: an optional simulated past, then one round of the real loops.

`prepare` runs one full round (crawl, probes, settlements, scores). The past of `load_past` goes
through the same recording functions with times as arguments; every endpoint that has simulated
probes is marked as simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection

from tollgauge.app import Opened
from tollgauge.clients.chain.rpc import RpcSettings
from tollgauge.clients.egress.client import EgressSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config import Config
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS, day_of
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.directory.seller_file import read
from tollgauge.core.endpoint.finding import Lint
from tollgauge.core.endpoint.identity import Endpoint, Perimeter
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint import lint
from tollgauge.core.probe.exchange import Exchange, Timings
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.schedule import NORMAL, Cadence
from tollgauge.db import schema
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.demo import past
from tollgauge.demo.announcing import file_at, turns
from tollgauge.demo.chain import CHAIN_ID, CHAIN_NAME
from tollgauge.demo.customers import ANCHORS
from tollgauge.demo.directory import items_at
from tollgauge.demo.seller import Seller, payee
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.world import Sellers, World
from tollgauge.jobs import score
from tollgauge.jobs.bundle import BundleSettings
from tollgauge.jobs.discover import Source, SourceKind
from tollgauge.jobs.index_visit import DemandSettings, IndexSettings
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.score import CalibrationSettings, ScoreSettings
from tollgauge.monitor import discovery, seller_files, terms
from tollgauge.store.chain import volumes
from tollgauge.store.endpoints import crawls, endpoints, ranking
from tollgauge.store.probes import archive, probes
from tollgauge.web.edge.demo import DemoSettings
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.sale_settings import SaleSettings
from tollgauge.web.settings import ServerSettings
from tollgauge.web.signing import SigningSettings, new_key

SOURCE: Final = "demo-bazaar"
STEP_MS: Final = 30 * MINUTE_MS
WATCHED_EVERY_MS: Final = 15 * SECOND_MS
"""Watched endpoints are probed far more often than in production, so that an alert comes soon."""
CRAWLS_PER_DAY: Final = 4
ROUNDS_MAX: Final = 400
_CLOSED_AT_ONCE: Final = 250
"""How many days of endpoints are closed in one transaction: no other can write meanwhile."""
WATCH_KEY: Final = "a public key of the demo: it encrypts no secrets"
"""Seals destinations of a world that holds no secrets; it is the same when the demo comes back."""
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
"""What loading does, in its order, with about how much of its time each takes."""

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
    """The service's configuration inside the world; a host is probed without a pause, because
    all of them are this machine. It sells where the world has a chain. Without a `signing_key` it
    signs with a new one.
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
        rpc=RpcSettings(url=(world.rpc_url,)),
        demo=DemoSettings(buyer_key=world.buyer.key, chain_name=CHAIN_NAME),
    )


async def prepare(service: Opened, *, history_days: int, report: Progress) -> Round:
    """Load a simulated past of `history_days`, then crawl, probe and score once for real.

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
    if service.logs is not None:
        await _index_to_head(service, report)
    scored = await _until_idle(service, "score", "scored", "scoring", listed, report)
    report("counting alternatives", 0, 1)
    await service.round("similar")
    return await _summary(service.store, probed=probed, scored=scored)


def forget_chain(tx: Connection) -> None:
    """Remove everything that was indexed of the local chain."""
    for table in schema.metadata.sorted_tables:
        if "chain" in table.c:
            tx.execute(table.delete().where(table.c.chain == CHAIN_ID))
    volumes.unpublish(tx, CHAIN_ID)


async def _has_earlier_demo(store: Store) -> bool:
    """Whether an earlier demo has crawled into this database."""
    return (await store.reading(endpoints.counts))["listed"] > 0


async def load_past(
    store: Store, *, days: int, now: int, report: Progress, cadence: Cadence = NORMAL
) -> None:
    """Record the market's simulated past day by day: its crawls and probes, and what the loops
    that score, calibrate and close days would have made of them at the end of each day.
    """
    start = now - days * DAY_MS
    perimeter = Perimeter(mapped=frozenset(seller.host for seller in SELLERS))
    await store.writing(_record_files, start=start, end=now)
    for done, begin in enumerate(range(start, now, DAY_MS)):
        report("simulating days", done, days)
        end = min(begin + DAY_MS, now - STEP_MS)
        for at in range(begin, begin + DAY_MS, DAY_MS // CRAWLS_PER_DAY):
            await _crawl(store, at=at, present=now, perimeter=perimeter)
        for seller, endpoint in await _sellers(store, perimeter):
            listed = past.first_listed(seller, start=start, present=now)
            first = listed + -(-max(begin - listed, 0) // STEP_MS) * STEP_MS
            await _record_probes(store, seller, endpoint, start=first, end=end)
        await _end_day(store, cadence, at=end)


async def _end_day(store: Store, cadence: Cadence, *, at: int) -> None:
    """What the loops do at the end of a day, at its instant: close the days before, score,
    calibrate.
    """

    def clock() -> int:
        return at

    while await store.writing(archive.close_days, before_day=day_of(at), limit=_CLOSED_AT_ONCE):
        pass
    settings = ScoreSettings()
    while await score.run(store, settings=settings, cadence=cadence, clock=clock):
        pass
    await score.calibrate(store, settings=CalibrationSettings(), clock=clock)


def _record_files(tx: Connection, *, start: int, end: int) -> None:
    """Record the files of sellers who announce their changes, as they were a day before each."""
    for seller in SELLERS:
        for turn_at in turns(seller, start, end) if seller.owners else ():
            at = turn_at - DAY_MS
            file = read(file_at(seller, at) or b"", seller.host)
            signed = file.announcements if file is not None else ()
            announced = [item.announcement for item in signed]
            seller_files.record(tx, seller.host, file, announced, now=at)


async def _crawl(store: Store, *, at: int, present: int, perimeter: Perimeter) -> None:
    read = (read_item(raw, perimeter) for raw in items_at(at, present=present))
    items = [item for item in read if isinstance(item, ListedItem)]
    await store.writing(_record_crawl, items, now=at)


def _record_crawl(tx: Connection, items: list[ListedItem], *, now: int) -> None:
    crawl = crawls.begin_crawl(tx, SOURCE, now=now)
    discovery.record_page(tx, crawl, items, next_offset=len(items), now=now, spread_ms=0)
    discovery.finish_crawl(tx, crawl, complete=True, now=now)


async def _sellers(store: Store, perimeter: Perimeter) -> list[tuple[Seller, Endpoint]]:
    """The sellers that the simulated directory ever listed, with their endpoints."""
    ids = {seller: _id(seller, perimeter) for seller in SELLERS}
    known = await store.reading(endpoints.get_many, ids.values())
    return [(seller, known[ids[seller]]) for seller in SELLERS if ids[seller] in known]


def _id(seller: Seller, perimeter: Perimeter) -> str:
    item = read_item({"resource": seller.url}, perimeter)
    return item.resource.id if isinstance(item, ListedItem) else ""


async def _record_probes(
    store: Store, seller: Seller, endpoint: Endpoint, *, start: int, end: int
) -> None:
    """Record one seller's simulated probes and the price changes among them, oldest first."""
    # In a thread, because pages are served at the same time.
    results = await asyncio.to_thread(_judged_past, seller, start, end)
    await store.writing(_record_results, endpoint, results)


def _judged_past(seller: Seller, start: int, end: int) -> list[ProbeResult]:
    exchanges = past.exchanges(seller, start=start, end=end, step_ms=STEP_MS)
    return [_judged(exchange) for exchange in exchanges]


def _record_results(tx: Connection, endpoint: Endpoint, results: list[ProbeResult]) -> None:
    endpoints.update(tx, replace(endpoint, simulated=True))
    probes.record_many(tx, endpoint.id, results)
    for result, quote in _quote_changes(results):
        current = endpoints.get(tx, endpoint.id) or endpoint
        terms.observe_quotes(tx, {current.id: (quote, result.at)})


def _quote_changes(results: list[ProbeResult]) -> Iterator[tuple[ProbeResult, Quote]]:
    """The results whose quote differs from the one before."""
    before: Quote | None = None
    for result in results:
        if result.quote is not None and result.scored and result.quote != before:
            before = result.quote
            yield result, result.quote


def _judged(exchange: Exchange) -> ProbeResult:
    """The result of a simulated exchange, judged as a real one; equal answers are linted once."""
    untimed = replace(exchange, at=0, timings=Timings(), tls_not_after=None)
    return judge(exchange, _linted(untimed))


@lru_cache(maxsize=4_096)
def _linted(exchange: Exchange) -> Lint:
    return lint(exchange)


async def _index_to_head(service: Opened, report: Progress) -> None:
    """Index the chain up to its head."""
    for _ in range(ROUNDS_MAX):
        report("indexing settlements", 0, 1)
        if not (await service.round("index")).get("busy"):
            break


async def _until_idle(
    service: Opened, job: str, key: str, words: str, expected: int, report: Progress
) -> int:
    """Run rounds of a job until one finds nothing to do. Returns the sum of `key` over their
    tallies; `expected` is about what it will be, for the progress bar.
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
