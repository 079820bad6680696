from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import ValidationError
from tests.support.recorded import FOLDER, needs_recorded_inputs
from tests.support.tls_server import Reply, TlsServer, tls_server

from tollgauge import app
from tollgauge.clients.directories.document import DirectoryError
from tollgauge.clients.egress.client import Egress
from tollgauge.config import Config
from tollgauge.core.directory.discovery import UNREAD_MS
from tollgauge.core.endpoint.identity import Listing, parse_resource
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.jobs.discover import CrawlOptions, Tally, run
from tollgauge.jobs.discovery_files import load_files, source_name
from tollgauge.jobs.loop_settings import Source, SourceKind
from tollgauge.store.endpoints import crawls, endpoints, listings

HOST = "directory.test"
NOW = 1_766_283_370_973
HOUR = 3_600_000
DATA = FOLDER / "discovery"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"


class Directory:
    """A paginated directory on loopback. `items` is its listing; from the offset `down` it
    fails, from `cut` it sends only half of each page.
    """

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.down: int | None = None
        self.cut: int | None = None
        self.offsets: list[int] = []

    def page(self, path: str) -> Reply:
        query = parse_qs(urlsplit(path).query)
        limit, offset = int(query["limit"][0]), int(query["offset"][0])
        self.offsets.append(offset)
        if self.down is not None and offset >= self.down:
            return 500, {}, b""
        paging = {"limit": limit, "offset": offset, "total": len(self.items)}
        page = {"items": self.items[offset : offset + limit], "pagination": paging}
        body = json.dumps(page).encode()
        is_cut = self.cut is not None and offset >= self.cut
        return 200, {}, body[: len(body) // 2] if is_cut else body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(HOST, tmp_path_factory.mktemp("directory")) as running:
        yield running


@pytest.fixture
def directory(server: TlsServer) -> Directory:
    directory = Directory()
    server.answer = directory.page
    return directory


@pytest.fixture
async def egress(server: TlsServer) -> AsyncIterator[Egress]:
    async with server.open_egress(user_agent="tollgauge-test") as egress:
        yield egress


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/tollgauge.db")
    await opened.migrate()
    yield opened
    await opened.close()


SOURCE = Source("bazaar", SourceKind.BAZAAR, f"https://{HOST}", pause_ms=0, limit=10)


def item(number: int, *, amount: str = "1000", **changes: Any) -> dict[str, Any]:
    terms = {
        "scheme": "exact",
        "network": "eip155:8453",
        "amount": amount,
        "asset": USDC,
        "payTo": "0x" + "1" * 40,
    }
    url = f"https://s{number}.dev/x"
    return {"resource": url, "type": "http", "x402Version": 2, "accepts": [terms | changes]}


async def load_file(store: Store, path: Path, *, source: str | None, now: int) -> Tally:
    (tally,) = await load_files(store, [path], CrawlOptions(now=now), source=source)
    return tally


def is_accounted(tally: Tally) -> bool:
    skipped = sum(count for _, count in tally.skipped)
    return tally.items == tally.new + tally.seen + tally.merged + skipped


async def events_of(store: Store, url: str) -> list[tuple[str, str, str, str]]:
    events = await store.reading(listings.events, parse_resource(url).id, since=0, until=NOW * 2)
    return [(event.kind, event.source, event.before, event.after) for event in events]


async def statuses(store: Store, count: int) -> list[Listing | None]:
    ids = [parse_resource(f"https://s{n}.dev/x").id for n in range(count)]
    endpoints_by_id = await store.reading(endpoints.get_many, ids)
    return [endpoints_by_id[id_].status if id_ in endpoints_by_id else None for id_ in ids]


async def test_crawl_lists_the_entries_of_a_directory(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(25)]
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    assert tally == Tally(
        source="bazaar", items=25, new=25, events=(("listed", 25),), complete=True
    )
    assert directory.offsets == [0, 10, 20]


async def test_bad_entries_are_counted_by_reason_and_skipped(
    store: Store, egress: Egress, directory: Directory
) -> None:
    bad = [None, 5, {}, "https://10.0.0.1/", item(1) | {"type": "mcp"}, {"resource": "ftp://x.dev"}]
    directory.items = [item(0), *bad, item(0) | {"resource": "http://s0.dev/x?y=1"}, item(2)]
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    assert (tally.items, tally.new, tally.merged, tally.complete) == (9, 2, 1, True)
    assert dict(tally.skipped) == {
        "not-an-object": 2,
        "no-resource": 1,
        "not-public": 1,
        "mcp": 1,
        "scheme-not-http": 1,
    }
    assert is_accounted(tally)


async def test_changes_between_two_crawls_become_events(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(4)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    other = "0x" + "2" * 40
    sepolia = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
    directory.items = [
        item(0, amount="2000"),
        item(1, payTo=other),
        item(2, network="eip155:84532", asset=sepolia),
        item(3) | {"accepts": []},
    ]
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))
    kinds = {"price-changed": 1, "payto-changed": 1, "network-changed": 1}
    assert dict(tally.events) == kinds
    assert (await events_of(store, "https://s0.dev/x"))[1:] == [
        ("price-changed", "bazaar", "1000", "2000")
    ]
    assert (await events_of(store, "https://s1.dev/x"))[1:] == [
        ("payto-changed", "bazaar", "0x" + "1" * 40, other)
    ]
    assert (await events_of(store, "https://s2.dev/x"))[1:] == [
        ("network-changed", "bazaar", "eip155:8453", "eip155:84532")
    ]
    assert len(await events_of(store, "https://s3.dev/x")) == 1


