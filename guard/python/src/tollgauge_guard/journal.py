"""Journal: every payment from its reservation on, budgets, refusals and approvals.

One SQLite file (or memory) for all threads and processes of a user, in Python and TypeScript, or
one PostgreSQL database for several machines. Each transition of a payment is one transaction; a
reservation checks the earlier payments of its purchase and the budgets in the transaction that
writes the row. The statements are in journal_rows.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tollgauge_guard.authorization import Authorization
from tollgauge_guard.budget import DAY_S, Exposure, add_exposure, load_spent
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Refuse, Spent, over_budget
from tollgauge_guard.journal_file import (
    MEMORY,
    JournalError,
    JournalFile,
    LocalProcesses,
    Processes,
    Store,
    create_tables,
    is_postgres,
)
from tollgauge_guard.journal_rows import (
    MAX_REFUSALS,
    apply_event,
    insert_payment,
    is_channel_busy,
    is_recorded,
    iterate_unfinished,
    list_marks,
    load_row,
    prune,
    prune_refusals,
    read_payments,
    release_dead,
)
from tollgauge_guard.offer import CHANNEL, Terms
from tollgauge_guard.payment import UNFINISHED, Event, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import Purchase
from tollgauge_guard.signed import CLOCK_SLACK_S


@dataclass(frozen=True, slots=True)
class Reserved:
    """A payment whose exposure is set aside: its row ID and its handle."""

    id: int
    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A decision other than allow, as the journal records it."""

    at: int
    account: str
    host: str
    resource: str
    decision: str
    code: str
    reason: str
    network: str | None = None
    pay_to: str | None = None
    amount: str | None = None


