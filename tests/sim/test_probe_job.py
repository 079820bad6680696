"""The probe loop against the demo market: real TLS, a real store, and a clock moved by hand."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
from tests.sim.ledger_world import held_claim

from tollgauge.app import now_ms
from tollgauge.clients.egress.client import Egress, EgressSettings
from tollgauge.core.endpoint import Endpoint, Listing, Perimeter, endpoint_id, parse_resource
from tollgauge.core.exchange import Answer, Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.schedule import Cadence
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.db import leases
from tollgauge.db.engine import Store
from tollgauge.demo.behaviours import play
from tollgauge.demo.market import Market, run_market
from tollgauge.demo.seller import Request, Seller
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.serving import LOOPBACK, closed_port, serve
from tollgauge.jobs import probe, score
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.jobs.score import ScoreSettings
from tollgauge.monitor import reports
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints, scores
from tollgauge.store.probes import probes
from tollgauge.web.paid.live_probe import LiveProbe

START = 1_795_000_000_000 // DAY_MS * DAY_MS
Mapped = dict[str, tuple[str, int]]
DIRECTORY = "https://directory.sellers.example/discovery/resources"


@dataclass
class Clock:
    """A clock that tests move by hand."""

    now: int = START

    def __call__(self) -> int:
        return self.now


@dataclass
class Loop:
    """The probe and score loops of one worker."""

    store: Store
    egress: Egress
    clock: Callable[[], int]
    settings: ProbeSettings = field(default_factory=ProbeSettings)
    owner: str = "one"

    async def probe(self) -> dict[str, object]:
        return await probe.run(
            self.store, self.egress, settings=self.settings, clock=self.clock, owner=self.owner
        )

    async def score(self) -> None:
        settings = ScoreSettings()
        while await score.run(self.store, settings=settings, clock=self.clock):
            pass

    async def add(self, *added: Endpoint) -> None:
        async with self.store.write() as tx:
            await endpoints.insert_many(tx, added)

    async def get(self, endpoint_id: str) -> Endpoint:
        async with self.store.read() as tx:
            found = await endpoints.get(tx, endpoint_id)
        assert found is not None
        return found

    async def history(self, endpoint_id: str, *, until: int = START + 90 * DAY_MS) -> list[Any]:
        async with self.store.read() as tx:
            return list(await probes.history(tx, endpoint_id, since=0, until=until))

    async def score_of(self, endpoint_id: str) -> Any:
        async with self.store.read() as tx:
            return await scores.get(tx, endpoint_id)

    async def next_due(self, ids: Sequence[str]) -> int:
        async with self.store.read() as tx:
            known = await endpoints.get_many(tx, ids)
        return min(each.next_due for each in known.values())


def endpoint(url: str, **more: Any) -> Endpoint:
    host = url.split("/")[2].split(":")[0]
    return Endpoint(
        id=endpoint_id(url), resource=url, host=host, first_seen=START, last_seen=START, **more
    )


def seller(kind: str) -> Seller:
    return next(each for each in SELLERS if each.kind == kind)


def of(*kinds: str) -> list[Endpoint]:
    found = [seller(kind) for kind in kinds]
    return [endpoint(each.url, method=each.method, body=each.body or None) for each in found]


@dataclass
class Fair:
    """The market with its clock, and a worker on a store of its own for each test."""

    market: Market
    egress: Egress
    clock: Clock


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fair]:
    clock = Clock()
    folder = tmp_path_factory.mktemp("market")
    async with run_market(clock, folder, latency=lambda *_: 0) as market:
        egress = Egress(EgressSettings(mapped=market.mapped, ca_file=str(market.ca_file)))
        egress.start()
        yield Fair(market, egress, clock)
        await egress.close()


@pytest_asyncio.fixture(loop_scope="module")
async def memory() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    await store.migrate()
    yield store
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def loop(fair: Fair, memory: Store) -> Loop:
    fair.clock.now = START
    return Loop(memory, fair.egress, fair.clock, ProbeSettings(references=(DIRECTORY,)))


in_the_market = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("probe-market"),
]


def marked(test: Any) -> Any:
    for mark in in_the_market:
        test = mark(test)
    return test


@marked
async def test_a_day_of_probes_comes_every_half_hour_and_is_all_recorded(loop: Loop) -> None:
    kinds = ("perfect-v2", "perfect-v1", "needs-post", "flapping", "not-found", "dead")
    added = of(*kinds)
    await loop.add(*added)
    made: Counter[str] = Counter()
    clock = loop.clock
    assert isinstance(clock, Clock)
    while clock.now < START + DAY_MS:
        tally = await loop.probe()
        made["probed"] += int(str(tally.get("probed", 0)))
        clock.now = max(clock.now + 1, await loop.next_due([each.id for each in added]))
    await loop.score()
    recorded = 0
    for each in added:
        history = await loop.history(each.id)
        recorded += len(history)
        assert 44 <= len(history) <= 52, each.resource
        gaps = [after.at - before.at for before, after in pairwise(history)]
        assert all(28 * MINUTE_MS <= gap <= 32 * MINUTE_MS for gap in gaps)
        assert all(result.attribution is Attribution.THEIRS for result in history)
    assert recorded == made["probed"]
    good, v1, post, flapping, lost, dead = [await loop.history(each.id) for each in added]
    assert all(r.compliant and r.outcome is Outcome.PAYMENT_REQUIRED for r in good + v1 + post)
    assert {r.outcome for r in flapping} == {Outcome.PAYMENT_REQUIRED, Outcome.SERVER_ERROR}
    assert {r.outcome for r in lost} == {Outcome.NOT_FOUND}
    assert {r.outcome for r in dead} == {Outcome.CONNECT}
    assert (await loop.get(added[2].id)).learned == "POST"
    grades = {kind: (await loop.score_of(e.id)).grade for kind, e in zip(kinds, added, strict=True)}
    assert grades["perfect-v2"] in "AB"
    assert (grades["not-found"], grades["dead"]) == ("F", "F")


@marked
async def test_a_429_is_not_held_against_a_seller_and_its_retry_after_is_kept(loop: Loop) -> None:
    busy = seller("throttled")
    clock = loop.clock
    assert isinstance(clock, Clock)
    clock.now = next(
        at
        for at in range(START, START + DAY_MS, 30 * MINUTE_MS)
        if play(busy, Request(method=busy.method, path=busy.path), at).answer.status == 429
    )
    quick = replace(loop.settings, cadence=Cadence(every_ms=MINUTE_MS))
    loop.settings = quick
    first, other = of("throttled")[0], endpoint(f"https://{busy.host}/v1/other")
    await loop.add(first, other)
    began = clock.now
    await loop.probe()
    (seen,) = [*await loop.history(first.id), *await loop.history(other.id)]
    assert (seen.outcome, seen.attribution) == (Outcome.THROTTLED, Attribution.OURS)
    for minutes in range(1, 15):
        clock.now = began + minutes * MINUTE_MS
        assert await loop.probe() == {}, "the whole host rests for the 900 s that it asked for"
    clock.now = began + 901 * SECOND_MS
    assert (await loop.probe())["probed"] == 1


@marked
async def test_a_watched_endpoint_is_probed_every_five_minutes_until_the_watch_ends(
    loop: Loop,
) -> None:
    (watched,) = of("perfect-v2")
    await loop.add(watched)
    await loop.probe()
    clock = loop.clock
    assert isinstance(clock, Clock)
    clock.now += MINUTE_MS
    until = clock.now + HOUR_MS
    async with loop.store.write() as tx:
        await endpoints.watch(tx, watched.id, until=until, next_due=clock.now)
    while clock.now < until + 2 * HOUR_MS:
        await loop.probe()
        clock.now = max(clock.now + 1, await loop.next_due([watched.id]))
    history = await loop.history(watched.id)
    gaps = [after.at - before.at for before, after in pairwise(history) if before.at >= START + 1]
    during = [gap for gap, result in zip(gaps, history[1:], strict=False) if result.at < until]
    after = gaps[len(during) :]
    assert len(during) >= 11
    assert all(4.5 * MINUTE_MS <= gap <= 5.5 * MINUTE_MS for gap in during)
    assert after
    assert all(28 * MINUTE_MS <= gap <= 32 * MINUTE_MS for gap in after)


@marked
async def test_a_host_that_asks_for_payment_everywhere_is_found_out_once_a_day(
    loop: Loop,
) -> None:
    everywhere, honest, lost = of("wildcard-402", "perfect-v2", "not-found")
    await loop.add(everywhere, honest, lost)
    clock = loop.clock
    assert isinstance(clock, Clock)
    asked = []
    for hours in (0, 1, 12, 25):
        clock.now = START + hours * HOUR_MS
        await loop.probe()
        async with loop.store.read() as tx:
            states = [
                await endpoints.host_state(tx, each.host) for each in (everywhere, honest, lost)
            ]
        assert [state.wildcard for state in states] == [True, False, None]
        asked.append(states[0].wildcard_at)
    assert asked == [START, START, START, START + 25 * HOUR_MS]
    await loop.score()
    flags = (await loop.score_of(everywhere.id)).result
    assert b"wildcard" in flags
    assert b"wildcard" not in (await loop.score_of(honest.id)).result


@marked
async def test_a_bought_report_makes_public_what_sells_and_no_other_path(loop: Loop) -> None:
    honest, wild = seller("perfect-v2"), seller("wildcard-402")
    prober = Prober(
        store=loop.store, egress=loop.egress, clock=loop.clock, cadence=Cadence(host_gap_ms=0)
    )
    live = LiveProbe(prober=prober)
    market = Perimeter(mapped=frozenset({honest.host, wild.host}))
    shown: dict[str, bool] = {}
    for url in (
        f"https://{honest.host}/this-seller-steals",
        honest.url,
        f"https://{wild.host}/this-seller-steals",
    ):
        resource = parse_resource(url, market)
        claim = await held_claim(loop.store, now=loop.clock())
        endpoint, _ = await live.fresh_result(resource, claim)
        assert endpoint.status is Listing.UNLISTED
        found = await loop.store.reading(reports.snapshot, resource.id, now=loop.clock())
        shown[url] = found is not None
    assert list(shown.values()) == [False, True, False]
    provider = await loop.store.reading(reports.provider, honest.host, now=loop.clock())
    assert provider is not None
    assert [row.resource for row in provider.rows] == [honest.url]
    assert await loop.store.reading(reports.provider, wild.host, now=loop.clock()) is None
    states = await loop.store.reading(endpoints.host_states, [honest.host, wild.host])
    assert [states[each.host].wildcard for each in (honest, wild)] == [False, True]


@marked
async def test_an_address_that_cannot_be_asked_stops_nobody_else(loop: Loop) -> None:
    """A listing may declare a query that makes the URL longer than egress takes."""
    (good,) = of("perfect-v2")
    long = endpoint("https://fx.sellers.example/v2/rates", query="q=" + "a" * 3_000)
    await loop.add(replace(long, next_due=START - DAY_MS), good)
    tally = await loop.probe()
    assert tally["probed"] == 2
    (result,) = await loop.history(long.id)
    assert (result.outcome, result.attribution) == (Outcome.LOCAL, Attribution.OURS)
    assert (await loop.history(good.id))[0].up
    assert (await loop.get(long.id)).next_due > START + 28 * MINUTE_MS


@marked
async def test_a_restart_in_the_middle_of_a_wave_loses_nothing(fair: Fair, memory: Store) -> None:
    fair.clock.now = START
    added = of("perfect-v2", "slow", "perfect-v1", "dual")
    first = Loop(memory, fair.egress, fair.clock, ProbeSettings(references=(DIRECTORY,)))
    await first.add(*added)
    wave = asyncio.create_task(first.probe())
    quick = [each for each in added if each.id != added[1].id]
    # A database tells nobody when it has a row.
    while not all([await first.history(each.id) for each in quick]):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.02)
    assert not wave.done(), "what answered is kept while the slow seller still thinks"
    wave.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await wave
    second = replace(first, owner="two")
    fair.clock.now += 30 * SECOND_MS
    assert await second.probe() == {}, "the lease of the dead worker still holds"
    fair.clock.now += 31 * SECOND_MS
    assert (await second.probe())["probed"] == 4 - len(quick)
    assert [len(await second.history(each.id)) for each in added] == [1] * 4


# Without a market: ports that are closed, and a server that counts


@contextlib.asynccontextmanager
async def silent(
    count: int = 6,
) -> AsyncIterator[tuple[dict[str, tuple[str, int]], list[Endpoint]]]:
    """Unrelated sites that nobody answers for."""
    with contextlib.closing(closed_port()) as unused:
        at = (LOOPBACK, int(unused.getsockname()[1]))
        urls = [f"https://api.site-{number}.example/paid" for number in range(count)]
        yield {f"api.site-{n}.example": at for n in range(count)}, [endpoint(u) for u in urls]


@contextlib.asynccontextmanager
async def worker(
    store: Store,
    mapped: dict[str, tuple[str, int]],
    *,
    references: tuple[str, ...] = (),
    **more: Any,
) -> AsyncIterator[Loop]:
    egress = Egress(EgressSettings(mapped=mapped, deadline_ms=3_000, **more))
    egress.start()
    settings = ProbeSettings(references=references, cadence=Cadence(host_gap_ms=0))
    yield Loop(store, egress, Clock(), settings)
    await egress.close()


@pytest.fixture
async def empty() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    await store.migrate()
    yield store
    await store.close()


def up(at: int) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.THEIRS,
        up=True,
        timings=Timings(total=90),
        status=402,
        compliance=100,
        compliant=True,
        payable=True,
        version=2,
        accepts=1,
    )


async def past(loop: Loop, added: Sequence[Endpoint]) -> list[Any]:
    """Two days on which everybody was up, and the scores that they earned."""
    await loop.add(*added)
    clock = loop.clock
    assert isinstance(clock, Clock)
    for each in added:
        async with loop.store.write() as tx:
            results = [up(at) for at in range(START, START + 2 * DAY_MS, 30 * MINUTE_MS)]
            await probes.record_many(tx, each.id, results)
    clock.now = START + 2 * DAY_MS
    await loop.score()
    return [await loop.score_of(each.id) for each in added]


@pytest.mark.parametrize("references", [("https://api.site-0.example/",), ()])
async def test_our_own_outage_changes_no_score(empty: Store, references: tuple[str, ...]) -> None:
    """With references, because none answers; without, because unrelated sites fail together."""
    async with silent() as (mapped, added), worker(empty, mapped, references=references) as loop:
        before = await past(loop, added)
        await loop.probe()
        reason = "no-connectivity" if references else "common-mode"
        for each in added:
            newest = (await loop.history(each.id))[-1]
            assert newest.attribution is Attribution.OURS
            assert newest.reason == reason
        await loop.score()
        after = [await loop.score_of(each.id) for each in added]
    assert [row.score_tenths for row in after] == [row.score_tenths for row in before]
    assert [row.grade for row in after] == [row.grade for row in before]
    assert [row.recommendation for row in after] == [row.recommendation for row in before]
    assert all(b'"excluded":[["' + reason.encode() in row.result for row in after)


async def test_without_a_reference_a_name_that_is_not_found_is_nobody_s_fault(
    empty: Store,
) -> None:
    """One host alone in its wave: nothing tells its domain's end from our resolver's."""

    def unknown_everywhere(_host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    gone = endpoint("https://api.gone-for-good.com/paid")
    async with worker(empty, {}, resolver=unknown_everywhere) as loop:
        (before,) = await past(loop, [gone])
        await loop.probe()
        newest = (await loop.history(gone.id))[-1]
        await loop.score()
        after = await loop.score_of(gone.id)
    assert newest.outcome is Outcome.DNS
    assert newest.attribution is Attribution.UNKNOWN
    assert newest.reason == "no-reference"
    assert after.score_tenths == before.score_tenths


async def test_targets_that_are_down_while_we_are_connected_are_down(
    empty: Store, tmp_path: Path
) -> None:
    async with silent(3) as (mapped, added), counting(tmp_path, {"ok.example"}) as server:
        everyone = mapped | server.mapped
        reference = ("https://ok.example/",)
        async with worker(empty, everyone, references=reference, ca_file=server.ca_file) as loop:
            before = await past(loop, added)
            await loop.probe()
            await loop.score()
            after = [await loop.score_of(each.id) for each in added]
    assert all(new.score_tenths < old.score_tenths for new, old in zip(after, before, strict=True))


@dataclass
class Counting:
    """A seller on TLS under many names that counts who asks it at once."""

    mapped: dict[str, tuple[str, int]] = field(default_factory=dict)
    ca_file: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        host = dict(scope["headers"])[b"host"].decode().split(":")[0]
        self.now[host] += 1
        self.most[host] = max(self.most[host], self.now[host])
        self.asked[f"{host}{scope['path']}"] += 1
        await asyncio.sleep(0.01)
        self.now[host] -= 1
        answer = Answer(status=402, headers=(("content-type", "application/json"),))
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": 402, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


@contextlib.asynccontextmanager
async def counting(
    tmp_path: Path, hosts: set[str], *, not_after: dt.datetime | None = None
) -> AsyncIterator[Counting]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*hosts, not_after=not_after).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = Counting(ca_file=str(tmp_path / "ca.pem"))
    async with serve(server, tls=context) as port:
        server.mapped = dict.fromkeys(hosts, (LOOPBACK, port))
        yield server


# Our own trust anchors and clock


REFERENCE = "https://reference.example/"
SITES = [f"https://api.site-{number}.example/paid" for number in range(40)]


def hosts_of(urls: Sequence[str]) -> set[str]:
    return {url.split("/")[2] for url in urls}


@contextlib.asynccontextmanager
async def no_tls_of_ours(tmp_path: Path, how: str) -> AsyncIterator[Counting]:
    """40 unrelated sites and a reference, none of whose certificates we can believe."""
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = past if how == "wrong clock" else None
    hosts = hosts_of([*SITES, REFERENCE])
    async with counting(tmp_path, hosts, not_after=expired) as server:
        if how == "wrong CA file":
            trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
            server.ca_file = str(tmp_path / "other.pem")
        yield server


@pytest.mark.parametrize("how", ["wrong CA file", "wrong clock"])
@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_our_own_tls_outage_changes_no_score(
    empty: Store, tmp_path: Path, references: tuple[str, ...], how: str
) -> None:
    added = [endpoint(url) for url in SITES]
    async with (
        no_tls_of_ours(tmp_path, how) as server,
        worker(empty, server.mapped, ca_file=server.ca_file, references=references) as loop,
    ):
        before = await past(loop, added[:3])
        await loop.add(*added[3:])
        assert (await loop.probe())["tls-failure"] == len(added)
        newest = [(await loop.history(each.id))[-1] for each in added]
        await loop.score()
        after = [await loop.score_of(each.id) for each in added[:3]]
    assert {result.attribution for result in newest} == {Attribution.OURS}
    assert {r.reason for r in newest} == {"no-connectivity" if references else "common-mode"}
    assert [row.score_tenths for row in after] == [row.score_tenths for row in before]
    assert [row.recommendation for row in after] == [row.recommendation for row in before]


@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_in_waves_of_one_our_tls_outage_is_found_out_as_well(
    empty: Store, tmp_path: Path, references: tuple[str, ...]
) -> None:
    """Without references the first bad certificate is its owner's; the second is in doubt."""
    added = [endpoint(url) for url in SITES[:4]]
    async with (
        no_tls_of_ours(tmp_path, "wrong CA file") as server,
        worker(empty, server.mapped, ca_file=server.ca_file, references=references) as loop,
    ):
        loop.settings = replace(loop.settings, wave=1)
        await loop.add(*added)
        clock = loop.clock
        assert isinstance(clock, Clock)
        found = []
        for _ in added:
            clock.now += 10 * SECOND_MS
            assert (await loop.probe())["probed"] == 1
        for each in added:
            found += await loop.history(each.id)
    told = [result.attribution for result in sorted(found, key=lambda result: result.at)]
    doubt = [Attribution.THEIRS, *[Attribution.UNKNOWN] * 3]
    assert told == ([Attribution.OURS] * 4 if references else doubt)


