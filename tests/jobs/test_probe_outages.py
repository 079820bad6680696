"""The probe loop during outages of this machine: no score may change."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from tests.support.probe_loop import (
    START,
    Clock,
    Counting,
    Loop,
    endpoint,
    run_counting_seller,
    worker,
)

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.score import Score
from tollgauge.db.engine import Store
from tollgauge.demo.serving import closed_port
from tollgauge.store.probes import probes
from tollgauge.web.settings import LOOPBACK

# Without a market: ports that are closed, and a server that counts


@contextlib.asynccontextmanager
async def silent_sites(
    count: int = 6,
) -> AsyncIterator[tuple[dict[str, tuple[str, int]], list[Endpoint]]]:
    """Yield unrelated sites on closed ports."""
    with contextlib.closing(closed_port()) as unused:
        at = (LOOPBACK, int(unused.getsockname()[1]))
        urls = [f"https://api.site-{number}.example/paid" for number in range(count)]
        yield {f"api.site-{n}.example": at for n in range(count)}, [endpoint(u) for u in urls]


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
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(total=90),
        status=402,
        compliance=100,
        compliant=True,
        payable=True,
        version=2,
        accepts=1,
    )


async def past(loop: Loop, added: Sequence[Endpoint]) -> list[Score]:
    """Two days on which every endpoint was up, and the resulting scores."""
    await loop.add(*added)
    clock = loop.clock
    assert isinstance(clock, Clock)
    for target in added:
        results = [up(at) for at in range(START, START + 2 * DAY_MS, 30 * MINUTE_MS)]
        await loop.store.writing(probes.record_many, target.id, results)
    clock.now = START + 2 * DAY_MS
    await loop.score()
    return [await loop.score_of(target.id) for target in added]


def are_lower(after: Sequence[Score], before: Sequence[Score]) -> list[bool]:
    return [
        (new.score_tenths or 0) < (old.score_tenths or 0)
        for new, old in zip(after, before, strict=True)
    ]


async def confirm_failures(loop: Loop, added: Sequence[Endpoint]) -> list[Score]:
    """Let several minutes pass, in which failures are confirmed; return the scores after them."""
    clock = loop.clock
    assert isinstance(clock, Clock)
    began = clock.now
    for wait in (MINUTE_MS, 5 * MINUTE_MS):
        clock.now = began + wait
        await loop.probe()
    await loop.score()
    return [await loop.score_of(target.id) for target in added]


@pytest.mark.parametrize("references", [("https://api.site-0.example/",), ()])
async def test_own_outage_changes_no_score(empty: Store, references: tuple[str, ...]) -> None:
    """With references, because none answers; without, because unrelated sites fail together."""
    async with (
        silent_sites() as (mapped, added),
        worker(empty, mapped, references=references) as loop,
    ):
        before = await past(loop, added)
        await loop.probe()
        reason = "no-connectivity" if references else "common-mode"
        for target in added:
            newest = (await loop.history(target.id))[-1]
            assert newest.attribution is Attribution.LOCAL
            assert newest.reason == reason
        await loop.score()
        after = [await loop.score_of(target.id) for target in added]
    assert [row.score_tenths for row in after] == [row.score_tenths for row in before]
    assert [row.grade for row in after] == [row.grade for row in before]
    assert [row.recommendation for row in after] == [row.recommendation for row in before]
    assert [row.stats.excluded for row in after] == [((reason, 1),)] * len(added)


async def test_without_a_reference_an_unknown_name_has_no_attribution(
    empty: Store,
) -> None:
    """One host in its wave: an expired domain cannot be distinguished from a failing resolver."""

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


async def test_targets_that_are_down_while_the_network_works_are_attributed(
    empty: Store, tmp_path: Path
) -> None:
    async with (
        silent_sites(3) as (mapped, added),
        run_counting_seller(tmp_path, {"ok.example"}) as server,
    ):
        everyone = mapped | server.mapped
        reference = ("https://ok.example/",)
        async with worker(empty, everyone, references=reference, ca_file=server.ca_file) as loop:
            before = await past(loop, added)
            await loop.probe()
            after = await confirm_failures(loop, added)
    assert are_lower(after, before) == [True] * 3


@pytest.mark.parametrize("references", [("https://ok.example/",), ()])
async def test_nine_of_seventeen_failures_in_one_wave_are_attributed_to_the_targets(
    empty: Store, tmp_path: Path, references: tuple[str, ...]
) -> None:
    """The others answer at the same time, which shows that the network works."""
    good = [endpoint(f"https://api.good-{number}.example/paid") for number in range(8)]
    hosts = {target.host for target in good} | {"ok.example"}
    async with silent_sites(9) as (mapped, added), run_counting_seller(tmp_path, hosts) as server:
        everyone = mapped | server.mapped
        async with worker(empty, everyone, references=references, ca_file=server.ca_file) as loop:
            before = await past(loop, [*added, *good])
            assert (await loop.probe())["probed"] == 17
            newest = [(await loop.history(target.id))[-1] for target in added]
            after = await confirm_failures(loop, [*added, *good])
    assert {result.attribution for result in newest} == {Attribution.TARGET}
    lowered = are_lower(after, before)
    assert lowered[:9] == [True] * 9


# Trust anchors and clock of this machine


REFERENCE = "https://reference.example/"
SITES = [f"https://api.site-{number}.example/paid" for number in range(40)]


def hosts_of(urls: Sequence[str]) -> set[str]:
    return {url.split("/")[2] for url in urls}


@contextlib.asynccontextmanager
async def no_tls_of_ours(tmp_path: Path, how: str) -> AsyncIterator[Counting]:
    """40 unrelated sites and a reference whose certificates this machine cannot verify."""
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = past if how == "wrong clock" else None
    hosts = hosts_of([*SITES, REFERENCE])
    async with run_counting_seller(tmp_path, hosts, not_after=expired) as server:
        if how == "wrong CA file":
            trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
            server.ca_file = str(tmp_path / "other.pem")
        yield server


@pytest.mark.parametrize("how", ["wrong CA file", "wrong clock"])
@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_own_tls_outage_changes_no_score(
    empty: Store, tmp_path: Path, references: tuple[str, ...], how: str
) -> None:
    added = [endpoint(url) for url in SITES]
    async with (
        no_tls_of_ours(tmp_path, how) as server,
        worker(empty, server.mapped, ca_file=server.ca_file, references=references) as loop,
    ):
        before = await past(loop, added[:6])
        await loop.add(*added[6:])
        assert (await loop.probe())["tls-failure"] == len(added)
        newest = [(await loop.history(target.id))[-1] for target in added]
        await loop.score()
        after = [await loop.score_of(target.id) for target in added[:6]]
    assert {result.attribution for result in newest} == {Attribution.LOCAL}
    assert {r.reason for r in newest} == {"no-connectivity" if references else "common-mode"}
    assert [row.score_tenths for row in after] == [row.score_tenths for row in before]
    assert [row.recommendation for row in after] == [row.recommendation for row in before]


@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_own_tls_outage_is_detected_in_waves_of_one(
    empty: Store, tmp_path: Path, references: tuple[str, ...]
) -> None:
    """Without references and other answers, a bad certificate looks like a wrong local clock."""
    added = [endpoint(url) for url in SITES[:4]]
    async with (
        no_tls_of_ours(tmp_path, "wrong CA file") as server,
        worker(empty, server.mapped, ca_file=server.ca_file, references=references) as loop,
    ):
        loop.settings = replace(loop.settings, wave=1)
        await loop.add(*added)
        clock = loop.clock
        assert isinstance(clock, Clock)
        results = []
        for _ in added:
            clock.now += 10 * SECOND_MS
            assert (await loop.probe())["probed"] == 1
        for target in added:
            results += await loop.history(target.id)
    attributions = [result.attribution for result in sorted(results, key=lambda result: result.at)]
    assert attributions == [Attribution.LOCAL if references else Attribution.UNKNOWN] * 4


@pytest.mark.parametrize("others", [0, 6])
async def test_one_bad_certificate_is_attributed_to_its_owner_while_others_work(
    empty: Store, tmp_path: Path, others: int
) -> None:
    """For a single endpoint, because the reference answers; with others, because they answer."""
    good = [endpoint(url) for url in SITES[:others]]
    bad = endpoint("https://api.careless.example/paid")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    async with (
        run_counting_seller(tmp_path, hosts_of([*SITES, REFERENCE])) as server,
        run_counting_seller(stranger, {bad.host}) as careless,
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
    assert (result.outcome, result.attribution) == (Outcome.TLS, Attribution.TARGET)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("references", [(REFERENCE,), ()])
async def test_private_addresses_from_the_resolver_need_a_reference_to_count(
    empty: Store, tmp_path: Path, count: int, references: tuple[str, ...]
) -> None:
    added = [endpoint(f"https://api.shop-{number}.com/paid") for number in range(count)]
    async with (
        run_counting_seller(tmp_path, hosts_of([REFERENCE])) as server,
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
        newest = [(await loop.history(target.id))[-1] for target in added]
        after = await confirm_failures(loop, added)
    whose = (Attribution.TARGET, "address-not-public")
    nobodys = (Attribution.UNKNOWN, "no-reference")
    assert {(r.attribution, r.reason) for r in newest} == {whose if references else nobodys}
    lowered = are_lower(after, before)
    assert set(lowered) == {bool(references)}
