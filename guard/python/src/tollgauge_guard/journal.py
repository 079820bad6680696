"""Journal: every payment from its reservation on, budgets, refusals and approvals.

One SQLite file (or memory) for all threads and processes of a user, in Python and TypeScript. Each
transition of a payment is one transaction; a reservation checks the earlier payments of its
purchase and the budgets in the transaction that writes the row.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollgauge_guard.budget import BUCKET_S, DAY_S, Exposure, add_exposure, load_spent
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Refuse, Spent, over_budget
from tollgauge_guard.journal_file import (
    MEMORY,
    JournalError,
    JournalFile,
    Rows,
    Store,
    create_tables,
    is_alive,
    this_process,
)
from tollgauge_guard.offer import CHANNEL, Terms
from tollgauge_guard.payment import TRANSITIONS, UNFINISHED, Event, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import Purchase
from tollgauge_guard.signed import CLOCK_SLACK_S, Authorization

KEEP_S: Final = 90 * DAY_S
KEEP_REFUSALS_S: Final = 30 * DAY_S
MAX_REFUSALS: Final = 100_000
_FINAL: Final = (State.DELIVERED, State.DEAD, State.LAPSED, State.WRITTEN_OFF)
_UNFINISHED: Final = """
SELECT * FROM payments
WHERE purchase IN (:purchase, :legacy)
AND (account = :account OR payer IN (SELECT value FROM json_each(:wallets)))
AND state IN ('reserved', 'signed', 'in-flight', 'open', 'paid-unanswered')
ORDER BY id
"""
_LAST_WRITTEN_OFF: Final = """
SELECT id FROM payments WHERE purchase = ? AND account = ? AND state = 'written-off'
AND NOT EXISTS (SELECT 1 FROM payments AS later
  WHERE later.purchase = payments.purchase AND later.replaces = payments.id)
