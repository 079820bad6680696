"""Moving a payment's row in the ledger, settling it, and finding out what became of it.

A worker moves only what it holds. When another worker moved the row first, OvertakenError carries
the row as it is now, and the caller is answered from that.

Where the operator names a node, the chain alone says *paid*, and the facilitator's word is a hint.
Without a node its word is all there is (docs/payments.md, "Whom the ledger believes"). An outcome
that nobody knows is `unknown`: the chain is asked again when the payment comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.facilitator import Facilitator, SettledReply, Unclear
from tollgauge.core.payment import (
    FINAL_MS,
    REST_MS,
    Offer,
    Proof,
    State,
    decode,
    proven_state,
)
from tollgauge.db.engine import Store
from tollgauge.observe import alarm
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import Attempt, LedgerRow, StoredAnswer
from tollgauge.web.paid.catalogue import Sale

PROOF_WAITS_S: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 2.0)
"""How long a node may lag behind the facilitator's: three blocks of Base."""


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


@dataclass(frozen=True, slots=True)
class Settlement:
    """What settles payments, and proves them where `chain` is given."""

    ledger: LedgerWriter
    facilitator: Facilitator
    chain: Prover | None

    async def settle(self, sale: Sale, row: LedgerRow) -> LedgerRow:
        """Settle what was claimed, and write the outcome: the row as it is then."""
        started = self.ledger.clock()
        reply = await self.facilitator.settle(
            decode(row.header), claimed_offer(sale, row).requirements
        )
        outcome = "settled" if isinstance(reply, SettledReply) else reply.reason
        attempt = self.ledger.attempt("settle", started, outcome, reply.transaction)
        if self.chain is None and isinstance(reply, SettledReply):
            return await self.ledger.move(
                row,
                State.SETTLED,
                transaction=reply.transaction,
                reason="facilitator",
                lease_ms=FINAL_MS,
                attempts=(attempt,),
            )
        answer = await self._prove(row, reply)
        if isinstance(reply, SettledReply) and answer and answer.proof is not Proof.PAID:
            alarm("unproven", row.id)
        return await self.conclude(row, answer, outcome, attempt)

    async def ask_chain(self, row: LedgerRow, transaction: str | None = None) -> ChainAnswer | None:
        """What the chain says of a row; None without a node, or while it does not answer."""
        if self.chain is None:
            return None
        try:
            return await self.chain.proof(row.authorization, hint=transaction or row.transaction)
        except RpcError:
            return None

    async def conclude(
        self, row: LedgerRow, answer: ChainAnswer | None, reason: str, *attempts: Attempt
    ) -> LedgerRow:
        """Move a row to what the chain proves of it, else to `unknown`, unless a settlement of
        another worker is still in flight.
        """
        state = None
        if answer is not None:
            state = proven_state(
                answer.proof, valid_before_s=row.valid_before_s, now_s=answer.head_s
            )
        if answer is not None and state is not None:
            return await self.ledger.conclude(
                row,
                state,
                transaction=answer.transaction or "",
                reason=answer.proof.value,
                lease_ms=FINAL_MS if state is State.SETTLED else 0,
                attempts=attempts,
            )
        in_flight = row.state is State.SETTLING and row.lease_until > self.ledger.clock()
        if row.state is State.UNKNOWN or (in_flight and not attempts):
            return row
        return await self.ledger.move(
            row,
            State.UNKNOWN,
            reason=reason,
            transaction=attempts[-1].transaction if attempts else None,
            lease_ms=REST_MS,
            attempts=attempts,
        )

    async def _prove(self, row: LedgerRow, reply: SettledReply | Unclear) -> ChainAnswer | None:
        """What the chain says after a settle call. Where the facilitator says that it settled,
        our node gets the time to catch up with its.
        """
        answer = await self.ask_chain(row, reply.transaction)
        for pause in PROOF_WAITS_S if isinstance(reply, SettledReply) else ():
            if answer is None or answer.proof is not Proof.UNUSED:
                break
            await asyncio.sleep(pause)
            answer = await self.ask_chain(row, reply.transaction)
        return answer


def claimed_offer(sale: Sale, row: LedgerRow) -> Offer:
    """The offer that a row was claimed for: prices may have changed since."""
    if (sale.offer.amount, sale.offer.pay_to.lower()) == (row.amount, row.pay_to):
        return sale.offer
    return replace(sale.offer, amount=row.amount, pay_to=row.pay_to)
