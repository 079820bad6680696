"""`POST /v1/x402-trust-bulk-{10,50,100,200,500}` and the tool `x402_trust_bulk`, bought through the
complete gate with a facilitator that accepts every payment, on both databases.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest
from mcp import Client
from mcp_types import CallToolResult, RequestParamsMeta
from sqlalchemy import Connection
from tests.support import prices
from tests.support.http_service import NOW
from tests.support.paid_service import USDC, PaidService, open_paid_service
from tests.support.probe_rows import record_probe

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS, iso, parse_dollars
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, scoring
from tollgauge.monitor.reports.snapshots import snapshot
from tollgauge.monitor.reports.trust_reports import Scored
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.probes import probes
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow
from tollgauge.web.mcp import transport
from tollgauge.web.paid.products import bulk

QUOTE = Quote(network="eip155:8453", asset=USDC, amount=10_000, pay_to="0x" + "cc" * 20)
FRESH = NOW - 15 * MINUTE_MS
STALE = FRESH - 1
TOOL = "x402_trust_bulk"


def url(number: int) -> str:
    return f"https://seller{number}.example.com/v1/now"


def urls(count: int) -> list[str]:
    return [url(number) for number in range(count)]


class PaidServer(PaidService):
    """A service that sells lists of scores, and the requests to its facilitator."""

    async def ask(self, resources: object, *, tier: int = 10) -> httpx.Response:
        return await self.send({"resources": resources}, tier=tier)

    async def send(self, body: object, *, tier: int = 10) -> httpx.Response:
        return await self.post(prices.BULK[tier], body)

    async def buy(self, resources: object, *, tier: int = 10) -> Any:
        answer = await self.ask(resources, tier=tier)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def call(
        self, arguments: dict[str, Any], payment: dict[str, Any] | None = None
    ) -> CallToolResult:
        meta = cast("RequestParamsMeta", {"x402/payment": payment}) if payment else None
        server = transport.build_server(self.running.service.server())
        async with Client(server) as client:
            return await client.call_tool(TOOL, arguments, meta=meta)


@pytest.fixture
async def paid_server() -> AsyncIterator[PaidServer]:
    async with open_paid_service("sqlite://", PaidServer) as server:
        yield server


@pytest.fixture
async def each_shop(database: str) -> AsyncIterator[PaidServer]:
    async with open_paid_service(database, PaidServer) as server:
        yield server


def probe(at: int) -> ProbeResult:
    return ProbeResult(
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


def endpoint(number: int) -> Endpoint:
    return Endpoint(
        id=endpoint_id(url(number)),
        resource=url(number),
        host=f"seller{number}.example.com",
        first_seen=NOW - DAY_MS,
        last_seen=NOW,
        quote=QUOTE,
        sources=("test",),
    )


async def insert_endpoints(
    store: Store, numbers: Iterable[int], *, scored_at: int | None = None
) -> None:
    """Insert endpoints with one probe each, an hour old, and with a score of the given time."""

    def insert(tx: Connection) -> None:
        for one in map(endpoint, numbers):
            endpoints.insert(tx, one)
            record_probe(tx, one.id, probe(NOW - 60 * MINUTE_MS))
            if scored_at is not None:
                seen = scoring.gather(tx, one, as_of=scored_at)
                scores.save(tx, scoring.score_evidence(one.id, seen))

    await store.writing(insert)


async def save_score(store: Store, number: int) -> ScoreRow | None:
    return await store.reading(scores.get, endpoint_id(url(number)))


async def test_bulk_rows_follow_the_order_of_the_request(
    each_shop: PaidServer,
) -> None:
    paid_server = each_shop
    await insert_endpoints(paid_server.store, (1, 2), scored_at=FRESH)
    got = await paid_server.buy([url(2), url(9), url(1)])
    assert [row["resource"] for row in got["results"]] == [url(2), url(9), url(1)]
    assert [row["found"] for row in got["results"]] == [True, False, True]
    known_now = await paid_server.store.reading(rated_endpoints.get_many, [endpoint_id(url(2))])
    row = known_now[endpoint_id(url(2))]
    assert row.score_tenths is not None
    first = got["results"][0]
    assert first == {
        "resource": url(2),
        "found": True,
        "score": row.score_tenths / 10,
        "grade": row.grade,
        "recommendation": row.recommendation,
        "reason": first["reason"],
        "payableNow": first["payableNow"],
        "payable24h": (row.payable_24h_permille or 0) / 1000,
        "confidence": row.confidence_hundredths / 100,
        "probedAt": iso(NOW - 60 * MINUTE_MS),
        "computedAt": iso(FRESH),
        "recomputed": False,
        "scoreRange": first["scoreRange"],
        "amountUsd": 0.01,
        "payTo": QUOTE.pay_to,
        "flags": first["flags"],
        "probed_at": iso(NOW - 60 * MINUTE_MS),
        "computed_at": iso(FRESH),
    }
    assert first["reason"].startswith("Checks cover less than an hour so far. Caution: ")
    assert 0.9 < first["payable24h"] < first["payableNow"] <= 1
    assert first["scoreRange"]["low"] <= first["score"] <= first["scoreRange"]["high"]
    assert got["recomputeLimit"] == got["recompute_limit"] == 50
    assert got["recomputeLimitHit"] is got["recompute_limit_hit"] is False
    assert paid_server.asked == {"/verify": 1, "/settle": 1}


async def test_unknown_resource_is_charged_and_not_found(paid_server: PaidServer) -> None:
    got = await paid_server.buy([url(1)])
    assert got["results"] == [
        {
            "resource": url(1),
            "found": False,
            "score": None,
            "grade": None,
            "recommendation": "unverified",
            "reason": "This resource is not monitored.",
            "payableNow": None,
            "payable24h": None,
            "confidence": 0,
            "probedAt": None,
            "computedAt": None,
            "recomputed": False,
            "scoreRange": {"low": None, "point": None, "high": None},
            "amountUsd": None,
            "payTo": None,
            "flags": {},
            "probed_at": None,
            "computed_at": None,
        }
    ]
    assert paid_server.asked["/settle"] == 1


async def test_endpoint_that_is_not_public_is_scored(
    paid_server: PaidServer,
) -> None:
    resource = parse_resource(url(1))
    await paid_server.store.writing(discovery.adopt, resource, source="request", now=NOW - DAY_MS)
    await paid_server.store.writing(record_probe, resource.id, probe(NOW - 60 * MINUTE_MS))
    assert await paid_server.store.reading(snapshot, resource.id, now=NOW) is None
    (row,) = (await paid_server.buy([url(1)]))["results"]
    assert (row["found"], row["recomputed"]) == (True, True)
    assert row["score"] is not None


async def test_duplicate_resource_counts_once(paid_server: PaidServer) -> None:
    await insert_endpoints(paid_server.store, (0,), scored_at=FRESH)
    same = [url(0), f"{url(0)}?city=Oslo", url(0).replace("seller0", "SELLER0")]
    got = await paid_server.buy([*urls(10), *same])
    assert [row["resource"] for row in got["results"]] == urls(10)


@pytest.mark.parametrize("tier", prices.BULK)
async def test_tier_limits_the_number_of_resources(paid_server: PaidServer, tier: int) -> None:
    payment_required = await paid_server.running.http.post(f"/v1/x402-trust-bulk-{tier}")
    assert payment_required.status_code == 402
    prices = {10: "45000", 50: "200000", 100: "325000", 200: "400000", 500: "500000"}
    assert payment_required.json()["accepts"][0]["amount"] == prices[tier]
    refused = await paid_server.ask(urls(tier + 1), tier=tier)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["path"] == "resources"
    assert str(tier) in refused.json()["detail"]
    assert not paid_server.asked
    assert len((await paid_server.buy(urls(tier), tier=tier))["results"]) == tier


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ([url(1)], [""]),
        ({}, ["resources"]),
        ({"resources": []}, ["resources"]),
        ({"resources": None}, ["resources"]),
        ({"resources": url(1)}, ["resources"]),
        ({"resource": url(1)}, ["resource"]),
        ({"resources": [url(1), None]}, ["resources[1]"]),
        ({"resources": [url(1), [url(1)]]}, ["resources[1]"]),
        (
            {"resources": ["http://a.example.com/", url(1), "https://127.0.0.1/"]},
            ["resources[0]", "resources[2]"],
        ),
        ({"resources": [""] * 1_000}, [f"resources[{index}]" for index in range(20)]),
    ],
)
async def test_invalid_resources_return_422_with_their_indexes(
    paid_server: PaidServer, body: object, paths: list[str]
) -> None:
    answer = await paid_server.send(body)
    assert answer.status_code == 422, answer.text
    assert [row["path"] for row in answer.json()["errors"]] == paths
    assert not paid_server.asked


async def test_score_older_than_15_minutes_is_recomputed_and_stored(
    each_shop: PaidServer,
) -> None:
    paid_server = each_shop
    await insert_endpoints(paid_server.store, (1,), scored_at=STALE)
    await insert_endpoints(paid_server.store, (2,), scored_at=FRESH)
    await insert_endpoints(paid_server.store, (3,))
    before = await save_score(paid_server.store, 2)
    got = await paid_server.buy([url(1), url(2), url(3)])
    assert [row["recomputed"] for row in got["results"]] == [True, False, True]
    assert got["recomputeLimitHit"] is False
    for number, row in enumerate(got["results"], start=1):
        kept = await save_score(paid_server.store, number)
        assert kept is not None
        assert kept.score_tenths == round(row["score"] * 10)
        assert kept.as_of == (FRESH if number == 2 else NOW)
        assert row["computedAt"] == iso(kept.as_of)
    assert await save_score(paid_server.store, 2) == before
    again = await paid_server.buy([url(1)])
    assert again["results"][0]["recomputed"] is False


async def test_bulk_request_sends_no_probes(paid_server: PaidServer) -> None:
    await insert_endpoints(paid_server.store, (1,), scored_at=STALE)
    await paid_server.buy([url(1), url(2)])
    endpoints_by_id = await paid_server.store.reading(
        endpoints.get_many, [endpoint_id(url(1)), endpoint_id(url(2))]
    )
    kept = await paid_server.store.reading(
        probes.history, endpoint_id(url(1)), since=NOW - 30 * DAY_MS, until=NOW
    )
    assert list(endpoints_by_id) == [endpoint_id(url(1))]
    assert len(kept) == 1


async def test_at_most_50_scores_are_recomputed_oldest_first(paid_server: PaidServer) -> None:
    await insert_endpoints(paid_server.store, range(3), scored_at=STALE)
    await insert_endpoints(paid_server.store, range(3, 51), scored_at=STALE - MINUTE_MS)
    await insert_endpoints(paid_server.store, (51,))
    got = await paid_server.buy(urls(52), tier=100)
    left = [row["resource"] for row in got["results"] if not row["recomputed"]]
    assert left == [url(1), url(2)]
    assert got["results"][1]["computedAt"] == iso(STALE)
    assert got["recomputeLimitHit"] is got["recompute_limit_hit"] is True
    again = await paid_server.buy(urls(52), tier=100)
    assert [row["resource"] for row in again["results"] if row["recomputed"]] == left
    assert again["recomputeLimitHit"] is False


async def test_endpoint_beyond_the_recompute_limit_has_no_score(
    paid_server: PaidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "RECOMPUTE_MS", 0)
    await insert_endpoints(paid_server.store, (1,))
    got = await paid_server.buy([url(1)])
    row = got["results"][0]
    assert (row["found"], row["score"], row["recommendation"]) == (True, None, "unverified")
    assert row["amountUsd"] == 0.01
    assert got["recomputeLimitHit"] is True


async def test_recomputation_stops_after_8_seconds(store: Store) -> None:
    await insert_endpoints(store, range(12))
    stale = [Scored(endpoint=endpoint(number), score=None) for number in range(12)]
    ticks = itertools.count(NOW, SECOND_MS)
    again = await bulk.recompute(store, stale, cadence=NORMAL, clock=lambda: next(ticks))
    # Read once at the start, then once for each endpoint.
    assert [one.endpoint.resource for one in again] == urls(7)


async def test_invalid_evidence_keeps_the_last_score(
    paid_server: PaidServer,
) -> None:
    await insert_endpoints(paid_server.store, (1, 2), scored_at=STALE)
    await paid_server.store.writing(endpoints.update, replace(endpoint(1), first_seen=2**60))
    got = await paid_server.buy([url(1), url(2)])
    assert [row["recomputed"] for row in got["results"]] == [False, True]
    assert got["results"][0]["computedAt"] == iso(STALE)
    assert got["results"][0]["score"] is not None
    assert got["recomputeLimitHit"] is False


async def test_tool_sells_the_smallest_sufficient_tier(paid_server: PaidServer) -> None:
    await insert_endpoints(paid_server.store, (1,), scored_at=FRESH)
    for arguments, tier in (
        ({"resources": urls(10)}, 10),
        ({"resources": [*urls(10), url(1)]}, 10),
        ({"resources": urls(11)}, 50),
        ({"resources": urls(101)}, 200),
        ({"resources": urls(201)}, 500),
        ({"resources": urls(2), "tier": 50}, 50),
        ({"resources": urls(1), "tier": 500}, 500),
    ):
        payment_required = await paid_server.call(arguments)
        terms = payment_required.structured_content
        assert payment_required.is_error
        assert terms is not None
        price = parse_dollars(prices.PRICES[prices.BULK[tier]])
        assert terms["accepts"][0]["amount"] == str(price), arguments
        assert terms["resource"]["url"] == f"mcp://tool/{TOOL}"
    over_http = await paid_server.buy(urls(11), tier=50)
    result = await paid_server.call({"resources": urls(11)}, paid_server.payment(prices.BULK[50]))
    assert not result.is_error, result.structured_content
    assert result.structured_content is not None
    page = result.structured_content
    assert [row[:3] for row in page["rows"]] == [
        [row["resource"], row["recommendation"], row["score"]] for row in over_http["results"]
    ]
    assert result.meta is not None
    assert result.meta["x402/payment-response"]["success"] is True
    cheap = await paid_server.call({"resources": urls(11)}, paid_server.payment(prices.BULK[10]))
    assert cheap.is_error
    assert cheap.structured_content is not None
    assert "accepts" in cheap.structured_content
    assert paid_server.asked["/settle"] == 2


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"resources": urls(501)}, "resources"),
        ({"resources": urls(11), "tier": 10}, "resources"),
        ({"resources": urls(1), "tier": 20}, "tier"),
        ({"resources": urls(1), "tier": "10"}, "tier"),
        ({"resources": urls(1), "tier": [10]}, "tier"),
        ({"resources": urls(1), "tier": None}, "tier"),
        ({"resources": []}, "resources"),
        ({"resources": [url(1), "ftp://a"]}, "resources[1]"),
    ],
)
async def test_tool_rejects_too_many_resources_before_payment(
    paid_server: PaidServer, arguments: dict[str, Any], path: str
) -> None:
    result = await paid_server.call(arguments)
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["status"] == 422
    assert [row["path"] for row in result.structured_content["errors"]] == [path]


async def test_misspelled_tier_is_not_charged(paid_server: PaidServer) -> None:
    result = await paid_server.call(
        {"resources": urls(1), "tiers": 50}, paid_server.payment(prices.BULK[10])
    )
    assert result.structured_content is not None
    assert result.structured_content["code"] == "unknown-field"
    assert not paid_server.asked
