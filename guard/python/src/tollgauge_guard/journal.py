"""Journal: every payment that was signed, written before it leaves, and its state since.

One SQLite file (or memory) for all threads and processes of a user. A payment is first reserved:
the budgets of its account and the earlier payments of its purchase are checked in the same
transaction that writes the row, so concurrent payments never exceed a budget, and no purchase has
two payments that may both be taken. What was signed counts as spent on its day unless it is dead.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tollgauge_guard.decision import REPEAT_S, Refuse, Spent, over_budget
from tollgauge_guard.entry import (
    SETTLE_MARGIN_S,
    UNFINISHED,
    UNSETTLED,
    Account,
    Entry,
    Outcome,
    PaidRequest,
    Unfinished,
)
from tollgauge_guard.journal_file import MEMORY, JournalError, JournalFile
from tollgauge_guard.offer import Terms
from tollgauge_guard.policy import Policy
from tollgauge_guard.process import is_alive, this_process
from tollgauge_guard.signed import CLOCK_SLACK_S, Authorization

DAY_S: Final = 86_400
KEEP_S: Final = 90 * DAY_S
"""How long payments are kept whose outcome is known."""
_RESERVE: Final = """
INSERT INTO payment (at, host, resource, request_digest, network, asset, pay_to, amount, micro_usd,
  payer, valid_before, owner, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNTS: Final = """
payer = :payer AND network = :network AND asset = :asset AND outcome <> 'dead'
AND (nonce IS NOT NULL OR valid_before > :now) AND id <> :without
"""
"""What counts as spent by an account. A reservation counts until what is being signed expires."""
_SPENT: Final = f"""
SELECT coalesce(sum(CASE WHEN host = :host THEN micro_usd END), 0), coalesce(sum(micro_usd), 0)
FROM payment WHERE at >= :today AND {_COUNTS}
"""  # noqa: S608  # of constants
_REPEATS: Final = f"""
SELECT count(*) FROM payment WHERE request_digest = :digest AND at > :recent AND {_COUNTS}
"""  # noqa: S608  # of constants
_UNFINISHED: Final = """
SELECT id, owner, header, outcome FROM payment
WHERE request_digest = :digest AND payer IN (SELECT value FROM json_each(:payers))
AND (outcome IN ('in-flight', 'open', 'paid-unanswered')
  OR outcome = 'reserved' AND valid_before > :now)
ORDER BY id
"""
_SEND_AGAIN: Final = """
UPDATE payment SET outcome = 'in-flight', owner = :owner WHERE id = :id AND header IS NOT NULL
AND valid_before > :now + :margin
AND (outcome = 'open' OR outcome = 'in-flight' AND owner = :seen)
RETURNING header
"""


class Journal:
    """An open journal: a file, or memory, which forgets with its process."""

    def __init__(self, path: Path | str = MEMORY) -> None:
        self.path = str(path)
        self._file = JournalFile(self.path)
        self._pruned_day = 0

    def reserve(
        self, request: PaidRequest, terms: Terms, payer: str, policy: Policy, now: int
    ) -> int | Refuse | None:
        """Set an amount aside for a payment that is about to be signed by `payer`.

        Returns the id of its row, the refusal where it would go over a budget, or None where an
        earlier payment of the same purchase is unfinished.
        """
        account = Account(payer=payer, network=terms.network, asset=terms.asset)
        with self._file.transaction() as rows:
            if self._pruned_day != now // DAY_S:
                _prune(rows, now)
                self._pruned_day = now // DAY_S
            if next(_unfinished(rows, request, now), None) is not None:
                return None
            if refusal := over_budget(
                terms.micro_usd, _spent(rows, request, account, now, without=0), policy
            ):
                return refusal
            cursor = rows.execute(
                _RESERVE,
                (
                    *(now, request.host, request.resource, request.digest),
                    *(terms.network, terms.asset, terms.pay_to, str(terms.amount)),
                    *(terms.micro_usd, payer, now + terms.timeout + CLOCK_SLACK_S),
                    *(this_process(), Outcome.RESERVED),
                ),
            )
            return int(cursor.lastrowid or 0)

    def release(self, entry: int) -> None:
        """Give back what was reserved for a payment that was not signed."""
        with self._file.transaction() as rows:
            rows.execute("DELETE FROM payment WHERE id = ? AND nonce IS NULL", (entry,))

    def sign(self, entry: int, signed: Authorization, header: str, now: int) -> None:
        """Write down what was signed, with the header that will carry it, so that it can be sent
        again while it has no answer. Raises JournalError where its reservation is gone or has
        expired, or where the same authorization was written before: it must not leave then.
        """
        values = (signed.nonce, signed.valid_before, header, Outcome.IN_FLIGHT)
        with self._file.transaction() as rows:
            try:
                cursor = rows.execute(
                    "UPDATE payment SET nonce = ?, valid_before = ?, header = ?, outcome = ? "
                    "WHERE id = ? AND nonce IS NULL AND payer = ? AND valid_before > ?",
                    (*values, entry, signed.payer, now),
                )
            except sqlite3.IntegrityError as error:
                raise JournalError("This authorization was signed before.") from error
        if cursor.rowcount != 1:
            raise JournalError("The payment has no reservation any more; it is not sent.")

    def finish(
        self, entry: int, outcome: Outcome, status: int | None = None, settlement: str | None = None
    ) -> None:
        """Write down what became of a payment that was sent. Its header is forgotten unless it is
        open. An answer that comes late does not open again what has ended.
        """
        with self._file.transaction() as rows:
            rows.execute(
                "UPDATE payment SET outcome = ?1, status = coalesce(?2, status), "
                "settlement = coalesce(?3, settlement), "
                "header = CASE ?1 WHEN 'open' THEN header END "
                "WHERE id = ?4 AND (outcome IN ('in-flight', 'open') "
                "OR ?1 IN ('answered', 'settled') AND outcome <> 'dead')",
                (outcome, status, settlement, entry),
            )

    def close_unfinished(self, entry: Entry, outcome: Outcome, now: int) -> bool:
        """Write down what the chain, the end of its purchase, or its owner says of a payment that
        is open. Returns False where its state has changed since it was read.
        """
        with self._file.transaction() as rows:
            cursor = rows.execute(
                "UPDATE payment SET outcome = ?, header = NULL, found_at = coalesce(found_at, ?) "
                "WHERE id = ? AND outcome = ?",
                (outcome, now, entry.id, entry.outcome),
            )
            return cursor.rowcount == 1

    def unfinished(self, request: PaidRequest, now: int) -> Unfinished | None:
        """The first payment that is in the way of another one for the same purchase."""
        with self._file.reading() as rows:
            found = next(_unfinished(rows, request, now), None)
        if found is None:
            return None
        number, owner, header, outcome = found
        is_sent = outcome != Outcome.RESERVED
        is_busy = outcome in (Outcome.RESERVED, Outcome.IN_FLIGHT) and is_alive(owner)
        return Unfinished(number, self.entry(number) if is_sent else None, is_busy, header)

    def send_again(self, entry: int, now: int) -> str | None:
        """Take over a payment that is open, to send it again. Returns its header, or None where it
        cannot be sent again or another process has taken it over.
        """
        with self._file.transaction() as rows:
            row = rows.execute(
                "SELECT owner, outcome FROM payment WHERE id = ?", (entry,)
            ).fetchone()
            if row is None or (row[1] == Outcome.IN_FLIGHT and is_alive(row[0])):
                return None
            values = {"id": entry, "now": now, "margin": SETTLE_MARGIN_S, "seen": row[0]}
            taken = rows.execute(_SEND_AGAIN, values | {"owner": this_process()}).fetchone()
            return None if taken is None else str(taken[0])

    def spent(self, request: PaidRequest, account: Account, now: int, *, without: int = 0) -> Spent:
        """What counts as spent when this request is paid by an account at `now`, without the
        payment of one row.
        """
        with self._file.reading() as rows:
            return _spent(rows, request, account, now, without)

    def entry(self, number: int) -> Entry | None:
        """One signed payment, None where there is none with this id."""
        entries = self._entries("SELECT * FROM entry WHERE id = ?", (number,))
        return next(iter(entries), None)

    def of_nonce(self, nonce: str) -> tuple[Entry, ...]:
        """The payments with a nonce; payers on several networks could choose the same."""
        return self._entries("SELECT * FROM entry WHERE nonce = ?", (nonce.lower(),))

    def signed(self, signed: Authorization) -> Entry | None:
        """The payment with this authorization, None where it was not written down."""
        key = (signed.payer, signed.nonce, signed.network)
        entries = self._entries(
            "SELECT * FROM entry WHERE payer = ? AND nonce = ? AND network = ?", key
        )
        return next(iter(entries), None)

    def entries(self) -> tuple[Entry, ...]:
        """All payments that were signed, oldest first."""
        return self._entries("SELECT * FROM entry ORDER BY id", ())

    def unsettled(self, payers: Iterable[str] | None = None) -> tuple[Entry, ...]:
        """The payments, of all payers or of some, that were signed and got no receipt, oldest
        first. With payer and nonce anyone can ask the chain whether one was taken.
        """
        return self._of(UNSETTLED, payers)

    def unresolved(self, payers: Iterable[str] | None = None) -> tuple[Entry, ...]:
        """The payments, of all payers or of some, that are in the way of another one for the same
        purchase, oldest first.
        """
        return self._of(UNFINISHED, payers)

    def is_busy(self, entry: int) -> bool:
        """Whether a process that runs waits for the answer to a payment."""
        with self._file.reading() as rows:
            row = rows.execute(
                "SELECT owner FROM payment WHERE id = ? AND outcome = 'in-flight'", (entry,)
            ).fetchone()
        return row is not None and is_alive(row[0])

    def close(self) -> None:
        """Close the file; whatever is asked next opens it again."""
        self._file.close()

    def _of(self, outcomes: tuple[Outcome, ...], payers: Iterable[str] | None) -> tuple[Entry, ...]:
        found = self._entries(
            "SELECT * FROM entry WHERE outcome IN (SELECT value FROM json_each(?)) ORDER BY id",
            (json.dumps(outcomes),),
        )
        wanted = None if payers is None else set(payers)
        return tuple(entry for entry in found if wanted is None or entry.payer in wanted)

    def _entries(self, statement: str, values: tuple[object, ...]) -> tuple[Entry, ...]:
        with self._file.reading() as rows:
            cursor = rows.execute(statement, values)
            names = [column[0] for column in cursor.description]
            return tuple(_entry(dict(zip(names, row, strict=True))) for row in cursor)


def _prune(rows: sqlite3.Connection, now: int) -> None:
    """Forget payments whose outcome has been known for KEEP_S, and reservations that expired."""
    rows.execute("DELETE FROM payment WHERE nonce IS NULL AND valid_before <= ?", (now,))
    rows.execute(
        "DELETE FROM payment WHERE at <= ? AND outcome NOT IN (?, ?, ?)",
        (now - KEEP_S, *UNFINISHED),
    )


def _unfinished(
    rows: sqlite3.Connection, request: PaidRequest, now: int
) -> Iterator[tuple[int, int, str | None, str]]:
    """Rows that are in the way of another payment for the purchase: id, owner, header, outcome. A
    reservation of a process that has died is not: what it signed was not written and did not leave.
    """
    values = {"digest": request.digest, "payers": json.dumps(request.payers), "now": now}
    for row in rows.execute(_UNFINISHED, values).fetchall():
        if row[3] != Outcome.RESERVED or is_alive(row[1]):
            yield row


def _spent(
    rows: sqlite3.Connection, request: PaidRequest, account: Account, now: int, without: int
) -> Spent:
    values = {
        "payer": account.payer,
        "network": account.network,
        "asset": account.asset,
        "host": request.host,
        "digest": request.digest,
        "today": now - now % DAY_S,
        "recent": now - REPEAT_S,
        "now": now,
        "without": without,
    }
    host_day, day = rows.execute(_SPENT, values).fetchone()
    (repeats,) = rows.execute(_REPEATS, values).fetchone()
    return Spent(host_day=host_day, day=day, repeats=repeats)


def _entry(row: dict[str, object]) -> Entry:
    fields = row | {"amount": int(str(row["amount"])), "outcome": Outcome(str(row["outcome"]))}
    return Entry(**fields)  # type: ignore[arg-type]  # the columns of our own table
