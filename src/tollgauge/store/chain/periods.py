"""Settlements of each chain and wallet over 1, 7 and 30 complete UTC days.

The index loop measures a chain together with the demand of its wallets (monitor/settlement) and
stores the results: one row per chain, with the days before for comparison, and one per wallet.
Requests read only these rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.base.units import day_of
from tollgauge.core.score.demand import measure_periods
from tollgauge.core.score.income import (
    NO_PAYMENTS,
    DaySum,
    Flow,
    Period,
    PeriodFigures,
    WalletIncome,
)
from tollgauge.db import meta
from tollgauge.store import rows
from tollgauge.store.chain import cursors, submitters, volumes
from tollgauge.store.chain import wallets as wallet_rows
from tollgauge.store.chain.submitters import FacilitatorPeriod, FacilitatorSample
from tollgauge.store.chain.transfers import transfer_day

DAYS: Final = (1, 7, 30)
"""The lengths of the periods. The longest is the first one measured."""
_LONGEST: Final = max(DAYS)
_META: Final = "periods:"
_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodComparison:
    """The last `days` complete UTC days and the same number of days before them; `previous` is None
    if they were not measured.
    """

    days: int
    current: PeriodFigures
    previous: PeriodFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPeriods:
    """The settlements of a chain up to the UTC day `last_day`, measured at `as_of` (ms UTC).

    `by_day` has the days of the longest period, oldest first. `past` has the figures of the longest
    period as measured at the end of earlier days, because transfers are not stored for that long.
    `window` has the figures of the 30 days until `as_of`, of which `indexed_permille` are indexed,
    as an average of all `wallets`.
    """

    chain: int
    as_of: int
    last_day: int
    comparisons: tuple[PeriodComparison, ...]
    by_day: tuple[DaySum, ...]
    past: tuple[tuple[int, PeriodFigures], ...] = ()
    facilitators: tuple[FacilitatorPeriod, ...] = ()
    samples: tuple[FacilitatorSample, ...] = ()
    window: PeriodFigures = NO_PAYMENTS
    wallets: int = 0
    indexed_permille: int = 0


INCOMES: Final = rows.ChainResults(
    "wallet_income", sa.Column("wallet", sa.LargeBinary, primary_key=True), WalletIncome
)
_PERIODS: Final = TypeAdapter(ChainPeriods)


def measure(
    tx: Connection,
    chain: int,
    *,
    as_of: int,
    window: PeriodFigures,
    signers: Collection[bytes] = (),
) -> tuple[ChainPeriods, Sequence[tuple[bytes, WalletIncome]]] | None:
    """Measure the periods of a chain and the income of its wallets; None if it is not indexed.

    Reads every daily sum of 37 days once. `window` has the figures of the 30 days until `as_of`;
    `signers` are the addresses of the configured facilitator.
    """
    # 2.6 million transfers (850,000 daily sums) take 4.5 s of CPU and 13 MB; a request that reads
    # the stored row of the chain or of a wallet takes 1 to 4 ms.
    cursor = cursors.cursor(tx, chain)
    if cursor is None:
        return None
    last = day_of(min(cursor.at, as_of)) - 1
    current = [Period(last - days + 1, last) for days in DAYS]
    # The days before the longest period are no longer stored.
    before = [Period(last - 2 * days + 1, last - days) for days in DAYS if days != _LONGEST]
    periods = [*current[::-1], *before]
    anchors = volumes.anchor_owners(tx, chain)
    first = min(period.last for period in periods) - _LONGEST + 1
    known = {wallet: list(flows) for wallet, flows in _flows(tx, chain, first, last, anchors)}
    measured = measure_periods(
        _flows(tx, chain, min(period.first for period in periods), last),
        periods,
        sellers=wallet_rows.sellers(tx, chain, as_of=as_of) | anchors,
        anchors=anchors,
        at_anchors={
            end: [
                (wallet, _sum_flows(flows, Period(end - _LONGEST + 1, end)))
                for wallet, flows in known.items()
            ]
            for end in {period.last for period in periods}
        },
    )
    figures = {period: one.figures for period, one in zip(periods, measured.markets, strict=True)}
    wallets, indexed = volumes.count_covered(tx, chain, as_of=as_of)
    stored = _read(tx, chain)
    past = {} if stored is None else dict(stored.past)
    past[last] = figures[periods[0]]
    chain_periods = ChainPeriods(
        chain=chain,
        as_of=as_of,
        window=window,
        wallets=wallets,
        indexed_permille=indexed,
        last_day=last,
        comparisons=tuple(
            PeriodComparison(
                days=days,
                current=figures[Period(last - days + 1, last)],
                previous=figures.get(Period(last - 2 * days + 1, last - days))
                or past.get(last - days),
            )
            for days in DAYS
        ),
        by_day=tuple(measured.by_day),
        past=tuple(sorted((day, one) for day, one in past.items() if day >= last - _LONGEST)),
        facilitators=submitters.measure(tx, chain, DAYS, last_day=last, known=signers),
        samples=submitters.load_samples(tx, chain),
    )
    return chain_periods, measured.wallets


def publish(tx: Connection, periods: ChainPeriods) -> None:
    """Store the periods of a chain."""
    meta.put(tx, f"{_META}{periods.chain}", _PERIODS.dump_json(periods).decode())


def unpublish(tx: Connection, chain: int) -> None:
    """Delete the periods of a chain that is no longer indexed."""
    meta.drop(tx, f"{_META}{chain}")


def load_published(tx: Connection) -> tuple[ChainPeriods, ...]:
    """Return the stored periods of each chain, in order of chain IDs."""
    found = (_read(tx, chain) for chain in cursors.chains(tx))
    return tuple(periods for periods in found if periods is not None)


def _read(tx: Connection, chain: int) -> ChainPeriods | None:
    text = meta.get(tx, f"{_META}{chain}")
    return None if text is None else _PERIODS.validate_json(text)


def _flows(
    tx: Connection, chain: int, first: int, last: int, of: Iterable[bytes] | None = None
) -> Iterator[tuple[bytes, Iterable[tuple[int, bytes, Flow]]]]:
    """Yield each wallet with its flows by day and counterparty, in the order of the table's key."""
    query = sa.select(
        *transfer_day.c["wallet", "day", "other", "transfers", "paid", "returned"]
    ).where(transfer_day.c.chain == chain, transfer_day.c.day.between(first, last))
    if of is None:
        options = {"yield_per": _ROWS}
        result: Iterable[Any] = tx.execute(
            query.order_by(transfer_day.c.wallet), execution_options=options
        )
    else:
        result = sorted(
            rows.with_any(tx, query.where(rows.any_of(transfer_day.c.wallet)), of),
            key=itemgetter(0),
        )
    for wallet, group in groupby(result, key=itemgetter(0)):
        yield (
            wallet,
            (
                (day, other, Flow(count, int(paid), int(back)))
                for _, day, other, count, paid, back in group
            ),
        )


def _sum_flows(flows: Iterable[tuple[int, bytes, Flow]], period: Period) -> dict[bytes, Flow]:
    """Return the flows of a period by counterparty."""
    sums: dict[bytes, Flow] = {}
    for day, other, flow in flows:
        if period.first <= day <= period.last:
            known = sums.get(other)
            sums[other] = flow if known is None else known.plus(flow)
    return sums
