"""Submitters of settlement transactions, and the settlements per submitter. A facilitator submits
the payments that it settles.

`transfer.submitter` is NULL before the lookup and empty if the node had no usable answer. Only
transactions of final blocks are looked up, the newest first and a limited number per round, so that
on a busy chain the figures are a sample. The index loop measures them together with the periods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of, hex_text
from tollgauge.store.chain.transfers import WITHOUT_SUBMITTER, transfer, transfer_day

TOP: Final = 10  # facilitators stored per period
_ROWS: Final = 5_000


class SettlementTransaction(NamedTuple):
    """A settlement transaction and its block."""

    number: int
    block_hash: bytes
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorFigures:
    """Payments that one address submitted (volume in atomic USDC). `configured` if this service's
    facilitator lists the address among its signers.
    """

    address: str
    configured: bool
    settlements: int
    volume: int
    buyers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorPeriod:
    """The payments of the last `days` complete UTC days by submitter. The submitters of `looked_up`
    of the `settlements` are known; they are `submitters` addresses, and `top` has those with the
    most payments.
    """

    days: int
    settlements: int
    looked_up: int
    submitters: int
    top: tuple[FacilitatorFigures, ...]


def find_unknown(
    tx: Connection, chain: int, *, final: int, limit: int
) -> list[SettlementTransaction]:
    """Return transactions up to block `final` that were not looked up, newest first."""
    columns = transfer.c["number", "block_hash", "transaction"]
    query = sa.select(*columns).where(
        transfer.c.chain == chain, transfer.c.number <= final, WITHOUT_SUBMITTER
    )
    found = tx.execute(query.order_by(transfer.c.number.desc()).limit(limit))
    return list(dict.fromkeys(SettlementTransaction(*row) for row in found))


def save(tx: Connection, chain: int, submitters: Mapping[SettlementTransaction, bytes]) -> None:
    """Store the submitters of transactions; empty bytes if unknown."""
    statement = transfer.update().where(
        transfer.c.chain == chain,
        transfer.c.number == sa.bindparam("of_number"),
        transfer.c.block_hash == sa.bindparam("of_block"),
        transfer.c.transaction == sa.bindparam("of_transaction"),
        WITHOUT_SUBMITTER,
    )
    values = [
        {
            "of_number": one.number,
            "of_block": one.block_hash,
            "of_transaction": one.hash,
            "submitter": submitter,
        }
        for one, submitter in submitters.items()
    ]
    if values:
        tx.execute(statement.values(submitter=sa.bindparam("submitter")), values)


@dataclass(slots=True)
class _Submitter:
    """Payments of a submitter as [number, volume] by days before the last one, and for each buyer
    the newest of these.
    """

    by_age: dict[int, list[int]] = field(default_factory=dict)
    buyers: dict[bytes, int] = field(default_factory=dict)

    def figures(self, address: bytes, days: int, *, configured: bool) -> FacilitatorFigures:
        sums = [sums for age, sums in self.by_age.items() if age < days]
        return FacilitatorFigures(
            address=hex_text(address),
            configured=configured,
            settlements=sum(count for count, _ in sums),
            volume=sum(volume for _, volume in sums),
            buyers=sum(age < days for age in self.buyers.values()),
        )


def measure(
    tx: Connection, chain: int, lengths: Collection[int], *, last_day: int, known: Collection[bytes]
) -> tuple[FacilitatorPeriod, ...]:
    """Measure the periods of these lengths (days) that end with `last_day`.

    Reads all payments of the longest period once. `known` has the configured facilitator's signers.
    """
    first = last_day - max(lengths) + 1
    columns = transfer.c["submitter", "other", "value", "at"]
    query = sa.select(*columns).where(
        transfer.c.chain == chain,
        transfer.c.at.between(first * DAY_MS, (last_day + 1) * DAY_MS - 1),
        transfer.c.incoming,
        sa.func.length(transfer.c.submitter) > 0,
    )
    submitters: dict[bytes, _Submitter] = {}
    for address, buyer, value, at in tx.execute(query, execution_options={"yield_per": _ROWS}):
        submitter = submitters.setdefault(address, _Submitter())
        age = last_day - day_of(at)
        sums = submitter.by_age.setdefault(age, [0, 0])
        sums[0] += 1
        sums[1] += value
        submitter.buyers[buyer] = min(age, submitter.buyers.get(buyer, age))
    totals = (
        sa.select(transfer_day.c.day, sa.func.sum(transfer_day.c.transfers))
        .where(transfer_day.c.chain == chain, transfer_day.c.day.between(first, last_day))
        .group_by(transfer_day.c.day)
    )
    by_day = [(day, int(count)) for day, count in tx.execute(totals)]
    periods = []
    for days in lengths:
        rows = [
            one.figures(address, days, configured=address in known)
            for address, one in submitters.items()
        ]
        rows = sorted(
            (row for row in rows if row.settlements),
            key=lambda row: (-row.settlements, row.address),
        )
        periods.append(
            FacilitatorPeriod(
                days=days,
                settlements=sum(count for day, count in by_day if day > last_day - days),
                looked_up=sum(row.settlements for row in rows),
                submitters=len(rows),
                top=tuple(rows[:TOP]),
            )
        )
    return tuple(periods)
