"""Apply evidence from a chain: stored transfers and their sums, and the state of payments to this
service (docs/payments.md).

jobs/index and jobs/settle decide when to query a chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import ChainAnswer
from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of, is_address
from tollgauge.core.chain.blocks import Span
from tollgauge.core.chain.settlement import Deposit, Entry
from tollgauge.core.chain.shared_pay_to import SharedPayTo
from tollgauge.core.sale.payment_state import FINAL_MS, REST_MS, State, proven_state
from tollgauge.core.watch.watch_rules import SETTLEMENTS_MS
from tollgauge.db.engine import Store
from tollgauge.store import rows
from tollgauge.store.chain import (
    cursors,
    deposits,
    periods,
    shared_pay_tos,
    transfers,
    volumes,
    wallets,
)
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.endpoints import buyers_reports
from tollgauge.store.ledger import payments, reconciliation
from tollgauge.store.ledger.attempts import Attempt
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.store.rows import ChainResults

T = TypeVar("T")

# Batch sizes of one transaction.
FORGET_BLOCKS: Final = 1_000
FORGET_WALLETS: Final = 500
WALLETS_PER_WRITE: Final = 5_000
MAX_ACCOUNT_AGE_MS: Final = 366 * DAY_MS  # how far back this service's addresses are indexed


def new_accounts(
    tx: Connection, chain: int, token: str, *, pay_to: str, since: int, now: int
) -> tuple[tuple[str, ...], int]:
    """Return this service's addresses that are not indexed yet, and the start of their deposits.

    The addresses come from the configuration (`pay_to`) and from ledger rows since `since` (ms
    UTC). The start (ms UTC) is the ledger's first day, at most MAX_ACCOUNT_AGE_MS ago.
    """
    named, began = reconciliation.load_pay_tos(tx, f"eip155:{chain}", token, since=since)
    ours = {address for address in {*named, pay_to} if is_address(address, chain=chain)}
    first = max(now if began is None else min(began, now), now - MAX_ACCOUNT_AGE_MS)
    # An hour more than whole days, because clocks differ.
    return deposits.new_addresses(tx, chain, token, ours), first - first % DAY_MS - HOUR_MS


def add_missing(
    tx: Connection,
    cursor: Cursor,
    span: Span,
    token: str,
    *,
    entries: Sequence[Entry],
    received: Sequence[Deposit],
    at: int,
) -> int:
    """Add the transfers of a final span that its first indexing missed; return their number.

    Transfers before the indexed range of a wallet are left to back-filling. `at` is the time of the
    span's last block (ms UTC).
    """
    wallet_lows = wallets.lows(tx, cursor.chain)
    account_lows = deposits.lows(tx, cursor.chain, token)
    never = span.last + 1
    entries = [entry for entry in entries if entry.number >= wallet_lows.get(entry.wallet, never)]
    received = [new for new in received if new.number >= account_lows.get(new.pay_to, never)]
    return cursors.record_audit(tx, cursor, span, entries, at=at, received=received)


async def measure(store: Store, chain: int, *, now: int, signers: Collection[bytes] = ()) -> None:
    """Compute each wallet's demand and the published figures of a chain, then delete expired
    transfers. `signers` are the addresses of the configured facilitator.
    """
    reporters = await store.reading(buyers_reports.load_payers, chain)
    measured = await store.reading(volumes.measure_chain, chain, as_of=now, weighed=reporters)
    await _replace(store, volumes.DEMANDS, chain, measured.demands, now=now)
    shared: dict[str, SharedPayTo] = {}
    addresses = await store.reading(shared_pay_tos.list_addresses, chain)
    for pay_tos in rows.chunks(addresses, WALLETS_PER_WRITE):
        shared |= await store.reading(shared_pay_tos.measure, chain, pay_tos, as_of=now)
    await _replace(store, shared_pay_tos.SHARED, chain, shared.items(), now=now)
    await store.writing(buyers_reports.save_weights, chain, measured.weights)
    found = await store.reading(
        periods.measure, chain, as_of=now, window=measured.figures, signers=signers
    )
    if found is not None:
        chain_periods, incomes = found
        await _replace(store, periods.INCOMES, chain, incomes, now=now)
        await store.writing(periods.publish, chain_periods)
    await forget(store, chain, now=now)


async def _replace(
    store: Store,
    stored: ChainResults[T],
    chain: int,
    results: Iterable[tuple[Any, T]],
    *,
    now: int,
) -> None:
    """Replace the results of a chain in batches."""
    for batch in rows.chunks(results, WALLETS_PER_WRITE):
        await store.writing(stored.save, chain, batch, as_of=now)
    await store.writing(stored.drop, chain, before=now)


async def forget(store: Store, chain: int, *, now: int) -> None:
    """Delete a chain's expired transfers and sums in batches: a day may have a million."""
    before, forgotten = now - SETTLEMENTS_MS, 0
    while count := await store.writing(
        transfers.forget, chain, before=before, blocks=FORGET_BLOCKS
    ):
        forgotten += count
    if forgotten:  # sums and payers expire together with transfers
        indexed = await store.reading(wallets.lows, chain)
        for batch in rows.chunks(sorted(indexed), FORGET_WALLETS):
            await store.writing(transfers.forget_days, chain, batch, before_day=day_of(before))


