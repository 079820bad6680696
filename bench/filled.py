"""Fill a store with a month of data: endpoints with closed days, today's probes, and scores.

The service's code probes, closes, observes and scores the first TEMPLATES endpoints. Every other
endpoint is a copy of their rows, made inside the database, with its own resource, host, payTo and
probe times: today's probes of a copy and all values that depend on them are shifted. Filling costs
little more than writing the rows, and each row is one that the service would write. Endpoints
are added host by host, as a crawl finds them, and the other rows in the order of endpoint IDs, so
that neighbours in an index are endpoints that are probed together. Compressed texts of a copy (the
resource in its evidence, its closed days, the quotes of its probes) are those of its template.

Usage: `await fill(store, endpoints=10_000, now=now)` on an empty migrated store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from bench.lives import Life, Place, life, places, spread_ms
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.schedule import NORMAL, interval_ms
from tollgauge.core.score.evidence import DemandEvidence, TermChange
from tollgauge.core.score.prices import USD, Price
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring, terms
from tollgauge.monitor import watched_changes as changes
from tollgauge.store import rows
from tollgauge.store.chain import volumes, wallets
from tollgauge.store.chain.cursors import Cursor, chain_cursor
from tollgauge.store.endpoints import endpoints as endpoint_rows
from tollgauge.store.endpoints import listings
from tollgauge.store.endpoints.listings import StoredListing
from tollgauge.store.probes import archive, probes
from tollgauge.store.probes.probes import PROBE
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import host_row
from tollgauge.store.scores import scores

TEMPLATES: Final = 180
"""A multiple of the number of kinds, and of nine: three consecutive endpoints share a payTo, and
one payTo in three was paid. A copy's payTo was therefore paid if its template's was, as its score
states.
"""
OBSERVED: Final = 100
"""Number of a template's latest probes that are checked for changes."""
LISTINGS_PER_TRANSACTION: Final = 1_000
CHAIN: Final = 8453
_IGNORED: Final = frozenset({"endpoint", "probe", "probe_day", "watch"})
_EVERYWHERE: Final = {
    "endpoint_id": "c.id",
    "host": "c.host",
    # JSON texts that contain results of the last probe.
    "quote": "replace(t.quote, c.template_pay_to, c.pay_to)",
    "state": "replace(t.state, c.template_pay_to, c.pay_to)",
}
_ENDPOINT: Final = {
    "id": "c.id",
    "resource": "c.resource",
    "site": "(SELECT h.site FROM host h WHERE h.host = c.host)",
    "quote_pay_to": "c.pay_to",
    "next_due": "c.next_due",
    **{
        name: f"t.{name} + c.later"
        for name in ("last_probed", "up_at", "down_since", "quote_at", "score_due")
    },
}
"""SQL of the columns that a copy does not take from its template. `later` is the time between the
last probe of the template and that of the copy.
"""


async def fill(
    store: Store,
    *,
    endpoints: int,
    days: int = 30,
    now: int,
    skewed: bool = False,
    probes_too: bool = True,
) -> None:
    """Fill an empty store.

    All endpoints have scores, which are due again a day after the last probe. A host can be claimed
    when its first endpoint is due.

    Args:
        store: an empty migrated store.
        endpoints: number of endpoints.
        now: time (ms UTC) of the newest data.
        days: number of closed days before today.
        skewed: give two hosts 40% of the endpoints each.
        probes_too: give the copies probes as well, which takes most of the time. Without it, only
            the templates have probes.
    """
    everywhere = list(places(endpoints, skewed=skewed))
    await store.writing(_add_chain, {place.pay_to for place in everywhere}, now=now)
    templates = everywhere[:TEMPLATES]
    lives = [life(number, place, days=days, now=now) for number, place in enumerate(templates)]
    await store.writing(_insert, lives, now=now)
    for day in range(day_of(now) - days, day_of(now) + 1):
        await store.writing(_record, lives, day)
        await store.writing(archive.close_days, before_day=day_of(now), limit=TEMPLATES)
    await store.writing(_observe_and_score, lives, now=now)
    if len(everywhere) > len(templates):
        copied = range(day_of(now) - days, day_of(now) + 1) if probes_too else range(0)
        await _copy_all(store, everywhere, copied, now=now)
    await store.writing(hosts.compute_due, {place.host for place in everywhere}, now=now)


