"""Settlement: which transfers of an indexed chain are stored, what they add up to, and what the
chain says of payments.

This module decides:
- which addresses of ours are read, and from when on;
- which transfers a second reading of final blocks adds: those of wallets that were indexed there;
- what a chain's volume and the sums of its wallets are, and which transfers are too old;
- the new state of a payment from the chain's answer (docs/payments.md). Paid means that
  `AuthorizationUsed` and its `Transfer` are there; an unused authorization is expired only once the
  chain's own time is past its end. An undecided row is asked about again after a pause that grows
  with its age, so that it does not delay others. A settled one is asked about once more when its
  block is final: if the chain has lost the transfer, it becomes `unknown` again.

When a chain is asked for what is jobs/index and jobs/settle; what a transfer means for a wallet is
core/chain/settlement; the rows are in store/chain and store/ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import ChainAnswer
from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.chain.blocks import Span
from tollgauge.core.chain.settlement import Deposit, Entry
from tollgauge.core.sale.payment import FINAL_MS, REST_MS, State, proven_state
from tollgauge.core.watch.retention import SETTLEMENTS_MS
from tollgauge.db.engine import Store
from tollgauge.store import rows
from tollgauge.store.chain import cursors, deposits, payers, transfers, volumes, wallets
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.ledger import books, payments
from tollgauge.store.ledger.attempts import Attempt
from tollgauge.store.ledger.payments import LedgerRow

FORGET_BLOCKS: Final = 1_000
"""How many blocks of old transfers one transaction forgets."""
FORGET_WALLETS: Final = 500
"""The old sums of how many wallets one transaction forgets."""
SUMS_AT_ONCE: Final = 5_000
"""The sums of how many wallets one transaction writes."""
ACCOUNT_PAST_MS: Final = 366 * DAY_MS
"""An address of ours is filled in back to the ledger's first day, but no further than this."""


def new_accounts(
    tx: Connection, chain: int, token: str, *, pay_to: str, since: int, now: int
) -> tuple[tuple[str, ...], int]:
    """The addresses that the configuration (`pay_to`) and the ledger name and that are not indexed
    yet, and since when (ms UTC) their deposits are wanted. The ledger is searched from `since` on.
    """
    named, began = books.named(tx, f"eip155:{chain}", token, since=since)
    ours = {address for address in {*named, pay_to} if wallets.ADDRESS.fullmatch(address)}
    first = max(now if began is None else min(began, now), now - ACCOUNT_PAST_MS)
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
    """Add the transfers of a final span, whose last block is of time `at` (ms UTC), that the first
    look at it lacked; returns how many. Those of wallets that are not indexed that far back are
    left to back-filling.
    """
    wallet_lows = wallets.lows(tx, cursor.chain)
    account_lows = deposits.lows(tx, cursor.chain, token)
    never = span.last + 1
    entries = [entry for entry in entries if entry.number >= wallet_lows.get(entry.wallet, never)]
    received = [new for new in received if new.number >= account_lows.get(new.pay_to, never)]
    return cursors.record_audit(tx, cursor, span, entries, at=at, received=received)


async def measure(store: Store, chain: int, *, now: int) -> None:
    """Measure a chain: the sums of each wallet, by which its activity is scored, and the volume
    that is published. Transfers that are too old are forgotten.
    """
    computed = await store.reading(volumes.compute_sums, chain, as_of=now)
    for batch in rows.chunks(computed, SUMS_AT_ONCE):
        await store.writing(volumes.save_sums, chain, batch, as_of=now)
    await store.writing(volumes.drop_sums, chain, before=now)
    volume = await store.reading(volumes.measure, chain, as_of=now)
    await store.writing(volumes.publish, volume)
    await forget(store, chain, now=now)


async def forget(store: Store, chain: int, *, now: int) -> None:
    """Forget the transfers of a chain, their sums and their payers that are too old; a part at a
    time, because a day of a market has a million.
    """
    before, forgotten = now - SETTLEMENTS_MS, 0
    while count := await store.writing(
        transfers.forget, chain, before=before, blocks=FORGET_BLOCKS
    ):
        forgotten += count
    if forgotten:  # sums begin to be too old when transfers do
        indexed = await store.reading(wallets.lows, chain)
        for batch in rows.chunks(sorted(indexed), FORGET_WALLETS):
            await store.writing(transfers.forget_days, chain, batch, before_day=day_of(before))
        await store.writing(payers.forget, chain, before_day=day_of(before))


def reconcile(tx: Connection, row: LedgerRow, answer: ChainAnswer | None, *, now: int) -> str:
    """Write what the chain's answer, None without one, means for a payment's row. Returns what
    became of it: its new state, or `final`, `lost`, `open`, `unreachable` or `overtaken`.
    """
    state = None
    if answer is not None:
        state = proven_state(answer.proof, valid_before_s=row.valid_before_s, now_s=answer.head_s)
    if answer is None or state is None:
        _leave(tx, row, now=now)
        return "unreachable" if answer is None else "open"
    settled_before = row.state is State.SETTLED
    if settled_before and state is State.SETTLED:
        payments.finish(tx, row, transaction=answer.transaction or "")
        return "final"
    if not _moved(tx, row, State.UNKNOWN if settled_before else state, answer, now=now):
        return "overtaken"
    return "lost" if settled_before else state.value


def _leave(tx: Connection, row: LedgerRow, *, now: int) -> None:
    """Ask again about an undecided row after a pause, which is longer the older the row is."""
    pause = min(max(REST_MS, (now - row.created_at) // 8), HOUR_MS)
    if row.state is State.SETTLING:
        payments.conclude(
            tx,
            row,
            State.UNKNOWN,
            now=now,
            transaction=None,
            reason="left settling by a worker that died",
            lease_ms=pause,
        )
    else:
        payments.leave(tx, row, until=now + pause)


def _moved(tx: Connection, row: LedgerRow, state: State, answer: ChainAnswer, *, now: int) -> bool:
    attempt = Attempt(
        kind="chain",
        at=now,
        ended_at=now,
        outcome=answer.proof.value,
        transaction=answer.transaction,
    )
    moved = payments.conclude(
        tx,
        row,
        state,
        now=now,
        transaction=answer.transaction or "",
        reason=answer.proof.value,
        lease_ms=FINAL_MS if state is State.SETTLED else REST_MS,
        attempts=(attempt,),
    )
    if moved is not None:
        books.recheck(tx, moved)
    return moved is not None