async def test_endpoint_is_delisted_by_a_complete_crawl_and_relisted_when_it_returns(
    store: Store, egress: Egress, directory: Directory
) -> None:
    for index, kept in enumerate((3, 2, 3)):
        directory.items = [item(n) for n in range(kept)]
        tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + index * HOUR))
        assert tally.delisted == dict(tally.events).get("delisted", 0) == (1 if index == 1 else 0)
    kinds = [kind for kind, *_ in await events_of(store, "https://s2.dev/x")]
    assert kinds == ["listed", "delisted", "relisted"]


async def test_entry_that_is_never_readable_stays_listed(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(25)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = directory.items[:24]
    directory.items[3] |= {"description": "x" * 300_000}
    for hours in (1, 2):
        tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + hours * HOUR))
        assert (tally.complete, tally.delisted, tally.skipped) == (True, 0, (("too-large", 1),))
    assert await statuses(store, 25) == [Listing.LISTED] * 25
    confirmed = CrawlOptions(now=NOW + 3 * HOUR, accept_shrink=True)
    assert (await run(store, egress, SOURCE, confirmed)).delisted == 2


async def test_entry_that_is_never_readable_delays_delisting_by_a_week(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(25)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = directory.items[:24]
    directory.items[3] |= {"description": "x" * 300_000}
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + UNREAD_MS - 1))
    assert (tally.complete, tally.delisted) == (True, 0)
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + UNREAD_MS))
    assert (tally.complete, tally.delisted) == (True, 2)


async def test_unreadable_entry_before_an_interruption_prevents_delisting(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(35)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items[3] |= {"description": "x" * 300_000}
    directory.down = 20
    assert not (await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))).complete
    directory.down = None
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + 2 * HOUR))
    assert (tally.complete, tally.delisted) == (True, 0)
    assert await statuses(store, 35) == [Listing.LISTED] * 35


async def test_unreachable_source_delists_nothing(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(25)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = directory.items[:24]
    directory.down = 0
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))
    assert (tally.complete, tally.items, tally.problem) == (False, 0, "The source answered 500.")
    directory.down = 10
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + 2 * HOUR))
    assert (tally.complete, tally.items, tally.delisted) == (False, 10, 0)
    assert await statuses(store, 25) == [Listing.LISTED] * 25


async def test_half_a_response_and_a_restart_drop_no_entry(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(25)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = directory.items[:24]
    directory.cut = 10
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))
    assert not tally.complete
    # Another process continues the crawl and fails in the same place.
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + 2 * HOUR))
    assert not tally.complete
    assert await statuses(store, 25) == [Listing.LISTED] * 25
    directory.cut = None
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + 3 * HOUR))
    assert (tally.complete, tally.delisted) == (True, 1)
    assert await statuses(store, 25) == [Listing.LISTED] * 24 + [Listing.DELISTED]
    last = (await store.reading(crawls.latest_complete))["bazaar"]
    assert (last.offset, last.listed, last.duplicates) == (24, 24, 0)


