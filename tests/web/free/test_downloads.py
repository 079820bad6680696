"""The bundle over HTTP: whole, in parts, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio
from tests.support.bundles import add, priced_endpoint
from tests.support.http_service import NOW, Running, configuration, open_service
from tests.support.signing import KEY, PRIVATE_JWK, verify

from tollgauge.core.guard.bundle import Variant
from tollgauge.db.engine import StoreUnavailable
from tollgauge.demo.serving import serve
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle
from tollgauge.web.free.downloads import CHECK_MS
from tollgauge.web.signing import SigningSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE = hashlib.shake_128(b"a bundle").digest(300_000)
"""Larger than one chunk of a response."""
STORED = StoredBundle(
    variant=Variant.ALL,
    as_of=NOW,
    took_ms=1,
    policy_version=2,
    records=1,
    scored=1,
    size=len(LARGE),
    digest=hashlib.sha256(LARGE).hexdigest(),
    signature="header..signature",
    key_id="key",
)
ETAG = f'"{STORED.digest[:32]}"'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Running]:
    """A service with a large bundle."""
    async with open_service(configuration()) as service:
        await service.service.store.writing(trust_records.save_bundles, [(STORED, LARGE)])
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the same service on a real port."""
    async with (
        serve(running.app) as port,
        httpx.AsyncClient(timeout=30, base_url=f"http://127.0.0.1:{port}") as http,
    ):
        yield http


async def test_complete_file_is_sent_unchanged(client: httpx.AsyncClient) -> None:
    answer = await client.get("/trust/bundle")
    assert (answer.status_code, answer.content) == (200, LARGE)
    headers = answer.headers
    assert headers["content-type"] == "application/zstd"
    assert headers["content-length"] == str(len(LARGE))
    assert headers["cache-control"] == "public, max-age=3600"
    assert headers["etag"] == ETAG
    assert headers["last-modified"] == "Wed, 18 Nov 2026 11:06:40 GMT"
    assert headers["accept-ranges"] == "bytes"
    assert headers["tollgauge-signature"] == "header..signature"
    assert "content-encoding" not in headers
    exposed = headers["access-control-expose-headers"].split(", ")
    assert {"Tollgauge-Signature", "ETag", "Accept-Ranges", "Content-Range"} <= set(exposed)


async def test_interrupted_download_can_be_resumed(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/trust/bundle") as answer:
        begun = b""
        async for piece in answer.aiter_raw():
            begun += piece
            if len(begun) > 100_000:
                break
    more = {"range": f"bytes={len(begun)}-", "if-range": answer.headers["etag"]}
    rest = await client.get("/trust/bundle", headers=more)
    assert rest.status_code == 206
    last = len(LARGE) - 1
    assert rest.headers["content-range"] == f"bytes {len(begun)}-{last}/{len(LARGE)}"
    assert begun + rest.content == LARGE
    assert rest.headers["tollgauge-signature"] == "header..signature"


async def test_middle_range_is_sent(client: httpx.AsyncClient) -> None:
    answer = await client.get("/trust/bundle", headers={"range": "bytes=70000-169999"})
    assert (answer.status_code, answer.content) == (206, LARGE[70_000:170_000])
    assert answer.headers["content-length"] == "100000"


async def test_range_of_another_version_returns_the_complete_file(
    client: httpx.AsyncClient,
) -> None:
    asked = {"range": "bytes=10-", "if-range": '"an older one"'}
    answer = await client.get("/trust/bundle", headers=asked)
    assert (answer.status_code, answer.content) == (200, LARGE)


async def test_range_outside_the_file_returns_416(client: httpx.AsyncClient) -> None:
    answer = await client.get("/trust/bundle", headers={"range": f"bytes={len(LARGE)}-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(LARGE)}"
    assert answer.json()["code"] == "range-not-satisfiable"


async def test_matching_etag_returns_304_without_body(client: httpx.AsyncClient) -> None:
    for known in ({"if-none-match": ETAG}, {"if-modified-since": "Wed, 18 Nov 2026 11:06:40 GMT"}):
        answer = await client.get("/trust/bundle", headers=known | {"range": "bytes=0-9"})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == ETAG
        assert answer.headers["tollgauge-signature"] == "header..signature"


async def test_head_of_the_bundle_equals_get(client: httpx.AsyncClient) -> None:
    # Only GET has ranges (RFC 9110 section 14.2).
    answer = await client.head("/trust/bundle", headers={"range": "bytes=0-9"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(LARGE))
    again = await client.get("/trust/bundle")  # over the same connection
    assert again.content == LARGE


async def test_query_parameter_is_rejected(running: Running) -> None:
    assert (await running.get("/trust/bundle?format=json")).status_code == 422


async def test_missing_bundle_returns_503_with_retry_after() -> None:
    async with open_service(configuration()) as empty:
        for path in ("/trust/bundle", "/trust/bundle/avoid"):
            answer = await empty.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
            assert answer.json()["code"] == "bundle-unavailable"


async def test_signature_covers_the_file() -> None:
    config = replace(configuration(), signing=SigningSettings(key=PRIVATE_JWK))
    async with open_service(config) as signing:
        await add(signing.service.store, priced_endpoint("/1"))
        assert await signing.service.round("bundle")
        for path in ("/trust/bundle", "/trust/bundle/avoid"):
            answer = await signing.get(path)
            signature = answer.headers["tollgauge-signature"]
            verify(signature, answer.content, "tollgauge-bundle", [KEY.public])


async def test_bundle_is_not_signed_without_a_key() -> None:
    config = replace(configuration(), signing=SigningSettings())
    async with open_service(config) as unsigned:
        await add(unsigned.service.store, priced_endpoint("/1"))
        assert await unsigned.service.round("bundle")
        answer = await unsigned.get("/trust/bundle")
        assert answer.status_code == 200
        assert "tollgauge-signature" not in answer.headers


async def test_bundle_in_memory_is_served_without_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_service(configuration()) as service:
        await service.service.store.writing(trust_records.save_bundles, [(STORED, LARGE)])
        assert (await service.get("/trust/bundle")).content == LARGE

        async def unavailable(*_: object) -> None:
            raise StoreUnavailable("it is gone")

        monkeypatch.setattr(service.service.store, "reading", unavailable)
        service.clock.now += CHECK_MS
        assert (await service.get("/trust/bundle")).content == LARGE
        assert (await service.get("/trust/bundle/avoid")).json()["code"] == "store-unavailable"
