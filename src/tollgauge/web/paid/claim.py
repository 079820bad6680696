"""The claim under which a product makes its answer: the one way in which a sale writes.

A worker that was stopped for longer than its lease goes on without knowing that another worker
has sold the same payment meanwhile. So each transaction that a sale makes outside the ledger first
checks, in that transaction, that the payment is still claimed by this worker (docs/payments.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection

from tollgauge.db.engine import Store, Work
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import LedgerRow

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """A claimed payment, `row` as it was claimed, and the store that its sale may write to. `seen`
    is what the sale's `check` returned when the payment was claimed. What a product appends to
    `with_answer` is written in the transaction that stores the answer, or not at all.
    """

    store: Store
    row: LedgerRow
    seen: object = None
    with_answer: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def payment_id(self) -> str:
        """The id of the payment in the ledger."""
        return self.row.id

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a writing transaction of its own that holds the claim. Raises
        payments.ClaimLost, with nothing written, if another worker has taken the payment over.
        """

        def checked(tx: Connection) -> R:
            payments.check_claim(tx, self.row)
            return work(tx, *args, **kwargs)

        return await self.store.writing(checked)
