"""`POST /v1/lint`: lints the response in the request, or the stored probe of an endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.http_service import (
    BASE,
    WEATHER,
    WEATHER_ID,
    Running,
    configuration,
    open_service,
    with_edge,
)
from tests.support.lint_envelopes import encode_envelope
from tests.support.statements import fetch

from tollgauge.core.base.units import iso
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.lint.rule import ANSWERS, RULE_ENTRIES
from tollgauge.core.probe.exchange import Finding, OfficialClient, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.monitor import discovery
from tollgauge.store.probes import probes

GOOD = ANSWERS["v2"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("lint") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


async def post_lint(running: Running, body: Any, *, status: int = 200) -> Any:
    response = await running.http.post("/v1/lint", json=body)
    assert response.status_code == status, response.text
    return response.json()


async def test_captured_response_returns_fixes_and_rule_pages(
    running: Running,
) -> None:
    answer = await post_lint(running, {"capture": RULE_ENTRIES["domain-wrong"].wrong.capture()})
    assert (answer["payable"], answer["compliant"], answer["version"]) == (False, False, 2)
    (finding,) = answer["findings"]
    assert (finding["rule"], finding["severity"]) == ("domain-wrong", "error")
    assert finding["where"] == "accepts[0].extra.name"
    assert finding["message"].startswith("Write the EIP-712 domain")
    assert finding["found"] == '"USDC"'
    assert finding["expected"] == 'the EIP-712 domain of the token: "USD Coin"'
    assert finding["page"] == f"{BASE}/lint/rules/domain-wrong"
    assert (await running.get(finding["page"].removeprefix(BASE))).status_code == 200
    (terms,) = answer["terms"]
    assert (terms["amount"], terms["symbol"], terms["amountUsd"]) == ("10000", "USDC", 0.01)
    assert (terms["scheme"], terms["maxTimeoutSeconds"]) == ("exact", 60)
    assert {"resource", "probedAt"}.isdisjoint(answer)


@pytest.mark.parametrize(
    "capture",
    [
        f"HTTP/2 402\r\npayment-required: {encode_envelope(GOOD.envelope)}\r\n\r\n{{}}",
        encode_envelope(GOOD.envelope),
        json.dumps(GOOD.envelope),
        GOOD.capture(),
    ],
)
async def test_all_capture_formats_are_accepted(running: Running, capture: str) -> None:
    answer = await post_lint(running, {"capture": capture})
    assert (answer["payable"], answer["compliant"]) == (True, True)
    assert answer["payableBy"] == {"typescript": True, "python": True, "circle": False}


async def test_findings_are_ordered_by_severity(running: Running) -> None:
    wrong = json.loads(json.dumps(GOOD.envelope))
    wrong["resource"]["description"] = ""
    wrong["accepts"][0] |= {"amount": 1, "maxTimeoutSeconds": 8}
    del wrong["extensions"]
    answer = await post_lint(running, {"capture": json.dumps(wrong)})
    severities = [finding["severity"] for finding in answer["findings"]]
    assert severities == ["error", "warn", "warn", "info"]


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({}, "invalid-input", "capture"),
        ({"capture": "{}", "resource": WEATHER}, "invalid-input", "capture"),
        ({"capture": ""}, "invalid-input", "capture"),
        ({"capture": "{}", "resource": None}, "invalid-input", "capture"),
        ({"resource": None}, "invalid-input", "capture"),
        ({"capture": {"status": 402}}, "invalid-input", "capture"),
        ({"captured": "{}"}, "unknown-field", "captured"),
        ({"capture": "hello"}, "capture-invalid", "capture"),
        ({"capture": "HTTP/1.1 402\nno colon\n\n"}, "capture-invalid", "capture"),
        ({"resource": "http://a.example.com/"}, "resource-not-https", "resource"),
        ([], "invalid-input", ""),
    ],
)
async def test_invalid_lint_requests_are_rejected_with_a_reason(
    running: Running, body: Any, code: str, path: str
) -> None:
    problem = await post_lint(running, body, status=422)
    assert problem["code"] == code
    assert [error["path"] for error in problem["errors"]] == [path]


async def test_unreadable_capture_returns_the_accepted_formats(running: Running) -> None:
    problem = await post_lint(running, {"capture": "hello"}, status=422)
    assert "curl -i" in problem["detail"]


async def test_general_request_limits_apply(running: Running) -> None:
    large = await running.http.post("/v1/lint", json={"capture": "x" * 70_000})
    assert large.status_code == 413
    assert (await running.http.post("/v1/lint?a=b", json={"capture": "{}"})).status_code == 422
    assert (await running.http.post("/v1/lint", content=b"{")).status_code == 400
    async with open_service(with_edge(configuration(), free_per_minute=2)) as limited:
        statuses = [
            (await limited.http.post("/v1/lint", json=body)).status_code
            for body in [{"capture": encode_envelope(GOOD.envelope)}] * 3
        ]
    assert statuses == [200, 200, 429]


async def test_stored_probe_is_linted_without_a_request(
    running: Running,
) -> None:
    before = await fetch(running.service.store, sa.text("SELECT count(*) FROM probe"))
    answer = await post_lint(running, {"resource": WEATHER})
    after = await fetch(running.service.store, sa.text("SELECT count(*) FROM probe"))
    assert before.scalar_one() == after.scalar_one()
    row = await fetch(
        running.service.store,
        sa.text(f"SELECT quote_pay_to, quote_amount FROM endpoint WHERE id = '{WEATHER_ID}'"),
    )
    (terms,) = answer["terms"]
    assert (terms["payTo"], terms["amount"]) == tuple(row.one())
    assert (answer["resource"], answer["payable"]) == (WEATHER, True)
    assert {"scheme", "maxTimeoutSeconds"}.isdisjoint(terms)


async def test_unknown_and_unprobed_resources_return_404() -> None:
    resource = "https://new.example.com/fog"
    async with open_service(configuration()) as fresh:
        unknown = await post_lint(fresh, {"resource": resource}, status=404)
        await fresh.service.store.writing(
            discovery.adopt, parse_resource(resource), source="bazaar", now=fresh.clock()
        )
        private = await post_lint(fresh, {"resource": resource}, status=404)
    assert {unknown["code"], private["code"]} <= {"unknown-resource", "not-probed"}


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.PAYMENT_REQUIRED])
async def test_stored_lint_equals_the_lint_of_the_probe(running: Running, outcome: Outcome) -> None:
    """A fault has no findings, and a rule of an older version has no page."""
    answered = outcome is Outcome.PAYMENT_REQUIRED
    retired = Finding(rule="retired", severity=Severity.WARN, message="Mend it.", where="body")
    running.clock.now += 60_000
    result = ProbeResult(
        at=running.clock(),
        outcome=outcome,
        attribution=Attribution.TARGET,
        up=answered,
        timings=Timings(total=5),
        status=402 if answered else None,
        payable=answered,
        payable_by=frozenset({OfficialClient.PYTHON}) if answered else frozenset(),
        findings=(retired,) if answered else (),
        version=2 if answered else None,
        forms=("eip155:8453 eip3009",) if answered else (),
        extensions=("bazaar", "builder-code", "own-extension") if answered else (),
    )
    await running.service.store.writing(probes.record_many, WEATHER_ID, [result])
    answer = await post_lint(running, {"resource": WEATHER})
    (finding,) = answer["findings"]
    support = {"bazaar": "evaluated", "builder-code": "recognised", "own-extension": "unknown"}
    assert answer.get("extensions") == (support if answered else None)
    assert answer["terms"] == []
    assert answer["probedAt"] == iso(result.at)
    assert answer["payableBy"] == {"typescript": False, "python": answered, "circle": False}
    if answered:
        assert (finding["rule"], finding["message"]) == ("retired", "Mend it.")
        assert "page" not in finding
    else:
        assert (finding["rule"], answer["payable"]) == ("no-answer", False)


async def test_hostile_schema_does_not_block_other_requests(running: Running) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for depth in range(6):
        schema = {"anyOf": [schema, {"properties": {str(depth): schema}}]}
    envelope = json.loads(json.dumps(GOOD.envelope))
    envelope["extensions"]["bazaar"]["schema"] = schema
    capture = json.dumps(envelope)
    assert len(capture) < 65_000
    answers = await asyncio.wait_for(
        asyncio.gather(*(post_lint(running, {"capture": capture}) for _ in range(20))), timeout=20
    )
    assert all(answer["version"] == 2 for answer in answers)
