"""The loop that fetches sellers' files, with a seller on TLS and real signatures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.databases import on_both, on_sqlite
from tests.support.seller_files import (
    HOST,
    NEW,
    announcement,
    file,
    list_row,
    row,
    site_list,
)
from tests.support.tls_server import TlsServer, tls_server

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node
from tollgauge.core.base.units import DAY_MS, HOUR_MS, SECOND_MS
from tollgauge.core.directory.seller_file import BYTES_MAX, PATH
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.jobs.seller_files import SellerFiles
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.store.schedule import hosts

pytestmark = on_sqlite

NOW = announcement().not_before * SECOND_MS - 3 * DAY_MS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(HOST, tmp_path_factory.mktemp("seller")) as running:
        yield running


@pytest.fixture
def seller(server: TlsServer) -> TlsServer:
    """A host on loopback without a file."""
    server.reset()
    return server


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def loop(
    store: Store, clock: Clock, seller: TlsServer
) -> AsyncIterator[Callable[..., SellerFiles]]:
    """The loop on a database with one endpoint of the seller, whose file is due."""
    resource = parse_resource(f"https://{HOST}/v1/quote")
    await store.writing(discovery.adopt, resource, source="request", now=NOW - DAY_MS)
    await store.writing(seller_files.add, [(HOST, NOW)])

    async with seller.open_egress(deadline_ms=3_000) as egress:

        def make_loop(prover: Prover | None = None) -> SellerFiles:
            return SellerFiles(
                store=store,
                egress=egress,
                clock=clock,
                prover=prover,
                host_gap_ms=1_000,
                owner="the loop",
            )

        yield make_loop


async def load_stored(store: Store) -> StoredSellerFile | None:
    return await store.reading(seller_files.get, HOST)


async def test_file_is_fetched_once_per_day_and_stored(
    store: Store, seller: TlsServer, clock: Clock, loop: Callable[..., SellerFiles]
) -> None:
    item = announcement()
    seller.answer = (200, {}, file(row(item), contact="ops@seller.dev", statement="We move."))
    assert (await loop().run())["files"] == 1
    assert seller.asked == [PATH]
    stored_file = await load_stored(store)
    assert stored_file == StoredSellerFile(
        host=HOST,
        read_at=NOW,
        contact="ops@seller.dev",
        statement="We move.",
        opt_out=False,
        problems=(),
        announcements=(item,),
    )
    state = await store.reading(hosts.get, HOST)
    assert (state.lease_until, state.free_at) == (0, NOW + 1_000)
    clock.now += DAY_MS - 1
    assert (await loop().run())["asked"] == 0
    clock.now += DAY_MS // 10
    assert (await loop().run())["asked"] == 1


@pytest.mark.parametrize(
    ("status", "body", "stays"),
    [(404, b"", False), (200, b"<html>", False), (302, b"", False), (503, b"", True)],
)
async def test_invalid_file_removes_the_old_one_but_an_outage_does_not(
    store: Store,
    seller: TlsServer,
    clock: Clock,
    loop: Callable[..., SellerFiles],
    status: int,
    body: bytes,
    stays: bool,
) -> None:
    seller.answer = (200, {}, file(statement="We move."))
    await loop().run()
    clock.now += 2 * DAY_MS
    seller.answer = (status, {"location": "/elsewhere"} if status == 302 else {}, body)
    assert await loop().run() == {"asked": 1, "files": 0, "busy": False}
    assert (await load_stored(store) is not None) == stays


async def test_oversized_file_is_not_read(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles]
) -> None:
    seller.answer = (200, {}, file(statement="x" * BYTES_MAX))
    await loop().run()
    assert await load_stored(store) is None


async def test_retry_after_of_the_host_is_respected(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles]
) -> None:
    seller.answer = (429, {"retry-after": "120"}, b"")
    await loop().run()
    assert (await store.reading(hosts.get, HOST)).free_at == NOW + 120_000


async def test_wrong_signature_announces_nothing_and_is_reported(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles]
) -> None:
    forged = row(announcement(), by=NEW)
    elsewhere = row(announcement(host="other.seller.dev"))
    seller.answer = (200, {}, file(forged, elsewhere, row(announcement())))
    await loop().run()
    stored_file = await load_stored(store)
    assert stored_file is not None
    assert stored_file.announcements == (announcement(),)
    wrong = "the signature was not made by `from` over the text for this host."
    assert stored_file.problems == (f"`payToChanges[0]`: {wrong}", f"`payToChanges[1]`: {wrong}")


async def test_announcement_of_an_earlier_time_is_ignored(
    store: Store, seller: TlsServer, clock: Clock, loop: Callable[..., SellerFiles]
) -> None:
    clock.now = NOW + 3 * DAY_MS + HOUR_MS
    seller.answer = (200, {}, file(row(announcement())))
    await loop().run()
    stored_file = await load_stored(store)
    assert stored_file is not None
    assert stored_file.announcements == ()


@pytest.mark.parametrize("accepts", [True, False])
async def test_signature_of_a_contract_wallet_is_verified_on_chain(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles], accepts: bool
) -> None:
    """ERC-1271: no address can be recovered, so the node is queried."""
    asked: list[dict[str, object]] = []

    async def node(request: Request) -> Response:
        call = await request.json()
        asked.append(call)
        answer = "0x1626ba7e" + "00" * 28 if accepts else "0x" + "00" * 32
        results = {"eth_chainId": hex(8453), "eth_call": answer}
        return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": results[call["method"]]})

    seller.answer = (200, {}, file(row(announcement(), signature="0x" + "5e" * 96)))
    async with serve(Starlette(routes=[Route("/", node, methods=["POST"])])) as port:
        prover = Prover([Node(f"http://127.0.0.1:{port}", timeout_s=5)])
        await loop(prover).run()
        await prover.close()
    stored_file = await load_stored(store)
    assert stored_file is not None
    assert stored_file.announcements == ((announcement(),) if accepts else ())
    assert [call["method"] for call in asked] == ["eth_chainId", "eth_call"]


async def test_unreachable_chain_announces_nothing_and_is_reported(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles]
) -> None:
    seller.answer = (200, {}, file(row(announcement(), signature="0x" + "5e" * 96)))
    prover = Prover([Node("http://127.0.0.1:9", timeout_s=1)])
    await loop(prover).run()
    await prover.close()
    stored_file = await load_stored(store)
    assert stored_file is not None
    assert stored_file.announcements == ()
    assert "no node could verify the signature" in stored_file.problems[0]


async def test_signed_lists_are_stored_and_all_others_are_reported(
    store: Store, seller: TlsServer, loop: Callable[..., SellerFiles]
) -> None:
    good = site_list()
    forged = list_row(site_list(), by=NEW)
    replayed = list_row(site_list()) | {"payTo": NEW.address.lower()}
    expired = list_row(site_list(issued=1_780_000_000, expires=NOW // 1_000))
    early = list_row(site_list(issued=NOW // 1_000 + 60))
    seller.answer = (
        200,
        {},
        file(payToSites=[forged, replayed, expired, early, list_row(good)]),
    )
    await loop().run()
    stored_file = await load_stored(store)
    assert stored_file is not None
    assert stored_file.site_lists == (good,)
    wrong = "the signature was not made by `payTo` over the text of this list."
    dated = "it has expired, or `issued` is in the future."
    problems = [problem.partition(": ")[2] for problem in stored_file.problems]
    assert problems == [wrong, wrong, dated, dated]
    assert (
        await store.reading(seller_files.site_lists, good.network, as_of=good.expires * SECOND_MS)
        == {}
    )


@on_both
async def test_older_list_does_not_replace_a_newer_one(
    store: Store, seller: TlsServer, clock: Clock, loop: Callable[..., SellerFiles]
) -> None:
    newer = site_list(issued=site_list().issued + 1, sites=("seller.dev",))
    for item in (newer, site_list()):
        seller.answer = (200, {}, file(payToSites=[list_row(item)]))
        await loop().run()
        clock.now += DAY_MS + DAY_MS // 10
    found = await store.reading(seller_files.site_lists, newer.network, as_of=clock.now)
    assert found == {newer.pay_to: newer}
