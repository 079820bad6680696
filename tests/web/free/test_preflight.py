"""The preflight over HTTP: the decision and the stored state of the endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.bundles import add, observe_pay_to, priced_endpoint, set_score
from tests.support.http_service import NOW, Running, configuration, open_service
from tests.support.score_rows import endpoint

from tollgauge.core.base.units import HOUR_MS, iso

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD, NEW, OTHER = ("0x" + pair * 20 for pair in ("11", "22", "33"))
RESOURCE = endpoint("/1").resource


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Running]:
    """A service that knows one endpoint, whose payTo changed."""
    async with open_service(configuration()) as service:
        store = service.service.store
        await add(store, priced_endpoint("/1"), priced_endpoint("/2"))
        await set_score(store, "/1", 914)
        await set_score(store, "/2", 120, recommendation="avoid")
        for path in ("/1", "/2"):
            await observe_pay_to(store, path, OLD, at=NOW - 9 * HOUR_MS)
        await observe_pay_to(store, "/1", NEW, at=NOW - HOUR_MS)
        yield service


async def get_preflight(running: Running, **offer: str) -> Any:
    answer = await running.get("/trust/preflight", params={"resource": RESOURCE} | offer)
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"]
    return answer.json()


async def test_matching_offer_is_allowed_with_the_stored_state(running: Running) -> None:
    upper = NEW.upper().replace("X", "x")
    answer = await get_preflight(running, payTo=upper, amount="10000", network="base")
    assert answer.pop("reason").endswith(".")
    assert answer == {
        "decision": "allow",
        "code": None,
        "resource": RESOURCE,
        "recommendation": "proceed",
        "grade": "A",
        "score": 91.4,
        "knownPayTo": [NEW, OLD],
        "knownAmount": "10000",
        "knownNetwork": "eip155:8453",
        "asOf": iso(endpoint("/1").first_seen),
    }


@pytest.mark.parametrize(
    ("offer", "decision", "code"),
    [
        ({}, "allow", None),
        ({"payTo": OLD}, "allow", None),
        ({"payTo": OTHER}, "refuse", "payto-unknown"),
        ({"payTo": "0x12"}, "refuse", "payto-malformed"),
        ({"amount": "20000"}, "allow", None),
        ({"amount": "20001"}, "ask", "price-jump"),
        ({"amount": "1e4"}, "refuse", "amount-invalid"),
        ({"network": "eip155:1"}, "refuse", "network-unknown"),
        ({"resource": f"{RESOURCE}?city=x"}, "allow", None),
        ({"resource": endpoint("/2").resource}, "refuse", "avoid"),
        ({"resource": "https://api.seller.dev/new"}, "ask", "unknown-resource"),
    ],
)
async def test_omitted_offer_fields_are_not_checked(
    running: Running, offer: dict[str, str], decision: str, code: str | None
) -> None:
    answer = await get_preflight(running, **offer)
    assert (answer["decision"], answer["code"]) == (decision, code)


async def test_unknown_resource_has_null_state(running: Running) -> None:
    answer = await get_preflight(running, resource="https://api.seller.dev/new?x=1", payTo=OLD)
    assert answer["resource"] == "https://api.seller.dev/new"
    unknown = ("recommendation", "grade", "score", "knownAmount", "knownNetwork", "asOf")
    assert [answer[name] for name in unknown] == [None] * 6
    assert answer["knownPayTo"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "invalid-input"),
        ("resource=ftp://a.com/x", "resource-not-https"),
        ("resource=https://127.0.0.1/x", "resource-not-public"),
        (f"resource={RESOURCE}&network=not%20one", "invalid-input"),
        (f"resource={RESOURCE}&payto={OLD}", "unknown-parameter"),
    ],
)
async def test_invalid_preflight_is_rejected(running: Running, query: str, code: str) -> None:
    answer = await running.get(f"/trust/preflight?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, code)
