"""A sale as the gate carries it out, and the claim under which its answer is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from tollgauge.core.sale.payment import Offer
from tollgauge.db.engine import Store, Work
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import LedgerRow

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """A claimed payment: the only way in which a sale writes outside the ledger.

    `row` is the payment as it was claimed, `store` the store that the sale may write to, and `seen`
    the result of the sale's `check`. Functions that a product appends to `with_answer` run in the
    transaction that stores the answer, or not at all.
    """

    store: Store
    row: LedgerRow
    seen: object = None
    with_answer: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def payment_id(self) -> str:
        """The ID of the payment in the ledger."""
        return self.row.id

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in its own writing transaction. Raises payments.ClaimLost, with nothing
        written, if another worker has taken the payment over.
        """

        def check_and_work(tx: Connection) -> R:
            # A worker that was suspended for longer than its lease does not notice that another
            # worker has sold the same payment (docs/payments.md).
            payments.check_claim(tx, self.row)
            return work(tx, *args, **kwargs)

        return await self.store.writing(check_and_work)


class Reveal(Protocol):
    """Turns a stored answer that contains a secret into the one that is sent."""

    def __call__(self, body: bytes, /, *, secret: bool) -> Awaitable[bytes]:
        """Return the answer's JSON bytes, with the secret only if `secret` is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """A request to a paid route, ready for the gate.

    Attributes:
        bazaar: The x402 extension of that name, which describes input and output to directories.
        validate: Turns the parsed body into the route's order, or raises Problem 422.
        compute: Makes the whole answer's JSON bytes under the payment's claim, or raises Problem.
        bodyless: Whether a request without a body is read as an empty object.
        reveal: Needed only for answers that contain a secret.
        hosts: The hosts that an order makes the service connect to.
        check: Runs in the transaction of the claim. It raises Problem for an order that cannot be
            served now; its result is `HeldClaim.seen`.
        headers: Additional headers of the answer to a settled payment.
    """

    offer: Offer
    description: str
    validate: Callable[[object], object]
    compute: Callable[[object, HeldClaim], Awaitable[bytes]]
    bazaar: dict[str, Any] = field(default_factory=dict)
    bodyless: bool = False
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], object] = lambda _tx, _order: None
    headers: Callable[[LedgerRow], Mapping[str, str]] = lambda _row: {}