def _insert(tx: Connection, lives: Sequence[Life], *, now: int) -> None:
    """Insert the templates with their listings and state."""
    endpoint_rows.insert(tx, *[one.endpoint for one in lives])
    listed = [
        StoredListing(
            endpoint_id=one.endpoint.id,
            source="bench",
            crawl_id=1,
            first_seen=one.endpoint.first_seen,
            last_seen=now,
            delisted_at=None,
            terms=one.endpoint.quote,
        )
        for one in lives
    ]
    listings.save(tx, listed)
    seen = [(one.endpoint.id, _event("listed", one.endpoint.first_seen, "", "")) for one in lives]
    price = Price(unit=USD, before=5_000, after=10_000, usual=5_000, upper=5_000)
    for one in lives[19::20]:
        event = _event("price-changed", now - 9 * DAY_MS, "5000", "10000")
        seen.append((one.endpoint.id, replace(event, source=PROBE, price=price)))
    listings.add_events(tx, seen)


def _event(kind: str, at: int, before: str, after: str) -> TermChange:
    return TermChange(at=at, kind=kind, source="bench", before=before, after=after)


def _add_chain(tx: Connection, addresses: set[str], *, now: int) -> None:
    """Insert 30 indexed days of a chain on which one address in three was paid."""
    cursor = Cursor(
        chain=CHAIN,
        number=30_000_000,
        hash=bytes(32),
        at=now - MINUTE_MS,
        finalized=29_999_900,
        audited=29_999_900,
        audited_at=now - 5 * MINUTE_MS,
        version=1,
    )
    rows.put(tx, chain_cursor, [rows.to_columns(cursor)])
    ordered = sorted(addresses)
    wallets.add(tx, CHAIN, ordered, after=28_000_000, at=now - 31 * DAY_MS)
    owners = [f"anchor-{number}.example" for number in range(5)]
    volumes.save_anchors(
        tx, {owner: [f"0x{number:040x}"] for number, owner in enumerate(owners)}, now=now
    )
    demand = DemandEvidence(
        transfers=340,
        payers=12,
        volume=34_000_000,
        proven_payers=3,
        proven_volume=9_000_000,
        weights=tuple((owner, 2_000_000 + number) for number, owner in enumerate(owners)),
    )
    computed = [(bytes.fromhex(address[2:]), demand) for address in ordered[::3]]
    volumes.DEMANDS.save(tx, CHAIN, computed, as_of=now)


def _record(tx: Connection, lives: Sequence[Life], day: int) -> None:
    for one in lives:
        of_day = [result for result in one.results if day_of(result.at) == day]
        probes.record_many(tx, one.endpoint.id, of_day)


def _observe_and_score(tx: Connection, lives: Sequence[Life], *, now: int) -> None:
    for back in range(OBSERVED, 0, -1):
        wave = [(one.endpoint, one.results[-back]) for one in lives if len(one.results) >= back]
        changes.observe_each(tx, wave)
    terms.observe_quotes(
        tx,
        {
            one.endpoint.id: (result.quote, result.at)
            for one in lives
            for result in one.results
            if result.quote is not None
        },
    )
    columns = schema.endpoint.c
    known = endpoint_rows.get_many(tx, [one.endpoint.id for one in lives])
    for endpoint in known.values():
        last_probed = endpoint.last_probed or now
        # A due score does not include the newest probe.
        _, row = scoring.compute(tx, endpoint, as_of=last_probed - 1, cadence=NORMAL)
        scores.save(tx, row)
        due = last_probed + interval_ms(endpoint, NORMAL, now=last_probed)
        tx.execute(schema.endpoint.update().where(columns.id == endpoint.id).values(next_due=due))
    scored = columns.last_probed + DAY_MS
    tx.execute(schema.endpoint.update().values(score_due=scored, score_next=None))


