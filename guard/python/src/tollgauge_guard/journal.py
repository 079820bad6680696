"""Journal: every payment that was signed, written before it leaves, and what became of it.

One SQLite file (or memory) for all threads and processes of a wallet. A payment is first reserved:
the budgets are checked in the same transaction that writes the row, so concurrent payments never
exceed one. What was signed counts as spent on its day whatever became of it, because nobody but the
chain can tell; `resolve` says that an authorization was not taken, and gives its amount back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tollgauge_guard.decision import REPEAT_S, Refuse, Spent, over_budget
from tollgauge_guard.journal_file import MEMORY, JournalError, JournalFile
from tollgauge_guard.offer import Terms
from tollgauge_guard.policy import Policy
from tollgauge_guard.process import is_alive, this_process
from tollgauge_guard.signed import Authorization

DAY_S: Final = 86_400
UNSIGNED_S: Final = 600
"""A reservation that was not signed in this time was given up: its process has died."""
KEEP_S: Final = 90 * DAY_S
"""How long payments are kept whose outcome is known."""
SETTLE_MARGIN_S: Final = 6
"""An authorization must be valid for this long to be sent again (x402 exact EVM)."""
_RESERVE: Final = """
INSERT INTO payment (at, host, resource, request_digest, network, asset, pay_to, amount, micro_usd,
  owner, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SPENT: Final = """
SELECT coalesce(sum(CASE WHEN host = :host THEN micro_usd END), 0), coalesce(sum(micro_usd), 0)
FROM payment WHERE at >= :today AND outcome <> 'not-taken' AND (nonce IS NOT NULL OR at > :unsigned)
"""
_REUSABLE: Final = """
SELECT id, header, outcome, owner, network, asset, pay_to, amount FROM payment
WHERE request_digest = ? AND resource = ? AND header IS NOT NULL AND valid_before >= ?
AND outcome IN (?, ?)
ORDER BY id
"""
_REPEATS: Final = """
SELECT count(*) FROM payment WHERE request_digest = :digest AND at > :recent
AND outcome <> 'not-taken'
"""


class Outcome(StrEnum):
    """What became of a payment."""

    RESERVED = "reserved"
    """It was allowed and is being signed."""
    UNANSWERED = "unanswered"
    """It was signed, and there is no answer yet."""
    UNKNOWN = "unknown"
    """It was sent, and the connection broke, or the seller failed or wants it later: only the chain
    can tell whether it was taken.
    """
    ANSWERED = "answered"
    """The seller answered, without a receipt: it may have been taken."""
    REFUSED = "refused"
    """The seller answered 402 again: it may have been taken all the same."""
    SETTLED = "settled"
    """The seller answered with a receipt that names a transaction."""
    TAKEN = "taken"
    """Its owner found it on the chain."""
    NOT_TAKEN = "not-taken"
    """Its owner knows that it was not taken and no longer can be."""


LOST: Final = (Outcome.UNANSWERED, Outcome.UNKNOWN)
"""Signed and not answered."""
UNSETTLED: Final = (*LOST, Outcome.ANSWERED, Outcome.REFUSED)
"""Signed, and no receipt says that it was taken, nor its owner that it was not."""


Price = tuple[str, str, str, str]
"""Network, token, payee and amount of a payment; hex in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidRequest:
    """The request that is paid: its host, its canonical resource, and a digest of method, URL
    and body of the call that led to it, by which the same call is known again.
    """

    host: str
    resource: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One signed payment. Instants are unix seconds, `amount` atomic units, hex is lower case.

    `status` is that of the answer and `settlement` the transaction that its receipt names.
    """

    id: int
    at: int
    host: str
    resource: str
    request_digest: str
    network: str
    asset: str
    pay_to: str
    amount: int
    micro_usd: int
    payer: str
    nonce: str
    valid_before: int
    outcome: Outcome
    status: int | None
    settlement: str | None


@dataclass(frozen=True, slots=True)
class Reusable:
    """A payment that was signed for the same request and got no answer: its row and its header."""

    entry: int
    header: str


class Journal:
    """An open journal: a file, or memory, which forgets with its process."""

    def __init__(self, path: Path | str = MEMORY) -> None:
        self._file = JournalFile(str(path))
        self._pruned_day = 0

    def reserve(self, request: PaidRequest, terms: Terms, policy: Policy, now: int) -> int | Refuse:
        """Set an amount aside for a payment that is about to be signed. Returns its row's id, or
        the refusal where it would go over a budget.
        """
        with self._file.transaction() as rows:
            if self._pruned_day != now // DAY_S:
                _prune(rows, now)
                self._pruned_day = now // DAY_S
            if refusal := over_budget(terms.micro_usd, _spent(rows, request, now), policy):
                return refusal
            cursor = rows.execute(
                _RESERVE,
                (
                    *(now, request.host, request.resource, request.digest),
                    *(terms.network, terms.asset, terms.pay_to, str(terms.amount)),
                    *(terms.micro_usd, this_process(), Outcome.RESERVED),
                ),
            )
            return int(cursor.lastrowid or 0)

    def release(self, entry: int) -> None:
        """Give back what was reserved for a payment that was not signed."""
        with self._file.transaction() as rows:
            rows.execute("DELETE FROM payment WHERE id = ? AND nonce IS NULL", (entry,))

    def sign(self, entry: int, signed: Authorization, header: str) -> None:
        """Write down what was signed, with the header that will carry it, so that it can be sent
        again while it has no answer. Raises JournalError where its reservation is gone, or where
        the same authorization was written before: it must not leave then.
        """
        values = (signed.payer, signed.nonce, signed.valid_before, header, Outcome.UNANSWERED)
        with self._file.transaction() as rows:
            try:
                cursor = rows.execute(
                    "UPDATE payment SET payer = ?, nonce = ?, valid_before = ?, header = ?, "
                    "outcome = ? WHERE id = ? AND nonce IS NULL",
                    (*values, entry),
                )
            except sqlite3.IntegrityError as error:
                raise JournalError("This authorization was signed before.") from error
        if cursor.rowcount != 1:
            raise JournalError("The payment has no reservation any more; it is not sent.")

    def finish(
        self, entry: int, outcome: Outcome, status: int | None = None, settlement: str | None = None
    ) -> None:
        """Write down the outcome. The header is forgotten unless the outcome is unknown."""
        with self._file.transaction() as rows:
            rows.execute(
                "UPDATE payment SET outcome = ?1, status = ?2, settlement = ?3, "
                "header = CASE ?1 WHEN 'unknown' THEN header END WHERE id = ?4",
                (outcome, status, settlement, entry),
            )

    def reuse(self, request: PaidRequest, asked: Iterable[Price], now: int) -> Reusable | None:
        """Take over a payment of the same request to the same resource that is still valid and got
        no answer: its connection broke, or its process died. It must pay what is asked now. Nobody
        else gets it until its next answer.

        Where a redirect leads the request elsewhere now, that is another resource to pay.
        """
        values = (request.digest, request.resource, now + SETTLE_MARGIN_S, *LOST)
        with self._file.reading() as rows:
            if rows.execute(_REUSABLE, values).fetchone() is None:
                return None
        prices = set(asked)
        with self._file.transaction() as rows:
            for entry, header, outcome, owner, *price in rows.execute(_REUSABLE, values).fetchall():
                if outcome == Outcome.UNANSWERED and is_alive(owner):
                    continue
                if tuple(price) not in prices:
                    continue
                rows.execute(
                    "UPDATE payment SET outcome = ?, owner = ? WHERE id = ?",
                    (Outcome.UNANSWERED, this_process(), entry),
                )
                return Reusable(entry, header)
        return None

    def resolve(self, entry: int, *, is_taken: bool) -> None:
        """Say what the chain shows of a payment. One that was not taken counts as spent no longer.
        Raises JournalError for a payment that is not in the journal.
        """
        outcome = Outcome.TAKEN if is_taken else Outcome.NOT_TAKEN
        if self.entry(entry) is None:
            raise JournalError(f"The journal has no payment {entry}.")
        self.finish(entry, outcome)

    def spent(self, request: PaidRequest, now: int) -> Spent:
        """What counts as spent when this request is paid at `now`."""
        with self._file.reading() as rows:
            return _spent(rows, request, now)

    def entry(self, number: int) -> Entry | None:
        """One signed payment, None where there is none with this id."""
        entries = self._entries("SELECT * FROM entry WHERE id = ?", (number,))
        return next(iter(entries), None)

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

    def unsettled(self) -> tuple[Entry, ...]:
        """The payments that were signed and got no receipt, oldest first. With payer and nonce
        anyone can ask the chain whether one was taken.
        """
        return self._entries(
            "SELECT * FROM entry WHERE outcome IN (?, ?, ?, ?) ORDER BY id", UNSETTLED
        )

    def close(self) -> None:
        """Close the file; whatever is asked next opens it again."""
        self._file.close()

    def _entries(self, statement: str, values: tuple[object, ...]) -> tuple[Entry, ...]:
        with self._file.reading() as rows:
            cursor = rows.execute(statement, values)
            names = [column[0] for column in cursor.description]
            return tuple(_entry(dict(zip(names, row, strict=True))) for row in cursor)


def _prune(rows: sqlite3.Connection, now: int) -> None:
    """Forget payments that were answered more than KEEP_S ago, and reservations that were given
    up.
    """
    rows.execute("DELETE FROM payment WHERE nonce IS NULL AND at <= ?", (now - UNSIGNED_S,))
    rows.execute(
        "DELETE FROM payment WHERE at <= ? AND outcome NOT IN (?, ?)", (now - KEEP_S, *LOST)
    )


def _spent(rows: sqlite3.Connection, request: PaidRequest, now: int) -> Spent:
    values = {
        "host": request.host,
        "digest": request.digest,
        "today": now - now % DAY_S,
        "recent": now - REPEAT_S,
        "unsigned": now - UNSIGNED_S,
    }
    host_day, day = rows.execute(_SPENT, values).fetchone()
    (repeats,) = rows.execute(_REPEATS, values).fetchone()
    return Spent(host_day=host_day, day=day, repeats=repeats)


def _entry(row: dict[str, object]) -> Entry:
    fields = row | {"amount": int(str(row["amount"])), "outcome": Outcome(str(row["outcome"]))}
    return Entry(**fields)  # type: ignore[arg-type]  # the columns of our own table
