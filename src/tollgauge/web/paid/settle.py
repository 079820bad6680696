"""Settlement of a claimed payment, and every change of its row.

- `store_intent` stores the whole answer and the intent to settle: nothing is charged before;
- `settle` has the facilitator charge it, and writes the outcome;
- `conclude` writes the chain's proof about a row, by the rule of monitor/settlement;
- `give_back` gives a claim back: nothing was charged.

If a node is configured, only the chain decides that a payment is *paid*, and the facilitator's
answer is a hint. Without a node, the facilitator's answer decides (docs/payments.md, "Proof of
settlement"). A worker moves only the rows that it holds; if another worker wrote a row first,
OvertakenError carries the row as it is now.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Final, NoReturn, ParamSpec

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.facilitator import Facilitator, SettledReply, Unclear
from tollgauge.core.base.units import Clock
from tollgauge.core.sale.payment import Authorization, Offer, decode
from tollgauge.core.sale.payment_state import FINAL_MS, Proof, State
from tollgauge.db.engine import Store, Work
from tollgauge.monitor.settlement import apply_proof
from tollgauge.observe import alarm
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.attempts import Attempt, StoredAnswer
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.paid.sale import Sale

P = ParamSpec("P")

SETTLE_LEASE_MS: Final = 90_000
"""Time after which another worker may check the outcome of a settlement."""
PROOF_POLL_DELAYS_S: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 2.0)
"""Pauses for a node that lags behind the facilitator's, in total three blocks of Base."""


class OvertakenError(Exception):
    """Another worker wrote a row first; `row` is the row as it is now."""

    def __init__(self, row: LedgerRow) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles payments with the ledger's store, the facilitator, the clock (milliseconds UTC), and
    the chain if a node is configured.
    """

    store: Store
    facilitator: Facilitator
    clock: Clock
    chain: Prover | None

    async def store_intent(
        self,
        row: LedgerRow,
        *attempts: Attempt,
        answer: StoredAnswer | None = None,
        also: Sequence[Callable[[Connection], object]] = (),
    ) -> LedgerRow:
        """Store the answer and the intent to settle in one transaction, in which the functions
        `also` run too. The intent gets a new owner, so that of two workers that try to settle
        again only one does.
        """
        intent = self.attempt("intent", self.clock(), "written")

        # One transaction: a crash between the answer and the intent would leave a payment that is
        # charged without an answer, or an answer that is never charged.
        def move(tx: Connection, row: LedgerRow, /, **changes: Any) -> LedgerRow | None:
            moved = payments.move(tx, row, State.SETTLING, **changes)
            if moved is not None:
                for write in also:
                    write(tx)
            return moved

        return await self._write(
            move,
            row,
            now=self.clock(),
            owner=secrets.token_hex(8),
            answer=answer,
            lease_ms=SETTLE_LEASE_MS,
            attempts=(*attempts, intent),
        )

    async def settle(self, sale: Sale, row: LedgerRow) -> LedgerRow:
        """Settle the claimed payment, write the outcome, and return the new row."""
        started = self.clock()
        requirements = _claimed_offer(sale, row).requirements
        # The header that was claimed, not the one of this request: a copy may carry another
        # signature for the same nonce.
        reply = await self.facilitator.settle(decode(row.header), requirements)
        outcome = "settled" if isinstance(reply, SettledReply) else reply.reason
        attempt = self.attempt("settle", started, outcome, reply.transaction)
        if self.chain is None and isinstance(reply, SettledReply):
            return await self._write(
                payments.move,
                row,
                State.SETTLED,
                now=self.clock(),
                transaction=reply.transaction,
                reason="facilitator",
                lease_ms=FINAL_MS,
                attempts=(attempt,),
            )
        answer = await self._prove(row, reply)
        if isinstance(reply, SettledReply) and answer and answer.proof is not Proof.PAID:
            alarm("unproven", row.id)
        return await self.conclude(row, answer, outcome, attempt)

    async def _prove(self, row: LedgerRow, reply: SettledReply | Unclear) -> ChainAnswer | None:
        """Ask the chain after a settle call. If the facilitator reports a settlement, our node gets
        time to catch up with the facilitator's.
        """
        answer = await self.ask_chain(row, reply.transaction)
        for pause in PROOF_POLL_DELAYS_S if isinstance(reply, SettledReply) else ():
            if answer is None or answer.proof is not Proof.UNUSED:
                break
            await asyncio.sleep(pause)
            answer = await self.ask_chain(row, reply.transaction)
        return answer

    async def conclude(
        self, row: LedgerRow, answer: ChainAnswer | None, reason: str, *attempts: Attempt
    ) -> LedgerRow:
        """Write the chain's proof about a row (monitor/settlement), and return the row."""
        if answer is None and row.state is State.UNKNOWN:
            return row  # nothing new: a store that can only be read still answers
        return await self._write(
            apply_proof, row, answer, now=self.clock(), reason=reason, attempts=attempts
        )

    async def ask_chain(self, row: LedgerRow, transaction: str | None = None) -> ChainAnswer | None:
        """Ask the chain about a row; None without a node, or if it does not answer."""
        return await self.ask_chain_about(row.authorization, hint=transaction or row.transaction)

    async def ask_chain_about(
        self, authorization: Authorization, *, hint: str | None = None
    ) -> ChainAnswer | None:
        """Ask the chain about an authorization; None without a node, or without an answer."""
        if self.chain is None:
            return None
        try:
            return await self.chain.proof(authorization, hint=hint)
        except RpcError:
            return None

    async def give_back(self, row: LedgerRow, reason: str, *attempts: Attempt) -> None:
        """Give a claim back: nothing was charged. Only the worker that holds the claim may say
        that; any other gets OvertakenError.
        """
        await self._write(
            payments.move,
            row,
            State.REJECTED,
            now=self.clock(),
            reason=reason,
            attempts=attempts,
        )

    async def row(self, payment_id: str) -> LedgerRow | None:
        """A payment's row as it is now, None for one that was never claimed."""
        return await self.store.reading(payments.get, payment_id)

    async def raise_overtaken(self, row: LedgerRow) -> NoReturn:
        """Raise OvertakenError: this worker holds the row no more."""
        raise OvertakenError(await self.row(row.id) or row)

    def attempt(
        self, kind: str, started: int, outcome: str, transaction: str | None = None
    ) -> Attempt:
        """A step that began at `started` and has just ended."""
        return Attempt(
            kind=kind, at=started, ended_at=self.clock(), outcome=outcome, transaction=transaction
        )

    async def _write(
        self,
        change: Work[Concatenate[LedgerRow, P], LedgerRow | None],
        row: LedgerRow,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> LedgerRow:
        """The row after a change of the ledger. Raises OvertakenError if this worker does not hold
        it any more.
        """
        # The change compares owner and state: it returns None if another worker moved the row.
        changed = await self.store.writing(change, row, *args, **kwargs)
        return changed or await self.raise_overtaken(row)


def _claimed_offer(sale: Sale, row: LedgerRow) -> Offer:
    """The offer that a row was claimed for: prices may have changed since."""
    if (sale.offer.amount, sale.offer.pay_to.lower()) == (row.amount, row.pay_to):
        return sale.offer
    return replace(sale.offer, amount=row.amount, pay_to=row.pay_to)