@pytest.mark.parametrize("items", [[], [None, {"resource": "monopoly://x"}]])
async def test_directory_that_suddenly_lists_nothing_delists_nothing(
    store: Store, egress: Egress, directory: Directory, items: list[Any]
) -> None:
    directory.items = [item(n) for n in range(3)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = items
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))
    assert (tally.complete, tally.delisted) == (False, 0)
    assert await statuses(store, 3) == [Listing.LISTED] * 3


async def test_interrupted_crawl_resumes_and_then_delists(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(35)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    directory.items = [item(n) for n in range(34)]
    directory.down = 20
    assert not (await run(store, egress, SOURCE, CrawlOptions(now=NOW + HOUR))).complete
    directory.down, directory.offsets = None, []
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW + 2 * HOUR))
    assert directory.offsets[0] == 20
    assert (tally.complete, tally.delisted) == (True, 1)
    assert is_accounted(tally)
    assert await statuses(store, 35) == [Listing.LISTED] * 34 + [Listing.DELISTED]


async def test_killed_crawl_rereads_less_than_one_transaction(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(1_500)]
    source = replace(SOURCE, limit=100)

    def die_late(done: int, _total: int) -> None:
        if done == 1_300:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        await run(store, egress, source, CrawlOptions(now=NOW, progress=die_late))
    assert sum((await store.reading(endpoints.counts)).values()) == 1_000
    directory.offsets = []
    tally = await run(store, egress, source, CrawlOptions(now=NOW + HOUR))
    assert directory.offsets[0] == 1_000
    assert (tally.new, tally.complete) == (500, True)


async def test_entries_read_before_a_failure_are_recorded(
    store: Store, egress: Egress, directory: Directory
) -> None:
    directory.items = [item(n) for n in range(35)]
    directory.down = 20
    tally = await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    assert (tally.items, tally.new, tally.complete) == (20, 20, False)
    assert await statuses(store, 21) == [Listing.LISTED] * 20 + [None]


async def test_endpoint_of_two_sources_is_delisted_when_both_drop_it(
    store: Store, egress: Egress, directory: Directory, tmp_path: Path
) -> None:
    directory.items = [item(0), item(1)]
    await run(store, egress, SOURCE, CrawlOptions(now=NOW))
    path = tmp_path / "list.txt"
    path.write_text("https://s1.dev/x\nhttps://s2.dev/x\n")
    tally = await load_file(store, path, source="mine", now=NOW + 1)
    assert (tally.new, tally.seen) == (1, 1)
    both = await store.reading(endpoints.get, parse_resource("https://s1.dev/x").id)
    assert both is not None
    assert both.sources == ("bazaar", "mine")
    assert both.quote is not None
    directory.items = [item(0)]
    assert (await run(store, egress, SOURCE, CrawlOptions(now=NOW + 2))).delisted == 0
    path.write_text("https://s2.dev/x\n")
    assert (await load_file(store, path, source="mine", now=NOW + 3)).delisted == 1
    assert await statuses(store, 3) == [Listing.LISTED, Listing.DELISTED, Listing.LISTED]


async def test_file_may_be_a_configured_source(
    store: Store, egress: Egress, tmp_path: Path
) -> None:
    path = tmp_path / "list.csv"
    path.write_text("url,method\nhttps://s1.dev/x,post\n")
    tally = await run(
        store, egress, Source("mine", SourceKind.FILE, str(path)), CrawlOptions(now=NOW)
    )
    assert (tally.new, tally.complete) == (1, True)
    gone = await run(
        store,
        egress,
        Source("gone", SourceKind.FILE, str(tmp_path / "none")),
        CrawlOptions(now=NOW),
    )
    assert "cannot be read" in gone.problem


