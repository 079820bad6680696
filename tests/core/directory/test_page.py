"""Pages of directories: where their entries are, and groups of entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.directory.page import (
    LISTS,
    DirectoryPage,
    is_page,
    list_entries,
    read_page,
    read_time,
)

USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PAY_TO = "0xF9D1D63F362bBF1EE08aB9AcB36fe74aFC48d5f1"
AT = 1_766_283_370_973  # 2025-12-21T02:16:10.973Z


def v2_item(**changes: Any) -> dict[str, Any]:
    item = {
        "resource": "https://api.seller.dev/news",
        "type": "http",
        "x402Version": 2,
        "lastUpdated": AT // 1_000,
        "accepts": [
            {
                "scheme": "exact",
                "network": "eip155:8453",
                "amount": "10000",
                "asset": USDC,
                "payTo": PAY_TO,
                "maxTimeoutSeconds": 300,
            }
        ],
    }
    return item | changes


def test_page_is_read_in_every_form_in_use() -> None:
    paging = {"limit": 100, "offset": 200, "total": 1_313}
    assert read_page({"items": [1], "pagination": paging}) == DirectoryPage(
        items=(1,), total=1_313, limit=100, offset=200
    )
    crawl = {"resources": [1], "total": 9, "partial": True, "facilitatorUrl": "https://f.dev"}
    assert read_page(crawl) == DirectoryPage(
        items=(1,), total=9, complete=False, origin="https://f.dev"
    )
    assert read_page(crawl | {"partial": False}).complete is True
    assert read_page(["https://a.dev"]) == DirectoryPage(items=("https://a.dev",))
    assert read_page({"items": None, "resources": [2], "pagination": None}).items == (2,)
    assert read_page({"items": [], "pagination": {"total": "12", "limit": -1}}) == DirectoryPage()


def open_groups(document: object) -> list[tuple[str, str | None, str]]:
    items = [read_item(item) for item in list_entries(read_page(document))]
    assert all(isinstance(item, ListedItem) for item in items), items
    return [
        (item.resource.url, item.method, item.service_name)
        for item in items
        if isinstance(item, ListedItem)
    ]


@pytest.mark.parametrize("name", LISTS)
def test_list_is_read_under_every_known_name(name: str) -> None:
    assert {"services", "routes", "origins", "endpoints", "apis"} <= set(LISTS)
    document = {name: ["https://a.dev/x", {"url": "https://b.dev/y"}]}
    assert is_page(document)
    assert open_groups(document) == [("https://a.dev/x", None, ""), ("https://b.dev/y", None, "")]


def test_endpoints_of_a_service_are_entries_at_its_url_and_with_its_name() -> None:
    inner: list[object] = [
        {"path": "/a", "method": "POST"},
        "/b",
        "GET /c",
        {"url": "https://other.dev/q", "serviceName": "Own"},
    ]
    service = {"name": "Desk", "baseUrl": "https://a.dev/v1", "endpoints": inner}
    single = {"name": "Solo", "url": "https://solo.dev/run"}
    assert open_groups({"services": [service, single]}) == [
        ("https://a.dev/v1/a", "POST", "Desk"),
        ("https://a.dev/v1/b", None, "Desk"),
        ("https://a.dev/v1/c", "GET", "Desk"),
        ("https://other.dev/q", None, "Own"),
        ("https://solo.dev/run", None, ""),
    ]


def test_routes_may_be_named_by_their_paths_and_origins_hold_resources() -> None:
    routes = {"GET /weather": {"description": "W"}, "/news": "$0.01", "note": "x"}
    assert open_groups({"baseUrl": "https://a.dev", "routes": routes}) == [
        ("https://a.dev/weather", "GET", ""),
        ("https://a.dev/news", None, ""),
    ]
    origins = [{"origin": "https://a.dev", "resources": ["/x", "https://a.dev/y"]}]
    assert open_groups({"origins": [*origins, "https://b.dev/", {"origin": "https://c.dev"}]}) == [
        ("https://a.dev/x", None, ""),
        ("https://a.dev/y", None, ""),
        ("https://b.dev/", None, ""),
        ("https://c.dev/", None, ""),
    ]


def test_entry_with_terms_is_not_a_group_and_is_unchanged() -> None:
    item = v2_item(endpoints=["https://elsewhere.dev/"], resources=[1])
    assert list_entries(read_page([item])) == (item,)


def test_opening_groups_twice_changes_nothing() -> None:
    service = {"name": "Desk", "baseUrl": "https://a.dev", "endpoints": ["/b", {"path": "/c"}]}
    page = read_page({"services": [service]})
    once = list_entries(page)
    assert list_entries(replace(page, items=once)) == once


@pytest.mark.parametrize(
    "fields",
    [
        {"facilitatorUrl": "https://f.dev/x", "crawledAt": "2025-12-21T02:16:10.973Z"},
        {"meta": {"facilitatorUrl": "https://f.dev/x", "generatedAt": AT}},
        {"source": "https://f.dev/x", "timestamp": AT / 1_000},
    ],
)
def test_crawl_contains_its_origin_and_time(fields: dict[str, Any]) -> None:
    page = read_page({"resources": []} | fields)
    assert (page.origin, page.taken_at) == ("https://f.dev/x", AT)


def test_document_without_entries_is_an_empty_page() -> None:
    documents: tuple[object, ...] = (None, {}, {"items": {}}, "x", 5)
    for document in documents:
        assert read_page(document).items == ()
        assert not is_page(document)
    assert is_page([])
    assert is_page({"resources": []})


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2025-12-21T02:16:10.973Z", AT),
        ("2025-12-20T23:57:00.27Z", 1_766_275_020_270),
        ("2025-12-21T03:16:10.973+01:00", AT),
        ("2025-12-21T02:16:10.973", AT),
        (AT // 1_000, AT // 1_000 * 1_000),
        (AT, AT),
        (AT / 1_000, AT),
        (str(AT), AT),
        ("20251221", AT // 86_400_000 * 86_400_000),
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        (-5, None),
        (0, None),
        (10**30, None),
        (float("nan"), None),
        (float("inf"), None),
        ("0001-01-01T00:00:00+23:59", None),
    ],
)
def test_reads_times_in_every_common_form(value: object, at: int | None) -> None:
    assert read_time(value) == at


@pytest.mark.parametrize(
    "fields",
    [
        {"resourceServerUrl": "https://api.dev/v1"},
        {"baseUrl": "https://api.dev/v1/"},
        {"service": {"url": "https://api.dev/v1", "name": "Desk"}},
        {"service": {"baseUrl": "https://api.dev/v1"}},
    ],
)
@pytest.mark.parametrize(
    "entry",
    [
        "/a?x=1",
        "a?x=1",
        "GET ./a?x=1",
        {"path": "a?x=1"},
        {"resource": {"url": "/a?x=1", "description": "d"}},
        {"url": "a?x=1", "accepts": [{"payTo": "0x1"}]},
    ],
)
def test_relative_paths_are_resolved_against_the_base_that_the_document_names(
    fields: dict[str, Any], entry: object
) -> None:
    (item,) = map(read_item, list_entries(read_page({**fields, "resources": [entry]})))
    assert isinstance(item, ListedItem)
    assert (item.resource.url, item.resource.query) == ("https://api.dev/v1/a", "x=1")


@pytest.mark.parametrize("entry", ["https://b.dev/a", "b.dev/a", "//b.dev/a", "see the docs"])
def test_only_relative_paths_are_joined_to_the_base(entry: str) -> None:
    page = read_page({"resourceServerUrl": "https://api.dev", "resources": [entry]})
    assert list_entries(page) == (entry,)
