"""The reconciler: asks the chain what became of settlements that nobody knows.

It never asks the facilitator: paid means `AuthorizationUsed` and the matching `Transfer` in one
transaction (payments.md, rule 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tollgauge.clients.evm import Authorization, Chain, RpcUnavailable
from tollgauge.core.payment import State, resolved
from tollgauge.store import payments
from tollgauge.store.engine import Store
from tollgauge.store.payments import LedgerRow

BATCH: Final = 100
QUIET_MS: Final = 15_000
"""How long a row rests before it is asked about: a settlement in flight gets its chance."""


async def run(store: Store, chain: Chain, *, clock: Callable[[], int]) -> dict[str, object]:
    """Resolve what the chain can tell; the tally counts states, `unreachable` a silent node."""
    now = clock()
    async with store.read() as tx:
        rows = await payments.unresolved(tx, before=now - QUIET_MS, limit=BATCH)
    tally: Counter[str] = Counter()
    for row in rows:
        if row.state is State.SETTLING and row.lease_until > now:
            continue
        try:
            tally[await _resolve(store, chain, row, now=now)] += 1
        except RpcUnavailable:
            tally["unreachable"] += 1
            break
    return dict(tally)


async def _resolve(store: Store, chain: Chain, row: LedgerRow, *, now: int) -> str:
    found = await chain.proof(
        Authorization(
            asset=row.asset,
            payer=row.payer,
            nonce=row.nonce,
            to=row.pay_to,
            value=row.amount,
            since_s=row.created_at // 1000,
        ),
        now_s=now // 1000,
    )
    state = resolved(found.proof, valid_before_s=row.valid_before_s, now_s=now // 1000)
    async with store.write() as tx:
        if row.state is State.SETTLING:
            moved = await payments.move(
                tx, row, State.UNKNOWN, now=now, reason="the settling worker died"
            )
            if moved is None:
                return "overtaken"
            row = moved
        if state is None:
            return "open"
        await payments.move(
            tx, row, state, now=now, transaction=found.transaction, reason=found.proof.value
        )
    return state.value