@pytest.mark.parametrize("others", [0, 6])
async def test_one_bad_certificate_is_its_owner_s_while_others_work(
    empty: Store, tmp_path: Path, others: int
) -> None:
    """Alone in its wave, because the reference answers; among others, because they do."""
    good = [endpoint(url) for url in SITES[:others]]
    bad = endpoint("https://api.careless.example/paid")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    async with (
        counting(tmp_path, hosts_of([*SITES, REFERENCE])) as server,
        counting(stranger, {bad.host}) as careless,
        worker(
            empty,
            server.mapped | careless.mapped,
            ca_file=server.ca_file,
            references=(REFERENCE,),
        ) as loop,
    ):
        await loop.add(*good, bad)
        assert (await loop.probe())["probed"] == others + 1
        (result,) = await loop.history(bad.id)
    assert (result.outcome, result.attribution) == (Outcome.TLS, Attribution.THEIRS)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_a_resolver_that_answers_private_addresses_is_believed_with_a_reference_only(
    empty: Store, tmp_path: Path, count: int, references: tuple[str, ...]
) -> None:
    added = [endpoint(f"https://api.shop-{number}.com/paid") for number in range(count)]
    async with (
        counting(tmp_path, hosts_of([REFERENCE])) as server,
        worker(
            empty,
            server.mapped,
            ca_file=server.ca_file,
            references=references,
            resolver=lambda _host: ("10.0.0.1",),
        ) as loop,
    ):
        before = await past(loop, added)
        assert (await loop.probe())["connect-failure"] == count
        newest = [(await loop.history(each.id))[-1] for each in added]
        await loop.score()
        after = [await loop.score_of(each.id) for each in added]
    whose = (Attribution.THEIRS, "address-not-public")
    nobodys = (Attribution.UNKNOWN, "no-reference")
    assert {(r.attribution, r.reason) for r in newest} == {whose if references else nobodys}
    lowered = [new.score_tenths < old.score_tenths for new, old in zip(after, before, strict=True)]
    assert set(lowered) == {bool(references)}


