from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from tollgauge.clients.directories import bazaar, file, openapi
from tollgauge.clients.directories.document import DirectoryError, Step, parse_document
from tollgauge.clients.egress.client import Egress, EgressSettings
from tollgauge.core.listing import ListedItem, SkippedItem, read_item

HOST = "directory.test"
BASE = f"https://{HOST}/platform/v2/x402"
NOW = 1_766_283_370_973

Reply = tuple[int, dict[str, str], bytes]


class Directory:
    """A directory on loopback: `answer` decides every reply, `asked` remembers the URLs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[str], Reply] = lambda _: (404, {}, b"")

    def serve(self, ca: trustme.CA) -> ThreadingHTTPServer:
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                world.asked.append(self.path)
                status, headers, body = world.answer(self.path)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(HOST).configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, str]:
    made = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    made.cert_pem.write_to_path(path)
    return made, str(path)


@pytest.fixture
def directory(ca: tuple[trustme.CA, str]) -> Iterator[tuple[Directory, int]]:
    world = Directory()
    server = world.serve(ca[0])
    yield world, server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
async def egress(
    directory: tuple[Directory, int], ca: tuple[trustme.CA, str]
) -> AsyncIterator[Egress]:
    settings = EgressSettings(
        user_agent="tollgauge-test", mapped={HOST: ("127.0.0.1", directory[1])}, ca_file=ca[1]
    )
    door = Egress(settings)
    door.start()
    yield door
    await door.close()


def entries(count: int, *, size: int = 0) -> list[dict[str, Any]]:
    return [{"url": f"https://s{n}.dev/x", "description": "d" * size} for n in range(count)]


def paging(items: list[Any], *, cap: int = 1_000, total: int | None = -1) -> Callable[[str], Reply]:
    """A listing that pages as the real one does; `total` -1 is the true one, None is none."""

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


async def test_a_listing_is_read_page_by_page_to_its_end(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(250))
    steps = await crawl(egress)
    assert urls(steps) == [entry["url"] for entry in entries(250)]
    assert [step.next_offset for step in steps] == [100, 200, 250]
    assert [step.page.complete for step in steps] == [None, None, True]
    assert directory[0].asked[0] == "/platform/v2/x402/discovery/resources?limit=100&offset=0"
    assert len(directory[0].asked) == 3


async def test_a_listing_without_a_total_ends_with_its_short_page(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(20), total=None)
    steps = await crawl(egress, limit=10)
    assert len(urls(steps)) == 20
    assert steps[-1].page.complete is True


async def test_a_directory_that_gives_less_than_asked_is_followed_at_its_pace(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(25), cap=10)
    steps = await crawl(egress)
    assert len(urls(steps)) == 25
    assert steps[-1].page.complete is True


async def test_a_crawl_goes_on_where_it_stopped(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(30))
    steps = await crawl(egress, limit=10, offset=20)
    assert urls(steps)[:10] == [entry["url"] for entry in entries(30)[20:]]
    assert steps[-1].next_offset == 30
    assert steps[-1].page.complete is True


async def test_a_crawl_that_resumes_past_the_end_is_not_complete(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(15))
    steps = await crawl(egress, limit=10, offset=20)
    assert steps[-1].page.complete is False


async def test_a_page_too_large_for_us_is_asked_for_in_halves(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(120, size=5_000))
    steps = await crawl(egress)
    assert len(urls(steps)) == 120
    assert steps[-1].page.complete is True


async def test_an_entry_too_large_for_us_is_skipped_alone(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    items = entries(60)
    items[3]["description"] = "x" * 300_000
    directory[0].answer = paging(items)
    steps = await crawl(egress)
    assert len(urls(steps)) == 59
    odd = [i for step in steps for i in step.page.items if isinstance(i, SkippedItem)]
    assert [item.reason for item in odd] == ["too-large"]
    assert steps[-1].page.complete is True
    assert len(directory[0].asked) < 15


async def test_an_entry_that_is_broken_json_is_skipped_alone(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    items = entries(6)
    items[2]["description"] = "BREAK"
    good = paging(items)

    def answer(path: str) -> Reply:
        status, headers, body = good(path)
        return status, headers, body.replace(b'"BREAK"', b"[" * 5_000)

    directory[0].answer = answer
    steps = await crawl(egress, limit=4)
    assert len(urls(steps)) == 5
    odd = [i for step in steps for i in step.page.items if isinstance(i, SkippedItem)]
    assert [item.reason for item in odd] == ["unreadable"]


async def test_an_answer_to_slow_down_is_obeyed_and_the_page_asked_again(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    good, waits = paging(entries(5)), [(429, {"retry-after": "0"}, b""), (503, {}, b"")]
    directory[0].answer = lambda path: waits.pop() if waits else good(path)
    steps = await crawl(egress)
    assert len(urls(steps)) == 5
    assert len(directory[0].asked) == 3


async def test_a_long_wait_is_handed_back(directory: tuple[Directory, int], egress: Egress) -> None:
    directory[0].answer = lambda _: (429, {"retry-after": "3600"}, b"")
    with pytest.raises(DirectoryError, match="3600 s"):
        await crawl(egress)
    assert len(directory[0].asked) == 1


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
async def test_a_source_that_fails_says_how(
    directory: tuple[Directory, int], egress: Egress, reply: Reply, message: str
) -> None:
    directory[0].answer = lambda _: reply
    with pytest.raises(DirectoryError, match=message):
        await crawl(egress)


async def test_a_source_that_is_down_says_so(egress: Egress) -> None:
    with pytest.raises(DirectoryError, match="cannot be asked"):
        _ = [step async for step in bazaar.pages(egress, "http://directory.test", at=NOW)]
    with pytest.raises(DirectoryError, match="cannot be reached"):
        _ = [step async for step in bazaar.pages(egress, "https://127.0.0.1", at=NOW)]


async def test_a_directory_that_ignores_the_offset_is_no_listing(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    page = json.dumps({"items": entries(10)}).encode()
    directory[0].answer = lambda _: (200, {}, page)
    for limit in (10, 1):
        with pytest.raises(DirectoryError, match="repeats"):
            await crawl(egress, limit=limit)


async def test_a_listing_cut_before_its_total_is_not_complete(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = paging(entries(15), total=40)
    steps = await crawl(egress, limit=10)
    assert steps[-1].page.complete is False


async def test_what_moves_to_the_head_meanwhile_is_read_there(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    items = entries(30)

    def answer(path: str) -> Reply:
        reply = paging(items)(path)
        if "offset=10" in path:  # the last entry is updated while we are on the way to it
            items.insert(0, items.pop() | {"lastUpdated": "now"})
        return reply

    directory[0].answer = answer
    steps = await crawl(egress, limit=10)
    assert {*urls(steps)} == {entry["url"] for entry in entries(30)}
    assert steps[-1].page.complete is True


async def test_a_listing_that_shrinks_meanwhile_is_not_complete(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    items = entries(30)

    def answer(path: str) -> Reply:
        reply = paging(items)(path)
        if "offset=10" in path:
            del items[0]
        return reply

    directory[0].answer = answer
    steps = await crawl(egress, limit=10)
    assert steps[-1].page.complete is False


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
    found = [read_item(item, perimeter) for item in steps[0].page.items]
    return [item for item in found if isinstance(item, ListedItem)]


async def test_an_origins_openapi_document_lists_its_paid_operations(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    files: dict[str, Reply] = {"/openapi.json": (200, {}, json.dumps(OPENAPI).encode())}
    directory[0].answer = lambda path: files.get(path, (404, {}, b""))
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
async def test_without_paid_operations_the_well_known_document_counts(
    directory: tuple[Directory, int], egress: Egress, first: Reply
) -> None:
    listed = [f"https://{HOST}/a", "POST /b", "/c", "https://elsewhere.dev/x", "//evil.dev/y", 7]
    known = json.dumps({"version": 1, "resources": listed}).encode()
    files: dict[str, Reply] = {"/openapi.json": first, "/.well-known/x402": (200, {}, known)}
    directory[0].answer = lambda path: files.get(path, (404, {}, b""))
    found = await origin(egress)
    assert [(item.method, item.resource.path) for item in found] == [
        (None, "/a"),
        ("POST", "/b"),
        (None, "/c"),
    ]


async def test_an_origin_without_either_document_is_an_error(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    directory[0].answer = lambda _: (500, {}, b"")
    with pytest.raises(DirectoryError, match="lists nothing"):
        await origin(egress)


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(path: Path) -> list[str]:
    found = [read_item(item) for item in file.read(path).items]
    return [i.resource.url if isinstance(i, ListedItem) else i.reason for i in found]


TWO = ["https://a.dev/x", "https://b.dev/y"]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(TWO),
        json.dumps({"items": [{"url": url} for url in TWO]}),
        json.dumps({"resources": [{"resource": url} for url in TWO]}),
        gzip.compress(json.dumps({"resources": TWO}).encode(), mtime=0),
        b"\xef\xbb\xbf" + json.dumps(TWO).encode(),
        "\n".join(json.dumps({"resource": url}) for url in TWO),
        "# my list\n\nhttps://a.dev/x\r\n  https://b.dev/y  \n",
        "name,url,method\nA,https://a.dev/x,GET\nB,https://b.dev/y,post\n",
        'resource,description\nhttps://a.dev/x,"one, two"\n"https://b.dev/y",z\n',
        "https://a.dev/x,comment\nhttps://b.dev/y,other\n",
    ],
)
def test_a_file_is_read_by_its_content_not_its_name(tmp_path: Path, content: bytes | str) -> None:
    path = write(tmp_path / "anything.bin", content)
    assert names(path) == TWO
    assert file.read(path).complete is True


@pytest.mark.parametrize(
    "content",
    [
        "- [A](https://a.dev/x) does A\n- [B](https://b.dev/y)\n",
        "# Paid APIs\n\nSome words.\n\n* https://a.dev/x\n* `GET https://b.dev/y`.\n",
        "| name | url |\n|---|---|\n| A | https://a.dev/x |\n| B | [B](https://b.dev/y) |\n",
        "1. ![logo](https://img.dev/l.png) [A](https://a.dev/x)\n2. <https://b.dev/y>\n",
        "[A](https://a.dev/x)\n```\ncurl https://c.dev/z\n- https://d.dev/\n```\n+ https://b.dev/y\n",
    ],
)
def test_a_markdown_list_is_read_by_its_links(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "list.md", content)
    assert names(path) == TWO
    assert file.read(path).complete is True


def test_a_markdown_link_says_its_name_and_its_line_the_method(tmp_path: Path) -> None:
    path = write(tmp_path / "l.md", "| [Desk](https://a.dev/x) | POST | $0.01 |\n")
    item = read_item(file.read(path).items[0])
    assert isinstance(item, ListedItem)
    assert (item.method, item.service_name) == ("POST", "Desk")


@pytest.mark.parametrize(
    "content", ["name,price\nA,0.01\nB,0.02\n", "name;price\nA;1\n", "name\tprice\nA\t1\n"]
)
def test_a_csv_without_a_url_column_is_refused_with_its_columns(
    tmp_path: Path, content: str
) -> None:
    with pytest.raises(DirectoryError, match=r"without a URL column.*: name, price"):
        file.read(write(tmp_path / "l.csv", content))


def test_a_csv_may_be_separated_by_semicolons_and_call_its_urls_links(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "name;link\nA;https://a.dev/x\nB;https://b.dev/y\n")
    assert names(path) == TWO


def on_disk(**changes: Any) -> str:
    return json.dumps(OPENAPI | {"servers": [{"url": "https://news.dev/v1"}]} | changes)


def test_an_openapi_file_lists_its_paid_operations(tmp_path: Path) -> None:
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
        (on_disk(servers=[]), "names no server"),
        (on_disk(paths={"/a": {"get": {}}}), "no operation is for sale"),
        ("openapi: 3.1.0\npaths: {}\n", "YAML"),
    ],
)
def test_an_openapi_file_that_cannot_be_used_says_why(
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
def test_an_operation_that_is_marked_as_free_is_not_for_sale(
    tmp_path: Path, payment: dict[str, Any]
) -> None:
    paths = {
        "/free": {"get": {"x-payment-info": payment}},
        "/paid": {"get": {"x-payment-info": {"price": {"mode": "fixed", "amount": "0.01"}}}},
    }
    path = write(tmp_path / "o.json", on_disk(paths=paths))
    assert names(path) == ["free", "https://news.dev/v1/paid"]


def test_an_operations_protocols_may_hold_its_terms(tmp_path: Path) -> None:
    terms = {"scheme": "exact", "network": "eip155:8453", "asset": "0xA", "amount": "80000"}
    payment = {"protocols": [{"mpp": {}}, {"x402": terms | {"payTo": "0xB"}}]}
    paths = {"/p": {"get": {"x-payment-info": payment}}}
    item = read_item(file.read(write(tmp_path / "o", on_disk(paths=paths))).items[0])
    assert isinstance(item, ListedItem)
    assert item.quote is not None
    assert (item.quote.amount, item.quote.pay_to) == (80_000, "0xb")


async def test_the_well_known_document_may_list_endpoints_as_objects(
    directory: tuple[Directory, int], egress: Egress
) -> None:
    listed = [{"path": "/a", "method": "post"}, {"url": "https://elsewhere.dev/x"}]
    known = json.dumps({"version": 1, "endpoints": listed}).encode()
    directory[0].answer = lambda path: (
        (200, {}, known) if path == "/.well-known/x402" else (404, {}, b"")
    )
    found = await origin(egress)
    assert [(item.method, item.resource.path) for item in found] == [("POST", "/a")]


def test_csv_columns_reach_the_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "url,method,service,tags\nhttps://a.dev/x,post,Desk,a|b\n")
    item = read_item(file.read(path).items[0])
    assert isinstance(item, ListedItem)
    assert (item.method, item.service_name, item.tags) == ("POST", "Desk", ("a", "b"))


def test_a_broken_line_is_an_entry_that_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", '{"url":"https://a.dev/x"}\n{"url":\n{}\n')
    assert names(path) == ["https://a.dev/x", "unreadable", "no-resource"]


@pytest.mark.parametrize(
    ("document", "complete"),
    [
        ({"resources": TWO, "total": 2, "partial": False}, True),
        ({"resources": TWO, "total": 2, "partial": True}, False),
        ({"resources": TWO, "total": 3, "partial": False}, False),
        ({"items": TWO, "pagination": {"total": 40}}, False),
        ({"items": TWO}, True),
    ],
)
def test_a_file_says_whether_it_is_whole(
    tmp_path: Path, document: object, complete: object
) -> None:
    assert file.read(write(tmp_path / "f.json", json.dumps(document))).complete is complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no entries"),
        (b"# nothing\n", "no entries"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"a":1}', "no list"),
        (gzip.compress(b"[]", mtime=0)[:-6], "gzip"),
        (b"\x1f\x8b" + b"x" * 50, "gzip"),
        (gzip.compress(b" " * 3_000_000, mtime=0), "more than"),
    ],
)
def test_a_file_that_is_no_list_is_refused_with_a_reason(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DirectoryError, match=message):
        file.read(write(tmp_path / "f", content), size_max=1_000_000)


def test_a_missing_file_or_a_folder_is_refused_with_a_reason(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DirectoryError, match="cannot be read"):
            file.read(path)


async def test_a_large_file_comes_in_steps_and_an_empty_one_in_one(tmp_path: Path) -> None:
    path = write(tmp_path / "f.json", json.dumps([f"https://s{n}.dev/" for n in range(1_001)]))
    steps = [step async for step in file.pages(path)]
    assert [(len(s.page.items), s.next_offset, s.page.complete) for s in steps] == [
        (500, 500, None),
        (500, 1_000, None),
        (1, 1_001, True),
    ]
    empty = [step async for step in file.pages(write(tmp_path / "e.json", "[]"))]
    assert [len(step.page.items) for step in empty] == [0]


def test_odd_json_that_others_refuse_is_still_read() -> None:
    odd = b'{"a":NaN,"b":"\\ud800","c":%s,"d":"\xff"}' % (b"9" * 5_000)
    value = parse_document(odd)
    assert isinstance(value, dict)
    assert value["b"] == "\ud800"
    assert value["c"] == float("inf")
