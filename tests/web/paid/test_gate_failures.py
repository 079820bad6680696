"""The payment gate when something fails: the facilitator, the handler, a worker, the payer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response
from tests.support import paid_service, prices
from tests.support.gate_world import (
    NOW,
    TX,
    GateClient,
    World,
    open_gate,
    payment,
    sale,
    settled_response,
)
from tests.support.paid_service import PaidService
from tests.support.postgres import Postgres, Server, server
from tests.support.statements import fetch

from tollgauge.core.sale.payment import decode
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.store.ledger import attempts, payer_limit, payments
from tollgauge.store.ledger.attempts import StoredAnswer
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import gate as gate_module
from tollgauge.web.paid.gate import LEASE_MS
from tollgauge.web.paid.settle import SETTLE_LEASE_MS


@pytest.fixture
async def client(store: Store) -> AsyncIterator[GateClient]:
    async with open_gate(store, World()) as opened_client:
        yield opened_client


async def test_silent_facilitator_returns_503_without_charge(client: GateClient) -> None:
    client.world.verify = lambda: Response("<html>", status_code=502)
    answer = await client.buy(payment())
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert client.world.computed == 0
    client.world.verify = None
    assert (await client.buy(payment())).status_code == 200


async def test_failed_handler_releases_the_payment_without_charge(
    client: GateClient,
) -> None:
    async def fail() -> None:
        raise Problem(503, "probe-failed-here", "ours")

    client.world.compute = fail
    assert (await client.buy(payment())).status_code == 503
    assert client.world.calls["settle"] == 0
    client.world.compute = None
    assert (await client.buy(payment())).status_code == 200


async def test_crashed_handler_releases_the_payment_without_charge(
    client: GateClient,
) -> None:
    async def crash() -> None:
        raise RuntimeError("a bug")

    client.world.compute = crash
    assert (await client.buy(payment())).status_code == 500
    assert client.world.calls["settle"] == 0
    client.world.compute = None
    assert (await client.buy(payment())).status_code == 200


async def test_unstored_answer_releases_the_payment_without_charge(
    client: GateClient,
) -> None:
    def crash(_tx: Connection) -> None:
        raise RuntimeError("a bug")

    client.world.writes = crash
    assert (await client.buy(payment())).status_code == 500
    assert client.world.calls["settle"] == 0
    assert (await client.row(payment())).state is State.REJECTED
    client.world.writes = None
    assert (await client.buy(payment())).status_code == 200


UNCLEAR = {
    "500": lambda: JSONResponse({"error": "x"}, status_code=500),
    "html": lambda: Response("<html>", media_type="text/html"),
    "truncated": lambda: Response('{"success": tr', media_type="application/json"),
    "says no": lambda: settled_response(success=False, errorReason="nonce_used", transaction=""),
    "pending": lambda: settled_response(success=False, errorReason="settlement_pending"),
    "no transaction": lambda: settled_response(transaction=""),
    "other network": lambda: settled_response(network="eip155:1"),
}


@pytest.mark.parametrize("kind", UNCLEAR)
async def test_unclear_settlement_returns_503(client: GateClient, kind: str) -> None:
    client.world.settle = UNCLEAR[kind]
    await is_unclear(client)


async def test_settlement_timeout_returns_503(
    store: Store,
) -> None:
    async def late() -> Response:
        await asyncio.sleep(4)
        return settled_response()

    async with open_gate(store, World(), settle_timeout_s=3) as client:
        client.world.settle = late
        await is_unclear(client)


async def is_unclear(client: GateClient) -> None:
    """A purchase without a settlement response is paid when the facilitator responds again."""
    answer = await client.buy(payment())
    assert answer.status_code == 503
    assert answer.json()["code"] == "payment-pending"
    assert answer.json()["paymentId"] == (await client.row(payment())).id
    assert "Retry-After" in answer.headers
    assert "answer" not in answer.json()
    assert (await client.row(payment())).state is State.UNKNOWN
    client.world.settle = None
    again = await client.buy(payment())
    assert again.status_code == 200
    assert client.world.computed == 1


async def test_claim_of_a_dead_worker_is_taken_over(client: GateClient) -> None:
    await abandon(client, State.CLAIMED)
    assert (await client.buy(payment())).status_code == 503, "its lease has not expired"
    client.world.now += LEASE_MS + 1
    assert (await client.buy(payment())).json() == {"answer": 1}


async def test_settlement_of_a_dead_worker_is_checked_again(
    client: GateClient,
) -> None:
    await abandon(client, State.SETTLING)
    assert (await client.buy(payment())).status_code == 503
    client.world.now += SETTLE_LEASE_MS + LEASE_MS
    assert (await client.buy(payment())).json() == {"stored": True}
    assert client.world.computed == 0


async def test_payer_with_unpaid_answers_is_limited(
    client: GateClient,
) -> None:
    client.world.settle = UNCLEAR["says no"]
    for nonce in range(payer_limit.MAX_UNPAID):
        assert (await client.buy(payment(nonce))).status_code == 503
    refused = await client.buy(payment(99))
    assert (refused.status_code, refused.json()["code"]) == (429, "payer-unpaid")
    assert 0 < int(refused.headers["Retry-After"]) <= 3_600
    assert client.world.computed == payer_limit.MAX_UNPAID
    other = payment(1, signed={"from": "0x" + "ef" * 20})
    assert (await client.buy(other)).status_code == 503, "another payer is not limited"
    client.world.settle = None
    assert (await client.buy(payment(0))).status_code == 200, "a computed answer can still be paid"
    assert (await client.buy(payment(99))).status_code == 200, "a settled payment frees a slot"


async def test_unpaid_answer_counts_for_one_hour(client: GateClient) -> None:
    client.world.settle = UNCLEAR["says no"]
    for nonce in range(payer_limit.MAX_UNPAID):
        await client.buy(payment(nonce))
    refused = await client.buy(payment(99))
    client.world.now += int(refused.headers["Retry-After"]) * 1000
    client.world.settle = None
    later = {"validBefore": str(client.world.now // 1000 + 300)}
    assert (await client.buy(payment(99, signed=later))).status_code == 200


@pytest.mark.parametrize(("status", "last"), [(422, 429), (404, 404), (503, 503)])
async def test_only_work_wasted_by_the_request_counts(
    client: GateClient, status: int, last: int
) -> None:
    async def fail() -> None:
        raise Problem(status, "destination-failed", "x")

    client.world.compute = fail
    for _ in range(payer_limit.MAX_UNPAID):
        assert (await client.buy(payment())).status_code == status
    assert (await client.buy(payment())).status_code == last


async def test_caller_waits_at_most_the_response_timeout(
    client: GateClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sale that the caller waited for continues."""
    resume = asyncio.Event()
    client.world.compute = resume.wait
    monkeypatch.setattr(gate_module, "RESPONSE_TIMEOUT_S", 0.1)
    answer = await client.buy(payment())
    assert (answer.status_code, answer.json()["code"]) == (503, "payment-pending")
    assert answer.json()["paymentId"] == decode(payment()).id
    resume.set()
    monkeypatch.setattr(gate_module, "RESPONSE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(gate_module, "POLL_DELAYS_S", (0.1,) * 600)
    assert (await client.buy(payment())).status_code == 200
    assert client.world.computed == 1


@pytest.mark.parametrize("ends", [State.SETTLED, State.UNKNOWN])
async def test_waiting_copy_does_not_receive_the_answer_of_another_request(
    client: GateClient, monkeypatch: pytest.MonkeyPatch, ends: State
) -> None:
    """The copy's payment is rejected and then claimed by another request, which the copy must not
    settle.
    """
    began = asyncio.Event()

    class Waits:
        def __iter__(self) -> Iterator[float]:
            began.set()
            yield from (0.05,) * 600

    monkeypatch.setattr(gate_module, "POLL_DELAYS_S", Waits())
    await abandon(client, State.CLAIMED)
    waiting = asyncio.create_task(client.buy(payment()))
    await began.wait()
    held = await client.store.writing(payments.get, decode(payment()).id)
    assert held is not None

    def claim_for_another_request(tx: Connection) -> Any:
        """Use one transaction; otherwise the copy could see the rejected payment."""
        payments.move(tx, held, State.REJECTED, now=NOW)
        return payments.claim(
            tx,
            decode(payment()),
            sale(client.world, "/v1/a").offer,
            digest="of another request",
            owner="other",
            now=NOW,
            lease_ms=LEASE_MS,
        )

    claim = await client.store.writing(claim_for_another_request)
    answer = StoredAnswer(status=200, body=b"{}")
    moved = await client.store.writing(
        payments.move, claim.row, State.SETTLING, now=NOW, answer=answer
    )
    assert moved is not None
    await client.store.writing(
        payments.conclude, moved, ends, now=NOW, transaction=TX, reason="why", lease_ms=0
    )
    assert (await waiting).status_code == 409
    assert client.world.calls["settle"] == 0


async def abandon(client: GateClient, state: State) -> None:
    """Leave a payment as a worker that died in `state` would."""
    from tollgauge.core.sale.payment import canonical_body, request_digest

    digest = request_digest("POST", "/v1/a", canonical_body({"q": 1}))
    claim = await client.store.writing(
        payments.claim,
        decode(payment()),
        sale(client.world, "/v1/a").offer,
        digest=digest,
        owner="dead",
        now=NOW,
        lease_ms=LEASE_MS,
    )
    row = claim.row
    if state is not State.CLAIMED:
        answer = StoredAnswer(status=200, body=b'{"stored": true}')
        moved = await client.store.writing(
            payments.move, row, state, now=NOW, answer=answer, lease_ms=SETTLE_LEASE_MS
        )
        row = moved or row
    assert row.state is state


async def test_answer_is_stored_before_settlement(client: GateClient) -> None:
    await abandon(client, State.CLAIMED)
    held = await client.store.reading(payments.get, decode(payment()).id)
    assert held is not None
    with pytest.raises(ValueError, match="answer"):
        await client.store.writing(payments.move, held, State.SETTLING, now=NOW)


async def test_worker_that_lost_its_lease_cannot_write(client: GateClient) -> None:
    await abandon(client, State.CLAIMED)
    stale = await client.row(payment())
    client.world.now += LEASE_MS + 1
    await client.buy(payment())
    assert (
        await client.store.writing(payments.move, stale, State.REJECTED, now=client.world.now)
        is None
    )
    assert (await client.row(payment())).state is State.SETTLED


async def test_all_moves_follow_the_table_of_states(client: GateClient) -> None:
    await abandon(client, State.CLAIMED)
    row = await client.row(payment())
    with pytest.raises(ValueError, match="cannot go"):
        await client.store.writing(payments.move, row, State.SETTLED, now=NOW)


async def test_all_attempts_are_recorded(client: GateClient) -> None:
    client.world.settle = UNCLEAR["500"]
    await client.buy(payment())
    client.world.settle = None
    await client.buy(payment())
    rows = (
        await fetch(
            client.store, attempts.payment_attempt.select().order_by(attempts.payment_attempt.c.id)
        )
    ).mappings()
    steps = [(row["kind"], row["outcome"]) for row in rows]
    assert [kind for kind, _ in steps] == ["verify", "intent", "settle", "intent", "settle"]
    assert steps[-1] == ("settle", "settled")


@pytest.fixture
def own_server(postgres_data: Path) -> Iterator[Server]:
    """A separate PostgreSQL server for this test."""
    with server(postgres_data) as running:
        yield running


async def turn(postgres: Postgres, store: Store, value: str) -> None:
    """Set whether transactions may write by default, and wait until the server's processes know."""
    postgres.sql(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    postgres.sql("SELECT pg_reload_conf()")
    show = sa.text("SHOW default_transaction_read_only")
    async with asyncio.timeout(20):
        while [str(row[0]) for row in await fetch(store, show)] != [value]:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)


@pytest.mark.postgres
async def test_read_only_postgresql_sells_nothing_and_returns_paid_answers(
    own_server: Server,
) -> None:
    """As after a failover to a standby: operations that only read still work."""
    postgres, route = own_server.postgres, prices.BULK[10]
    body = {"resources": ["https://api.example.com/weather"]}
    async with paid_service.open_paid_service(
        postgres.url(postgres.template), PaidService
    ) as service:
        paid = paid_service.header(service.payment(route))
        bought = await service.post(route, body, paid=paid)
        assert bought.status_code == 200, bought.text
        await turn(postgres, service.store, "on")
        for _ in range(5):
            again = await service.post(route, body, paid=paid)
            assert (again.status_code, again.content) == (200, bought.content)
            refused = await service.post(route, body)
            assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
            assert int(refused.headers["Retry-After"]) >= 1
            assert (await service.running.get("/trust/leaderboard")).status_code == 200
        await turn(postgres, service.store, "off")
        assert (await service.post(route, body)).status_code == 200
        assert service.asked == {"/verify": 2, "/settle": 2}
