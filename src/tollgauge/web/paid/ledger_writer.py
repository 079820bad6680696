"""How one worker moves a payment's row in the ledger (store/ledger/payments).

A worker moves only what it holds. When another worker moved the row first, OvertakenError carries
the row as it is now, and the caller is answered from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tollgauge.core.payment import State
from tollgauge.db.engine import Store
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.attempts import Attempt
from tollgauge.store.ledger.payments import LedgerRow, StoredAnswer


class OvertakenError(Exception):
    """Another worker moved the row first; `row` is the row as it is now."""

    def __init__(self, row: LedgerRow) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True, slots=True)
class LedgerWriter:
    """The ledger of `store`, written at the times of `clock` (milliseconds UTC)."""

    store: Store
    clock: Callable[[], int]

    async def get(self, payment_id: str) -> LedgerRow | None:
        """A payment's row."""
        return await self.store.reading(payments.get, payment_id)

    async def move(
        self,
        row: LedgerRow,
        state: State,
        *,
        owner: str | None = None,
        answer: StoredAnswer | None = None,
        transaction: str | None = None,
        reason: str = "",
        lease_ms: int = 0,
        attempts: tuple[Attempt, ...] = (),
    ) -> LedgerRow:
        """Move a row that this worker holds. Raises OvertakenError if it no longer does."""
        moved = await self.store.writing(
            payments.move,
            row,
            state,
            now=self.clock(),
            owner=owner,
            answer=answer,
            transaction=transaction,
            reason=reason,
            lease_ms=lease_ms,
            attempts=attempts,
        )
        return moved or await self.raise_overtaken(row)

    async def conclude(
        self,
        row: LedgerRow,
        state: State,
        *,
        transaction: str,
        reason: str,
        lease_ms: int,
        attempts: tuple[Attempt, ...],
    ) -> LedgerRow:
        """Write a proven outcome, whoever holds the row. Raises OvertakenError if the row was
        written since it was read.
        """
        moved = await self.store.writing(
            payments.conclude,
            row,
            state,
            now=self.clock(),
            transaction=transaction,
            reason=reason,
            lease_ms=lease_ms,
            attempts=attempts,
        )
        return moved or await self.raise_overtaken(row)

    async def give_back(self, row: LedgerRow, reason: str, *attempts: Attempt) -> None:
        """Give a claim back: nothing was charged. Only the worker that holds the claim may say
        that; any other gets OvertakenError.
        """
        await self.move(row, State.REJECTED, reason=reason, attempts=attempts)

    async def raise_overtaken(self, row: LedgerRow) -> NoReturn:
        """Raises OvertakenError with the row as it is now."""
        raise OvertakenError(await self.get(row.id) or row)

    def attempt(
        self, kind: str, started: int, outcome: str, transaction: str | None = None
    ) -> Attempt:
        """A step that began at `started` and has just ended."""
        return Attempt(
            kind=kind,
            at=started,
            ended_at=self.clock(),
            outcome=outcome,
            transaction=transaction,
        )
