"""`POST /v1/outcomes`: only the payer of an indexed payment can report its outcome, and once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from eth_account import Account
from eth_account.messages import encode_typed_data
from sqlalchemy import Connection
from tests.support.bundles import add, observe_pay_to, priced_endpoint, records_of
from tests.support.http_service import NOW, Running, configuration, open_service, with_edge
from tests.support.score_rows import endpoint

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.endpoint.buyers_reports import BuyerOutcome
from tollgauge.monitor import trust_records
from tollgauge.store.chain import cursors
from tollgauge.store.endpoints import buyers_reports
from tollgauge_guard.statement import TYPES, Delivery, sign_statement

PATH: Final = "/v1/outcomes"
RESOURCE: Final = endpoint("/1").resource
OTHER_RESOURCE: Final = endpoint("/2").resource
FORMER, PAY_TO, STRANGER = ("0x" + pair * 20 for pair in ("11", "22", "33"))
BUYER, SECOND, OUTSIDER = (Account.from_key(bytes([n]) * 32) for n in (1, 2, 3))
PAID_AT: Final = NOW - 10 * MINUTE_MS
AT: Final = PAID_AT // 1_000 - 2


def payment(
    number: int, payer: Any, pay_to: str = PAY_TO, *, at: int = PAID_AT, incoming: bool = True
) -> Entry:
    """A settlement whose nonce is its number."""
    wallet, account = bytes.fromhex(pay_to[2:]), bytes.fromhex(payer.address[2:])
    nonce = number.to_bytes(32)
    return Entry(
        2, bytes(range(32)), number, wallet, account, incoming, 10_000, nonce, bytes(32), at
    )


SETTLED: Final = (
    *(payment(n, BUYER) for n in (1, 2, 3)),
    payment(4, SECOND),
    payment(5, BUYER, STRANGER),
    payment(6, BUYER, FORMER, at=NOW - 3 * HOUR_MS),
    payment(7, BUYER, FORMER),
    payment(8, BUYER, at=NOW - 8 * DAY_MS),
    payment(9, BUYER, incoming=False),
)


def settle(tx: Connection) -> None:
    start = cursors.start(tx, 8453, BlockHeader(1, bytes(32), bytes(32), NOW - 9 * DAY_MS))
    before = cursors.add_wallets(tx, start, [FORMER, PAY_TO, STRANGER])
    block = BlockHeader(2, bytes(range(32)), bytes(32), PAID_AT)
    cursors.advance(tx, before, [block], SETTLED, finalized=1)


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    """A service with two endpoints of one seller, whose payTo changed two hours ago."""
    async with open_service(configuration()) as service:
        store = service.service.store
        await add(store, priced_endpoint("/1"), priced_endpoint("/2"))
        for path in ("/1", "/2"):
            await observe_pay_to(store, path, FORMER, at=NOW - 9 * HOUR_MS)
            await observe_pay_to(store, path, PAY_TO, at=NOW - 2 * HOUR_MS)
        await store.writing(settle)
        yield service


def statement(number: int = 1, payer: Any = BUYER, *, chain: int = 8453, **changes: Any) -> Any:
    """A statement that `payer` signed about the payment with this number."""
    signed: dict[str, Any] = {
        "resource": RESOURCE,
        "payTo": PAY_TO,
        "nonce": "0x" + number.to_bytes(32).hex(),
        "outcome": "delivered",
        "at": AT,
    } | changes
    message = signed | {"nonce": bytes.fromhex(signed["nonce"][2:])}
    domain = {"name": "tollgauge outcome", "version": "1", "chainId": chain}
    signature = payer.sign_message(encode_typed_data(domain, TYPES, message)).signature
    return signed | {
        "network": "eip155:8453",
        "payer": payer.address.lower(),
        "signature": "0x" + signature.hex().removeprefix("0x"),
    }


async def send(running: Running, document: Any) -> httpx.Response:
    return await running.http.post(PATH, json=document)


async def reports(running: Running, resource: str = RESOURCE) -> Any:
    """Return the stored figures as the snapshot shows them; None without any.

    Nothing is known of these payers but the payments to the seller, so their weights are 0.
    """
    running.app.cache.answers.clear()
    answer = await running.get("/trust/snapshot", params={"resource": resource})
    assert answer.status_code == 200, answer.text
    shown = answer.json().get("buyersReports")
    if shown is not None:
        assert (shown.pop("deliveredWeight"), shown.pop("notDeliveredWeight")) == (0, 0)
    return shown


async def assert_refused(running: Running, document: Any, status: int, code: str) -> None:
    answer = await send(running, document)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await reports(running) is None


async def test_proven_statement_is_shown_in_snapshot_page_and_bundle(running: Running) -> None:
    assert await reports(running) is None
    answer = await send(running, statement())
    assert answer.status_code == 200, answer.text
    payer = BUYER.address.lower()
    assert answer.json() == {"accepted": True, "payer": payer, "outcome": "delivered"}
    assert (await send(running, statement(4, SECOND, outcome="not-delivered"))).is_success

    assert await reports(running) == {"payers": 2, "delivered": 1, "notDelivered": 1}
    page = await running.get(f"/endpoint/{endpoint('/1').id}")
    assert "1 of 2 payers reported that it delivered" in page.text
    assert "weighted by proven demand 0.00 of 0.00" in page.text
    records = records_of(await trust_records.build(running.service.store, now=NOW))
    assert sorted(map(str, (row[7] for row in records))) == ["None", "[2, 1, 1]"]


async def test_statement_of_the_payment_guard_is_accepted(running: Running) -> None:
    paid: Any = SimpleNamespace(
        resource=RESOURCE,
        pay_to=PAY_TO,
        nonce="0x" + (1).to_bytes(32).hex(),
        at=AT,
        network="eip155:8453",
        payer=BUYER.address.lower(),
    )
    assert {*Delivery} <= {*BuyerOutcome}
    signed = sign_statement(paid, Delivery.DELIVERED, BUYER.key.hex())
    assert (await send(running, signed.document())).is_success
    assert await reports(running) == {"payers": 1, "delivered": 1, "notDelivered": 0}


async def test_other_outcomes_count_as_not_delivered(running: Running) -> None:
    assert (await send(running, statement(outcome="error-after-payment"))).is_success
    assert await reports(running) == {"payers": 1, "delivered": 0, "notDelivered": 1}


async def test_payer_counts_once_with_the_latest_statement_about_a_payto(running: Running) -> None:
    assert (await send(running, statement(2, at=AT + 2, outcome="empty"))).is_success
    assert (await send(running, statement(1))).is_success
    assert await reports(running) == {"payers": 1, "delivered": 0, "notDelivered": 1}

    assert (await send(running, statement(3, at=AT + 3, resource=OTHER_RESOURCE))).is_success
    assert await reports(running) is None
    shown = await reports(running, OTHER_RESOURCE)
    assert shown == {"payers": 1, "delivered": 1, "notDelivered": 0}


async def test_replayed_statement_counts_once_and_cannot_be_changed(running: Running) -> None:
    for _ in range(2):
        assert (await send(running, statement())).is_success
    for change in ({"outcome": "empty"}, {"resource": OTHER_RESOURCE}, {"at": AT + 1}):
        answer = await send(running, statement(**change))
        assert (answer.status_code, answer.json()["code"]) == (409, "already-reported")
    assert await reports(running) == {"payers": 1, "delivered": 1, "notDelivered": 0}


@pytest.mark.parametrize("changes", [{"outcome": "empty"}, {"payTo": STRANGER}, {"at": AT + 1}])
async def test_changed_statement_is_rejected(running: Running, changes: Any) -> None:
    await assert_refused(running, statement() | changes, 422, "invalid-input")


async def test_forged_signer_is_rejected(running: Running) -> None:
    forged = statement(payer=OUTSIDER)
    await assert_refused(running, forged | {"payer": BUYER.address.lower()}, 422, "invalid-input")
    await assert_refused(running, forged, 404, "unknown-payment")
    await assert_refused(
        running, statement() | {"signature": "0x" + "00" * 65}, 422, "invalid-input"
    )


async def test_signature_for_another_chain_is_rejected(running: Running) -> None:
    await assert_refused(running, statement(chain=1), 422, "invalid-input")
    on_ethereum = statement(chain=1) | {"network": "eip155:1"}
    await assert_refused(running, on_ethereum, 422, "network-not-indexed")
    await assert_refused(running, statement() | {"network": "solana:mainnet"}, 422, "invalid-input")


@pytest.mark.parametrize("number", [77, 4, 9])
async def test_payment_that_the_signer_did_not_make_is_unknown(
    running: Running, number: int
) -> None:
    await assert_refused(running, statement(number), 404, "unknown-payment")


async def test_payment_to_an_address_that_was_not_advertised_is_rejected(running: Running) -> None:
    await assert_refused(running, statement(5, payTo=STRANGER), 422, "payto-not-advertised")
    await assert_refused(running, statement(5), 404, "unknown-payment")
    await assert_refused(running, statement(7, payTo=FORMER), 422, "payto-not-advertised")


async def test_former_payto_is_accepted_for_a_payment_of_its_time(running: Running) -> None:
    at = NOW // 1_000 - 3 * 3_600
    assert (await send(running, statement(6, payTo=FORMER, at=at))).is_success


async def test_time_must_be_that_of_the_payment(running: Running) -> None:
    await assert_refused(running, statement(8, at=NOW // 1_000 - 8 * 86_400), 422, "invalid-input")
    await assert_refused(running, statement(at=NOW // 1_000 + 100 * 86_400), 422, "invalid-input")
    await assert_refused(running, statement(at=10**10 + 1), 422, "invalid-input")
    await assert_refused(running, statement(8), 404, "unknown-payment")


async def test_invalid_bodies_are_rejected(running: Running) -> None:
    unknown = statement(resource="https://api.seller.dev/unknown")
    await assert_refused(running, unknown, 404, "unknown-resource")
    for wrong in ({"nonce": "0x1"}, {"at": -1}, {"at": "1"}, {"outcome": "good"}, {"payTo": "x"}):
        await assert_refused(running, statement() | wrong, 422, "invalid-input")
    assert (await running.http.post(PATH, content=b"{")).status_code == 400
    assert (await running.http.post(PATH, content=b"[]")).status_code == 422
    assert (await send(running, statement() | {"resource": "x" * 70_000})).status_code == 413


async def test_route_has_the_rate_limit_of_free_routes() -> None:
    async with open_service(with_edge(configuration(), free_per_minute=2)) as limited:
        statuses = [(await send(limited, statement())).status_code for _ in range(3)]
    assert statuses == [404, 404, 429]


async def test_statements_are_deleted_after_90_days(running: Running) -> None:
    assert (await send(running, statement())).is_success
    store = running.service.store
    assert await store.writing(buyers_reports.forget, now=AT * 1_000 + 90 * DAY_MS, limit=9) == 0
    deleted = await store.writing(buyers_reports.forget, now=AT * 1_000 + 90 * DAY_MS + 1, limit=9)
    assert deleted == 1
    assert await reports(running) is None
