"""The ledger with several processes: one payment at two servers, killed servers and killed
databases.

Servers are processes on one database. The facilitator and the node are real HTTP servers on
loopback that simulate one world (tests/support/ledger_world.py).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.support.fork_server import ForkServer, start_fork_server, until_stopped
from tests.support.killable_worker import Worker
from tests.support.ledger_process import POINTS
from tests.support.ledger_world import LedgerWorld
from tests.support.postgres import Server

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.peer import public_authorities
from tollgauge.core.sale.payment import decode
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.jobs import settle
from tollgauge.store.ledger import payments

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with start_fork_server("tests.support.ledger_process") as fork_server:
        yield fork_server


@dataclass
class LedgerServers:
    """A world with real addresses, a database, and servers on it."""

    world: LedgerWorld
    database: str
    folder: Path
    fork_server: ForkServer
    port: int
    http: httpx.AsyncClient

    def server(self, kill: str = "", stop: str = "", waits: str = "no") -> str:
        self.set_clock()
        server = self.fork_server.fork(
            database=self.database,
            facilitator=f"http://127.0.0.1:{self.port}",
            node=f"http://127.0.0.1:{self.port}/node",
            folder=str(self.folder),
            kill=kill,
            stop=stop,
            waits=waits,
        )
        return f"{server}/v1/a"

    def set_clock(self) -> None:
        """Replaced in one step, so that a reader never reads a partial number."""
        (self.folder / "clock.new").write_text(str(self.world.now))
        (self.folder / "clock.new").replace(self.folder / "clock")

    def tick(self, seconds: int) -> None:
        self.world.tick(seconds)
        self.set_clock()

    @property
    def runs(self) -> list[str]:
        path = self.folder / "runs"
        return path.read_text().splitlines() if path.exists() else []

    async def send(self, server: str, header: str | None = None) -> httpx.Response:
        return await self.http.post(
            server, json={"q": 1}, headers={"PAYMENT-SIGNATURE": header or self.world.header}
        )

    async def row(self) -> payments.LedgerRow:
        store = Store.open(self.database)
        try:
            stored = await store.reading(payments.get, decode(self.world.header).id)
        finally:
            await store.close()
        assert stored is not None
        return stored


@pytest.fixture
async def ledger_servers(
    database: str, tmp_path: Path, fork_server: ForkServer
) -> AsyncIterator[LedgerServers]:
    async with servers_on(database, tmp_path, fork_server) as servers:
        yield servers


@contextlib.asynccontextmanager
async def servers_on(
    database: str, folder: Path, fork_server: ForkServer
) -> AsyncIterator[LedgerServers]:
    world = LedgerWorld()

    async def play(request: Request) -> Response:
        sent = httpx.Request("POST", str(request.url), content=await request.body())
        wire = world.node if request.url.path == "/node" else world.facilitate
        try:
            answer = await wire(sent, Worker())
        except httpx.TransportError:
            answer = httpx.Response(504)
        return Response(answer.content, answer.status_code, media_type="application/json")

    paths = ("/verify", "/settle", "/node")
    played = Starlette(routes=[Route(path, play, methods=["POST"]) for path in paths])
    async with (
        serve(played) as port,
        httpx.AsyncClient(timeout=30, verify=public_authorities()) as http,
    ):
        try:
            yield LedgerServers(world, database, folder, fork_server, port, http)
        finally:
            fork_server.end_servers()


async def test_hundred_copies_at_two_servers_are_one_sale(ledger_servers: LedgerServers) -> None:
    servers = ledger_servers.server(waits="yes"), ledger_servers.server(waits="yes")
    copies = encodings(ledger_servers.world.header)
    answers = await asyncio.gather(
        *(ledger_servers.send(servers[n % 2], copies[n // 2 % len(copies)]) for n in range(100))
    )
    statuses = {answer.status_code for answer in answers}
    assert 200 in statuses
    assert statuses <= {200, 503}, statuses
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    assert all("Retry-After" in a.headers for a in answers if a.status_code == 503)
    assert len(ledger_servers.runs) == 1, "the handler ran once"
    assert ledger_servers.world.calls == {"verify": 1, "settle": 1}
    assert (await ledger_servers.row()).state is State.SETTLED
    for server in servers:
        assert (await ledger_servers.send(server)).content == answers[0].content or statuses != {
            200
        }


def encodings(header: str) -> list[str]:
    """One payment in several valid encodings."""
    document: dict[str, Any] = json.loads(base64.b64decode(header))
    loud = json.loads(base64.b64decode(header))
    signed = loud["payload"]["authorization"]
    for name in ("from", "to", "nonce"):
        signed[name] = "0x" + signed[name][2:].upper()
    texts = (
        json.dumps(document),
        json.dumps(document, separators=(",", ":")),
        json.dumps(document, indent=3),
        json.dumps(dict(reversed(document.items()))),
        json.dumps(loud, sort_keys=True),
    )
    return [base64.b64encode(text.encode()).decode() for text in texts]


@pytest.mark.parametrize(
    ("point", "settles"),
    [(point, "settled") for point in POINTS]
    + [
        ("after the facilitator answered", "did not: no"),
        ("after the facilitator answered", "did: nothing"),
    ],
)
async def test_server_killed_at_any_point_loses_nothing_and_gives_nothing_away(
    ledger_servers: LedgerServers, point: str, settles: str
) -> None:
    ledger_servers.world.settle = settles
    with pytest.raises(httpx.TransportError):
        await ledger_servers.send(ledger_servers.server(kill=point))
    ledger_servers.world.settle = "settled"
    stored = len(ledger_servers.runs)
    server, outcomes = ledger_servers.server(), []
    for seconds in (0, 61, 30):
        ledger_servers.tick(seconds)
        paid_before = ledger_servers.world.paid
        answer = await ledger_servers.send(server)
        outcomes.append(answer.status_code)
        assert answer.status_code in (200, 503)
        assert answer.status_code == 503 or ledger_servers.world.paid, "delivered unpaid"
        assert answer.status_code == 200 or not paid_before, "paid and not delivered"
        if answer.status_code == 200:
            break
    assert outcomes[-1] == 200, outcomes
    row = await ledger_servers.row()
    assert (row.state, row.answer and row.answer.body) == (State.SETTLED, answer.content)
    assert answer.content.decode() in ledger_servers.runs
    if POINTS.index(point) >= POINTS.index("after the answer and the intent are stored"):
        assert len(ledger_servers.runs) == stored == 1, "a stored answer is not computed again"


@pytest.mark.postgres
@pytest.mark.parametrize("back", ["before the server continues", "after the server answered"])
@pytest.mark.parametrize("point", POINTS)
async def test_database_killed_at_any_point_loses_nothing_and_gives_nothing_away(
    killable_postgres: Server, tmp_path: Path, fork_server: ForkServer, point: str, back: str
) -> None:
    name = f"sale_{next(NUMBERS)}"
    killable_postgres.postgres.copy_template(name)
    url = killable_postgres.postgres.url(name)
    async with servers_on(url, tmp_path, fork_server) as servers:
        address = servers.server(stop=point)
        first = asyncio.create_task(servers.send(address))
        pid = fork_server.born[-1]
        assert await until_stopped(pid, first)
        killable_postgres.kill()
        if back.startswith("before"):
            killable_postgres.start_again()
        os.kill(pid, signal.SIGCONT)
        answers = [await first]
        if back.startswith("after"):
            killable_postgres.start_again()
        assert "not charged" not in answers[0].text.lower() or not servers.world.paid
        for seconds in (0, 61, 30):
            assert answers[-1].status_code in (200, 503), answers[-1].text
            servers.tick(seconds)
            answers.append(await servers.send(address))
        assert servers.world.paid
        assert [answer.status_code for answer in answers[-2:]] == [200, 200]
        bodies = {answer.content for answer in answers if answer.status_code == 200}
        row = await servers.row()
        assert row.answer is not None
        assert (row.state, bodies) == (State.SETTLED, {row.answer.body}), "one response is sold"
        assert servers.world.calls["settle"] == 1


async def test_reconciler_completes_the_sale_of_a_killed_server(
    ledger_servers: LedgerServers,
) -> None:
    """The client does not send the payment again, so the ledger learns the outcome only from the
    chain.
    """
    with pytest.raises(httpx.TransportError):
        await ledger_servers.send(ledger_servers.server(kill="after the facilitator answered"))
    assert (await ledger_servers.row()).state is State.SETTLING
    ledger_servers.tick(91)
    store = Store.open(ledger_servers.database)
    chain = Prover([Node(f"http://127.0.0.1:{ledger_servers.port}/node", timeout_s=5)])
    try:
        tally = await settle.run(store, chain, clock=ledger_servers.world.clock)
    finally:
        await chain.close()
        await store.close()
    assert tally == {"settled": 1}
    assert (await ledger_servers.row()).state is State.SETTLED
    assert (await ledger_servers.send(ledger_servers.server())).status_code == 200
