"""The JSON of every free route and of a report, letter for letter."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.http_service import (
    BASE,
    NOW,
    WEATHER,
    WEATHER_ID,
    Running,
    configuration,
    open_service,
)

from tollgauge.core.endpoint.identity import endpoint_id, parse_resource
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import recompute
from tollgauge.monitor import discovery
from tollgauge.monitor.reports.trust_reports import preview
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule import hosts
from tollgauge.web.wire import examples
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import trust_report

pytestmark = pytest.mark.asyncio(loop_scope="module")

WATCH = "wat_0123456789abcdef01234567"
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
RECOMMENDATIONS = {"proceed", "caution", "avoid", "unverified", "not-payable", "parameterize"}

LEADER = "rank resource host score grade recommendation confidence uptime30d avgLatencyMs amountUsd"
LEADER += " network endpointPage payableNow payable24h moreOfSite"
REPORT = "resource score grade confidence recommendation scoreRange breakdown policy flags"
REPORT += (
    " flagsDetailed confidenceDetail advertised settlement stats liveProbe advertisedBy evidence"
)
REPORT += " verdict reason payableNow payable24h demand coverage down"
STATS = "probes30d scoredProbes30d excluded30d uptime30d compliant30d avgLatencyMs p50LatencyMs"
STATS += " p95LatencyMs latencyVantage firstSeen lastProbed observedDays priceChanges30d"
STATS += " payToChanges30d settledVolumeUsd30d"
SETTLEMENT = "payTo network volumeUsd30d transfers30d distinctPayers30d"
SETTLEMENT += " sharedWith indexedToBlock indexedToTs level"
ADVERTISED = "amount amountUsd asset symbol network decimals payTo observedAtTs"
SNAPSHOT = "recommendation grade score confidence uptime30d avgLatencyMs probes30d"
SNAPSHOT += " advertisedPriceUsd priceStability network transport firstSeen lastProbed status"
SNAPSHOT += " snapshotComputed"
SNAPSHOT += " ageHours advertisedDescription betterAlternatives summary verdict sources"
SNAPSHOT += " reason payableNow payable24h demand coverage down policyVersion"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("shapes") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def samples(running: Running) -> list[dict[str, Any]]:
    answer = await running.get("/v1/x402-trust-preview")
    document: list[dict[str, Any]] = answer.json()["samples"]
    return document


def has(value: dict[str, Any], names: str, *, additional: str = "") -> bool:
    """Check that an object has exactly these fields and the additional ones."""
    assert set(value) == set(names.split()) | set(additional.split())
    return True


async def test_leaderboard_has_the_fields_of_the_contract(running: Running) -> None:
    board = (await running.get("/trust/leaderboard")).json()
    has(board, "asOf policyVersion endpoints", additional="simulated")
    assert ISO.fullmatch(board["asOf"])
    assert board["policyVersion"] == POLICY.version
    rows = board["endpoints"]
    assert len(rows) == 25
    assert [row["rank"] for row in rows] == list(range(1, 26))
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    for row in rows:
        has(row, LEADER)
        assert row["recommendation"] in ("proceed", "caution")
        assert row["grade"] in "ABC"
        assert 0 < row["payable24h"] <= row["payableNow"] <= 1
        assert 0 <= row["confidence"] <= 1
        assert row["endpointPage"] == f"{BASE}/endpoint/{endpoint_id(row['resource'])}"
        assert (await running.get(row["endpointPage"])).status_code == 200


async def test_preview_contains_best_median_and_worst_reports(
    running: Running, samples: list[dict[str, Any]]
) -> None:
    assert [sample["role"] for sample in samples] == ["best", "median", "worst"]
    ranks = [sample["populationRank"] for sample in samples]
    assert ranks[0] == 1
    assert ranks == sorted(ranks)
    assert ranks[1] == (ranks[2] + 1) // 2
    scores = [sample["report"]["score"] for sample in samples]
    assert scores == sorted(scores, reverse=True)
    for sample in samples:
        has(sample, "role populationRank report")


async def test_post_of_the_preview_equals_get(running: Running) -> None:
    wanted = (await running.get("/v1/x402-trust-preview")).json()
    for body in (b"", b"{}", b" {} ", b'{"ignored": 1}'):
        answer = await running.http.post("/v1/x402-trust-preview", content=body)
        assert answer.status_code == 200
        assert answer.json() == wanted
    for body, status in ((b"{", 400), (b"[]", 422), (b'"x"', 422), (b"\xff", 400)):
        answer = await running.http.post("/v1/x402-trust-preview", content=body)
        assert answer.status_code == status


async def test_report_has_the_fields_of_the_contract(samples: list[dict[str, Any]]) -> None:
    assert any("extensions" in sample["report"] for sample in samples)
    for sample in samples:
        report = sample["report"]
        wanted = set(REPORT.split())
        if report.get("advertised") is None:
            wanted -= {"advertised", "settlement"}
        assert set(report) - {"moreFlags", "extensions"} == wanted | {"simulated"}
        assert report.get("extensions", {"bazaar": "evaluated"}) == {"bazaar": "evaluated"}
        assert list(report)[:2] == ["down", "verdict"]
        assert report["verdict"] == {name: report[name] for name in ("recommendation", "reason")}
        assert report["simulated"] is True, "what demo.past wrote is marked"
        assert isinstance(report["score"], float)
        assert report["score"] == round(report["score"], 1)
        assert report["confidence"] == round(report["confidence"], 2)
        assert report["recommendation"] in RECOMMENDATIONS
        assert report["reason"]
        has(report["scoreRange"], "low point high")
        has(report["breakdown"], "uptime compliance latency age activity stability")
        has(report["policy"], "version weights gradeThresholds caps")
        has(report["policy"]["gradeThresholds"], "A B C D")
        assert sum(report["policy"]["weights"].values()) == 100
        has(report["confidenceDetail"], "observation economic activityPartial")
        has(report["stats"], STATS, additional="payable30d")
        has(report["advertisedBy"], "serviceName description")
        has(report["evidence"], "digest url policyVersion asOf")
        assert ISO.fullmatch(report["stats"]["firstSeen"])
        assert report["stats"]["latencyVantage"].startswith("single EU vantage point;")


async def test_report_of_real_observations_is_not_marked_simulated(running: Running) -> None:
    best = (await running.service.store.reading(preview, now=NOW))[0].report
    marked, real = best, replace(best, endpoint=replace(best.endpoint, simulated=False))
    assert json.loads(dump(trust_report(marked, base_url=examples.BASE_URL)))["simulated"] is True
    assert "simulated" not in json.loads(dump(trust_report(real, base_url=examples.BASE_URL)))


async def test_flags_and_flags_detailed_agree(
    samples: list[dict[str, Any]],
) -> None:
    flagged = 0
    for sample in samples:
        report = sample["report"]
        for slug, flag in report["flags"].items():
            assert {"severity"} <= set(flag) <= {"severity", "message", "fix", "since"}
            assert flag["severity"] in ("error", "warn", "info")
            row = {"code": slug, "severity": flag["severity"]}
            (message,) = [r["message"] for r in report["flagsDetailed"] if row.items() <= r.items()]
            assert flag.get("message", message) == message, "left out where there is no room"
            flagged += 1
        assert len(report["flags"]) == len(report["flagsDetailed"])
    assert flagged


async def test_advertised_and_settlement_have_the_fields_of_the_contract(
    samples: list[dict[str, Any]],
) -> None:
    best = samples[0]["report"]
    has(best["advertised"], ADVERTISED)
    has(best["settlement"], SETTLEMENT)
    amount = best["advertised"]["amount"]
    assert isinstance(amount, str)
    assert best["advertised"]["amountUsd"] == int(amount) / 10**6
    assert best["advertised"]["observedAtTs"] < NOW // 1000
    assert best["settlement"]["level"] in ("endpoint", "wallet")


async def test_live_probe_has_the_fields_of_the_contract(
    samples: list[dict[str, Any]],
) -> None:
    for sample in samples:
        live = sample["report"]["liveProbe"]
        has(
            live,
            "at outcome status latencyMs envelope findings",
            additional="attribution payableBy",
        )
        has(live["latencyMs"], "dns connect tls ttfb total")
        assert live["envelope"] in ("v1", "v2", None)
        for finding in live["findings"]:
            assert finding.keys() | {"message"} == {"rule", "severity", "message"}
            # A short report that is too long omits it: the flag has the same message.
            messages = {row["code"]: row["message"] for row in sample["report"]["flagsDetailed"]}
            assert "message" in finding or messages[f"lint:{finding['rule']}"]


async def test_report_can_be_recomputed_from_its_evidence(
    running: Running, samples: list[dict[str, Any]]
) -> None:
    for sample in samples:
        evidence = sample["report"]["evidence"]
        answer = await running.get(evidence["url"])
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert hashlib.sha256(answer.content).hexdigest() == evidence["digest"]
        again = recompute(answer.content)
        assert again.score_tenths == round(sample["report"]["score"] * 10)
        assert again.grade == sample["report"]["grade"]


async def test_snapshot_has_the_fields_of_the_contract(running: Running) -> None:
    document = (await running.get(f"/trust/snapshot/{WEATHER_ID}")).json()
    has(
        document, SNAPSHOT, additional="id resource endpointPage simulated testNetwork improvements"
    )
    assert document["resource"] == WEATHER
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["firstSeen"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", document["lastProbed"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", document["snapshotComputed"])
    assert document["status"] == "listed"
    assert document["advertisedPriceUsd"] == 0.001
    assert document["priceStability"] == "stable"
    assert document["policyVersion"] == 3
    assert document["down"] is None
    assert document["summary"].startswith(document["reason"])
    assert document["simulated"] is True, "what demo.past wrote is marked"


async def test_endpoint_without_a_directory_is_unlisted(running: Running) -> None:
    resource = parse_resource("https://asked-for.dev/v1/quote")
    asked = await running.service.store.writing(
        discovery.adopt, resource, source="request", now=running.clock()
    )
    await running.service.store.writing(
        endpoints.update, replace(asked, learned="GET")
    )  # it answered 402 once
    await running.service.store.writing(
        hosts.set_wildcards, {asked.host: False}, at=running.clock()
    )
    document = (await running.get(f"/trust/snapshot/{resource.id}")).json()
    assert (document["status"], document["sources"]) == ("unlisted", [])
    assert "listed" not in document["summary"]
    page = (await running.get(f"/endpoint/{resource.id}")).text
    assert "unlisted" in page
    assert "No directory lists this endpoint" in page


async def test_snapshot_is_found_by_any_spelling_of_its_resource(running: Running) -> None:
    by_id = (await running.get(f"/trust/snapshot/{WEATHER_ID}")).json()
    for spelling in (
        WEATHER,
        WEATHER + "?city=Lisbon#now",
        "https://WEATHER.example:443/v1/./current",
        "https://weather.example./v1/%63urrent",
    ):
        answer = await running.get("/trust/snapshot", params={"resource": spelling})
        assert answer.status_code == 200, spelling
        assert answer.json() == by_id


async def test_snapshot_counts_price_changes(running: Running) -> None:
    stabilities = set()
    for row in (await running.get("/trust/leaderboard")).json()["endpoints"]:
        answer = await running.get("/trust/snapshot", params={"resource": row["resource"]})
        stabilities.add(answer.json()["priceStability"])
    assert "stable" in stabilities
    assert all(re.fullmatch(r"stable|\d+ change\(s\)", stability) for stability in stabilities)


async def test_stats_count_known_endpoints(running: Running) -> None:
    document = (await running.get("/trust/stats")).json()
    chain = "volumeUsd30d demand provenShare receivers30d payers30d indexedShare"
    counts = "asOf listed delisted active reachableShare compliantShare grades simulated"
    has(document, counts, additional=f"{chain} settlements distributions")
    assert all(document[name] is None for name in chain.split())  # no chain is indexed here
    assert document["settlements"] == []
    assert document["listed"] > 40
    assert sum(document["grades"].values()) == document["active"]
    assert 0 < document["reachableShare"] <= 1


async def test_example_of_the_docs_page_works(running: Running) -> None:
    page = html.unescape((await running.get("/docs")).text)
    match = re.search(rf"{BASE}(/trust/snapshot\?resource=[^'\s]+)", page)
    assert match is not None
    assert (await running.get(match[1])).status_code == 200


async def test_unknown_resource_returns_404_with_a_hint(running: Running) -> None:
    for path in (
        "/trust/snapshot/0123456789abcdef",
        "/trust/snapshot/zzz",
        "/trust/snapshot/" + "0" * 17,
        "/trust/snapshot?resource=https://example.com/never",
    ):
        answer = await running.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        has(problem, "type title status detail code")
        assert problem["code"] == "unknown-resource"
        assert problem["status"] == 404
        assert "/v1/x402-trust" in problem["detail"]


async def test_browser_receives_an_error_page_for_404(running: Running) -> None:
    accept = {"accept": "text/html,application/xhtml+xml;q=0.9"}
    for path in ("/endpoint/0123456789abcdef", "/nothing/here", "/provider/unknown.example"):
        answer = await running.get(path, headers=accept)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert "<html" in answer.text


async def test_invalid_resource_returns_422_with_code_and_path(running: Running) -> None:
    cases = (
        ("", "resource-invalid"),
        ("not a url", "resource-invalid"),
        ("http://example.com/", "resource-not-https"),
        ("ftp://example.com/", "resource-not-https"),
        ("https://127.0.0.1/", "resource-not-public"),
        ("https://[::1]/", "resource-not-public"),
        ("https://localhost/", "resource-not-public"),
        ("https://example.com:8443/", "resource-not-public"),
        ("https://user:pw@example.com/", "resource-invalid"),
        ("https://example.com/" + "a" * 2_048, "resource-invalid"),
    )
    for resource, code in cases:
        for path in ("/trust/snapshot", "/endpoint"):
            answer = await running.get(path, params={"resource": resource})
            assert (answer.status_code, answer.json()["code"]) == (422, code), resource
            assert answer.json()["errors"][0]["path"] == "resource"
            assert answer.headers["content-type"] == "application/problem+json"


async def test_missing_resource_returns_a_problem(running: Running) -> None:
    for path in ("/trust/snapshot", "/endpoint"):
        answer = await running.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
        assert answer.json()["errors"] == [{"path": "resource", "message": "resource is missing."}]


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/trust/leaderboard", ()),
        ("/trust/stats", ()),
        ("/calibration.json", ()),
        ("/trust/snapshot", ("resource",)),
        (f"/trust/snapshot/{WEATHER_ID}", ()),
        ("/v1/x402-trust-preview", ()),
        ("/v1/models", ()),
        (f"/v1/watch/{WATCH}/events", ("since", "watch_since")),
    ],
)
async def test_unknown_query_parameter_is_rejected_with_the_known_ones(
    running: Running, path: str, known: tuple[str, ...]
) -> None:
    answer = await running.get(path, params={"resource_url": WEATHER})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown-parameter")
    assert answer.json()["errors"][0]["path"] == "resource_url"
    for name in known or ("takes no parameters",):
        assert name in answer.json()["detail"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_changes_reject_query_parameters(running: Running, method: str) -> None:
    """A field that was put into the query would be lost."""
    paths = {"POST": f"/v1/watch/{WATCH}/rotate"}
    answer = await running.http.request(
        method, paths.get(method, f"/v1/watch/{WATCH}"), params={"signed_at": "1"}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown-parameter")


async def test_resource_with_unencoded_query_is_rejected_with_a_hint(running: Running) -> None:
    answer = await running.get(f"/trust/snapshot?resource={WEATHER}?city=Oslo&unit=c")
    assert answer.json()["errors"][0]["path"] == "unit"
    assert "%26" in answer.json()["detail"]


async def test_pages_and_paid_routes_ignore_unknown_parameters(running: Running) -> None:
    """Links get such parameters when they are shared, and every unpaid request returns 402."""
    pages = ("/", "/statistics", "/incidents", "/compare", "/lint", "/lint/rules/domain-wrong")
    for path in (*pages, f"/endpoint/{WEATHER_ID}", "/llms.txt"):
        assert (await running.get(path, params={"utm_source": "a"})).status_code == 200, path
    unpaid = await running.http.post("/v1/x402-trust", params={"utm_source": "a"})
    assert unpaid.status_code == 402


async def test_resource_redirects_to_its_page(running: Running) -> None:
    answer = await running.get("/endpoint", params={"resource": WEATHER})
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{BASE}/endpoint/{WEATHER_ID}"
    page = await running.get(answer.headers["location"])
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Skylark Weather" in page.text
    badge = await running.get(f"/endpoint/{WEATHER_ID}/badge.svg")
    assert badge.headers["content-type"] == "image/svg+xml"
    shield = (await running.get(f"/endpoint/{WEATHER_ID}/badge.json")).json()
    assert shield["schemaVersion"] == 1
    assert shield["label"] == "tollgauge"
    assert f"tollgauge: {shield['message']}<" in badge.text


async def test_unpaid_request_returns_402_for_any_body(running: Running) -> None:
    for body in (b"", b"{", b"[]", b'{"resource": 7}'):
        answer = await running.http.post("/v1/x402-trust", content=body)
        assert answer.status_code == 402
        assert answer.headers["cache-control"] == "no-store"
        assert "payment-required" in answer.headers
        assert answer.json()["accepts"][0]["amount"] == "5000"
