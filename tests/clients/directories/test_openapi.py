"""Documents of an origin: OpenAPI and the well-known list."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.support.directory import HOST, NOW, names, write
from tests.support.tls_server import Reply, TlsServer

from tollgauge.clients.directories import file, openapi
from tollgauge.clients.directories.document import DirectoryError
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.directory.listing import ListedItem, read_item

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "News Desk"},
    "servers": [{"url": "https://elsewhere.dev/v9"}, {"url": "/v1"}],
    "paths": {
        "/free": {"get": {"summary": "no price"}},
        "/news/{id}": {
            "parameters": [{"name": "lang", "in": "query", "example": "en"}],
            "get": {
                "summary": "One piece",
                "parameters": [{"$ref": "#/components/parameters/Days"}],
                "x-payment-info": {"price": {"mode": "fixed", "amount": "0.01"}},
            },
        },
        "/ask": {
            "post": {
                "description": "Ask",
                "tags": ["ai"],
                "requestBody": {"$ref": "#/components/requestBodies/Ask"},
                "x-payment-info": {"protocols": ["x402"]},
            }
        },
        "/loop": {"get": {"requestBody": {"$ref": "#/x"}, "x-payment-info": {"a": 1}}},
        "/odd": [1, 2],
    },
    "x": {"$ref": "#/x"},
    "components": {
        "parameters": {"Days": {"name": "days", "in": "query", "schema": {"default": 3}}},
        "requestBodies": {
            "Ask": {
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {"q": {"type": "string", "example": "hi"}, "n": {}},
                        }
                    }
                }
            }
        },
    },
}


async def origin(egress: Egress) -> list[ListedItem]:
    steps = [step async for step in openapi.pages(egress, f"https://{HOST}/openapi.json", at=NOW)]
    assert [step.page.complete for step in steps] == [True]
    perimeter = EgressSettings(user_agent="t", mapped={HOST: ("127.0.0.1", 1)}).perimeter
    items = [read_item(item, perimeter) for item in steps[0].page.items]
    return [item for item in items if isinstance(item, ListedItem)]


async def test_openapi_document_of_an_origin_lists_its_paid_operations(
    directory: TlsServer, egress: Egress
) -> None:
    files: dict[str, Reply] = {"/openapi.json": (200, {}, json.dumps(OPENAPI).encode())}
    directory.answer = lambda path: files.get(path, (404, {}, b""))
    news, ask, loop = await origin(egress)
    assert news.resource.url == f"https://{HOST}/v1/news/%7Bid%7D"
    assert news.resource.templated
    assert (news.method, news.resource.query) == ("GET", "lang=en&days=3")
    assert (news.service_name, news.description) == ("News Desk", "One piece")
    assert (ask.method, ask.body, ask.tags) == ("POST", b'{"q":"hi"}', ("ai",))
    assert loop.body is None
    assert news.quote is None


@pytest.mark.parametrize(
    "first",
    [(404, {}, b""), (200, {}, b"<html>"), (200, {}, b'{"paths":{}}'), (200, {}, b"[1]")],
)
async def test_well_known_document_is_used_without_paid_operations(
    directory: TlsServer, egress: Egress, first: Reply
) -> None:
    listed = [f"https://{HOST}/a", "POST /b", "/c", "https://elsewhere.dev/x", "//evil.dev/y", 7]
    known = json.dumps({"version": 1, "resources": listed}).encode()
    files: dict[str, Reply] = {"/openapi.json": first, "/.well-known/x402": (200, {}, known)}
    directory.answer = lambda path: files.get(path, (404, {}, b""))
    items = await origin(egress)
    assert [(item.method, item.resource.path) for item in items] == [
        (None, "/a"),
        ("POST", "/b"),
        (None, "/c"),
    ]


async def test_origin_without_either_document_is_an_error(
    directory: TlsServer, egress: Egress
) -> None:
    directory.answer = lambda _: (500, {}, b"")
    with pytest.raises(DirectoryError, match="lists nothing"):
        await origin(egress)


def on_disk(**changes: Any) -> str:
    return json.dumps(OPENAPI | {"servers": [{"url": "https://news.dev/v1"}]} | changes)


def test_openapi_file_lists_its_paid_operations(tmp_path: Path) -> None:
    page = file.read(write(tmp_path / "openapi.json", on_disk()))
    assert (page.origin, page.complete) == ("https://news.dev", True)
    news, ask, loop = [read_item(item) for item in page.items]
    assert isinstance(news, ListedItem)
    assert isinstance(ask, ListedItem)
    assert isinstance(loop, ListedItem)
    assert news.resource.url == "https://news.dev/v1/news/%7Bid%7D"
    assert (ask.method, ask.body, ask.service_name) == ("POST", b'{"q":"hi"}', "News Desk")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (on_disk(servers=[]), "without a server"),
        (on_disk(paths={"/a": {"get": {}}}), "no operation is for sale"),
        ("openapi: 3.1.0\npaths: {}\n", "YAML"),
    ],
)
def test_unusable_openapi_file_states_the_reason(
    tmp_path: Path, content: str, message: str
) -> None:
    with pytest.raises(DirectoryError, match=message):
        file.read(write(tmp_path / "openapi", content))


@pytest.mark.parametrize(
    "payment",
    [
        {"type": "free"},
        {"price": "0", "protocols": ["mpp"]},
        {"price": {"mode": "fixed", "currency": "USD", "amount": "0.00"}},
    ],
)
def test_operation_marked_as_free_is_not_listed(tmp_path: Path, payment: dict[str, Any]) -> None:
    paths = {
        "/free": {"get": {"x-payment-info": payment}},
        "/paid": {"get": {"x-payment-info": {"price": {"mode": "fixed", "amount": "0.01"}}}},
    }
    path = write(tmp_path / "o.json", on_disk(paths=paths))
    assert names(path) == ["free", "https://news.dev/v1/paid"]


def test_protocols_of_an_operation_may_contain_its_terms(tmp_path: Path) -> None:
    terms = {"scheme": "exact", "network": "eip155:8453", "asset": "0xA", "amount": "80000"}
    payment = {"protocols": [{"mpp": {}}, {"x402": terms | {"payTo": "0xB"}}]}
    paths = {"/p": {"get": {"x-payment-info": payment}}}
    item = read_item(next(iter(file.read(write(tmp_path / "o", on_disk(paths=paths))).items)))
    assert isinstance(item, ListedItem)
    assert item.quote is not None
    assert (item.quote.amount, item.quote.pay_to) == (80_000, "0xb")


async def test_well_known_document_may_list_endpoints_as_objects(
    directory: TlsServer, egress: Egress
) -> None:
    listed = [{"path": "/a", "method": "post"}, {"url": "https://elsewhere.dev/x"}]
    known = json.dumps({"version": 1, "endpoints": listed}).encode()
    directory.answer = lambda path: (
        (200, {}, known) if path == "/.well-known/x402" else (404, {}, b"")
    )
    items = await origin(egress)
    assert [(item.method, item.resource.path) for item in items] == [("POST", "/a")]


def test_operations_that_share_a_large_schema_do_not_copy_it() -> None:
    properties = {f"field{number}": {"example": number} for number in range(5_000)}
    parameters = [{"name": f"p{number}", "in": "query"} for number in range(1_000)]
    path = {
        "parameters": parameters,
        "post": {
            "x-payment-info": {"price": "1"},
            "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/large"}}}},
        },
    }
    document = {
        "large": {"properties": properties},
        "path": path,
        "paths": {f"/{number}": {"$ref": "#/path"} for number in range(500)},
    }
    tracemalloc.start()
    try:
        items = openapi.from_openapi(document, "https://a.dev")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(items) == 500
    assert peak < 16 * 1024 * 1024
    item = read_item(items[0])
    assert isinstance(item, ListedItem)
    assert item.body is not None
    assert len(json.loads(item.body)) == 64


def test_only_the_beginning_of_a_large_shared_value_is_read() -> None:
    terms = {"payTo": "0x" + "ab" * 20}
    query = {"in": "query", "name": "q", "example": "hi"}
    body = {"content": {"application/json": {"example": {"q": "hi"}}}}

    def declare_operation(before: int) -> tuple[Any, Any, Any]:
        """Return the terms, parameters and body that are read behind this many other entries."""
        name = "b" * 2 * before
        operation = {
            "x-payment-info": {"protocols": [{}] * before + [{"x402": terms}]},
            "parameters": [{}] * before + [query],
            "requestBody": {"$ref": f"#/{name}"},
        }
        document = {"paths": {"/": {"post": operation}}, name: body}
        entry: Any = openapi.from_openapi(document, "https://a.dev")[0]
        fields = entry["extensions"]["bazaar"]["info"]["input"]
        return entry["accepts"], list(fields["queryParams"]), fields["bodyFields"].get("example")

    assert declare_operation(200) == ([terms], ["q"], {"q": "hi"})
    assert declare_operation(300) == ([], [], None)


def test_document_with_too_many_operations_is_not_complete(
    tmp_path: Path,
) -> None:
    path = tmp_path / "openapi.json"
    operation = {"get": {"x-payment-info": {"price": "1"}}}
    for count, read in ((7, 7), (openapi.ITEMS_MAX + 1, openapi.ITEMS_MAX)):
        paths = {f"/{number}": operation for number in range(count)}
        document = {"openapi": "3.1.0", "servers": [{"url": "https://a.dev"}], "paths": paths}
        path.write_text(json.dumps(document))
        listing = file.read(path)
        assert (listing.count, listing.complete) == (read, count == read)


async def test_operations_with_a_402_but_no_terms_are_listed_as_unverified(
    directory: TlsServer, egress: Egress
) -> None:
    paths = {
        "/priced": {
            "get": {"responses": {"402": {}}},
            "post": {"x-payment-info": {"price": "0.01"}, "responses": {"402": {}}},
        },
        "/plain": {"get": {"responses": {"200": {}, "402": {"description": "Pay"}}}},
        "/free": {"get": {"responses": {"200": {}}}},
        "/zero": {"get": {"x-payment-info": {"type": "free"}, "responses": {"402": {}}}},
    }
    document = json.dumps({"openapi": "3.1.0", "paths": paths}).encode()
    directory.answer = lambda path: (200, {}, document if path == "/openapi.json" else b"{}")
    listed = [(i.resource.path, i.method, i.unverified) for i in await origin(egress)]
    assert listed == [
        ("/priced", "POST", False),
        ("/priced", "GET", True),
        ("/plain", "GET", True),
    ]


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"resourceServerUrl": f"https://{HOST}/v1"}, ["/v1/a", "/v1/b"]),
        ({"service": {"url": f"https://{HOST}/v1/"}}, ["/v1/a", "/v1/b"]),
        ({"baseUrl": "/v2"}, ["/v2/a", "/v2/b"]),
        ({}, ["/a", "/b"]),
    ],
)
async def test_paths_of_the_well_known_document_are_relative_to_its_base_url(
    directory: TlsServer, egress: Egress, fields: dict[str, object], paths: list[str]
) -> None:
    known = json.dumps({"resources": ["/a", {"path": "b"}], **fields}).encode()
    files: dict[str, Reply] = {"/.well-known/x402": (200, {}, known)}
    directory.answer = lambda path: files.get(path, (404, {}, b""))
    assert [item.resource.path for item in await origin(egress)] == paths


async def test_paths_under_the_base_of_another_origin_are_not_listed(
    directory: TlsServer, egress: Egress
) -> None:
    known = {"resourceServerUrl": "https://elsewhere.dev", "resources": ["/a", f"https://{HOST}/b"]}
    files: dict[str, Reply] = {"/.well-known/x402": (200, {}, json.dumps(known).encode())}
    directory.answer = lambda path: files.get(path, (404, {}, b""))
    assert [item.resource.path for item in await origin(egress)] == ["/b"]
