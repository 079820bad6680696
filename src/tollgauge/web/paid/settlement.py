"""Settling a payment, and finding out what became of it.

Where the operator names a node, the chain alone says *paid*, and the facilitator's word is a hint.
Without a node its word is all there is (docs/payments.md, "Whom the ledger believes"). An outcome
that nobody knows is `unknown`: the chain is asked again when the payment comes again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

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
    resolved,
)
from tollgauge.observe import alarm
from tollgauge.store.ledger.attempts import Attempt
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.paid.ledger_writer import LedgerWriter
from tollgauge.web.paid.payment_terms import Sale

PROOF_WAITS_S: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 2.0)
"""How long a node may lag behind the facilitator's: three blocks of Base."""


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
            state = resolved(answer.proof, valid_before_s=row.valid_before_s, now_s=answer.head_s)
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