class Journal:
    """An open journal: a file, memory, which ends with its process, the URL of a PostgreSQL
    database, or a store of yours.

    With `durable`, a signed payment in a file also survives a power failure. Of the refusals, the
    newest `max_refusals` are kept. Raises JournalError.
    """

    def __init__(
        self,
        where: Path | str | Store = MEMORY,
        *,
        durable: bool = False,
        max_refusals: int = MAX_REFUSALS,
    ) -> None:
        self.path, self._pruned_day, self._max_refusals = MEMORY, 0, max_refusals
        if isinstance(where, str) and is_postgres(where):
            from tollgauge_guard.postgres_store import PostgresStore  # psycopg is optional

            where = PostgresStore(where)
            self.path = where.name
        elif isinstance(where, (Path, str)):
            self.path = str(where)
            where = JournalFile(self.path, is_durable=durable)
        else:
            create_tables(where)
        self.file: Store = where
        self.processes: Processes = where if isinstance(where, Processes) else LocalProcesses()

    def reserve(
        self, purchase: Purchase, terms: Terms, payer: str, policy: Policy, now: int
    ) -> Reserved | Refuse | None:
        """Set the exposure of a payment aside before it is signed by `payer`.

        Returns the reserved payment, the refusal if it exceeds a budget, or None if an earlier
        payment of the same purchase is unfinished.
        """
        where = locate_exposure(purchase, terms, now)
        with self.file.transaction() as rows:
            if self._pruned_day != now // DAY_S:
                prune(rows, now, self.processes, self._max_refusals)
                self._pruned_day = now // DAY_S
            if next(iterate_unfinished(rows, purchase, self.processes), None) is not None:
                return None
            if terms.method == CHANNEL and is_channel_busy(rows, terms, payer, self.processes):
                reason = "A call through the same payment channel has no answer yet."
                return Refuse(Code.PAYMENT_UNRESOLVED, reason)
            refusal = over_budget(terms.exposure, load_spent(rows, where), policy)
            if refusal is not None:
                release_dead(rows, self.processes)
                refusal = over_budget(terms.exposure, load_spent(rows, where), policy)
            if refusal is not None:
                return refusal
            handle = secrets.token_hex(16)
            values = {
                "handle": handle,
                "account": purchase.account,
                "purchase": purchase.key,
                "session": purchase.session,
                "owner": self.processes.this_process(),
                "state": State.RESERVED,
                "at": now,
                "changed_at": now,
                "host": purchase.host,
                "resource": purchase.resource,
                "url_digest": purchase.url_digest,
                "scheme": terms.scheme,
                "method": terms.method,
                "network": terms.network,
                "asset": terms.asset,
                "pay_to": terms.pay_to,
                "amount": str(terms.amount),
                "exposure": terms.exposure,
                "payer": payer,
                "valid_before": now + terms.timeout + CLOCK_SLACK_S,
            }
            payment = insert_payment(rows, values)
            add_exposure(rows, where, terms.exposure)
            return Reserved(payment, handle)

    def sign(
        self, payment: int, signed: Authorization, payload: str, now: int, **found: Any
    ) -> None:
        """Record the signed payment before it leaves.

        Args:
            payment: row ID of the reservation.
            signed: the authorization.
            payload: value of the header that will carry it.
            now: unix seconds.
            found: `valid_height`, `evidence` or `payment_id`, if the scheme has them; `settled` if
                less is exposed than was reserved (micro-dollars).

        Raises:
            JournalError: the reservation is gone, or the same authorization was recorded before.
                The payment must not leave.
        """
        values: dict[str, Any] = {"nonce": signed.nonce, "payload": payload}
        if signed.valid_before:
            values["valid_before"] = signed.valid_before
        with self.file.transaction() as rows:
            row = load_row(rows, payment)
            if row is None or row.state is not State.RESERVED:
                raise JournalError("The payment has no reservation any more; it is not sent.")
            if is_recorded(rows, payment, signed.nonce):
                if signed.method != CHANNEL:
                    raise JournalError("This authorization was signed before; it is not sent.")
                # The same voucher again, after its call has ended: it takes nothing more.
                values["nonce"] = f"{signed.nonce}#{payment}"
            apply_event(rows, row, Event.SIGNED, now, values | found)

    def change(
        self,
        payment: int,
        event: Event,
        now: int,
        *,
        expected: State | None = None,
        **values: Any,
    ) -> bool:
        """Apply an event to a payment, in one transaction.

        Args:
            payment: row ID.
            event: what happened.
            now: unix seconds.
            expected: the state that was read; nothing changes if the row has another one.
            values: `settled`, the micro-dollars that the chain shows as settled, and other columns
                to set.

        Returns:
            False if the table of states has no transition for it.
        """
        if event is Event.SEND:
            values["owner"] = self.processes.this_process()
        with self.file.transaction() as rows:
            row = load_row(rows, payment)
            if row is None or (expected is not None and row.state is not expected):
                return False
            return apply_event(rows, row, event, now, values)

    def find_unfinished(self, purchase: Purchase) -> Payment | None:
        """Return the first unfinished payment of a purchase."""
        with self.file.reading() as rows:
            return next(iterate_unfinished(rows, purchase, self.processes), None)

    def sum_spent(self, where: Exposure) -> Spent:
        """Return the spent amounts at `where.at`."""
        with self.file.reading() as rows:
            return load_spent(rows, where)

    def payment(self, payment: int) -> Payment | None:
        """Return the payment with this row ID."""
        return next(iter(self.select("id = ?", payment)), None)

    def find(self, name: str) -> Payment | None:
        """Return the payment with this handle or nonce, an unfinished one first."""
        found = self.select("handle = ? OR nonce IN (?, ?)", name, name, name.lower())
        return min(found, key=lambda payment: payment.state not in UNFINISHED, default=None)

    def find_signed(self, signed: Authorization) -> Payment | None:
        """Return the payment with this authorization."""
        found = self.select(
            "payer = ? AND nonce = ? AND network = ?", signed.payer, signed.nonce, signed.network
        )
        return next(iter(found), None)

    def payments(self) -> tuple[Payment, ...]:
        """Return all payments that were signed, oldest first."""
        return self.select("nonce IS NOT NULL")

    def find_unresolved(self, account: str | None = None) -> tuple[Payment, ...]:
        """Return the payments that block their purchase (of one account), oldest first."""
        condition = f"state IN ({list_marks(UNFINISHED)}) AND nonce IS NOT NULL"
        if account is None:
            return self.select(condition, *UNFINISHED)
        return self.select(f"{condition} AND account = ?", *UNFINISHED, account)

    def payment_id(self, purchase: str, account: str) -> str:
        """Return the ID for the extension payment-identifier: one per purchase.

        A purchase that was not paid because its payment is dead keeps its ID; a purchase that was
        answered before is another one, whose ID would get the old answer.
        """
        found = self.select("purchase = ? AND account = ? AND nonce IS NOT NULL", purchase, account)
        last = found[-1] if found else None
        if last is not None and last.state is State.DEAD and last.payment_id is not None:
            return last.payment_id
        return f"pay_{secrets.token_hex(16)}"

    def refuse(self, refusal: Refusal) -> None:
        """Record a decision other than allow."""
        names = Refusal.__slots__
        with self.file.transaction() as rows:
            rows.execute(
                f"INSERT INTO refusals ({', '.join(names)}) VALUES ({list_marks(names)})",  # noqa: S608 - our names
                [getattr(refusal, name) for name in names],
            )
            prune_refusals(rows, refusal.at, self._max_refusals)

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the recorded refusals, oldest first."""
        names = ", ".join(Refusal.__slots__)
        with self.file.reading() as rows:
            found = rows.execute(f"SELECT {names} FROM refusals ORDER BY id").fetchall()  # noqa: S608
        return tuple(Refusal(**dict(zip(Refusal.__slots__, row, strict=True))) for row in found)

    def close(self) -> None:
        """Close the file; the next read or write opens it again."""
        self.file.close()

    def select(self, condition: str, *values: object) -> tuple[Payment, ...]:
        """Return the payments that match an SQL condition, oldest first."""
        with self.file.reading() as rows:
            # Conditions are texts of this package; foreign text is only among the values.
            statement = f"SELECT * FROM payments WHERE {condition} ORDER BY id"  # noqa: S608
            return tuple(read_payments(rows.execute(statement, values)))


def locate_exposure(purchase: Purchase, terms: Terms, now: int) -> Exposure:
    """Return where a payment with these terms counts."""
    return Exposure(
        account=purchase.account,
        network=terms.network,
        asset=terms.asset,
        host=purchase.host,
        session=purchase.session,
        at=now,
    )
