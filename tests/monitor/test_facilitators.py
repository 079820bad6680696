"""The record of the configured facilitator, kept from its real replies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.databases import on_sqlite

from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.monitor import facilitators
from tollgauge.monitor.facilitators import CHECK_MS, FacilitatorRecord, SupportedChange

pytestmark = on_sqlite

NOW = 1_790_000_000_000
FIRST, SECOND = "0x" + "ab" * 20, "0x" + "cd" * 20
EXACT, UPTO = "v2 exact eip155:8453", "v2 upto eip155:8453"


@dataclass
class Played:
    """A facilitator whose reply can change, and the number of requests that it received."""

    url: str = ""
    schemes: tuple[str, ...] = ("exact",)
    signers: tuple[str, ...] = (FIRST,)
    status: int = 200
    asked: int = 0
    now: int = NOW
    record: list[FacilitatorRecord] = field(default_factory=list)

    async def answer(self, _: Request) -> Response:
        self.asked += 1
        kinds: list[dict[str, Any]] = [
            {"x402Version": 2, "scheme": scheme, "network": "eip155:8453"}
            for scheme in self.schemes
        ]
        body = {"kinds": kinds, "extensions": [], "signers": {"eip155:*": list(self.signers)}}
        return JSONResponse(body, self.status)

    async def read(self, store: Store, client: Facilitator) -> FacilitatorRecord:
        await facilitators.read_signers(store, client, clock=lambda: self.now)
        record = (await store.reading(facilitators.report)).configured
        assert record is not None
        return record


@pytest.fixture
async def played() -> AsyncIterator[Played]:
    played = Played()
    async with serve(Starlette(routes=[Route("/supported", played.answer)])) as port:
        played.url = f"http://127.0.0.1:{port}"
        yield played


@pytest.fixture
async def client(played: Played) -> AsyncIterator[Facilitator]:
    client = Facilitator(FacilitatorSettings(url=played.url))
    yield client
    await client.close()


async def test_signers_are_those_of_the_last_answer(
    store: Store, played: Played, client: Facilitator
) -> None:
    signers = await facilitators.read_signers(store, client, clock=lambda: NOW)
    assert signers == {bytes.fromhex(FIRST[2:])}
    played.status, played.now = 503, NOW + CHECK_MS
    record = await played.read(store, client)
    assert (record.signers, record.answered) == ((FIRST,), False)


async def test_one_request_per_interval_serves_all_chains(
    store: Store, played: Played, client: Facilitator
) -> None:
    for played.now in (NOW, NOW + 1, NOW + CHECK_MS - 1):
        await played.read(store, client)
    assert played.asked == 1
    played.now = NOW + CHECK_MS
    await played.read(store, client)
    assert played.asked == 2


async def test_changes_of_kinds_and_signers_are_recorded_newest_first(
    store: Store, played: Played, client: Facilitator
) -> None:
    assert (await played.read(store, client)).changes == ()
    played.schemes, played.now = ("exact", "upto"), NOW + CHECK_MS
    await played.read(store, client)
    played.signers, played.now = (SECOND,), NOW + 2 * CHECK_MS
    record = await played.read(store, client)
    assert record.changes == (
        SupportedChange(at=NOW + 2 * CHECK_MS, added=(SECOND,), removed=(FIRST,)),
        SupportedChange(at=NOW + CHECK_MS, added=(UPTO,), removed=()),
    )
    assert record.kinds == (EXACT, UPTO)


async def test_requests_without_an_answer_change_nothing_but_the_availability(
    store: Store, played: Played, client: Facilitator
) -> None:
    await played.read(store, client)
    played.status, played.now = 500, NOW + CHECK_MS
    record = await played.read(store, client)
    assert record.changes == ()
    assert record.kinds == (EXACT,)
    assert record.days == ((day_of(NOW), 2, 1),)


async def test_days_of_the_last_month_are_kept(
    store: Store, played: Played, client: Facilitator
) -> None:
    await played.read(store, client)
    played.now = NOW + (facilitators.RECORD_DAYS - 1) * DAY_MS
    assert len((await played.read(store, client)).days) == 2
    played.now += DAY_MS
    record = await played.read(store, client)
    assert [day for day, *_ in record.days] == [day_of(played.now) - 1, day_of(played.now)]


async def test_another_facilitator_starts_a_new_record(
    store: Store, played: Played, client: Facilitator
) -> None:
    await played.read(store, client)
    other = Facilitator(FacilitatorSettings(url=played.url.replace("127.0.0.1", "localhost")))
    record = await played.read(store, other)
    await other.close()
    assert (record.host, record.days, record.changes) == ("localhost", ((day_of(NOW), 1, 1),), ())


async def test_without_a_facilitator_there_is_no_record(store: Store) -> None:
    client = Facilitator(FacilitatorSettings())
    assert await facilitators.read_signers(store, client, clock=lambda: NOW) == frozenset()
    await client.close()
    assert (await store.reading(facilitators.report)).configured is None
