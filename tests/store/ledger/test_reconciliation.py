"""Reconciliation on both databases: deposits, their sales, and differences that are reported
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from structlog.testing import capture_logs
from tests.support.reconciliation import (
    ANN,
    BEN,
    CHAIN,
    DAY,
    NETWORK,
    NOON,
    OLD_PAY_TO,
    PAY_TO,
    USDC,
    advance_to,
    deposit_in,
    header,
    nonce,
    read_to,
    start_index,
    store_payment,
)
from tests.support.statements import execute

from tollgauge.clients.chain.authorization import ChainAnswer
from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.chain.blocks import Span
from tollgauge.core.sale.payment_state import Account, Day, Proof, State
from tollgauge.db.engine import Store
from tollgauge.jobs import settle as job
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import deposits
from tollgauge.store.chain.cursors import CursorOvertakenError
from tollgauge.store.ledger import payments, reconciliation
from tollgauge.web.paid.settle import Settler

MINE = Account(network=NETWORK, asset=USDC, address=PAY_TO)


async def becomes(store: Store, number: int, state: State) -> None:
    change = payments.payment.update().where(payments.payment.c.nonce == nonce(number))
    await execute(store, change.values(state=state.value))


async def of_day(store: Store, day: int = DAY, address: str = PAY_TO) -> Day:
    known = {account.address: account for account in await store.reading(reconciliation.accounts)}
    return await store.reading(reconciliation.of_day, known[address], day)


async def strays(store: Store) -> list[tuple[int, str | None]]:
    return [
        (deposit.value, deposit.state)
        for deposit in await store.reading(reconciliation.find_unattributed, limit=9)
    ]


async def test_sales_are_distinguished_from_unattributed_deposits(store: Store) -> None:
    cursor, block = await start_index(store), header(101)
    for number in (1, 2):
        await store_payment(store, number)
    await store_payment(store, 3, payer=BEN)
    transfers = (
        *(deposit_in(block, number, by=nonce(number)) for number in (1, 2)),
        deposit_in(block, 3, by=nonce(3), payer=BEN),
        deposit_in(block, 4, 700),
        deposit_in(block, 5, 6_000, by=nonce(9)),
    )
    await advance_to(store, cursor, [block], *transfers)
    day = await of_day(store)
    assert (day.sales, day.settled, day.transfers, day.received) == (3, 15_000, 5, 21_700)
    assert (day.unattributed, day.unattributed_transfers) == (6_700, 2)
    assert (day.difference, day.awaited, day.complete) == (0, 0, False)
    assert sorted(await strays(store)) == [(700, None), (6_000, None)]


async def test_nonce_of_another_payer_does_not_match_a_sale(store: Store) -> None:
    cursor, block = await start_index(store), header(101)
    await store_payment(store, 1, payer=BEN)
    await advance_to(store, cursor, [block], deposit_in(block, 1, by=nonce(1), payer=ANN))
    day = await of_day(store)
    assert (day.unattributed, day.settled, day.awaited) == (5_000, 5_000, 5_000)


async def test_late_settlement_claims_its_deposit(store: Store) -> None:
    cursor, block = await start_index(store), header(101)
    await store_payment(store, 1, State.UNKNOWN)
    await advance_to(store, cursor, [block], deposit_in(block, 1, by=nonce(1)))
    assert await strays(store) == [(5_000, "unknown")]
    assert (await of_day(store)).unattributed == 5_000
    await becomes(store, 1, State.SETTLED)
    assert await strays(store) == []
    day = await of_day(store)
    assert (day.unattributed, day.settled, day.difference) == (0, 5_000, 0)


async def test_reorganisation_removes_the_deposits_of_its_blocks(store: Store) -> None:
    cursor = await start_index(store)
    for number in (1, 2):
        await store_payment(store, number)
    old = [header(101), header(102)]
    cursor = await advance_to(
        store, cursor, old, deposit_in(old[0], 1, by=nonce(1)), deposit_in(old[1], 1, by=nonce(2))
    )
    assert (await of_day(store)).received == 10_000
    new = [header(102, fork="b"), header(103, fork="b")]
    cursor = await advance_to(store, cursor, new, deposit_in(new[1], 7, 60), common=101)
    day = await of_day(store)
    assert (day.received, day.unattributed, day.awaited) == (5_060, 60, 5_000)
    back = header(104)
    await advance_to(store, cursor, [back], deposit_in(back, 3, by=nonce(2)))
    day = await of_day(store)
    assert (day.received, day.unattributed, day.awaited) == (10_060, 60, 0)


async def test_sale_belongs_to_the_day_of_its_deposit(store: Store) -> None:
    midnight = (DAY + 1) * DAY_MS
    cursor, block = await start_index(store), header(101, at=midnight + 3_000)
    await store_payment(store, 1, at=midnight - 2_000)
    assert (await of_day(store, DAY)).awaited == 5_000
    await advance_to(store, cursor, [block], deposit_in(block, 1, by=nonce(1)))
    assert (await of_day(store, DAY)).settled == 0
    assert (await of_day(store, DAY + 1)).settled == 5_000


async def test_old_and_new_addresses_are_reconciled_separately(store: Store) -> None:
    cursor, block = await start_index(store, PAY_TO, OLD_PAY_TO), header(101)
    await store_payment(store, 1, to=OLD_PAY_TO)
    await store_payment(store, 2)
    transfers = (
        deposit_in(block, 1, by=nonce(1), to=OLD_PAY_TO),
        deposit_in(block, 2, by=nonce(2)),
    )
    await advance_to(store, cursor, [block], *transfers, deposit_in(block, 3, 70, to=OLD_PAY_TO))
    assert (await of_day(store)).received == 5_000
    old = await of_day(store, address=OLD_PAY_TO)
    assert (old.received, old.settled, old.unattributed) == (5_070, 5_000, 70)


async def test_address_known_only_to_the_ledger_is_an_account_without_a_chain(
    store: Store,
) -> None:
    await store_payment(store, 1, to=OLD_PAY_TO)
    day = await of_day(store, address=OLD_PAY_TO)
    assert (day.settled, day.awaited, day.difference, day.complete) == (5_000, 5_000, 0, False)
    named, began = await store.reading(reconciliation.load_pay_tos, NETWORK, USDC, since=0)
    later, _ = await store.reading(reconciliation.load_pay_tos, NETWORK, USDC, since=NOON + 1)
    assert (set(named), began, set(later)) == ({OLD_PAY_TO}, NOON, set())


async def test_account_is_back_filled_downwards_once(store: Store) -> None:
    cursor = await store.writing(chains.start, CHAIN, header(100))
    cursor = await store.writing(
        chains.add_accounts, cursor, USDC, [PAY_TO], wanted_from=NOON - 2 * HOUR_MS
    )
    owed = await store.writing(deposits.backlog, CHAIN, USDC)
    assert owed is not None
    assert (owed.low, owed.address) == (101, PAY_TO)
    block = header(60, at=NOON - HOUR_MS)
    rest = {"low": 50, "low_at": NOON - HOUR_MS}
    await store.writing(chains.fill_account, cursor, owed, [deposit_in(block, 1)], **rest)
    with pytest.raises(CursorOvertakenError):
        await store.writing(chains.fill_account, cursor, owed, [deposit_in(block, 1)], **rest)
    owed = await store.writing(deposits.backlog, CHAIN, USDC)
    assert owed is not None
    assert owed.low == 50
    await store.writing(chains.fill_account, cursor, owed, [], low=9, low_at=NOON - 3 * HOUR_MS)
    assert await store.writing(deposits.backlog, CHAIN, USDC) is None
    assert (await store.writing(of_rows)) == 1


def of_rows(tx: Connection) -> int:
    query = sa.select(sa.func.count()).select_from(deposits.deposit)
    return int(tx.execute(query).scalar_one())


async def test_step_without_a_new_account_is_rejected(store: Store) -> None:
    cursor = await store.writing(chains.start, CHAIN, header(100))
    after = await store.writing(chains.add_accounts, cursor, USDC, [PAY_TO], wanted_from=0)
    with pytest.raises(CursorOvertakenError):
        await advance_to(store, cursor, [header(101)])
    await advance_to(store, after, [header(101)])


async def test_audit_adds_missing_deposits_and_nonces(
    store: Store,
) -> None:
    cursor, block = await start_index(store), header(101)
    cursor = await advance_to(
        store, cursor, [block], deposit_in(block, 1), deposit_in(block, 2, 60)
    )
    seen = [deposit_in(block, 1, by=nonce(1)), deposit_in(block, 2, 60), deposit_in(block, 3, 70)]
    span = Span(101, 101, final=True)
    assert (
        await store.writing(chains.record_audit, cursor, span, [], at=block.at, received=seen) == 2
    )
    again = await store.writing(chains.cursor, CHAIN)
    assert again is not None
    assert (again.audited, again.audited_at) == (101, block.at)
    assert await store.writing(of_rows) == 3
    await store_payment(store, 1)
    assert (await of_day(store)).unattributed == 130


def read_logs(logs: Sequence[Any]) -> list[tuple[str, str]]:
    return [
        (event["day"], event["difference"])
        for event in logs
        if (event["event"], event.get("kind")) == ("ledger.alarm", "books")
    ]


async def test_unexplained_difference_is_reported_once(store: Store) -> None:
    cursor, block = await start_index(store), header(101)
    await store_payment(store, 1)
    await store_payment(store, 2)
    await advance_to(store, cursor, [block], deposit_in(block, 1, by=nonce(1)))
    now = (DAY + 1) * DAY_MS + HOUR_MS
    with capture_logs() as logged:
        assert await job.reconcile_days(store, 8453, now=now) == 0
        assert read_logs(logged) == [], "the day is not complete"
        await read_to(store, now)
        assert await job.reconcile_days(store, 8453, now=now) == 1
        assert await job.reconcile_days(store, 8453, now=now + MINUTE_MS) == 1
        assert read_logs(logged) == [("2026-02-16", "-5000")]
        await store_payment(store, 3)
        assert await job.reconcile_days(store, 8453, now=now) == 1
        assert read_logs(logged)[1:] == [("2026-02-16", "-10000")], "another sum is told again"
        for number in (2, 3):
            await becomes(store, number, State.UNKNOWN)
        assert await job.reconcile_days(store, 8453, now=now) == 0
        await becomes(store, 2, State.SETTLED)
        assert await job.reconcile_days(store, 8453, now=now) == 1
        assert read_logs(logged)[2:] == [("2026-02-16", "-5000")], "it had been in order in between"


async def test_old_day_is_checked_again_after_a_sale_of_it_is_concluded(
    store: Store,
) -> None:
    await start_index(store)
    await store_payment(store, 1, State.UNKNOWN)
    now = (DAY + 30) * DAY_MS
    await read_to(store, now)
    with capture_logs() as logged:
        assert await job.reconcile_days(store, 8453, now=now) == 0
        row = await store.reading(payments.get, f"{1:032x}")
        assert row is not None
        facilitator = Facilitator(FacilitatorSettings(url="http://127.0.0.1:9"))
        settlement = Settler(store, facilitator, lambda: now, None)
        paid = ChainAnswer(proof=Proof.PAID, transaction="0x" + "77" * 32, head_s=now // 1000)
        assert (await settlement.conclude(row, paid, "")).state is State.SETTLED
        await facilitator.close()
        assert await job.reconcile_days(store, 8453, now=now) == 1
        assert read_logs(logged) == [("2026-02-16", "-5000")]