ORDER BY id DESC LIMIT 1
"""


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
    """An open journal: a file, memory, which ends with its process, or a store of yours.

    With `durable`, a signed payment also survives a power failure. Raises JournalError.
    """

    def __init__(self, where: Path | str | Store = MEMORY, *, durable: bool = False) -> None:
        self.path, self._pruned_day = MEMORY, 0
        if isinstance(where, (Path, str)):
            self.path = str(where)
            where = JournalFile(self.path, is_durable=durable)
        else:
            create_tables(where)
        self.file: Store = where

    def reserve(
        self, purchase: Purchase, terms: Terms, payer: str, policy: Policy, now: int
    ) -> Payment | Refuse | None:
        """Set the exposure of a payment aside before it is signed by `payer`.

        Returns the reserved payment, the refusal if it exceeds a budget, or None if an earlier
        payment of the same purchase is unfinished.
        """
        where = locate_exposure(purchase, terms, now)
        with self.file.transaction() as rows:
            if self._pruned_day != now // DAY_S:
                _prune(rows, now)
                self._pruned_day = now // DAY_S
            if next(_iterate_unfinished(rows, purchase), None) is not None:
                return None
            if terms.method == CHANNEL and _is_channel_busy(rows, terms, payer):
                reason = "A call through the same payment channel has no answer yet."
                return Refuse(Code.PAYMENT_UNRESOLVED, reason)
            refusal = over_budget(terms.exposure, load_spent(rows, where), policy)
            if refusal is not None:
                _release_dead(rows)
                refusal = over_budget(terms.exposure, load_spent(rows, where), policy)
            if refusal is not None:
                return refusal
            replaced = rows.execute(_LAST_WRITTEN_OFF, (purchase.key, purchase.account)).fetchone()
            values = {
                "handle": secrets.token_urlsafe(16),
                "account": purchase.account,
                "purchase": purchase.key,
                "session": purchase.session,
                "owner": this_process(),
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
                "replaces": None if replaced is None else replaced[0],
            }
            names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
            statement = f"INSERT INTO payments ({names}) VALUES ({marks}) RETURNING *"  # noqa: S608 - our names
            (payment,) = _read(rows.execute(statement, values))
            add_exposure(rows, where, terms.exposure)
            return payment

    def sign(
        self, payment: int, signed: Authorization, payload: str, now: int, **found: Any
    ) -> None:
        """Record the signed payment before it leaves.

        Args:
            payment: row ID of the reservation.
            signed: the authorization.
            payload: value of the header that will carry it.
            now: unix seconds.
            found: `valid_height`, `evidence` or `payment_id`, where the scheme has them;
                `settled` if less is exposed than was reserved (micro-dollars).

        Raises:
            JournalError: the reservation is gone, or the same authorization was recorded before.
                The payment must not leave.
        """
        values: dict[str, Any] = {"nonce": signed.nonce, "payload": payload}
        if signed.valid_before:
            values["valid_before"] = signed.valid_before
        if signed.method == CHANNEL and self.find_signed(signed) is not None:
            # The same voucher again, after its call has ended: it takes nothing more.
            values["nonce"] = f"{signed.nonce}#{payment}"
        try:
            is_changed = self.change(
                payment, Event.SIGNED, now, expected=State.RESERVED, **values, **found
            )
        except sqlite3.IntegrityError as error:
            raise JournalError("This authorization was signed before.") from error
        if not is_changed:
            raise JournalError("The payment has no reservation any more; it is not sent.")

    def change(
        self,
        payment: int,
        event: Event,
        now: int,
        *,
        expected: State | None = None,
        settled: int | None = None,
        **values: Any,
    ) -> bool:
        """Apply an event to a payment, in one transaction.

        Args:
            payment: row ID.
            event: what happened.
            now: unix seconds.
            expected: the state that was read; nothing changes if the row has another one.
            settled: micro-dollars that the chain shows as settled, or that were signed.
            values: other columns to set.

        Returns:
            False if the table of states has no transition for it.
        """
        with self.file.transaction() as rows:
            found = _read(rows.execute("SELECT * FROM payments WHERE id = ?", (payment,)))
            row = next(found, None)
            if row is None or (expected is not None and row.state is not expected):
                return False
            transition = TRANSITIONS.get((row.state, event))
            if transition is None:
                return False
            exposure = 0 if transition.release else row.exposure
            # A voucher without a deposit exposes less than was reserved.
            if settled is not None and (transition.settle or event is Event.SIGNED):
                exposure = min(exposure, settled)
            add_exposure(rows, _where(row), exposure - row.exposure)
            if transition.to is None:
                rows.execute("DELETE FROM payments WHERE id = ?", (payment,))
                return True
            values |= {"state": transition.to, "exposure": exposure}
            if transition.to is not row.state:
                values["changed_at"] = now
            if transition.drop_payload:
                values["payload"] = None
            if transition.to is State.PAID_UNANSWERED and row.found_at is None:
                values["found_at"] = now
            if event is Event.SEND:
                values["owner"] = this_process()
            # The names are those of this module's callers, never of a seller.
            names = ", ".join(f"{name} = :{name}" for name in values)
            rows.execute(
                f"UPDATE payments SET {names} WHERE id = :id",  # noqa: S608 - see above
                values | {"id": payment},
            )
            return True

    def find_unfinished(self, purchase: Purchase) -> Payment | None:
        """Return the first unfinished payment of a purchase."""
        with self.file.reading() as rows:
            return next(_iterate_unfinished(rows, purchase), None)

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
        return self.select(
            "state IN (SELECT value FROM json_each(?)) AND nonce IS NOT NULL "
            "AND (?2 IS NULL OR account = ?2)",
            json.dumps(UNFINISHED),
            account,
        )

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
        marks = ", ".join("?" * len(names))
        with self.file.transaction() as rows:
            rows.execute(
                f"INSERT INTO refusals ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - our names
                [getattr(refusal, name) for name in names],
            )
            _prune_refusals(rows, refusal.at)

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
            statement = f"SELECT * FROM payments WHERE {condition} ORDER BY id"  # noqa: S608
            return tuple(_read(rows.execute(statement, values)))


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


def _where(payment: Payment) -> Exposure:
    return Exposure(
        account=payment.account,
        network=payment.network,
        asset=payment.asset,
        host=payment.host,
        session=payment.session,
        at=payment.at,
    )


def _prune(rows: Rows, now: int) -> None:
    _release_dead(rows)
    marks = ", ".join("?" * len(_FINAL))
    rows.execute(
        f"DELETE FROM payments WHERE changed_at <= ? AND state IN ({marks})",  # noqa: S608 - only question marks
        (now - KEEP_S, *_FINAL),
    )
    oldest = (now - DAY_S) // BUCKET_S - 12  # an hour more, for clocks that are set back
    rows.execute("DELETE FROM budgets WHERE bucket > 0 AND bucket < ?", (oldest,))
    _prune_refusals(rows, now)
    rows.execute("DELETE FROM approvals WHERE expires_at <= ?", (now - KEEP_REFUSALS_S,))


def _prune_refusals(rows: Rows, now: int) -> None:
    rows.execute("DELETE FROM refusals WHERE at <= ?", (now - KEEP_REFUSALS_S,))
    newest = "(SELECT max(id) FROM refusals)"
    rows.execute(f"DELETE FROM refusals WHERE id <= {newest} - ?", (MAX_REFUSALS,))  # noqa: S608 - our text


def _is_channel_busy(rows: Rows, terms: Terms, payer: str) -> bool:
    """Whether a voucher of the payer to this payTo is unanswered: no higher one may be signed."""
    condition = "method = 'channel' AND network = ? AND asset = ? AND pay_to = ? AND payer = ?"
    values = (terms.network, terms.asset, terms.pay_to, payer)
    found = rows.execute(f"SELECT * FROM payments WHERE {condition}", values)  # noqa: S608
    blocking = (State.SIGNED, State.IN_FLIGHT, State.OPEN, State.PAID_UNANSWERED)
    return any(
        payment.state in blocking or (payment.state is State.RESERVED and is_alive(payment.owner))
        for payment in _read(found)
    )


def _release_dead(rows: Rows) -> None:
    """Delete the reservations of processes that died: their payments did not leave."""
    for payment in _read(rows.execute("SELECT * FROM payments WHERE state = 'reserved'")):
        if not is_alive(payment.owner):
            add_exposure(rows, _where(payment), -payment.exposure)
            rows.execute("DELETE FROM payments WHERE id = ?", (payment.id,))


def _iterate_unfinished(rows: Rows, purchase: Purchase) -> Iterator[Payment]:
    """Yield the payments that block a purchase.

    A reservation of a process that died does not: its payment was not recorded and did not
    leave.
    """
    values = {
        "purchase": purchase.key,
        "legacy": purchase.legacy,
        "account": purchase.account,
        "wallets": json.dumps(purchase.wallets),
    }
    for payment in _read(rows.execute(_UNFINISHED, values)):
        if payment.state is not State.RESERVED or is_alive(payment.owner):
            yield payment


def _read(rows: Iterable[Any]) -> Iterator[Payment]:
    names: list[str] | None = None
    cursor: Any = rows
    for row in cursor.fetchall():
        names = names or [column[0] for column in cursor.description]
        fields = dict(zip(names, row, strict=True))
        fields["amount"], fields["state"] = int(fields["amount"]), State(fields["state"])
        yield Payment(**fields)
