"""Volumes: the sums of the indexed transfers of a window, for one wallet and for a whole chain.

Rules:
- a window is exact: whole UTC days come from their sums, the partly covered days at its ends from
  the transfers themselves;
- today's sums are taken whole if no indexed block is after the window's end, which is usual;
- a wallet is indexed from its `low` to the chain's cursor; the rest of the window is not known,
  and `indexed_ms` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import PayerVolume
from tollgauge.core.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.db import meta
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain.transfers import transfer, transfer_day
from tollgauge.store.chain.wallets import chain_wallet

MOST_PAYERS: Final = 5_000
"""Evidence names at most this many payers. The smallest ones beyond are added up as one payer: the
sums stay exact, and there can only seem to be fewer payers than there are."""
THE_REST: Final = "0x" + 40 * "f"
_META: Final = "volume:"
_ROWS: Final = 5_000
_LOW: Final = sa.select(chain_wallet.c.low_at).where(
    chain_wallet.c.chain == sa.bindparam("chain"), chain_wallet.c.address == sa.bindparam("address")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a window is indexed for a wallet: milliseconds, and the last indexed block with
    its time (ms UTC).
    """

    indexed_ms: int
    to_block: int
    to_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVolume:
    """A chain's settlements of 30 days in atomic units: all payments to wallets by authorization
    (`raw`), those without self-payments and round trips (`organic`), how many wallets received any
    and from how many payers. `indexed_permille` is the share of the window that is indexed, over
    all `wallets`.
    """

    chain: int
    as_of: int
    raw: int
    organic: int
    receivers: int
    payers: int
    wallets: int
    indexed_permille: int


def chain_of(network: str) -> int | None:
    """The chain id of a CAIP-2 network, None unless it is an EVM chain."""
    kind, _, number = network.partition(":")
    plain = number.isascii() and number.isdecimal() and len(number) <= 15
    return int(number) if kind == "eip155" and plain else None


def coverage(tx: Connection, chain: int, address: str, *, as_of: int) -> Coverage | None:
    """How much of the 30 days before `as_of` is indexed for an address, None if nothing is."""
    low_at = tx.execute(_LOW, {"chain": chain, "address": address}).scalar_one_or_none()
    cursor = chains.cursor(tx, chain)
    if cursor is None or low_at is None:
        return None
    return Coverage(
        indexed_ms=_overlap(low_at, cursor.at, as_of=as_of),
        to_block=cursor.number,
        to_at=cursor.at,
    )


def payers(tx: Connection, chain: int, address: str, *, as_of: int) -> tuple[PayerVolume, ...]:
    """Who paid an address by authorization in the 30 days before `as_of`, and what it sent back
    to each of them, in the order of addresses; the smallest beyond MOST_PAYERS as one.
    """
    wallet = bytes.fromhex(address[2:])
    sums = _by_counterparty(tx.execute(_window(tx, chain, as_of=as_of, wallet=wallet)))
    return _named((other, row) for other, row in sums.items() if row[0])


def _named(rows: Iterable[tuple[bytes, list[int]]]) -> tuple[PayerVolume, ...]:
    ordered = sorted(rows, key=lambda row: (-(row[1][1] - row[1][2]), row[0]))
    known = [_payer("0x" + other.hex(), *row) for other, row in ordered[:MOST_PAYERS]]
    # Each payer's returns cancel at most what that payer paid, also inside the rest.
    rest = [(n, paid, min(paid, back)) for _, (n, paid, back) in ordered[MOST_PAYERS:]]
    if rest:
        known.append(_payer(THE_REST, *(sum(column) for column in zip(*rest, strict=True))))
    return tuple(sorted(known, key=lambda payer: payer.payer))


def _payer(address: str, transfers: int, paid: int, returned: int) -> PayerVolume:
    return PayerVolume(payer=address, transfers=transfers, paid=paid, returned=returned)


def measure(tx: Connection, chain: int, *, as_of: int) -> ChainVolume:
    """A chain's volume as of an instant, from every wallet's sums."""
    total = {"raw": 0, "organic": 0, "receivers": 0}
    everyone: set[bytes] = set()
    for wallet, sums in _wallets(tx, chain, as_of=as_of):
        paid = {other: row for other, row in sums.items() if row[0]}
        if not paid:
            continue
        total["receivers"] += 1
        total["raw"] += sum(row[1] for row in paid.values())
        total["organic"] += sum(
            max(0, row[1] - row[2]) for other, row in paid.items() if other != wallet
        )
        everyone.update(paid)
    count, covered = _covered(tx, chain, as_of=as_of)
    return ChainVolume(
        chain=chain,
        as_of=as_of,
        payers=len(everyone),
        wallets=count,
        indexed_permille=covered * 1_000 // (count * WINDOW_MS) if count else 0,
        **total,
    )


def publish(tx: Connection, volume: ChainVolume) -> None:
    """Store a chain's volume for the statistics."""
    text = orjson.dumps(
        asdict(volume) | {"raw": str(volume.raw), "organic": str(volume.organic)}
    ).decode()
    meta.put(tx, f"{_META}{volume.chain}", text)


