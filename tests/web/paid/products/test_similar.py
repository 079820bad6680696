"""`POST /v1/similar`, bought through the complete gate with a facilitator that accepts everything;
and the free count of better alternatives.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.support.databases import on_sqlite
from tests.support.http_service import BASE, NOW
from tests.support.paid_service import USDC, PaidService, header, open_paid_service
from tests.support.schemas import check_answer
from tests.support.score_rows import stored_score

from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.similarity.tokenizer import ProviderText, WeightedTerms, weigh_terms
from tollgauge.db.engine import Store
from tollgauge.jobs import score as job
from tollgauge.monitor import alternatives as module
from tollgauge.monitor import scoring
from tollgauge.monitor.alternatives import Alternatives, IndexBuilding
from tollgauge.monitor.reports import endpoint as reports_endpoint
from tollgauge.monitor.reports import snapshots
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow
from tollgauge.web.paid.products.similar import SimilarResponse

WEATHER = "Current weather and forecast for any city"
SCORED = scoring.score_evidence("", Evidence(resource="", as_of=NOW, first_seen=NOW))
RESULT, EVIDENCE = SCORED.result, SCORED.evidence


def quote(amount: int, pay_to: str) -> Quote:
    return Quote(network="eip155:8453", asset=USDC, amount=amount, pay_to=pay_to)


def endpoint(name: str, text: str = WEATHER, **changes: object) -> Endpoint:
    resource = f"https://{name}.example.com/v1/now"
    base = Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=f"{name}.example.com",
        first_seen=NOW,
        last_seen=NOW,
        description=text,
        quote=quote(10_000, f"0x{endpoint_id(name)}"),
        sources=("test",),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def score(one: Endpoint, tenths: int | None, **changes: object) -> ScoreRow:
    base = {
        "as_of": NOW,
        "grade": None if tenths is None else "A",
        "recommendation": "unverified" if tenths is None else "proceed",
        "confidence_hundredths": 75,
        "uptime_tenths": tenths,
        "compliant": True,
        "evidence": EVIDENCE,
        "result": RESULT,
    }
    return stored_score(one.id, tenths, **(base | changes))


async def add(store: Store, one: Endpoint, tenths: int | None = None, **changes: object) -> None:
    await store.writing(endpoints.insert, one)
    await store.writing(scores.save, score(one, tenths, **changes))


async def market(store: Store) -> dict[str, Endpoint]:
    """An endpoint to replace, two better ones, and endpoints that are excluded."""
    rows = {
        "asked": (endpoint("asked"), 500, {}),
        "twin": (endpoint("twin", quote=quote(9_999, "0x01")), 900, {"grade": "A"}),
        "cousin": (endpoint("cousin", f"{WEATHER} with air quality", quote=None), 551, {}),
        "worse": (endpoint("worse"), 400, {}),
        "equal": (endpoint("equal"), 500, {}),
        "avoided": (endpoint("avoided"), 800, {"recommendation": "avoid"}),
        "gone": (endpoint("gone", status=Listing.DELISTED), 900, {}),
        "other": (endpoint("other", "Translate a text to any language"), 990, {}),
        "unmeasured": (endpoint("unmeasured"), None, {}),
        "sister": (endpoint("sister", quote=quote(1, "0x" + endpoint_id("asked"))), 990, {}),
    }
    neighbour = "https://asked.example.com/v2/now"
    rows["neighbour"] = (
        endpoint(
            "neighbour", id=endpoint_id(neighbour), resource=neighbour, host="asked.example.com"
        ),
        990,
        {},
    )
    for one, tenths, changes in rows.values():
        await add(store, one, tenths, **changes)
    return {name: row[0] for name, row in rows.items()}


class PaidServer(PaidService):
    """A service that sells alternatives, and the requests to its facilitator."""

    async def ask(self, **body: object) -> httpx.Response:
        return await self.send(body)

    async def send(self, body: object) -> httpx.Response:
        return await self.post("/v1/similar", body)


@pytest.fixture
async def shop() -> AsyncIterator[PaidServer]:
    async with open_paid_service("sqlite://", PaidServer) as server:
        yield server


async def test_better_endpoints_of_the_same_purpose_are_ranked(shop: PaidServer) -> None:
    known = await market(shop.store)
    answer = await shop.ask(resource=known["asked"].resource)
    assert answer.status_code == 200, answer.text
    got = answer.json()
    check_answer(SimilarResponse, got)
    assert (got["resource"], got["score"]) == (known["asked"].resource, 50.0)
    assert got["alternatives"][0] == {
        "resource": known["twin"].resource,
        "score": 90.0,
        "grade": "A",
        "recommendation": "proceed",
        "payable24h": None,
        "confidence": 0.75,
        "similarity": got["alternatives"][0]["similarity"],
        "amountUsd": 0.009999,
        "cheaper": True,
        "network": "eip155:8453",
        "endpointPage": f"{BASE}/endpoint/{known['twin'].id}",
    }
    assert [row["resource"] for row in got["alternatives"]] == [
        known["twin"].resource,
        known["cousin"].resource,
    ]
    twin, cousin = got["alternatives"]
    assert 1 >= twin["similarity"] > cousin["similarity"] >= 0.15
    assert (cousin["amountUsd"], cousin["cheaper"], cousin["network"]) == (None, False, None)


async def test_caller_sets_minimum_difference_and_limit(
    shop: PaidServer,
) -> None:
    known = await market(shop.store)
    resource = known["asked"].resource

    async def names(**more: object) -> list[str]:
        answer = await shop.ask(resource=resource, **more)
        assert answer.status_code == 200, answer.text
        return [row["resource"].split(".")[0][8:] for row in answer.json()["alternatives"]]

    assert await names(minScoreDelta=0) == ["twin", "equal", "cousin"]
    assert await names(minScoreDelta=5.1) == ["twin", "cousin"]
    assert await names(minScoreDelta=5.11) == ["twin"]
    assert await names(limit=1) == ["twin"]
    assert await names(limit=25.0) == ["twin", "cousin"]


async def test_endpoints_expected_to_be_payable_come_first(shop: PaidServer) -> None:
    known = await market(shop.store)
    await add(shop.store, endpoint("sure", quote=None), 560, payable_24h_permille=997)
    await add(shop.store, endpoint("shaky"), 990, payable_24h_permille=400)
    for advice in ("not-payable", "unverified", "parameterize"):
        await add(shop.store, endpoint(advice), 990, recommendation=advice)
    answer = await shop.ask(resource=known["asked"].resource)
    got = [(row["resource"], row["payable24h"]) for row in answer.json()["alternatives"]]
    assert got == [
        ("https://sure.example.com/v1/now", 0.997),
        ("https://shaky.example.com/v1/now", 0.4),
        (known["twin"].resource, None),
        (known["cousin"].resource, None),
    ]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "resource"),
        ({"resource": "http://a.example.com/"}, "resource"),
        ({"limit": 0}, "limit"),
        ({"limit": 26}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"limit": None}, "limit"),
        ({"minScoreDelta": -1}, "minScoreDelta"),
        ({"minScoreDelta": 100.5}, "minScoreDelta"),
        ({"minScoreDelta": "5"}, "minScoreDelta"),
    ],
)
async def test_invalid_input_returns_422_without_charge(
    shop: PaidServer, body: dict[str, object], path: str
) -> None:
    whole = body if path == "resource" else {"resource": "https://a.example.com/", **body}
    answer = await shop.send(whole)
    assert answer.status_code == 422
    assert [row["path"] for row in answer.json()["errors"]] == [path]
    assert not shop.asked


async def test_body_that_is_not_an_object_returns_422(shop: PaidServer) -> None:
    assert (await shop.send([1])).status_code == 422
    assert not shop.asked


async def test_unknown_resource_returns_404_without_charge(shop: PaidServer) -> None:
    answer = await shop.ask(resource="https://nobody.example.com/x")
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown-resource"
    assert "/settle" not in shop.asked


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("asked", {"minScoreDelta": 100}, "none-better"),
        ("twin", {"minScoreDelta": 100}, "none-better"),
        ("other", {}, "nothing-similar"),
    ],
)
async def test_missing_alternatives_return_a_reason_without_charge(
    shop: PaidServer, name: str, body: dict[str, object], reason: str
) -> None:
    known = await market(shop.store)
    answer = await shop.ask(resource=known[name].resource, **body)
    assert answer.status_code == 404
    problem = answer.json()
    assert (problem["code"], problem["reason"]) == ("no-alternatives", reason)
    assert (problem["resource"], problem["alternatives"]) == (known[name].resource, [])
    assert "Nothing was charged" in problem["detail"]
    assert "PAYMENT-RESPONSE" not in answer.headers
    assert "/settle" not in shop.asked


async def test_payment_that_bought_no_alternatives_buys_others(shop: PaidServer) -> None:
    known = await market(shop.store)
    paid = header(shop.payment("/v1/similar"))
    resource = known["asked"].resource
    none = await shop.post("/v1/similar", {"resource": resource, "minScoreDelta": 100}, paid=paid)
    assert none.json()["code"] == "no-alternatives"
    some = await shop.post("/v1/similar", {"resource": resource}, paid=paid)
    assert (some.status_code, len(some.json()["alternatives"])) == (200, 2)
    assert shop.asked["/settle"] == 1


async def test_unmeasured_endpoint_counts_as_score_zero(shop: PaidServer) -> None:
    known = await market(shop.store)
    got = (await shop.ask(resource=known["unmeasured"].resource)).json()
    assert got["score"] is None
    hosts = [row["resource"].split(".")[0][8:] for row in got["alternatives"]]
    assert set(hosts) <= {"twin", "asked", "neighbour", "sister", "equal", "worse", "cousin"}
    assert len(hosts) == 5


async def test_index_that_is_not_ready_returns_503_without_charge(
    shop: PaidServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await market(shop.store)
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    answer = await shop.ask(resource=known["asked"].resource)
    assert answer.status_code == 503
    assert answer.json()["code"] == "index-building"
    assert "retry-after" in answer.headers
    assert "/settle" not in shop.asked
    monkeypatch.setattr(module, "FIRST_S", 20.0)
    assert (await shop.ask(resource=known["asked"].resource)).status_code == 200


async def test_alternatives_exclude_endpoints_changed_since_the_index(store: Store) -> None:
    known = await market(store)
    alternatives = Alternatives()
    asking = {"limit": 5, "delta_tenths": 50}
    before = await alternatives.find(store, known["asked"].id, **asking)
    assert before is not None
    assert len(before.alternatives) == 2
    await rescore(store, known["twin"], 900, recommendation="avoid")
    await rescore(store, known["cousin"], 540)
    alternatives.index._took = 10_000.0  # a slow refresh postpones the next one
    after = await alternatives.find(store, known["asked"].id, **asking)
    assert after is not None
    assert after.alternatives == ()


async def rescore(store: Store, one: Endpoint, tenths: int, **changes: object) -> None:
    await store.writing(scores.save, score(one, tenths, as_of=NOW + 1, **changes))


async def test_refresh_adds_new_endpoints_and_reads_only_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await market(store)
    read: list[str] = []

    def spy(wording: ProviderText) -> WeightedTerms:
        read.append(wording.description)
        return weigh_terms(wording)

    monkeypatch.setattr(module, "weigh_terms", spy)
    alternatives = Alternatives()
    first = await alternatives.index.refresh(store)
    assert len(read) == first.size == 11
    read.clear()
    new = endpoint("new", "Current weather and tides of a city")
    await add(store, new, 900)
    await store.writing(endpoints.update, endpoint("equal", "Weather, but different"))
    second = await alternatives.index.refresh(store)
    assert sorted(read) == ["Current weather and tides of a city", "Weather, but different"]
    assert second.size == first.size + 1
    fresh = await Alternatives().index.refresh(store)
    assert dict(second.count_alternatives(0, 99)) == dict(fresh.count_alternatives(0, 99))


@on_sqlite
async def test_many_callers_share_one_refresh(store: Store) -> None:
    known = await market(store)
    alternatives = Alternatives()
    answers = await asyncio.gather(
        *(alternatives.find(store, known["asked"].id, limit=5, delta_tenths=50) for _ in range(8))
    )
    assert len({id(answer) for answer in answers}) == 8
    assert all(answer == answers[0] for answer in answers)


@on_sqlite
async def test_search_does_not_wait_for_a_slow_refresh(
    store: Store,
) -> None:
    await market(store)
    alternatives = Alternatives()
    old = await alternatives.index.refresh(store)
    alternatives.index._built_at -= 100.0
    alternatives.index._took = 1.0  # of many endpoints
    assert await alternatives.index.fresh(store) is old
    await alternatives.index.refresh(store)
    assert await alternatives.index.fresh(store) is not old


@on_sqlite
async def test_search_waits_for_a_fast_refresh(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEWAL_S", 60.0)  # a busy machine may take longer than the limit
    await market(store)
    alternatives = Alternatives()
    old = await alternatives.index.refresh(store)
    alternatives.index._built_at -= 100.0
    alternatives.index._took = 0.01
    assert await alternatives.index.fresh(store) is not old


@on_sqlite
async def test_search_fails_before_the_index_exists(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await market(store)
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    alternatives = Alternatives()
    with pytest.raises(IndexBuilding):
        await alternatives.find(store, known["asked"].id, limit=5, delta_tenths=50)
    await alternatives.index.refresh(store)


async def test_snapshot_shows_the_number_of_better_alternatives(
    store: Store,
) -> None:
    known = await market(store)
    snapshot = await store.reading(snapshots.snapshot, known["unmeasured"].id, now=NOW)
    assert snapshot is not None
    assert snapshot.better_alternatives is None
    pause = job.CountingPause()
    shared = Alternatives()
    tally = await job.count_alternatives(store, shared, pause=pause, clock=lambda: NOW)
    assert tally == {"counted": 11, "changed": 11}
    counts = await store.reading(rated_endpoints.count_better, [one.id for one in known.values()])
    snapshot = await store.reading(snapshots.snapshot, known["asked"].id, now=NOW)
    view = await store.reading(reports_endpoint.view, known["asked"].id, now=NOW)
    assert snapshot is not None
    assert view is not None
    assert snapshot.better_alternatives == view.snapshot.better_alternatives == 2
    by_name = {name: counts[one.id] for name, one in known.items()}
    assert by_name["asked"] == 2
    assert (by_name["twin"], by_name["other"], by_name["worse"]) == (2, 0, 6)
    again = await job.count_alternatives(store, shared, pause=pause, clock=lambda: NOW)
    assert again == {}


async def test_count_of_alternatives_equals_the_sold_list_up_to_ten(store: Store) -> None:
    await add(store, endpoint("asked"), 100)
    for number in range(12):
        await add(store, endpoint(f"better{number}"), 150 + number)
    await add(store, endpoint("other", "Translate a text"), 500)
    shared = Alternatives()
    await job.count_alternatives(store, shared, pause=job.CountingPause(), clock=lambda: NOW)
    counts = await store.reading(
        rated_endpoints.count_better, [endpoint("asked").id, endpoint("better0").id]
    )
    assert counts == {endpoint("asked").id: 10, endpoint("better0").id: 0}
    sold = await shared.find(store, endpoint("asked").id, limit=25, delta_tenths=50)
    assert sold is not None
    assert len(sold.alternatives) == 12


@on_sqlite
async def test_counting_of_alternatives_pauses_after_work(store: Store) -> None:
    await market(store)
    ticks = iter((NOW, NOW + 1_000, NOW + 2_000))
    pause = job.CountingPause()
    shared = Alternatives()
    assert await job.count_alternatives(store, shared, pause=pause, clock=lambda: next(ticks))
    assert pause.resting_until == NOW + 1_000 + job.REST_FACTOR * 1_000
    assert await job.count_alternatives(store, shared, pause=pause, clock=lambda: next(ticks)) == {}


@on_sqlite
async def test_only_a_server_keeps_the_index_after_counting(store: Store) -> None:
    known = await market(store)
    worker, server = Alternatives(), Alternatives()
    server.begin(store)
    for shared in (worker, server):
        await job.count_alternatives(store, shared, pause=job.CountingPause(), clock=lambda: NOW)
    assert worker.index._value is None
    assert worker.columns._value is None
    assert server.index._value is not None
    assert await worker.find(store, known["asked"].id, limit=5, delta_tenths=50) is not None
    await server.close()


@on_sqlite
async def test_index_is_built_at_startup(store: Store) -> None:
    known = await market(store)
    alternatives = Alternatives()
    alternatives.begin(store)
    answer = await alternatives.find(store, known["asked"].id, limit=5, delta_tenths=50)
    assert answer is not None
    assert len(answer.alternatives) == 2
    await alternatives.close()


async def test_index_that_failed_at_startup_is_built_on_demand(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'no-tables.db'}")
    alternatives = Alternatives()
    alternatives.begin(store)  # before the tables are there
    await asyncio.wait((alternatives.index.begin(store),))
    assert alternatives.index._value is None
    await store.migrate()
    await add(store, endpoint("asked"), 500)
    assert (
        await alternatives.find(store, endpoint("asked").id, limit=5, delta_tenths=50) is not None
    )
    await alternatives.close()
    await store.close()


async def test_failed_background_refresh_is_ignored() -> None:
    """The next search begins another; a traceback in the log would say nothing more."""
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    store = Store.open("sqlite://")
    await store.migrate()
    alternatives = Alternatives()
    old = await alternatives.index.refresh(store)
    alternatives.index._built_at -= 100.0
    alternatives.index._took = 1.0  # of many endpoints
    await store.writing(lambda tx: tx.exec_driver_sql("DROP TABLE endpoint"))
    assert await alternatives.index.fresh(store) is old
    refresh = alternatives.index._refreshing
    assert refresh is not None
    await asyncio.wait((refresh,))
    alternatives.index._refreshing = refresh = None
    gc.collect()
    assert unheard == []
    await store.close()
