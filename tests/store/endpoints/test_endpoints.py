"""Endpoints, host leases and due scores, against real databases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sqlalchemy import Connection
from tests.support.databases import on_sqlite
from tests.support.probe_rows import record_probe

from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.endpoint.terms import KnownOffer, PayToHistory, Quote
from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.schedule import claims, hosts
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

OpenStore = Callable[[], Store]
NOW = 1_760_000_000_000
LEASE = 60_000
QUOTE = Quote(network="eip155:8453", asset="0xaa", amount=2**256 - 1, pay_to="0xbb")


def endpoint(host: str = "a.com", path: str = "/", *, due: int = 0, watched: int = 0) -> Endpoint:
    resource = f"https://{host}{path}"
    return Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=host,
        first_seen=NOW - 1_000,
        last_seen=NOW,
        next_due=NOW + due,
        watched_until=watched,
    )


def probe(at: int) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.SERVER_ERROR,
        attribution=Attribution.TARGET,
        up=False,
        timings=Timings(total=5),
    )


def score_row(id_: str, as_of: int) -> ScoreRow:
    return ScoreRow(
        endpoint_id=id_,
        as_of=as_of,
        policy_version=1,
        score_tenths=None,
        evidence=b"{}",
        result=b"{}",
        figures=ScoreFigures(scored_at=as_of),
    )


async def add(store: Store, *rows: Endpoint) -> None:
    await store.writing(endpoints.insert, *rows)


async def claim(store: Store, *, owner: str = "w", now: int = NOW, limit: int = 9) -> list[str]:
    due = await store.writing(claims.claim_due, owner=owner, now=now, limit=limit, lease_ms=LEASE)
    return [one.resource.removeprefix("https://") for one in due]


async def claim_dirty(store: Store, *, now: int, max_age_ms: int = 86_400_000) -> tuple[str, ...]:
    return await store.writing(endpoints.claim_dirty, now=now, limit=100, max_age_ms=max_age_ms)


async def test_endpoint_is_read_back_as_written(store: Store) -> None:
    full = replace(
        endpoint("xn--bcher-kva.com", "/{id}"),
        query="a=b",
        method="POST",
        body=b'{"a":1}\x00\xff',
        learned="POST",
        status=Listing.DELISTED,
        last_probed=NOW,
        next_due=NOW + 1,
        watched_until=NOW + 5,
        paused_until=NOW + 6,
        asked_at=NOW + 7,
        listing_changed_at=NOW + 8,
        down_since=NOW + 9,
        payable=True,
        failing_since=NOW + 11,
        payable_since=NOW - 3,
        unconfirmed_at=NOW + 10,
        forms=("eip155:8453 upto",),
        offers=(KnownOffer("eip155:8453", "upto", "0xa", 5),),
        extensions=("bazaar",),
        payto_history=PayToHistory(NOW, NOW + 1, 2, varies=True, settled="0xab"),
        service_name="Bücher 📚",
        description="several\nlines",
        tags=("a", "b,c"),
        sources=("bazaar", "x402scan"),
        quote=QUOTE,
        quote_at=NOW,
        templated=True,
        simulated=True,
    )
    assert [one.name for one in fields(full) if getattr(full, one.name) == one.default] == []
    await add(store, full)
    assert await store.reading(endpoints.get, full.id) == full
    assert await store.reading(endpoints.get, "0" * 16) is None
    changed = replace(full, quote=None, quote_at=None, tags=(), last_probed=None)
    await store.writing(endpoints.update, changed)
    assert await store.writing(endpoints.get_many, [full.id, "0" * 16]) == {full.id: changed}


async def test_text_that_postgres_rejects_is_cleaned(store: Store) -> None:
    hostile = replace(
        endpoint(),
        description="a\0b",
        tags=("\ud800",),
        quote=replace(QUOTE, network="x\0", pay_to="\udfff"),
    )
    await add(store, hostile)
    stored = await store.reading(endpoints.get, hostile.id)
    assert stored is not None
    assert (stored.description, stored.tags) == ("a\ufffdb", ("?",))
    assert stored.quote == replace(QUOTE, network="x\ufffd", pay_to="?")


async def test_claims_one_endpoint_per_host_watched_first_then_most_overdue(
    store: Store,
) -> None:
    await add(
        store,
        endpoint("a.com", "/1", due=-50),
        endpoint("a.com", "/2", due=-90),
        endpoint("b.com", "/1", due=-10),
        endpoint("b.com", "/watched", due=-1, watched=NOW + 1),
        endpoint("c.com", "/1", due=-200),
        endpoint("c.com", "/no-longer-watched", due=-300, watched=NOW),
        endpoint("d.com", "/later", due=1),
    )
    order = ["b.com/watched", "c.com/no-longer-watched", "a.com/2"]
    assert await claim(store) == order
    assert await claim(store) == []


async def test_claim_limit_selects_the_most_overdue(store: Store) -> None:
    await add(store, *(endpoint(f"h{i}.com", due=-i) for i in range(5)))
    assert await claim(store, limit=2) == ["h4.com/", "h3.com/"]
    assert await claim(store, limit=2) == ["h2.com/", "h1.com/"]


@on_sqlite
async def test_released_host_waits_for_its_gap(store: Store) -> None:
    await add(store, endpoint(path="/1", due=-2), endpoint(path="/2", due=-1))
    assert await claim(store, owner="w") == ["a.com/1"]
    await store.writing(record_probe, endpoint(path="/1").id, probe(NOW), next_due=NOW + 10**6)
    await store.writing(hosts.release, {"a.com": NOW + 1_000}, owner="w", now=NOW + 10)
    assert (await store.writing(hosts.get, "a.com")).free_at == NOW + 1_000
    assert await claim(store, now=NOW + 999) == []
    assert await claim(store, now=NOW + 1_000) == ["a.com/2"]


async def test_endpoint_of_a_dead_worker_is_claimed_after_its_lease(store: Store) -> None:
    await add(store, endpoint())
    assert await claim(store, owner="dead") == ["a.com/"]
    assert await claim(store, now=NOW + LEASE - 1) == []
    assert await claim(store, owner="w", now=NOW + LEASE) == ["a.com/"]
    before = await store.reading(hosts.get, "a.com")
    await store.writing(hosts.release, {"a.com": NOW + 10**6}, owner="dead", now=NOW)
    assert await store.reading(hosts.get, "a.com") == before
    assert await claim(store, now=NOW + LEASE + 1) == []


@on_sqlite
async def test_host_is_claimed_for_a_requested_probe(store: Store) -> None:
    await add(store, endpoint())
    taken = [
        await store.writing(hosts.claim, "a.com", owner=owner, now=NOW, lease_ms=LEASE)
        for owner in ("one", "two")
    ]
    assert taken == [True, False]
    assert await claim(store) == []


async def test_claim_among_many_hosts_writes_one_page(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'many.db'}")
    await store.migrate()
    await add(store, *(endpoint(f"h{number}.com", due=-number) for number in range(2_000)))
    log = tmp_path / "many.db-wal"
    # The write-ahead log restarts here.
    await store.reading(lambda tx: tx.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close())
    assert len(await claim(store, limit=20)) == 20
    page_and_header = 8_192 + 24
    assert log.stat().st_size // page_and_header == 1
    await store.close()


async def test_concurrent_workers_claim_every_due_endpoint_once_and_one_per_host(
    store: Store, open_store: OpenStore
) -> None:
    rows = [endpoint(f"h{i % 12}.com", f"/{i}", due=-i) for i in range(60)]
    await add(store, *rows)
    busy: set[str] = set()
    probed: Counter[str] = Counter()

    async def work(own: Store, owner: str) -> None:
        idle = 0
        while idle < 4:
            due = await own.writing(claims.claim_due, owner=owner, now=NOW, limit=4, lease_ms=LEASE)
            names = [one.host for one in due]
            assert len(set(names)) == len(names)
            assert busy.isdisjoint(names)
            busy.update(names)
            await asyncio.sleep(0.005)
            for one in due:
                probed[one.id] += 1
                busy.remove(one.host)
                await own.writing(record_probe, one.id, probe(NOW), next_due=NOW + 10**6)
                await own.writing(hosts.release, {one.host: NOW}, owner=owner, now=NOW)
            idle = 0 if due else idle + 1

    async with asyncio.TaskGroup() as group:
        for i in range(4):
            group.create_task(work(open_store(), f"w{i}"))
    assert probed == Counter({row.id: 1 for row in rows})


@on_sqlite
async def test_probe_due_time_and_dirty_mark_are_written_together(store: Store) -> None:
    await add(store, endpoint())
    id_ = endpoint().id
    assert await claim_dirty(store, now=NOW) == (id_,)
    await store.writing(scores.save, score_row(id_, NOW))

    def interrupt(tx: Connection) -> None:
        record_probe(tx, id_, probe(NOW + 1), next_due=NOW + 99, learned="POST")
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.writing(interrupt)
    assert await store.reading(endpoints.get, id_) == endpoint()
    assert await store.reading(probes.history, id_, since=NOW - 1, until=NOW + 1) == ()
    assert await claim_dirty(store, now=NOW + 2) == ()
    assert await store.writing(record_probe, id_, probe(NOW + 1), next_due=NOW + 99, learned="POST")
    again = await store.writing(record_probe, id_, probe(NOW + 1), next_due=NOW + 7, learned="PUT")
    assert not again
    stored = await store.reading(endpoints.get, id_)
    probed = replace(endpoint(), last_probed=NOW + 1, next_due=NOW + 99, down_since=NOW + 1)
    assert stored == replace(probed, learned="POST", payable=False, failing_since=NOW + 1)
    assert await claim_dirty(store, now=NOW + 2) == (id_,)


@on_sqlite
async def test_score_is_due_again_at_its_maximum_age(store: Store) -> None:
    await add(store, endpoint())
    id_ = endpoint().id
    assert await claim_dirty(store, now=NOW, max_age_ms=1_000_000) == (id_,)
    await store.writing(scores.save, score_row(id_, NOW))
    assert await claim_dirty(store, now=NOW + 999_999) == ()
    assert await claim_dirty(store, now=NOW + 1_000_000) == (id_,)


async def test_evidence_recorded_during_scoring_makes_the_next_score_due(store: Store) -> None:
    await add(store, endpoint())
    id_ = endpoint().id
    assert await claim_dirty(store, now=NOW) == (id_,)
    await store.writing(endpoints.mark_dirty, [id_], now=NOW)  # at the time of the claim
    await store.writing(scores.save, score_row(id_, NOW))
    assert await claim_dirty(store, now=NOW) == (id_,)


async def test_score_claimed_by_a_dead_worker_is_claimed_again(store: Store) -> None:
    await add(store, endpoint())
    assert len(await claim_dirty(store, now=NOW)) == 1
    assert await claim_dirty(store, now=NOW + endpoints.SCORE_LEASE_MS - 1) == ()
    assert len(await claim_dirty(store, now=NOW + endpoints.SCORE_LEASE_MS)) == 1


async def test_concurrent_workers_claim_each_dirty_endpoint_once(
    store: Store, open_store: OpenStore
) -> None:
    rows = [endpoint(path=f"/{i}") for i in range(200)]
    await add(store, *rows)

    async def work(own: Store) -> list[str]:
        mine: list[str] = []
        for _ in range(12):
            mine += await own.writing(endpoints.claim_dirty, now=NOW, limit=9, max_age_ms=10**6)
        return mine

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(open_store())) for _ in range(4)]
    claimed = [id_ for task in tasks for id_ in task.result()]
    assert sorted(claimed) == sorted(row.id for row in rows)


@on_sqlite
async def test_wildcard_change_returns_all_endpoints_of_the_host(
    store: Store,
) -> None:
    ids = {endpoint(path=path).id for path in ("/1", "/2")}
    await add(store, endpoint(path="/1"), endpoint(path="/2"), endpoint("b.com"))
    assert (await store.writing(hosts.get, "a.com")).wildcard is None
    assert (await store.writing(hosts.get, "unknown.com")).wildcard is None
    for wildcard, concerned in ((False, set()), (True, ids), (True, set()), (False, ids)):
        said = {"a.com": wildcard, "b.com": False, "unknown.com": False}
        assert set(await store.reading(hosts.find_changed, said)) == concerned
        await store.writing(hosts.set_wildcards, {"a.com": wildcard}, at=NOW)
        state = await store.writing(hosts.get, "a.com")
        assert (state.wildcard, state.wildcard_at) == (wildcard, NOW)


async def test_samples_endpoints_with_the_most_common_terms_of_a_host(store: Store) -> None:
    dear = replace(QUOTE, amount=5)
    cheap = [replace(endpoint("a.com", f"/{n}"), quote=QUOTE) for n in range(6)]
    gone = replace(endpoint("a.com", "/gone"), quote=dear, status=Listing.DELISTED)
    others = [replace(endpoint("a.com", f"/dear/{n}"), quote=dear) for n in range(5)]
    elsewhere = [replace(endpoint("b.com", f"/{n}"), quote=QUOTE) for n in range(3)]
    await add(store, *cheap, gone, *others, *elsewhere, endpoint("a.com", "/unpriced"))
    drawn: set[str] = set()
    for _ in range(60):
        sample = await store.reading(endpoints.sample_common_terms, "a.com", more_than=5, sample=3)
        assert len({row.id for row in sample}) == 3
        drawn |= {row.id for row in sample}
    assert drawn == {row.id for row in cheap}
    for host in ("a.com", "b.com", "unknown.com"):
        assert not await store.reading(endpoints.sample_common_terms, host, more_than=6, sample=3)


@on_sqlite
async def test_hosts_sharing_a_payto_are_counted_once(store: Store) -> None:
    other = replace(QUOTE, network="eip155:137")
    await add(
        store,
        replace(endpoint("a.com", "/1"), quote=QUOTE),
        replace(endpoint("a.com", "/2"), quote=QUOTE),
        replace(endpoint("b.com"), quote=QUOTE),
        replace(endpoint("c.com"), quote=other),
        endpoint("d.com"),
    )
    asked_for = [QUOTE.pay_to, "0xcc"]
    for network, hosts_sharing in ((QUOTE.network, 2), (other.network, 1), ("eip155:1", 0)):
        counts = await store.reading(endpoints.hosts_sharing, network, asked_for)
        assert counts == {QUOTE.pay_to: hosts_sharing, "0xcc": 0}


@pytest.mark.parametrize("more", [-1, 0, 1, 40])
async def test_any_number_of_hosts_sharing_a_payto_is_counted(store: Store, more: int) -> None:
    hosts = [f"h{number}.com" for number in range(endpoints.FEW_HOSTS + more)]
    sharing = [replace(endpoint(host, path), quote=QUOTE) for host in hosts for path in ("/", "/b")]
    await add(store, *sharing)
    asked_for = [replace(endpoint(f"x{number}.com"), quote=QUOTE) for number in range(2)]
    await store.writing(endpoints.insert, *asked_for, adopted=True)
    counts = await store.reading(endpoints.hosts_sharing, QUOTE.network, [QUOTE.pay_to])
    assert counts == {QUOTE.pay_to: len(hosts)}


@on_sqlite
async def test_endpoints_are_counted_by_listing_status(store: Store) -> None:
    await add(
        store,
        endpoint("a.com"),
        replace(endpoint("b.com"), status=Listing.DELISTED, simulated=True),
    )
    await store.writing(endpoints.insert, endpoint("c.com"), adopted=True)
    assert await store.writing(endpoints.counts) == {
        "listed": 1,
        "delisted": 1,
        "adopted": 1,
        "simulated": 1,
    }