def unpublish(tx: Connection, chain: int) -> None:
    """Delete a chain's volume, because the chain is not indexed any more."""
    meta.drop(tx, f"{_META}{chain}")


def published(tx: Connection) -> tuple[ChainVolume, ...]:
    """The latest stored volume of each chain, in the order of chain ids."""
    cursors = sa.select(chains.chain_cursor.c.chain).order_by(chains.chain_cursor.c.chain)
    volumes = []
    for chain in tx.execute(cursors).scalars().all():
        text = meta.get(tx, f"{_META}{chain}")
        if text is not None:
            row: dict[str, Any] = orjson.loads(text)
            row |= {"raw": int(row["raw"]), "organic": int(row["organic"])}
            volumes.append(ChainVolume(**row))
    return tuple(volumes)


def _wallets(
    tx: Connection, chain: int, *, as_of: int
) -> Iterator[tuple[bytes, dict[bytes, list[int]]]]:
    """Every wallet with its sums by counterparty, one wallet in memory at a time."""
    query = _window(tx, chain, as_of=as_of, wallet=None)
    result = tx.execute(query, execution_options={"yield_per": _ROWS})
    for wallet, group in groupby(result, key=itemgetter(0)):
        yield wallet, _by_counterparty(group)


def _by_counterparty(window_rows: Iterable[Any]) -> dict[bytes, list[int]]:
    """The sums (transfers, paid, returned) of one wallet."""
    sums: dict[bytes, list[int]] = {}
    for _, other, count, paid, returned in window_rows:
        row = sums.setdefault(other, [0, 0, 0])
        row[0] += count
        row[1] += int(paid)
        row[2] += int(returned)
    return sums


def _window(
    tx: Connection, chain: int, *, as_of: int, wallet: bytes | None
) -> sa.CompoundSelect[Any]:
    """Rows (wallet, other, transfers, paid, returned) of `as_of - 30 days < at <= as_of`: of one
    wallet, or of all in the order of wallets.
    """
    cursor = chains.cursor(tx, chain)
    begin = as_of - WINDOW_MS
    first, last = begin // DAY_MS + 1, day_of(as_of)
    ends = [(begin, first * DAY_MS - 1)]
    if cursor is not None and cursor.at > as_of:
        ends.append((last * DAY_MS - 1, as_of))
        last -= 1
    whole: sa.Select[Any] = sa.select(
        *transfer_day.c["wallet", "other", "transfers", "paid", "returned"],
    )
    whole = whole.where(transfer_day.c.chain == chain, transfer_day.c.day.between(first, last))
    if wallet is not None:
        parts = [_single(chain, *end).where(transfer.c.wallet == wallet) for end in ends]
        return sa.union_all(whole.where(transfer_day.c.wallet == wallet), *parts)
    # No index orders the transfers of all wallets by time, but the key does by block number.
    numbers = [(_after(tx, chain, after), _after(tx, chain, until)) for after, until in ends]
    parts = [
        _single(chain, *end).where(transfer.c.number >= low, transfer.c.number < high)
        for end, (low, high) in zip(ends, numbers, strict=True)
    ]
    return sa.union_all(whole, *parts).order_by("wallet")


def _single(chain: int, after: int, until: int) -> sa.Select[Any]:
    """The transfers of `after < at <= until`, each as a row of sums."""
    nothing = sa.literal("0", sa.Text)
    return sa.select(
        transfer.c.wallet,
        transfer.c.other,
        sa.case((transfer.c.incoming, 1), else_=0).label("transfers"),
        sa.case((transfer.c.incoming, transfer.c.value), else_=nothing).label("paid"),
        sa.case((transfer.c.incoming, nothing), else_=transfer.c.value).label("returned"),
    ).where(transfer.c.chain == chain, transfer.c.at > after, transfer.c.at <= until)


def _after(tx: Connection, chain: int, at: int) -> int:
    """The first block number from which on every transfer is later than an instant."""
    last = sa.select(sa.func.max(transfer.c.number)).where(transfer.c.chain == chain)
    low, high = 0, (tx.execute(last).scalar_one() or 0) + 1
    while low < high:
        middle = (low + high) // 2
        query = sa.select(transfer.c.number, transfer.c.at).where(
            transfer.c.chain == chain, transfer.c.number >= middle, transfer.c.number < high
        )
        first = tx.execute(query.order_by(transfer.c.number).limit(1)).one_or_none()
        if first is None or first.at > at:
            high = middle
        else:
            low = first.number + 1
    return low


def _covered(tx: Connection, chain: int, *, as_of: int) -> tuple[int, int]:
    """How many wallets there are, and the sum of the indexed parts of their windows (ms)."""
    cursor = chains.cursor(tx, chain)
    if cursor is None:
        return 0, 0
    low_at = chain_wallet.c.low_at
    query = sa.select(low_at, sa.func.count()).where(chain_wallet.c.chain == chain)
    count = covered = 0
    for since, wallets in tx.execute(query.group_by(low_at)):
        count += wallets
        covered += wallets * _overlap(since, cursor.at, as_of=as_of)
    return count, covered


def _overlap(first: int, last: int, *, as_of: int) -> int:
    return max(0, min(last, as_of) - max(first, as_of - WINDOW_MS))
