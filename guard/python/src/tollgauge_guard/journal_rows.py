"""The journal's statements about payments. Each runs in a transaction of the journal.

They are SQL that SQLite and PostgreSQL read alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tollgauge_guard.budget import BUCKET_S, DAY_S, Exposure, add_exposure
from tollgauge_guard.journal_file import Processes, Rows
from tollgauge_guard.offer import Terms
from tollgauge_guard.payment import TRANSITIONS, Event, Payment, State
from tollgauge_guard.purchase_key import Purchase

KEEP_S: Final = 90 * DAY_S
KEEP_REFUSALS_S: Final = 30 * DAY_S
MAX_REFUSALS: Final = 100_000
_FINAL: Final = (State.DELIVERED, State.DEAD, State.LAPSED, State.WRITTEN_OFF)
_UNFINISHED: Final = """
SELECT * FROM payments WHERE purchase = ? AND (account = ? OR payer IN ({wallets}))
AND state IN ('reserved', 'signed', 'in-flight', 'open', 'paid-unanswered')
ORDER BY id
"""
_WRITTEN_OFF: Final = """
(SELECT max(id) FROM payments WHERE purchase = ? AND account = ? AND state = 'written-off'
AND NOT EXISTS (SELECT 1 FROM payments AS later
  WHERE later.purchase = payments.purchase AND later.replaces = payments.id))
"""  # the payment that the owner wrote off for the next one
_SAME_AUTHORIZATION: Final = """
SELECT 1 FROM payments AS other JOIN payments AS this USING (payer, network, asset)
WHERE other.nonce = ? AND this.id = ?
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of a payment that its next transition depends on."""

    id: int
    state: State
    exposure: int
    found_at: int | None


def insert_payment(rows: Rows, values: dict[str, Any]) -> int:
    """Insert a payment, and return its row ID; the names are columns."""
    names, marks = ", ".join(values), f"{list_marks(values)}, {_WRITTEN_OFF}"
    statement = f"INSERT INTO payments ({names}, replaces) VALUES ({marks}) RETURNING id"  # noqa: S608 - names of columns
    bound = (*values.values(), values["purchase"], values["account"])
    (found,) = rows.execute(statement, bound).fetchall()
    return int(found[0])


def load_row(rows: Rows, payment: int) -> Row | None:
    """Return the payment with this row ID."""
    statement = "SELECT id, state, exposure, found_at FROM payments WHERE id = ?"
    found = rows.execute(statement, (payment,)).fetchone()
    return None if found is None else Row(found[0], State(found[1]), *found[2:])


def is_recorded(rows: Rows, payment: int, nonce: str) -> bool:
    """Whether an authorization of a payment's payer was recorded before."""
    return rows.execute(_SAME_AUTHORIZATION, (nonce, payment)).fetchone() is not None


def apply_event(rows: Rows, row: Row, event: Event, now: int, values: dict[str, Any]) -> bool:
    """Apply an event to a payment, and set other columns; see `Journal.change`."""
    transition = TRANSITIONS.get((row.state, event))
    if transition is None:
        return False
    settled = values.pop("settled", None)
    exposure = 0 if transition.release else row.exposure
    # A voucher without a deposit exposes less than was reserved.
    if settled is not None and (transition.settle or event is Event.SIGNED):
        exposure = min(exposure, settled)
    if exposure != row.exposure:
        found = rows.execute("SELECT * FROM payments WHERE id = ?", (row.id,))
        (payment,) = read_payments(found)
        add_exposure(rows, _locate(payment), exposure - row.exposure)
    if transition.to is None:
        rows.execute("DELETE FROM payments WHERE id = ?", (row.id,))
        return True
    values |= {"state": transition.to, "exposure": exposure}
    if transition.to is not row.state:
        values["changed_at"] = now
    if transition.drop_payload:
        values["payload"] = None
    if transition.to is State.PAID_UNANSWERED and row.found_at is None:
        values["found_at"] = now
    # The names are those of this module's callers, never of a seller.
    names = ", ".join(f"{name} = ?" for name in values)
    statement = f"UPDATE payments SET {names} WHERE id = ?"  # noqa: S608 - see above
    rows.execute(statement, (*values.values(), row.id))
    return True


