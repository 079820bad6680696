"""`POST /v1/x402-history`, bought through the complete gate; the facilitator accepts everything."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import Connection
from tests.support.databases import on_sqlite
from tests.support.http_service import NOW
from tests.support.paid_service import USDC, PaidService, header, open_paid_service
from tests.support.schemas import check_answer

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of, iso
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.evidence import TermChange
from tollgauge.monitor import discovery, terms
from tollgauge.store.chain import cursors
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.ledger import payments
from tollgauge.store.probes import archive, probe_rows, probes
from tollgauge.web.edge.messages import accepts_gzip
from tollgauge.web.paid.products import history
from tollgauge.web.paid.products.history import HistoryResponse

RESOURCE = parse_resource("https://api.example.com/v1/weather")
PATH = "/v1/x402-history"
QUOTE = Quote(network="eip155:8453", asset=USDC, amount=10_000, pay_to="0x" + "cc" * 20)


class PaidServer(PaidService):
    """A service with a history to sell, and the requests to its facilitator."""

    async def ask(
        self, body: object, *, payment: str | None = None, **headers: str
    ) -> httpx.Response:
        return await self.post(PATH, body, paid=payment, **headers)

    def header(self) -> str:
        return header(self.payment(PATH))

    async def live(self, results: Sequence[ProbeResult], *, close: bool = False) -> None:
        """Let probes have happened; with `close`, days gone by are packed."""
        await self.store.writing(discovery.adopt, RESOURCE, source="test", now=results[0].at)
        await self.store.writing(probes.record_many, RESOURCE.id, results)
        while close:
            close = bool(
                await self.store.writing(archive.close_days, before_day=day_of(NOW), limit=500)
            )


@pytest.fixture
async def shop(database: str) -> AsyncIterator[PaidServer]:
    async with open_paid_service(database, PaidServer) as server:
        yield server


def probe(at: int, **changes: Any) -> ProbeResult:
    base = ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(dns=1, connect=20, tls=40, ttfb=99, total=161),
        status=402,
        compliance=100,
        compliant=True,
        payable=True,
        version=2,
        quote=QUOTE,
        accepts=1,
    )
    return replace(base, **changes)


def down(at: int) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.TIMEOUT,
        attribution=Attribution.TARGET,
        up=False,
        timings=Timings(dns=1, total=10_000),
        reason="timeout",
    )


def make_history(days: int) -> list[ProbeResult]:
    """A probe every fifteen minutes, jittered, some of them down."""
    dice = random.Random(1)
    times = (
        at + dice.randrange(60_000)
        for at in range(NOW - days * DAY_MS + 1, NOW - 60_000, 15 * MINUTE_MS)
    )
    return [
        down(at)
        if dice.random() < 0.02
        else probe(at, timings=Timings(ttfb=dice.randrange(400), total=400 + dice.randrange(900)))
        for at in times
    ]


async def test_history_contains_every_probe_oldest_first(
    shop: PaidServer,
) -> None:
    ours = probe(NOW - HOUR_MS, attribution=Attribution.LOCAL, outcome=Outcome.THROTTLED, up=False)
    strange = replace(QUOTE, asset="0x" + "99" * 20, amount=10**30)
    results = [
        probe(NOW - 3 * DAY_MS),
        down(NOW - 2 * DAY_MS),
        replace(ours, status=429, quote=None, compliant=False),
        probe(NOW - MINUTE_MS, quote=strange, compliant=False),
    ]
    await shop.live(results, close=True)
    answer = await shop.ask({"resource": RESOURCE.url, "days": 7})
    assert answer.status_code == 200
    got = answer.json()
    assert got["resource"] == RESOURCE.url
    assert (got["from"], got["to"]) == (iso(NOW - 7 * DAY_MS), iso(NOW))
    assert (got["days"], got["truncated"]) == (7, False)
    common = {"attribution": "theirs", "outcome": "payment-required", "up": True, "status": 402}
    assert got["probes"] == [
        common
        | {"ts": iso(NOW - 3 * DAY_MS), "latencyMs": 161, "compliant": True}
        | {"amount": "10000", "amountUsd": 0.01},
        {
            "ts": iso(NOW - 2 * DAY_MS),
            "outcome": "timeout",
            "up": False,
            "compliant": False,
            "attribution": "theirs",
        },
        {
            "ts": iso(NOW - HOUR_MS),
            "outcome": "throttled",
            "up": False,
            "status": 429,
            "compliant": False,
            "attribution": "ours",
        },
        common
        | {"ts": iso(NOW - MINUTE_MS), "latencyMs": 161, "compliant": False}
        | {"amount": "1" + "0" * 30},
    ]
    check_answer(HistoryResponse, answer.json())


@on_sqlite
async def test_only_simulated_history_is_marked(shop: PaidServer) -> None:
    await shop.live([probe(NOW - HOUR_MS)])
    real = await shop.ask({"resource": RESOURCE.url})
    known = await shop.store.writing(endpoints.get, RESOURCE.id)
    assert known is not None
    await shop.store.writing(endpoints.update, replace(known, simulated=True))
    made_up = await shop.ask({"resource": RESOURCE.url})
    assert "simulated" not in real.json()
    assert made_up.json()["simulated"] is True
    check_answer(HistoryResponse, made_up.json())


async def test_history_contains_listing_and_price_changes_with_their_source(
    shop: PaidServer,
) -> None:
    await shop.live([probe(NOW - 5 * DAY_MS)])
    for days_ago, quote in ((5, QUOTE), (2, replace(QUOTE, amount=20_000))):
        known = await shop.store.writing(endpoints.get, RESOURCE.id)
        assert known is not None
        await shop.store.writing(terms.observe_quotes, {known.id: (quote, NOW - days_ago * DAY_MS)})
    got = (await shop.ask({"resource": RESOURCE.url, "days": 3})).json()
    assert got["discovery"] == [
        {
            "ts": iso(NOW - 2 * DAY_MS),
            "event": "price-changed",
            "source": "probe",
            "before": "10000",
            "after": "20000",
        }
    ]
    assert got["probes"] == []
    check_answer(HistoryResponse, got)


@on_sqlite
async def test_pay_to_change_shows_whether_it_was_announced(shop: PaidServer) -> None:
    await shop.live([probe(NOW - 5 * DAY_MS)])
    change = TermChange(
        at=NOW - DAY_MS, kind="payto-changed", source="probe", before="0xaa", after="0xbb"
    )
    changes = (change, replace(change, at=NOW, before="0xbb", after="0xcc", announced=True))
    await shop.store.writing(listings.add_events, [(RESOURCE.id, event) for event in changes])
    got = (await shop.ask({"resource": RESOURCE.url, "days": 3})).json()
    alone, announced = got["discovery"]
    assert "announced" not in alone
    assert announced["announced"] is True
    check_answer(HistoryResponse, got)


async def test_history_contains_at_most_100_largest_payers(shop: PaidServer) -> None:
    await shop.live([probe(NOW - 5 * DAY_MS)])
    await shop.store.writing(terms.observe_quotes, {RESOURCE.id: (QUOTE, NOW - DAY_MS)})
    assert (await shop.ask({"resource": RESOURCE.url})).json()["payers"] == []
    await shop.store.writing(_insert_payers, 120)
    got = (await shop.ask({"resource": RESOURCE.url})).json()
    assert len(got["payers"]) == 100
    assert got["payers"][0] == {
        "payer": "0x" + (119).to_bytes(20).hex(),
        "transfers": 1,
        "paidUsd": 0.000119,
        "returnedUsd": 0.0,
    }
    check_answer(HistoryResponse, got)


def _insert_payers(tx: Connection, payers: int) -> None:
    """Store payments of `count` wallets; each pays as many atomic units as its number."""
    start = cursors.start(tx, 8453, BlockHeader(1, bytes(32), bytes(32), NOW - HOUR_MS))
    before = cursors.add_wallets(tx, start, [QUOTE.pay_to])
    block = BlockHeader(2, bytes(range(32)), bytes(32), NOW - MINUTE_MS)
    wallet = bytes.fromhex(QUOTE.pay_to[2:])
    entries = [
        Entry(2, block.hash, n, wallet, n.to_bytes(20), True, n, bytes(32), bytes(32), block.at)
        for n in range(1, payers)
    ]
    cursors.advance(tx, before, [block], entries, finalized=1)


async def test_history_window_is_exact_and_30_days_by_default(shop: PaidServer) -> None:
    asked: tuple[tuple[dict[str, Any], float], ...] = (
        ({}, 30),
        ({"days": 1}, 1),
        ({"days": 90}, 90),
        ({"days": 1.5}, 1.5),
        ({"days": 2.0}, 2.0),
    )
    instants = sorted(
        {NOW - round(days * DAY_MS) + shift for _, days in asked for shift in (0, 1, HOUR_MS)}
    )
    await shop.live([probe(at) for at in (*instants, NOW)], close=True)
    for body, days in asked:
        begin = NOW - round(days * DAY_MS)
        got = (await shop.ask({"resource": f"{RESOURCE.url}?q=1#f", **body})).json()
        inside = [at for at in (*instants, NOW) if at > begin]
        assert [row["ts"] for row in got["probes"]] == [iso(at) for at in inside]
        assert (got["days"], got["from"]) == (days, iso(begin))


@on_sqlite
async def test_invalid_days_return_422_without_charge(
    shop: PaidServer,
) -> None:
    wrong: tuple[object, ...] = (0, 0.999, 90.001, 91, -1, 10**400, True, False)
    for days in (*wrong, "30", None, [], {}, [30]):
        answer = await shop.ask({"resource": RESOURCE.url, "days": days})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input"), days
        assert [error["path"] for error in answer.json()["errors"]] == ["days"]
    assert not shop.asked


@on_sqlite
async def test_infinite_days_are_rejected(shop: PaidServer) -> None:
    for text in ("1e999", "NaN", "-Infinity"):
        answer = await shop.running.http.post(
            "/v1/x402-history",
            content=f'{{"resource": "{RESOURCE.url}", "days": {text}}}',
            headers={"PAYMENT-SIGNATURE": shop.header()},
        )
        assert answer.status_code == 400, text
    assert not shop.asked


@on_sqlite
async def test_unknown_resource_returns_404_and_keeps_the_payment_unused(
    shop: PaidServer,
) -> None:
    await shop.live([probe(NOW - HOUR_MS)])
    payment = shop.header()
    unknown = await shop.ask({"resource": "https://api.example.com/never"}, payment=payment)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-resource")
    assert shop.asked["/settle"] == 0
    known = await shop.ask({"resource": RESOURCE.url}, payment=payment)
    assert known.status_code == 200
    assert shop.asked["/settle"] == 1


@on_sqlite
async def test_unprobed_endpoint_has_an_empty_history(shop: PaidServer) -> None:
    await shop.store.writing(discovery.adopt, RESOURCE, source="test", now=NOW)
    answer = await shop.ask({"resource": RESOURCE.url})
    assert answer.status_code == 200
    assert (answer.json()["discovery"], answer.json()["probes"]) == ([], [])
    check_answer(HistoryResponse, answer.json())


@pytest.fixture(scope="module")
def ninety_days() -> list[ProbeResult]:
    """8,640 probes of one endpoint."""
    return make_history(90)


@pytest.fixture(scope="module")
def large_file(
    empty_sqlite: Path, tmp_path_factory: pytest.TempPathFactory, ninety_days: list[ProbeResult]
) -> Path:
    """A database with ninety days of an endpoint; all days but today are packed."""
    path = tmp_path_factory.mktemp("history") / "large.db"
    shutil.copy(empty_sqlite, path)

    async def fill() -> None:
        async with open_paid_service(f"sqlite:///{path}", PaidServer) as server:
            await server.live(ninety_days, close=True)

    asyncio.run(fill())
    return path


@pytest.fixture
async def large(large_file: Path, tmp_path: Path) -> AsyncIterator[PaidServer]:
    path = shutil.copy(large_file, tmp_path / "large.db")
    async with open_paid_service(f"sqlite:///{path}", PaidServer) as server:
        yield server


async def test_ninety_days_are_complete_and_each_is_decoded_once(
    large: PaidServer, ninety_days: list[ProbeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[int] = Counter()
    unpack = probe_rows.unpack_history

    def count_decoded(packed: bytes) -> Any:
        seen = unpack(packed)
        read[day_of(seen[0][0])] += 1
        return seen

    monkeypatch.setattr(probes, "unpack_history", count_decoded)
    got = (await large.ask({"resource": RESOURCE.url, "days": 90})).json()
    check_answer(HistoryResponse, got | {"probes": got["probes"][:100]})
    assert [row["ts"] for row in got["probes"]] == [iso(result.at) for result in ninety_days]
    assert not got["truncated"]
    assert set(read.values()) == {1}
    assert len(read) >= 90


@on_sqlite
async def test_probe_json_equals_the_json_of_its_fields(
    shop: PaidServer,
) -> None:
    unpriced = replace(QUOTE, asset="0x" + "99" * 20, amount=2**256 - 1)
    kinds = [
        probe(0),
        down(0),
        probe(0, status=200, outcome=Outcome.OPEN, quote=None, compliant=False),
        probe(0, quote=unpriced, confirms=True),
        replace(down(0), confirms=True),
        probe(0, up=False, attribution=Attribution.LOCAL, outcome=Outcome.THROTTLED, status=429),
    ]
    results = [
        replace(kinds[number % len(kinds)], at=at)
        for number, at in enumerate(range(NOW - 2 * DAY_MS, NOW, 3_599_500))
    ]
    await shop.live(results, close=True)
    answer = await shop.ask({"resource": RESOURCE.url, "days": 7})
    rows = [
        {
            "ts": iso(result.at),
            "outcome": result.outcome.value,
            "up": result.up,
            "compliant": result.compliant,
            "attribution": result.attribution.value,
            **({} if result.status is None else {"status": result.status}),
            **({"latencyMs": result.timings.total} if result.up else {}),
            **({} if result.quote is None else {"amount": str(result.quote.amount)}),
            **({"amountUsd": 0.01} if result.quote == QUOTE else {}),
            **({"confirms": True} if result.confirms else {}),
        }
        for result in results
    ]
    assert b'"probes":' + orjson.dumps(rows) + b',"truncated"' in answer.content


async def test_large_answer_is_compressed_on_request_and_stored_plain(
    large: PaidServer,
) -> None:
    payment, body = large.header(), {"resource": RESOURCE.url, "days": 90}
    sent: dict[str, bytes] = {}
    for coding in ("identity", "gzip, deflate, br", "gzip;q=0, *;q=0.1"):
        headers = {"PAYMENT-SIGNATURE": payment, "Accept-Encoding": coding}
        request = large.running.http.build_request(
            "POST", "/v1/x402-history", json=body, headers=headers
        )
        answer = await large.running.http.send(request, stream=True)
        sent[coding] = b"".join([part async for part in answer.aiter_raw()])
        assert answer.status_code == 200
        assert "Accept-Encoding" in answer.headers["Vary"]
        assert int(answer.headers["Content-Length"]) == len(sent[coding])
        assert ("Content-Encoding" in answer.headers) == coding.startswith("gzip,")
    plain, packed, refused = sent.values()
    assert plain == refused == gzip.decompress(packed)
    assert len(packed) * 8 < len(plain)
    assert large.asked["/settle"] == 1
    row = (await large.store.reading(payments.latest, limit=1))[0]
    assert row.answer is not None
    assert row.answer.body == plain


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("identity", False),
        ("br", False),
    ],
)
def test_gzip_is_sent_only_if_accepted(header: str, accepted: bool) -> None:
    assert accepts_gzip(header.encode()) is accepted


@on_sqlite
async def test_terms_describe_the_history(shop: PaidServer) -> None:
    terms = await shop.running.http.get(PATH)
    described = terms.json()["resource"]["description"]
    assert described.startswith("Observation history of a pay-per-call (x402) endpoint")
    assert not re.search(r"\b[A-Z][a-z]+[A-Z]", described)  # no class of the program


def test_documented_history_matches_its_schema() -> None:
    check_answer(HistoryResponse, history.PRODUCT.answer)
