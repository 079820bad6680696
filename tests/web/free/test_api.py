"""The free answers that are signed: snapshots and the preview."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio
from tests.support import http_service
from tests.support.http_service import WEATHER, WEATHER_ID, Running
from tests.support.signing import KEY, canonical, header_of, verify

from tollgauge.core.sale.signature import SIGNATURE_HEADER, SignatureError, read
from tollgauge.web.edge.cache import FRESH_SECONDS
from tollgauge.web.signing import SigningSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

SNAPSHOT = f"/trust/snapshot/{WEATHER_ID}"
PREVIEW = "/v1/x402-trust-preview"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Running]:
    async with http_service.open_service(http_service.configuration()) as service:
        await http_service.fill(service, days=1)
        yield service


def age_the_cache(running: Running) -> None:
    """Empty the cache of answers."""
    answers = running.app.cache.answers
    for key, answer in answers.items():
        answers[key] = replace(answer, fresh_until=answer.fresh_until - FRESH_SECONDS)


@pytest.mark.parametrize(
    ("path", "typ"),
    [
        (SNAPSHOT, "tollgauge-snapshot"),
        (f"/trust/snapshot?resource={WEATHER}", "tollgauge-snapshot"),
        (PREVIEW, "tollgauge-report"),
    ],
)
async def test_signed_routes_have_a_valid_signature(running: Running, path: str, typ: str) -> None:
    answer = await running.get(path)

    header = header_of(answer.headers[SIGNATURE_HEADER], canonical(answer.content))
    assert header == {
        "alg": "EdDSA",
        "b64": False,
        "crit": ["b64"],
        "kid": KEY.fingerprint,
        "typ": typ,
        "iat": running.clock() // 1000,
    }


async def test_preview_by_post_is_signed(running: Running) -> None:
    answer = await running.http.post(PREVIEW, json={})

    verify(answer.headers[SIGNATURE_HEADER], answer.content, "tollgauge-report", [KEY.public])


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_signature_covers_the_uncompressed_answer(running: Running, encoding: str) -> None:
    answer = await running.get(PREVIEW, headers={"Accept-Encoding": encoding})

    assert answer.headers.get("Content-Encoding", "identity") == encoding
    verify(answer.headers[SIGNATURE_HEADER], answer.content, "tollgauge-report", [KEY.public])


async def test_cached_answer_is_signed_once(running: Running) -> None:
    age_the_cache(running)
    first = await running.get(SNAPSHOT)
    running.clock.now += 2_000
    again = await running.get(SNAPSHOT)

    assert again.headers[SIGNATURE_HEADER] == first.headers[SIGNATURE_HEADER]
    assert read(again.headers[SIGNATURE_HEADER]).iat == running.clock() // 1000 - 2


async def test_not_modified_response_has_the_signature_of_the_cached_body(
    running: Running,
) -> None:
    age_the_cache(running)
    first = await running.get(PREVIEW)
    running.clock.now += 10_000
    age_the_cache(running)
    again = await running.get(PREVIEW, headers={"If-None-Match": first.headers["ETag"]})

    assert again.status_code == 304
    assert again.headers[SIGNATURE_HEADER] != first.headers[SIGNATURE_HEADER], "it was built anew"
    verify(again.headers[SIGNATURE_HEADER], first.content, "tollgauge-report", [KEY.public])


async def test_head_has_the_signature_of_get(running: Running) -> None:
    age_the_cache(running)
    head: httpx.Response = await running.http.head(SNAPSHOT)

    body = (await running.get(SNAPSHOT)).content
    verify(head.headers[SIGNATURE_HEADER], body, "tollgauge-snapshot", [KEY.public])


async def test_cors_exposes_the_signature(running: Running) -> None:
    answer = await running.get(SNAPSHOT)

    exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert SIGNATURE_HEADER in exposed


async def test_signature_type_separates_snapshots_and_reports(running: Running) -> None:
    answer = await running.get(SNAPSHOT)

    with pytest.raises(SignatureError, match="tollgauge-snapshot, not a tollgauge-report"):
        verify(answer.headers[SIGNATURE_HEADER], answer.content, "tollgauge-report", [KEY.public])


@pytest.mark.parametrize(
    "path", ["/trust/leaderboard", "/trust/stats", f"/endpoint/{WEATHER_ID}/badge.json", "/nowhere"]
)
async def test_other_routes_are_not_signed(running: Running, path: str) -> None:
    assert SIGNATURE_HEADER not in (await running.get(path)).headers


async def test_answers_are_not_signed_without_a_key() -> None:
    config = replace(http_service.configuration(), signing=SigningSettings())
    async with http_service.open_service(config) as running:
        answer = await running.get(PREVIEW)

    assert answer.status_code == 200
    assert SIGNATURE_HEADER not in answer.headers


async def test_openapi_declares_signed_responses(running: Running) -> None:
    paths = (await running.get("/openapi.json")).json()["paths"]
    signed = {
        (method, path, status)
        for path, row in paths.items()
        for method, operation in row.items()
        for status, answer in operation["responses"].items()
        if SIGNATURE_HEADER in answer.get("headers", {})
        and not path.startswith(("/trust/bundle", "/guard/"))
    }

    assert signed == {
        ("post", "/v1/x402-trust", "200"),
        ("post", PREVIEW, "200"),
        *(
            ("get", path, status)
            for path in (PREVIEW, "/trust/snapshot", "/trust/snapshot/{id}")
            for status in ("200", "304")
        ),
    }
    assert "ETag" in paths[PREVIEW]["get"]["responses"]["200"]["headers"]