def prune(rows: Rows, now: int, processes: Processes, max_refusals: int) -> None:
    """Delete rows past their retention, and the reservations of processes that died."""
    release_dead(rows, processes)
    rows.execute(
        "DELETE FROM payments WHERE at <= ? AND changed_at <= ? "  # noqa: S608 - only question marks
        f"AND state IN ({list_marks(_FINAL)})",
        (now - KEEP_S, now - KEEP_S, *_FINAL),
    )
    oldest = (now - DAY_S) // BUCKET_S - 12  # an hour more, for clocks that are set back
    rows.execute("DELETE FROM budgets WHERE bucket > 0 AND bucket < ?", (oldest,))
    prune_refusals(rows, now, max_refusals)
    rows.execute("DELETE FROM approvals WHERE expires_at <= ?", (now - KEEP_REFUSALS_S,))


def prune_refusals(rows: Rows, now: int, limit: int) -> None:
    """Delete old refusals, and the oldest of too many."""
    rows.execute("DELETE FROM refusals WHERE at <= ?", (now - KEEP_REFUSALS_S,))
    newest = "(SELECT max(id) FROM refusals)"
    rows.execute(f"DELETE FROM refusals WHERE id <= {newest} - ?", (limit,))  # noqa: S608 - our text


def is_channel_busy(rows: Rows, terms: Terms, payer: str, processes: Processes) -> bool:
    """Whether a voucher of the payer to this payTo is unanswered: no higher one may be signed."""
    found = rows.execute(
        "SELECT * FROM payments "
        "WHERE method = 'channel' AND network = ? AND asset = ? AND pay_to = ? AND payer = ?",
        (terms.network, terms.asset, terms.pay_to, payer),
    )
    blocking = (State.SIGNED, State.IN_FLIGHT, State.OPEN, State.PAID_UNANSWERED)
    return any(
        payment.state in blocking
        or (payment.state is State.RESERVED and processes.is_alive(payment.owner))
        for payment in read_payments(found)
    )


def release_dead(rows: Rows, processes: Processes) -> None:
    """Delete the reservations of processes that died: their payments did not leave."""
    for payment in read_payments(rows.execute("SELECT * FROM payments WHERE state = 'reserved'")):
        if not processes.is_alive(payment.owner):
            add_exposure(rows, _locate(payment), -payment.exposure)
            rows.execute("DELETE FROM payments WHERE id = ?", (payment.id,))


def iterate_unfinished(rows: Rows, purchase: Purchase, processes: Processes) -> Iterator[Payment]:
    """Yield the payments that block a purchase.

    A reservation of a process that died does not: its payment was not recorded and did not
    leave.
    """
    statement = _UNFINISHED.format(wallets=list_marks(purchase.wallets))
    values = (purchase.key, purchase.account, *purchase.wallets)
    for payment in read_payments(rows.execute(statement, values)):
        if payment.state is not State.RESERVED or processes.is_alive(payment.owner):
            yield payment


def read_payments(rows: Iterable[Any]) -> Iterator[Payment]:
    """Yield the payments that a statement returned."""
    names: list[str] | None = None
    cursor: Any = rows
    for row in cursor.fetchall():
        names = names or [column[0] for column in cursor.description]
        fields = dict(zip(names, row, strict=True))
        fields["amount"], fields["state"] = int(fields["amount"]), State(fields["state"])
        yield Payment(**fields)


def list_marks(values: Collection[object]) -> str:
    """Return the parameters of a list of values; PostgreSQL has no empty list."""
    return ", ".join("?" * len(values)) or "NULL"


def _locate(payment: Payment) -> Exposure:
    return Exposure(
        account=payment.account,
        network=payment.network,
        asset=payment.asset,
        host=payment.host,
        session=payment.session,
        at=payment.at,
    )
