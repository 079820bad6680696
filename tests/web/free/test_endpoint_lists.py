"""Search and lists over HTTP: results, order, formats and rejected requests."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.http_service import BASE, NOW, Running, configuration, open_service
from tests.support.score_rows import stored_score

from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.score import ShownDemand
from tollgauge.monitor import alternatives, scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow
from tollgauge.web.wire import lists
from tollgauge.web.wire.trust import AdvertisedBy

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
RESULT = scoring.score_evidence("", Evidence(resource="", as_of=NOW, first_seen=NOW)).result


def endpoint(host: str, description: str, *, amount: int | None = 1_000, **more: Any) -> Endpoint:
    resource = f"https://{host}.example.com/v1"
    quote = Quote(network="eip155:8453", asset=USDC, amount=amount or 0, pay_to=f"0x{host}")
    base: dict[str, Any] = {
        "id": endpoint_id(resource),
        "resource": resource,
        "host": f"{host}.example.com",
        "first_seen": NOW,
        "last_seen": NOW,
        "description": description,
        "quote": None if amount is None else quote,
    }
    return Endpoint(**(base | more))


async def add(running: Running, one: Endpoint, tenths: int | None, advice: str, grade: str) -> None:
    store = running.service.store
    await store.writing(endpoints.insert, one)
    await store.writing(scores.save, score_row(one, tenths, advice, grade))


DEMAND = ShownDemand(payers=43, volume=140_000, proven_payers=12, proven_volume=50_000)


def score_row(one: Endpoint, tenths: int | None, advice: str, grade: str) -> ScoreRow:
    return stored_score(
        one.id,
        tenths,
        as_of=NOW,
        policy_version=3,
        grade=grade or None,
        recommendation=advice,
        confidence_hundredths=50,
        uptime_tenths=tenths,
        compliant=True,
        payable_24h_permille=900,
        demand=DEMAND if tenths == 900 else None,
        result=RESULT,
    )


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with open_service(configuration()) as service:
        for one, tenths, advice, grade in (
            (endpoint("good", "Weather forecast", amount=5_000), 900, "proceed", "A"),
            (endpoint("cheap", "Weather forecast"), 600, "caution", "C"),
            (endpoint("bad", "Weather forecast", amount=500), 100, "avoid", "F"),
            (endpoint("unpriced", "Weather forecast", amount=None), 700, "proceed", "B"),
            (endpoint("maps", "=HYPERLINK(0)", service_name="+1"), 800, "proceed", "B"),
            (endpoint("gone", "Weather forecast", status=Listing.DELISTED), 990, "proceed", "A"),
        ):
            await add(service, one, tenths, advice, grade)
        await service.service.store.writing(
            endpoints.insert, endpoint("new", "Weather forecast", amount=None)
        )
        yield service


async def hosts(running: Running, path: str, **parameters: Any) -> list[str]:
    answer = await running.get(path, params=parameters or None)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    rows = document.get("results", document.get("endpoints"))
    return [row["host"].partition(".")[0] for row in rows]


async def test_keywords_find_listed_endpoints_best_first(running: Running) -> None:
    names = await hosts(running, "/trust/search", q="weather forecast")
    assert names == ["good", "unpriced", "cheap", "bad", "new"]
    assert await hosts(running, "/v1/semantic-search", q="weather forecast") == names
    answer = await running.http.post("/v1/semantic-search", json={"query": "weather", "limit": 2.0})
    assert answer.json()["ranking"] == "terms"
    assert [row["host"] for row in answer.json()["results"]] == [
        "good.example.com",
        "unpriced.example.com",
    ]


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({"maxAmountUsd": "0.001"}, ["cheap", "bad"]),
        ({"maxAmountUsd": "0"}, []),
        ({"minGrade": "B"}, ["good", "unpriced"]),
        ({"recommendation": "avoid"}, ["bad"]),
        ({"network": "base", "limit": "2"}, ["good", "cheap"]),
        ({"network": "eip155:1"}, []),
    ],
)
async def test_search_results_are_filtered(
    running: Running, parameters: dict[str, str], wanted: list[str]
) -> None:
    assert await hosts(running, "/trust/search", q="weather", **parameters) == wanted


async def test_pay_to_search_works_without_the_index(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "0x" + "ab" * 20
    store = running.service.store
    quote = Quote(network="eip155:137", asset=USDC, amount=9_000, pay_to=address)
    for host, tenths, status in (
        ("paid-well", 900, Listing.LISTED),
        ("paid-too", 400, Listing.DELISTED),
        ("paid-new", None, Listing.LISTED),
    ):
        one = endpoint(host, "Translation", status=status)
        await store.writing(endpoints.insert, replace(one, quote=quote))
        if tenths is not None:
            row = score_row(one, tenths, "proceed", "A")
            await store.writing(scores.save, row)
    monkeypatch.setattr(alternatives.ReadModel, "fresh", _no_index)
    for text in (address, f" 0x{'AB' * 20} "):
        answer = (await running.get("/trust/search", params={"q": text})).json()
        assert answer["match"] == "payto"
        assert [row["host"] for row in answer["results"]] == [
            "paid-well.example.com",
            "paid-too.example.com",
            "paid-new.example.com",
        ]
    assert await hosts(running, "/trust/search", q=address, minGrade="A", limit="1") == [
        "paid-well"
    ]
    assert await hosts(running, "/trust/search", q=address, network="base") == []
    other = (await running.get("/trust/search", params={"q": "0x" + "cd" * 20})).json()
    assert other == {"match": "payto", "results": []}


async def test_url_and_host_searches_work_without_the_index(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternatives, "FIRST_S", 0.0)
    words = await running.get("/trust/search", params={"q": "weather forecast"})
    assert (words.status_code, words.json()["code"]) == (503, "index-building")
    assert "Retry-After" in words.headers
    monkeypatch.setattr(alternatives.ReadModel, "fresh", _no_index)
    for text in ("https://good.example.com/v1", "good.example.com"):
        assert await hosts(running, "/trust/search", q=text) == ["good"]


async def test_lists_do_not_wait_for_the_index(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.service.alternatives.index, "fresh", _no_index)
    for path in ("/trust/endpoints", "/trust/endpoints.csv", "/endpoints"):
        assert (await running.get(path)).status_code == 200
    assert await hosts(running, "/trust/search", q="good.example.com", minGrade="C") == ["good"]
    words = await running.get("/trust/search", params={"q": "weather forecast"})
    assert words.status_code == 503


async def _no_index(*_: object) -> None:
    raise alternatives.IndexBuilding("There is none.")


async def test_url_and_host_searches_find_unlisted_endpoints(
    running: Running,
) -> None:
    for text, match in (
        ("https://gone.example.com/v1", "endpoint"),
        ("gone.example.com/v1?x=1", "endpoint"),
        ("gone.example.com", "provider"),
        ("https://gone.example.com", "provider"),
    ):
        document = (await running.get("/trust/search", params={"q": text})).json()
        (row,) = document["results"]
        assert (document["match"], row["status"], row["similarity"]) == (match, "delisted", 1.0)
    unknown = await running.get("/trust/search", params={"q": "https://gone.example.com/v2"})
    assert unknown.json() == {"match": "endpoint", "results": []}


async def test_search_result_equals_the_snapshot(running: Running) -> None:
    (row,) = (await running.get("/trust/search", params={"q": "good.example.com"})).json()[
        "results"
    ]
    assert row == {
        "id": endpoint_id("https://good.example.com/v1"),
        "resource": "https://good.example.com/v1",
        "host": "good.example.com",
        "transport": "http",
        "status": "listed",
        "down": None,
        "recommendation": "proceed",
        "grade": "A",
        "score": 90.0,
        "payable24h": 0.9,
        "confidence": 0.5,
        "uptime30d": 90.0,
        "avgLatencyMs": None,
        "demand": {
            "payers": 43,
            "volumeUsd": 0.14,
            "provenPayers": 12,
            "provenVolumeUsd": 0.05,
            "text": "43 wallets paid $0.14 in 30 days; 12 of them also buy from established "
            "sellers.",
        },
        "amountUsd": 0.005,
        "network": "eip155:8453",
        "firstSeen": "2026-11-18T11:06:40Z",
        "lastProbed": None,
        "advertisedBy": {"serviceName": "", "description": "Weather forecast"},
        "endpointPage": f"{BASE}/endpoint/{endpoint_id('https://good.example.com/v1')}",
        "simulated": False,
        "similarity": 1.0,
    }


async def test_search_results_show_current_figures(running: Running) -> None:
    assert "cheap" in await hosts(running, "/trust/search", q="weather", recommendation="caution")
    gone = endpoint("good", "Weather forecast", status=Listing.DELISTED)
    await running.service.store.writing(endpoints.update, gone)
    for path in ("/trust/search?q=weather&limit=6", "/trust/endpoints?sort=newest"):
        assert "good" not in await hosts(running, path)


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, ["good", "maps", "unpriced", "cheap", "bad", "new"]),
        ({"sort": "price", "recommendation": "proceed"}, ["maps", "good", "unpriced"]),
        ({"sort": "name"}, ["bad", "cheap", "good", "maps", "new", "unpriced"]),
        ({"grade": "B"}, ["maps", "unpriced"]),
        ({"host": "BAD.example.com"}, ["bad"]),
        ({"status": "delisted"}, ["gone"]),
        ({"status": "unlisted"}, []),
        ({"maxAmountUsd": "0.0009"}, ["bad"]),
    ],
)
async def test_list_is_sorted_and_filtered(
    running: Running, parameters: dict[str, str], wanted: list[str]
) -> None:
    assert await hosts(running, "/trust/endpoints", **parameters) == wanted


async def test_csv_has_the_fields_of_json_without_formulas(running: Running) -> None:
    document = (await running.get("/trust/endpoints")).json()
    by_accept = await running.get("/trust/endpoints", headers={"Accept": "text/csv"})
    by_path = await running.get("/trust/endpoints.csv")
    assert by_accept.content == by_path.content
    assert by_accept.headers["content-type"].startswith("text/csv")
    assert (await running.get("/trust/endpoints")).json() == document
    rows = list(csv.DictReader(io.StringIO(by_path.text)))
    assert [row["resource"] for row in rows] == [row["resource"] for row in document["endpoints"]]
    said = {"serviceName", "description", "downSince", "downReason", "downConfirmed"}
    said |= {"demandPayers", "demandVolumeUsd", "demandText"}
    said |= {"demandProvenPayers", "demandProvenVolumeUsd"}
    assert set(rows[0]) == set(document["endpoints"][0]) - {"advertisedBy", "demand", "down"} | said
    assert {row["demandProvenPayers"] for row in rows} == {"", "12"}
    (maps,) = (row for row in rows if row["host"].startswith("maps"))
    assert (maps["serviceName"], maps["description"]) == ("'+1", "'=HYPERLINK(0)")
    assert (maps["score"], maps["amountUsd"], maps["simulated"]) == ("80.0", "0.001", "false")


@pytest.mark.parametrize("path", ["/trust/endpoints?", "/trust/search?q=weather&"])
async def test_list_is_filtered_by_proven_payers(running: Running, path: str) -> None:
    for least, found in ((1, ["good.example.com"]), (12, ["good.example.com"]), (13, [])):
        document = (await running.get(f"{path}minProvenPayers={least}")).json()
        rows = document.get("endpoints", document.get("results"))
        assert [row["host"] for row in rows] == found


async def test_list_pages_cover_all_endpoints(running: Running) -> None:
    many = [endpoint(f"h{number:03}", "Anything", status=Listing.DELISTED) for number in range(249)]
    await running.service.store.writing(endpoints.insert, *many)
    seen: list[str] = []
    for suffix in ("", ".csv"):
        url, pages = f"{BASE}/trust/endpoints{suffix}?status=delisted&sort=newest", 0
        while url:
            answer = await running.get(url)
            pages += 1
            if not suffix:
                document = answer.json()
                seen += [row["id"] for row in document["endpoints"]]
                assert document["total"] == 250
                assert document["next"] == answer.links.get("next", {}).get("url")
            url = answer.links.get("next", {}).get("url", "")
        assert pages == 3
    assert len(seen) == len(set(seen)) == 250


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/trust/search", "q is missing"),
        ("/trust/search?q=%20", "The query is empty"),
        ("/trust/search?q=http://localhost/", "localhost is not a public name"),
        ("/trust/search?q=a&limit=0", "limit must be a whole number from 1 to 50"),
        ("/trust/search?q=a&limit=null", "limit must be"),
        ("/trust/search?q=a&minGrade=E", "minGrade must be one of A, B, C, D, F"),
        ("/trust/search?q=a&maxAmountUsd=NaN", "maxAmountUsd must be a number"),
        ("/trust/search?q=a&network=Base%20Mainnet", "network must be a CAIP-2 ID"),
        ("/trust/search?q=a&grade=A", "There is no parameter grade"),
        ("/trust/endpoints?q=a", "There is no parameter q"),
        ("/trust/endpoints?sort=best", "sort must be one of score, price"),
        ("/trust/endpoints?grade=", "grade must be one of"),
        ("/trust/endpoints?cursor=zzz", "Send nextCursor"),
    ],
)
async def test_invalid_parameters_are_rejected_with_a_message(
    running: Running, path: str, message: str
) -> None:
    answer = await running.get(path)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


@pytest.mark.parametrize("name", ["minGrade", "network", "recommendation", "maxAmountUsd", "limit"])
async def test_null_fields_in_a_body_are_rejected(running: Running, name: str) -> None:
    body = {"query": "weather", name: None}
    answer = await running.http.post("/v1/semantic-search", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == name


async def test_brief_search_limits_the_size_of_results() -> None:
    row = lists.SearchRow.build(
        id="0" * 16,
        resource="https://api.example.com/" + "x" * 90,
        host="api.example.com",
        transport="http",
        status="listed",
        down=None,
        recommendation="parameterize",
        grade="A",
        score=999,
        payable24h=999,
        confidence=99,
        uptime30d=999,
        avg_latency_ms=12_345,
        demand=None,
        amount_usd=123_456,
        network="eip155:8453",
        first_seen=1_767_225_600_000,
        last_probed=None,
        advertised_by=AdvertisedBy(service_name="n" * 80, description="d" * 500),
        endpoint_page="https://trust.example.com/endpoint/" + "0" * 16,
        simulated=False,
        similarity=99,
    )
    model = lists.SearchResponse(match="meaning", results=[row] * 5)
    brief = lists.brief_search(model, limit=5)
    assert b"leftOut" not in brief
    long = row.model_copy(update={"resource": "https://api.example.com/" + "x" * 2_000})
    left = lists.brief_search(model.model_copy(update={"results": [row, *[long] * 4]}), limit=5)
    assert b'"leftOut":' in left
    for answer in (brief, left):
        assert len(answer) < 3_700
