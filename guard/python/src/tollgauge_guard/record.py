"""Record: what the bundle knows of one endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge_guard.errors import GuardError

FIELDS: Final = 9


class RecordError(GuardError):
    """A line of the bundle that is no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payee:
    """An address that the endpoint asked to be paid to in the last 30 days (lower-case hex on EVM
    chains), and since when (unix seconds).
    """

    address: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One endpoint as the service saw it at `as_of` (unix seconds).

    `recommendation` is the service's advice; `grade` (A to F) and `score` (0 to 100) are None
    while nothing was measured. `payees` are newest first. `amount` is the advertised price on
    `network` (CAIP-2) in micro-dollars: atomic units of a dollar token with 6 decimals. Both are
    None where none is advertised, `amount` also where it is in another token. `flags` are slugs.
    """

    recommendation: str
    grade: str | None
    score: float | None
    payees: tuple[Payee, ...]
    network: str | None
    amount: int | None
    flags: tuple[str, ...]
    as_of: int


def read_record(row: object) -> Record:
    """The record of a line of the bundle, an array of 9. Raises RecordError for anything else."""
    if not isinstance(row, list) or len(row) != FIELDS:
        raise RecordError(f"A record of the bundle must be an array of {FIELDS}.")
    _, recommendation, grade, score, payees, network, amount, flags, as_of = row
    try:
        return Record(
            recommendation=_text(recommendation),
            grade=None if grade is None else _text(grade),
            score=None if score is None else float(score),
            payees=tuple(Payee(address=_text(to), since=_instant(since)) for to, since in payees),
            network=None if network is None else _text(network),
            amount=None if amount is None else int(_text(amount)),
            flags=tuple(_text(flag) for flag in flags),
            as_of=_instant(as_of),
        )
    except (TypeError, ValueError) as error:
        raise RecordError("A record of the bundle has a field of another form.") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _instant(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value
