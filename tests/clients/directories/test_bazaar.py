"""Reading a paginated directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.directory import HOST, NOW
from tests.support.tls_server import Reply, TlsServer

from tollgauge.clients.directories import bazaar
from tollgauge.clients.directories.document import DirectoryError, Step
from tollgauge.clients.egress.client import Egress
from tollgauge.core.directory.listing import SkippedItem

BASE = f"https://{HOST}/platform/v2/x402"


def entries(count: int, *, size: int = 0) -> list[dict[str, Any]]:
    return [{"url": f"https://s{n}.dev/x", "description": "d" * size} for n in range(count)]


def serve_pages(
    items: list[Any], *, cap: int = 1_000, total: int | None = -1
) -> Callable[[str], Reply]:
    """Return a listing with the real pagination. A `total` of -1 is the true one; None omits it."""

    def answer(path: str) -> Reply:
        query = parse_qs(urlsplit(path).query)
        limit, offset = min(int(query["limit"][0]), cap), int(query["offset"][0])
        page: dict[str, Any] = {"items": items[offset : offset + limit]}
        if total is not None:
            count = len(items) if total == -1 else total
            page["pagination"] = {"limit": limit, "offset": offset, "total": count}
        return 200, {"content-type": "application/json"}, json.dumps(page).encode()

    return answer


async def crawl(egress: Egress, **options: Any) -> list[Step]:
    options = {"at": NOW, "pause_ms": 1} | options
    return [step async for step in bazaar.pages(egress, BASE, **options)]


def urls(steps: list[Step]) -> list[str]:
    return [item["url"] for step in steps for item in step.page.items if isinstance(item, dict)]


async def test_listing_is_read_page_by_page_to_its_end(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = serve_pages(entries(250))
    steps = await crawl(egress)
    assert urls(steps) == [entry["url"] for entry in entries(250)]
    assert [step.next_offset for step in steps] == [100, 200, 250]
    assert [step.page.complete for step in steps] == [None, None, True]
    assert directory.asked[0] == "/platform/v2/x402/discovery/resources?limit=100&offset=0"
    assert len(directory.asked) == 3


async def test_listing_without_a_total_ends_with_a_short_page(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = serve_pages(entries(20), total=None)
    steps = await crawl(egress, limit=10)
    assert len(urls(steps)) == 20
    assert steps[-1].page.complete is True


async def test_smaller_pages_than_requested_are_followed(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = serve_pages(entries(25), cap=10)
    steps = await crawl(egress)
    assert len(urls(steps)) == 25
    assert steps[-1].page.complete is True


async def test_crawl_resumes_at_its_offset(directory: TlsServer, egress: Egress) -> None:
    directory.answer = serve_pages(entries(30))
    steps = await crawl(egress, limit=10, offset=20)
    assert urls(steps)[:10] == [entry["url"] for entry in entries(30)[20:]]
    assert steps[-1].next_offset == 30
    assert steps[-1].page.complete is True


async def test_crawl_that_resumes_past_the_end_is_not_complete(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = serve_pages(entries(15))
    steps = await crawl(egress, limit=10, offset=20)
    assert steps[-1].page.complete is False


async def test_oversized_page_is_requested_in_halves(directory: TlsServer, egress: Egress) -> None:
    directory.answer = serve_pages(entries(120, size=5_000))
    steps = await crawl(egress)
    assert len(urls(steps)) == 120
    assert steps[-1].page.complete is True


async def test_oversized_entry_is_skipped(directory: TlsServer, egress: Egress) -> None:
    items = entries(60)
    items[3]["description"] = "x" * 300_000
    directory.answer = serve_pages(items)
    steps = await crawl(egress)
    assert len(urls(steps)) == 59
    odd = [i for step in steps for i in step.page.items if isinstance(i, SkippedItem)]
    assert [item.reason for item in odd] == ["too-large"]
    assert steps[-1].page.complete is True
    assert len(directory.asked) < 15


async def test_entry_with_invalid_json_is_skipped(directory: TlsServer, egress: Egress) -> None:
    items = entries(6)
    items[2]["description"] = "BREAK"
    good = serve_pages(items)

    def answer(path: str) -> Reply:
        status, headers, body = good(path)
        return status, headers, body.replace(b'"BREAK"', b"[" * 5_000)

    directory.answer = answer
    steps = await crawl(egress, limit=4)
    assert len(urls(steps)) == 5
    odd = [i for step in steps for i in step.page.items if isinstance(i, SkippedItem)]
    assert [item.reason for item in odd] == ["unreadable"]


async def test_throttling_is_respected_and_the_page_requested_again(
    directory: TlsServer, egress: Egress
) -> None:
    good, waits = serve_pages(entries(5)), [(429, {"retry-after": "0"}, b""), (503, {}, b"")]
    directory.answer = lambda path: waits.pop() if waits else good(path)
    steps = await crawl(egress)
    assert len(urls(steps)) == 5
    assert len(directory.asked) == 3


async def test_long_delay_is_returned_to_the_caller(directory: TlsServer, egress: Egress) -> None:
    directory.answer = lambda _: (429, {"retry-after": "3600"}, b"")
    with pytest.raises(DirectoryError, match="3600 s"):
        await crawl(egress)
    assert len(directory.asked) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((404, {}, b""), "404"),
        ((302, {"location": "https://other.dev/"}, b""), "302"),
        ((500, {}, b""), "500"),
        ((200, {}, b"<html>hello</html>"), "not JSON"),
        ((200, {}, b""), "not JSON"),
        ((200, {}, b'{"error":"x"}'), "without a list"),
        ((200, {}, b'{"items":[1],"pagination":{"offset":40}}'), "offset 40"),
    ],
)
async def test_failing_source_states_the_reason(
    directory: TlsServer, egress: Egress, reply: Reply, message: str
) -> None:
    directory.answer = lambda _: reply
    with pytest.raises(DirectoryError, match=message):
        await crawl(egress)


async def test_unreachable_source_is_reported(egress: Egress) -> None:
    with pytest.raises(DirectoryError, match="is not allowed"):
        _ = [step async for step in bazaar.pages(egress, "http://directory.test", at=NOW)]
    with pytest.raises(DirectoryError, match="cannot be reached"):
        _ = [step async for step in bazaar.pages(egress, "https://127.0.0.1", at=NOW)]


async def test_directory_that_ignores_the_offset_is_rejected(
    directory: TlsServer, egress: Egress
) -> None:
    page = json.dumps({"items": entries(10)}).encode()
    directory.answer = lambda _: (200, {}, page)
    for limit in (10, 1):
        with pytest.raises(DirectoryError, match="repeats"):
            await crawl(egress, limit=limit)


async def test_listing_cut_before_its_total_is_not_complete(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = serve_pages(entries(15), total=40)
    steps = await crawl(egress, limit=10)
    assert steps[-1].page.complete is False


async def test_entry_that_moves_to_the_front_during_the_crawl_is_read_there(
    directory: TlsServer, egress: Egress
) -> None:
    items = entries(30)

    def answer(path: str) -> Reply:
        reply = serve_pages(items)(path)
        # the last entry is updated, and so moves to the front, before the crawl reaches it
        if "offset=10" in path:
            items.insert(0, items.pop() | {"lastUpdated": "now"})
        return reply

    directory.answer = answer
    steps = await crawl(egress, limit=10)
    assert {*urls(steps)} == {entry["url"] for entry in entries(30)}
    assert steps[-1].page.complete is True


async def test_listing_that_shrinks_during_the_crawl_is_not_complete(
    directory: TlsServer, egress: Egress
) -> None:
    items = entries(30)

    def answer(path: str) -> Reply:
        reply = serve_pages(items)(path)
        if "offset=10" in path:
            del items[0]
        return reply

    directory.answer = answer
    steps = await crawl(egress, limit=10)
    assert steps[-1].page.complete is False
