"""A sale continues after its caller disconnected; the gate handles its exceptions."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs
from tests.support.databases import on_sqlite
from tests.support.gate_world import GateClient, World, open_gate, payment

from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import gate as gate_module


@dataclass
class FailingSale:
    """A sale that fails with `error` as soon as it `goes_on`. `unread` contains the event loop's
    reports of unhandled exceptions.
    """

    error: Exception
    client: GateClient
    began: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    unread: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client.world.compute = self._fail
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.unread.append(context["message"])
        )

    async def _fail(self) -> None:
        self.began.set()
        await self.goes_on.wait()
        raise self.error

    async def lose_its_caller(self) -> None:
        """Begin it, and hang up."""
        buying = asyncio.create_task(self.client.buy(payment()))
        await self.began.wait()
        buying.cancel()
        await asyncio.wait([buying])

    async def end(self) -> None:
        """Let it fail, and let the event loop forget it."""
        sales = [task for task in asyncio.all_tasks() if task.get_name() == gate_module.SALE]
        assert sales, "the sale continues without its caller"
        self.goes_on.set()
        await asyncio.wait(sales)
        sales.clear()
        await asyncio.sleep(0)
        gc.collect()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[GateClient]:
    async with open_gate(store, World()) as opened_client:
        yield opened_client


@on_sqlite
async def test_rejection_after_a_disconnect_is_not_logged_as_error(client: GateClient) -> None:
    sale = FailingSale(Problem(503, "probe-failed-here", "ours"), client)
    await sale.lose_its_caller()
    with capture_logs() as lines:
        await sale.end()
    assert (sale.unread, lines) == ([], [])
    assert (await client.row(payment())).state is State.REJECTED


@on_sqlite
async def test_rejection_after_the_response_timeout_is_not_logged_as_error(
    client: GateClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = FailingSale(Problem(503, "probe-failed-here", "ours"), client)
    monkeypatch.setattr(gate_module, "RESPONSE_TIMEOUT_S", 0.1)
    assert (await client.buy(payment())).json()["code"] == "payment-pending"
    with capture_logs() as lines:
        await sale.end()
    assert (sale.unread, lines) == ([], [])


@on_sqlite
async def test_internal_error_is_logged_after_a_disconnect(client: GateClient) -> None:
    sale = FailingSale(RuntimeError("a text that nobody may read"), client)
    await sale.lose_its_caller()
    with capture_logs() as lines:
        await sale.end()
    assert sale.unread == []
    assert [(line["event"], line["error"]) for line in lines] == [("sale.fail", "RuntimeError")]
    assert lines[0]["where"].startswith("gate.py:")
    assert "a text" not in str(lines)
