"""Reconciliation (docs/payments.md): settlements with unknown outcome, and the daily comparison of
sales with deposits on the chain.

The outcome of a settlement is read from the chain, not from the facilitator; monitor/settlement
applies it to the row. Nothing is settled here: a caller without a response repeats the payment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, Clock, day_of
from tollgauge.core.sale.payment_state import Account, Day
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.observe import alarm, reconciliation_alarm
from tollgauge.store.ledger import payments, reconciliation
from tollgauge.store.ledger.payments import LedgerRow

BATCH: Final = 100
SILENT_MAX: Final = 3  # consecutive rows without an answer after which a round ends


async def run(store: Store, chain: Prover, *, clock: Clock) -> dict[str, object]:
    """Resolve one batch of settlements from the chain. The tally counts outcomes."""
    rows = await store.reading(payments.due, now=clock(), limit=BATCH)
    tally: Counter[str] = Counter()
    silent = 0
    for row in rows:
        answer = await _ask(chain, row)
        silent = silent + 1 if answer is None else 0
        outcome = await store.writing(settlement.reconcile, row, answer, now=clock())
        if outcome == "lost":  # reorganised away after the response was sent
            alarm("lost", row.id)
        tally[outcome] += 1
        if silent == SILENT_MAX:
            break
    return dict(tally)


async def _ask(chain: Prover, row: LedgerRow) -> ChainAnswer | None:
    try:
        return await chain.proof(row.authorization, hint=row.transaction)
    except RpcError:
        return None


RECONCILE_EVERY_MS: Final = 10 * MINUTE_MS
RECHECK_DAYS: Final = 7  # recent days are checked again: a sale may settle that late
OLDER_DAYS: Final = 31  # unchecked older days per round


async def reconcile_days(store: Store, chain: int, *, now: int) -> int:
    """Reconcile new, recent and unbalanced days of the addresses on a chain; return the number of
    unexplained differences.
    """
    accounts = await store.reading(_accounts, f"eip155:{chain}")
    unexplained = 0
    for account, checked in accounts:
        for number in _select_days(account, checked, today=day_of(now)):
            day = await store.reading(reconciliation.of_day, account, number)
            if day.complete:
                await _remember(store, day, checked.get(number), now=now)
                unexplained += day.unexplained
    return unexplained


def _accounts(tx: Connection, network: str) -> list[tuple[Account, Mapping[int, int]]]:
    """Return the accounts that receive payments on a network, each with the differences of its
    checked days.
    """
    return [
        (account, reconciliation.load_checked(tx, account))
        for account in reconciliation.accounts(tx)
        if account.network == network
    ]


def _select_days(account: Account, checked: Mapping[int, int], *, today: int) -> Iterable[int]:
    """Return complete days that are recent, were not checked or did not balance."""
    if account.read_from is None or account.read_to is None:
        return ()
    first = account.read_from // DAY_MS + 1
    days = range(min(today, day_of(account.read_to) - 1), first - 1, -1)
    recent = [day for day in days if day > today - RECHECK_DAYS]
    older = [day for day in days if day <= today - RECHECK_DAYS and checked.get(day) != 0]
    # Unchecked days first, so that days that never balance cannot delay them.
    older.sort(key=lambda day: day in checked)
    return (*recent, *older[:OLDER_DAYS])


async def _remember(store: Store, day: Day, known: int | None, *, now: int) -> None:
    if known == day.difference:
        return
    if day.unexplained:
        # Alarm before the result is stored: a crash in between repeats the alarm instead of losing
        # it.
        reconciliation_alarm(day.account.address, day.day, day.difference)
    await store.writing(reconciliation.save_checked_day, day, now=now)