async def test_loop_reports_that_a_source_shrank(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    config = Config(
        store=StoreSettings(url=f"sqlite:///{tmp_path}/d.db"),
        sources=(Source("mine", SourceKind.FILE, str(path)),),
    )
    async with app.open_resources(config) as service:
        said = []
        for count in (10, 4, 4):
            path.write_text("".join(f"https://s{n}.dev/x\n" for n in range(count)))
            said.append((await service.round("discover"))["mine"])
    assert said[0] == "10 new of 10"
    assert "Suspicious crawl: it lists 4 endpoints, the last complete crawl listed 10" in str(
        said[1]
    )
    assert said[2] == "0 new of 4"


async def test_long_file_reports_progress(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("".join(f"https://s{n}.dev/x\n" for n in range(1_600)))
    heard: list[tuple[int, int]] = []
    await load_files(
        store,
        [path],
        CrawlOptions(now=NOW, progress=lambda done, total: heard.append((done, total))),
        source=None,
    )
    assert heard == [(1_000, 1_600), (1_600, 1_600)]


async def test_partial_file_delists_nothing(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "crawl.json"
    crawl: dict[str, Any] = {"facilitatorUrl": "https://facilitator.dev/v2"}
    path.write_text(json.dumps(crawl | {"resources": [item(0), item(1)], "total": 2}))
    assert (await load_file(store, path, source=None, now=NOW)).source == "facilitator.dev"
    for more in ({"partial": True, "total": 1}, {"partial": False, "total": 2}):
        path.write_text(json.dumps(crawl | more | {"resources": [item(0)]}))
        tally = await load_file(store, path, source=None, now=NOW + 1)
        assert (tally.complete, tally.delisted) == (False, 0)


async def test_truncated_file_lists_its_complete_entries_and_delists_nothing(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "crawl.json"
    crawl = json.dumps({"resources": [item(0), item(1), item(2)]}, indent=1)
    path.write_text(crawl)
    await load_file(store, path, source="cut", now=NOW)
    path.write_text(crawl[: crawl.rindex("accepts")])
    tally = await load_file(store, path, source="cut", now=NOW + HOUR)
    line = crawl[: crawl.rindex("accepts")].count("\n") + 1
    assert f"ends early at line {line}." in tally.problem
    assert (tally.items, tally.complete, tally.delisted) == (2, False, 0)
    assert await statuses(store, 3) == [Listing.LISTED] * 3


async def test_operation_with_only_a_402_is_listed_without_a_price(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "openapi.json"
    operation = {"get": {"responses": {"402": {"description": "Payment required"}}}}
    servers = [{"url": "https://api.seller.dev"}]
    path.write_text(
        json.dumps({"openapi": "3.1.0", "servers": servers, "paths": {"/a": operation}})
    )
    tally = await load_file(store, path, source=None, now=NOW)
    assert (tally.new, tally.unverified, tally.complete) == (1, 1, True)
    id_ = parse_resource("https://api.seller.dev/a").id
    endpoint = await store.reading(endpoints.get, id_)
    assert endpoint is not None
    assert (endpoint.status, endpoint.quote) == (Listing.LISTED, None)


async def test_unreadable_file_leaves_no_crawl(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DirectoryError):
        await load_file(store, tmp_path / "none.json", source=None, now=NOW)


def test_source_of_a_file_is_its_facilitator_host_or_its_name() -> None:
    path = Path("some/list.json")
    assert source_name("https://api.cdp.coinbase.com/platform/v2/x402", path) == (
        "api.cdp.coinbase.com"
    )
    assert source_name(None, path) == source_name("http://[bad", path) == "file:list.json"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "rss"},
        {"name": ""},
        {"location": "http://directory.example.com"},
        {"location": ""},
        {"name": "x" * 200},
        {"pause_ms": -1},
        {"limit": 0},
    ],
)
def test_invalid_source_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        replace(SOURCE, **fields)


# The real crawls, and the expected events computed directly from their JSON.

NETWORKS = {"base": "eip155:8453", "base-sepolia": "eip155:84532"}


def raw_listing(name: str) -> dict[tuple[str, str], tuple[str, str, str] | None]:
    """Return (amount, payTo, network) of each (host, path), or None for entries without terms."""
    data = json.loads(gzip.decompress((DATA / name).read_bytes()))
    listing: dict[tuple[str, str], tuple[str, str, str] | None] = {}
    for entry in data["resources"]:
        parts = urlsplit(entry["resource"])
        listing.setdefault((parts.netloc.lower(), parts.path or "/"), raw_terms(entry["accepts"]))
    return listing


def raw_terms(accepts: list[dict[str, Any]]) -> tuple[str, str, str] | None:
    usable = [
        (NETWORKS.get(a["network"], a["network"]), a.get("amount", a.get("maxAmountRequired")), a)
        for a in accepts
        if a.get("payTo")
    ]
    usable.sort(key=lambda entry: entry[0] != "eip155:8453")
    for network, amount, entry in usable:
        if amount:
            return amount, entry["payTo"].lower(), network
    return None


def raw_changes(before: dict[Any, Any], after: dict[Any, Any]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for key, old in before.items():
        new = after.get(key)
        if old and new:
            names = ("price-changed", "payto-changed", "network-changed")
            kinds.update(name for name, a, b in zip(names, old, new, strict=True) if a != b)
    return kinds


@needs_recorded_inputs
async def test_two_real_crawls_produce_the_events_of_their_difference(store: Store) -> None:
    names = ("bazaar-2025-12-18.json.gz", "bazaar-2025-12-20.json.gz")
    raw = [raw_listing(name) for name in names]
    first, second, again = [
        await load_file(store, DATA / name, source=None, now=NOW + index * HOUR)
        for index, name in enumerate((*names, names[1]))
    ]
    assert all(is_accounted(tally) for tally in (first, second, again))
    assert (first.items, second.items) == (800, 1_313)
    assert (first.complete, second.complete) == (False, True)
    assert first.skipped == second.skipped == ()
    assert first.new == len(raw[0])
    assert second.new == len(raw[1].keys() - raw[0].keys())
    assert second.seen == len(raw[1].keys() & raw[0].keys())
    assert second.delisted == len(raw[0].keys() - raw[1].keys())
    expected = raw_changes(raw[0], raw[1]) + Counter(listed=second.new, delisted=second.delisted)
    assert dict(second.events) == dict(expected)
    assert (again.new, again.seen, again.delisted, again.events) == (0, len(raw[1]), 0, ())


def write_undated(name: str, path: Path, **changes: Any) -> Path:
    """Return a real crawl without its date."""
    crawl = json.loads(gzip.decompress((DATA / name).read_bytes())) | changes
    del crawl["crawledAt"]
    path.write_bytes(gzip.compress(json.dumps(crawl).encode(), 1))
    return path


@needs_recorded_inputs
async def test_real_crawls_in_reverse_order_delist_nothing(store: Store, tmp_path: Path) -> None:
    names = ("bazaar-2025-12-20.json.gz", "bazaar-2025-12-18.json.gz")
    tallies = [
        await load_file(store, write_undated(name, tmp_path / name), source=None, now=NOW)
        for name in names
    ]
    assert tallies[1].delisted == 0
    expected = raw_changes(raw_listing(names[0]), raw_listing(names[1]))
    assert dict(tallies[1].events) == dict(expected)


@needs_recorded_inputs
async def test_endpoints_missing_from_a_later_complete_crawl_are_delisted(
    store: Store, tmp_path: Path
) -> None:
    names = ("bazaar-2025-12-20.json.gz", "bazaar-2025-12-18.json.gz")
    raw = [raw_listing(name) for name in names]
    path = write_undated(names[1], tmp_path / "whole.json.gz", partial=False)
    first = write_undated(names[0], tmp_path / "first.json.gz")
    await load_file(store, first, source=None, now=NOW)
    tally = await load_file(store, path, source=None, now=NOW + HOUR)
    assert tally.delisted == len(raw[0].keys() - raw[1].keys()) > 0
    back = await load_file(store, first, source=None, now=NOW + 2 * HOUR)
    assert dict(back.events)["relisted"] == tally.delisted


@needs_recorded_inputs
async def test_real_page_with_malformed_entries_is_read(store: Store) -> None:
    tally = await load_file(store, DATA / "payai-page.json", source=None, now=NOW)
    raw = json.loads((DATA / "payai-page.json").read_bytes())["items"]
    schemes = Counter(urlsplit(entry["url"]).scheme for entry in raw)
    foreign = sum(count for scheme, count in schemes.items() if not scheme.startswith("http"))
    assert tally.items == len(raw) == 40
    assert dict(tally.skipped)["scheme-not-http"] == foreign == 12
    assert dict(tally.skipped) == {"scheme-not-http": 12, "not-https": 2, "not-public": 1}
    assert tally.new == 25
    assert is_accounted(tally)