def apply_proof(
    tx: Connection,
    row: LedgerRow,
    answer: ChainAnswer | None,
    *,
    now: int,
    reason: str,
    attempts: Sequence[Attempt] = (),
) -> LedgerRow | None:
    """Give a payment's row the state that the chain proves. This is the only such step: the gate
    calls it after a settlement and for a repeated payment, the reconciler for all other rows.

    A payment is settled if `AuthorizationUsed` and its `Transfer` are on the chain. An unused
    authorization expires only once the chain's own time is past its end. A settled row is checked
    again when its block is final; if the transfer has disappeared, the row becomes `unknown`.

    - `answer`: the chain's evidence, or None if no node could provide it.
    - `reason`: recorded if the outcome remains unclear.
    - `attempts`: default: the request to the chain.

    Returns:
        The updated row, or None if another worker changed it first.
    """
    state = None
    if answer is not None:
        state = proven_state(answer.proof, valid_before_s=row.valid_before_s, now_s=answer.head_s)
    if answer is None or state is None:
        return _leave_undecided(tx, row, now=now, reason=reason, attempts=attempts)
    if row.state is State.SETTLED:
        if state is State.SETTLED:
            return payments.finish(tx, row, transaction=answer.transaction)
        state = State.UNKNOWN  # a reorganisation removed the transfer after the response was sent
    moved = payments.conclude(
        tx,
        row,
        state,
        now=now,
        transaction=answer.transaction or "",
        reason=answer.proof.value,
        lease_ms=FINAL_MS if state is State.SETTLED else REST_MS,
        attempts=attempts or (_chain_attempt(answer, now=now),),
    )
    if moved is not None:
        reconciliation.recheck(tx, moved)
    return moved


def _leave_undecided(
    tx: Connection, row: LedgerRow, *, now: int, reason: str, attempts: Sequence[Attempt]
) -> LedgerRow | None:
    if row.state is State.SETTLING:
        if row.lease_until > now and not attempts:
            return row  # another worker is settling it
        return payments.move(
            tx,
            row,
            State.UNKNOWN,
            now=now,
            reason=reason,
            transaction=attempts[-1].transaction if attempts else None,
            lease_ms=REST_MS,
            attempts=attempts,
        )
    if row.lease_until <= now:
        # Back off in proportion to the row's age, so that old rows do not delay new ones.
        pause = min(max(REST_MS, (now - row.updated_at) // 8), HOUR_MS)
        payments.leave(tx, row, until=now + pause)
    return row


def _chain_attempt(answer: ChainAnswer, *, now: int) -> Attempt:
    return Attempt(
        kind="chain",
        at=now,
        ended_at=now,
        outcome=answer.proof.value,
        transaction=answer.transaction,
    )


def reconcile(tx: Connection, row: LedgerRow, answer: ChainAnswer | None, *, now: int) -> str:
    """Apply the chain's evidence to a due row.

    Returns:
        The row's new state, or `final`, `lost`, `open`, `unreachable` or `overtaken`.
    """
    after = apply_proof(tx, row, answer, now=now, reason="left settling by a worker that died")
    if after is None:
        return "overtaken"
    if answer is None:
        return "unreachable"
    if row.state is State.SETTLED:
        if after.state is State.UNKNOWN:
            return "lost"
        return "final" if after.lease_until == 0 else "open"
    return "open" if after.state is State.UNKNOWN else after.state.value
