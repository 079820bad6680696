"""The reconciler: asks the chain what became of settlements, never the facilitator.

Rules (docs/payments.md):
- a node that stays silent ends the round;
- an operator is alarmed of a settled payment that the chain has lost: its answer has left;
- it settles nothing: a caller who wants the answer sends the payment again.

What the chain's answer does to a row is decided in monitor/settlement.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.core.base.units import Clock
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.observe import alarm
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import LedgerRow

BATCH: Final = 100
SILENT_MAX: Final = 3
"""So many rows in a row that no node can tell of: the node is at fault, not the rows."""


async def run(store: Store, chain: Prover, *, clock: Clock) -> dict[str, object]:
    """Resolve what the chain can tell of one batch; the tally counts outcomes."""
    rows = await store.reading(payments.due, now=clock(), limit=BATCH)
    tally: Counter[str] = Counter()
    silent = 0
    for row in rows:
        answer = await _ask(chain, row)
        silent = silent + 1 if answer is None else 0
        outcome = await store.writing(settlement.reconcile, row, answer, now=clock())
        if outcome == "lost":
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
