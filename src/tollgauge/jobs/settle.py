"""The reconciler: asks the chain what became of settlements, never the facilitator.

Rules (docs/payments.md):
- paid means `AuthorizationUsed` and its `Transfer`; what is unused is expired only once the
  chain's own time is past its end;
- a row that nobody can decide is left alone for a while, longer each time, so that no row keeps
  others from their turn; a node that stays silent ends the round;
- a settled row is looked at once more when its block is final. If the chain has lost the
  transfer, the row falls back to `unknown` and the operator is alarmed: its answer has left;
- it settles nothing: a caller who wants the answer sends the payment again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.core.payment import FINAL_MS, REST_MS, State, resolved
from tollgauge.core.units import HOUR_MS
from tollgauge.db.engine import Store
from tollgauge.observe import alarm
from tollgauge.store.ledger import books, payments
from tollgauge.store.ledger.attempts import Attempt
from tollgauge.store.ledger.payments import LedgerRow

BATCH: Final = 100
SILENT_MAX: Final = 3
"""So many rows in a row that no node can tell of: the node is at fault, not the rows."""


async def run(store: Store, chain: Prover, *, clock: Callable[[], int]) -> dict[str, object]:
    """Resolve what the chain can tell of one batch; the tally counts outcomes."""
    rows = await store.reading(payments.due, now=clock(), limit=BATCH)
    tally: Counter[str] = Counter()
    silent = 0
    for row in rows:
        answer = await _ask(chain, row)
        silent = silent + 1 if answer is None else 0
        tally[await _apply(store, row, answer, now=clock())] += 1
        if silent == SILENT_MAX:
            break
    return dict(tally)


async def _ask(chain: Prover, row: LedgerRow) -> ChainAnswer | None:
    try:
        return await chain.proof(row.authorization, hint=row.transaction)
    except RpcError:
        return None


async def _apply(store: Store, row: LedgerRow, answer: ChainAnswer | None, *, now: int) -> str:
    """Write what an answer means for a row; the outcome's name for the tally."""
    outcome = await store.writing(_write, row, answer, now=now)
    if outcome == "lost":
        alarm("lost", row.id)
    return outcome


def _write(tx: Connection, row: LedgerRow, answer: ChainAnswer | None, *, now: int) -> str:
    state = None
    if answer is not None:
        state = resolved(answer.proof, valid_before_s=row.valid_before_s, now_s=answer.head_s)
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
    """Nobody can tell yet: ask again later, the later the older the row is."""
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
