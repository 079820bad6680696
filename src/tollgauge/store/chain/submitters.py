"""Submitters of settlement transactions, their settlements, and samples of how often and how fast
they settle. A facilitator submits the payments that it settles.

`transfer.submitter` is NULL before the lookup and empty if the node had no usable answer. Only
transactions of final blocks are looked up, the newest first and a limited number per round, so that
on a busy chain the figures are a sample. The index loop measures them together with the periods.

Failed transactions leave no logs. The index loop therefore reads a whole block from time to time,
and counts its attempts by day and outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, address_text, day_of
from tollgauge.core.chain.trace.result import SettlementAttempt
from tollgauge.db import meta
from tollgauge.db.schema import metadata, upsert
from tollgauge.store import rows
from tollgauge.store.chain.transfers import WITHOUT_SUBMITTER, transfer, transfer_day

TOP: Final = 25  # facilitators stored per period
SAMPLE_DAYS: Final = 30
SETTLED: Final = "settled"
UNKNOWN: Final = "unknown"
NO_DELAY: Final = -1
_SAMPLED: Final = "sampled:"

settlement_attempt: Final = sa.Table(
    "settlement_attempt",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("submitter", sa.LargeBinary, primary_key=True),
    sa.Column("form", sa.Text, primary_key=True),
    # `settled`, the party that caused a failure, or `unknown`.
    sa.Column("outcome", sa.Text, primary_key=True),
    # Seconds from signature to block; NO_DELAY if unknown.
    sa.Column("delay_s", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("count", sa.Integer, nullable=False),
)
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
class FacilitatorSample:
    """Attempts of one address in the sampled blocks of SAMPLE_DAYS days, by outcome. The delays are
    the median and the 95th percentile of the known ones, in seconds; None without any.
    """

    address: str
    forms: tuple[str, ...]
    outcomes: tuple[tuple[str, int], ...]
    p50_delay_s: int | None
    p95_delay_s: int | None


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

    @property
    def looked_up_share(self) -> float | None:
        """The share of the settlements whose submitters are known; None without any."""
        return self.looked_up / self.settlements if self.settlements else None


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


def save(
    tx: Connection, chain: int, submissions: Mapping[SettlementTransaction, tuple[bytes, str]]
) -> None:
    """Store the submitters of transactions and the builder codes of the sellers' apps; empty if
    unknown.
    """
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
            "app_code": app_code,
        }
        for one, (submitter, app_code) in submissions.items()
    ]
    if values:
        names = ("submitter", "app_code")
        tx.execute(statement.values({name: sa.bindparam(name) for name in names}), values)


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
            address=address_text(address),
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


def count_attempts(
    tx: Connection, chain: int, number: int, attempts: Iterable[SettlementAttempt], *, day: int
) -> None:
    """Count the attempts in a block of a UTC day, unless this or a later block was counted."""
    key = f"{_SAMPLED}{chain}"
    if number <= int(meta.get(tx, key) or -1):
        return
    meta.put(tx, key, str(number))
    counted = Counter(
        (
            one.submitter,
            one.form,
            SETTLED if one.settled else one.fault or UNKNOWN,
            NO_DELAY if one.delay_s is None else one.delay_s,
        )
        for one in attempts
    )
    insert = upsert(settlement_attempt)
    add = insert.on_conflict_do_update(
        index_elements=list(settlement_attempt.primary_key),
        set_={"count": settlement_attempt.c.count + insert.excluded.count},
    )
    names = ("submitter", "form", "outcome", "delay_s")
    values = [
        {"chain": chain, "day": day, "count": count} | dict(zip(names, place, strict=True))
        for place, count in counted.items()
    ]
    if values:
        tx.execute(add, values)
    old = (settlement_attempt.c.chain == chain, settlement_attempt.c.day <= day - SAMPLE_DAYS)
    tx.execute(settlement_attempt.delete().where(*old))


def load_samples(tx: Connection, chain: int) -> tuple[FacilitatorSample, ...]:
    """Return the sampled attempts of each address, those with the most first."""
    columns = settlement_attempt.c["submitter", "form", "outcome", "delay_s"]
    total = sa.func.sum(settlement_attempt.c.count)
    query = sa.select(*columns, total).where(settlement_attempt.c.chain == chain)
    found = tx.execute(query.group_by(*columns))
    by_submitter = rows.group((submitter, tuple(rest)) for submitter, *rest in found)
    samples = [_sample(submitter, counts) for submitter, counts in by_submitter.items()]
    samples.sort(key=lambda one: (-sum(count for _, count in one.outcomes), one.address))
    return tuple(samples[:TOP])


def _sample(submitter: bytes, counts: Sequence[tuple[str, str, int, int]]) -> FacilitatorSample:
    outcomes: Counter[str] = Counter()
    delays: list[int] = []
    for _, outcome, delay_s, count in counts:
        outcomes[outcome] += int(count)
        if outcome == SETTLED and delay_s != NO_DELAY:
            delays += [delay_s] * int(count)
    delays.sort()
    return FacilitatorSample(
        address=address_text(submitter),
        forms=tuple(sorted({form for form, *_ in counts})),
        outcomes=tuple(sorted(outcomes.items())),
        p50_delay_s=delays[len(delays) // 2] if delays else None,
        p95_delay_s=delays[len(delays) * 95 // 100] if delays else None,
    )