async def test_two_workers_never_probe_one_host_at_once(
    store: Store, open_store: Callable[[], Store], tmp_path: Path
) -> None:
    hosts = {f"host-{number}.example" for number in range(4)}
    added = [endpoint(f"https://{host}/paid/{n}") for host in sorted(hosts) for n in range(6)]
    async with counting(tmp_path, hosts) as server, contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(worker(one, server.mapped, ca_file=server.ca_file))
            for one in (store, open_store())
        ]
        for number, each in enumerate(workers):
            each.owner, each.clock = f"worker-{number}", now_ms
            each.settings = replace(each.settings, wave=2)
        await workers[0].add(*added)

        async def until_done(each: Loop) -> int:
            probed = 0
            for _ in range(200):
                probed += int(str((await each.probe()).get("probed", 0)))
                if sum(server.asked[f"{e.host}/paid/{e.resource[-1]}"] for e in added) >= 24:
                    break
                await asyncio.sleep(0.005)
            return probed

        done = await asyncio.gather(*(until_done(each) for each in workers))
        assert sum(done) == 24
        assert all(done), "both workers had their share"
        for paid in added:
            assert len(await workers[0].history(paid.id, until=now_ms())) == 1
    assert set(server.most.values()) == {1}, "one request a host at a time, wildcard ones included"
    paths = Counter(path.split("/")[1] for path in server.asked)
    assert paths["paid"] == 24
    assert sum(server.asked.values()) == 24 + 4, "and one random path a host"