async def _copy_all(
    store: Store, everywhere: Sequence[Place], days: Iterable[int], *, now: int
) -> None:
    """Copy the templates' rows, with the probes of `days`, to all other endpoints."""
    await store.writing(_add_copies, everywhere, now=now)
    discovered = f"c.number / {LISTINGS_PER_TRANSACTION}, c.id"
    await store.writing(_copy, schema.endpoint, "t.id = c.template", _ENDPOINT, order=discovered)
    for day in days:
        of_day = f"t.day = {day} AND t.endpoint_id = c.template"
        await store.writing(_copy, schema.probe_day, of_day)
        moved = f"{of_day} AND t.at + c.later >= {day * DAY_MS}"
        await store.writing(
            _copy, schema.probe, moved, {"at": "t.at + c.later", "quote": "t.quote"}
        )
    for table in schema.metadata.sorted_tables:
        if "endpoint_id" in table.c and table.name not in _IGNORED:
            await store.writing(_copy, table, "t.endpoint_id = c.template")
    await store.writing(_end_copies)


def _add_copies(tx: Connection, everywhere: Sequence[Place], *, now: int) -> None:
    tx.exec_driver_sql(
        "CREATE TABLE bench_copy (id TEXT PRIMARY KEY, number INTEGER, template TEXT, "
        "resource TEXT, host TEXT, pay_to TEXT, template_pay_to TEXT, later INTEGER, "
        "next_due INTEGER)"
    )
    templates = everywhere[:TEMPLATES]
    known = endpoint_rows.get_many(tx, [place.id for place in templates])
    copies = []
    for number, place in enumerate(everywhere[TEMPLATES:], start=TEMPLATES):
        template = templates[number % TEMPLATES]
        endpoint = known[template.id]
        probed_at, due = _slot(replace(endpoint, id=place.id), now=now)
        later = probed_at - (endpoint.last_probed or now)
        of_place = (place.resource, place.host, place.pay_to)
        copies.append((place.id, number, template.id, *of_place, template.pay_to, later, due))
    text = "id number template resource host pay_to template_pay_to later next_due"
    names = text.split()
    copy = sa.table("bench_copy", *map(sa.column, names))
    tx.execute(copy.insert(), [dict(zip(names, row, strict=True)) for row in sorted(copies)])
    hosts_known = set(tx.execute(sa.select(schema.host.c.host)).scalars())
    hosts = sorted({place.host for place in everywhere} - hosts_known)
    if hosts:
        tx.execute(schema.host.insert(), [host_row(host) for host in hosts])


def _slot(endpoint: Endpoint, *, now: int) -> tuple[int, int]:
    """Return the times of an endpoint's last and next probe. IDs spread them over the interval."""
    period = interval_ms(endpoint, NORMAL, now=now)
    probed_at = now - (now - spread_ms(endpoint.id, period)) % period
    return probed_at, probed_at + period


def _copy(
    tx: Connection,
    table: sa.Table,
    match: str,
    own: Mapping[str, str] | None = None,
    *,
    order: str = "c.id",
) -> None:
    """Insert the templates' rows for their copies, ordered by the copies' IDs or by `order`.

    `own` contains the SQL of columns that differ from the template, in addition to _EVERYWHERE.
    """
    sources = {**_EVERYWHERE, **(own or {})}
    names = [column.name for column in table.c if column.name != "id" or "id" in sources]
    values = [sources.get(name, f't."{name}"') for name in names]
    quoted = ", ".join(f'"{name}"' for name in names)
    tx.exec_driver_sql(
        f"INSERT INTO {table.name} ({quoted}) SELECT {', '.join(values)} "  # noqa: S608 - names of columns
        f"FROM bench_copy c CROSS JOIN {table.name} t WHERE {match} ORDER BY {order}"
    )


def _end_copies(tx: Connection) -> None:
    tx.exec_driver_sql("DROP TABLE bench_copy")