async def test_an_endpoint_that_cannot_be_scored_stops_nobody_else(empty: Store) -> None:
    odd = replace(endpoint("https://api.site-0.example/paid"), first_seen=2**60)
    others = [endpoint(f"https://api.site-{number}.example/paid") for number in range(1, 6)]
    async with empty.write() as tx:
        await endpoints.insert_many(tx, [odd, *others])
        await endpoints.mark_dirty(tx, [odd.id], now=START)
    clock = Clock(START + DAY_MS)
    tally = await score.run(empty, settings=ScoreSettings(), clock=clock)
    assert (tally["scored"], tally["failed"]) == (6, 1)
    async with empty.read() as tx:
        assert await scores.get(tx, odd.id) is None
        assert len(await scores.get_many(tx, [each.id for each in others])) == 5


async def test_rounds_of_a_loop_overlap_up_to_its_lanes(empty: Store) -> None:
    stop, under_way, most = asyncio.Event(), set[object](), 0
    full = asyncio.Event()

    async def run() -> dict[str, object]:
        nonlocal most
        mine = object()
        under_way.add(mine)
        most = max(most, len(under_way))
        if len(under_way) == 3:
            full.set()
        await full.wait()
        stop.set()
        under_way.discard(mine)
        return {}

    job = Job(name="probe", every_ms=10, deadline_ms=60_000, run=run, concurrency=3)
    async with asyncio.timeout(20):
        await run_jobs([job], store=empty, clock=now_ms, owner="one", stop=stop)
    assert most == 3, "a round that waits holds up no other"


async def test_a_worker_that_stops_gives_its_exclusive_rounds_back(
    store: Store, open_store: Callable[[], Store]
) -> None:
    stop, rounds = asyncio.Event(), Counter[str]()

    def job(owner: str, halt: asyncio.Event) -> Job:
        async def run() -> dict[str, object]:
            rounds[owner] += 1
            halt.set()
            return {}

        return Job(name="prune", every_ms=10, deadline_ms=60_000, run=run, exclusive=True)

    await run_jobs([job("one", stop)], store=store, clock=now_ms, owner="one", stop=stop)
    async with store.write() as tx:
        assert await leases.take(tx, "prune", owner="three", now=now_ms(), ttl_ms=60_000)
        await leases.give_back(tx, "prune", owner="three")
    other = asyncio.Event()
    second = open_store()
    await run_jobs([job("two", other)], store=second, clock=now_ms, owner="two", stop=other)
    assert rounds == {"one": 1, "two": 1}
