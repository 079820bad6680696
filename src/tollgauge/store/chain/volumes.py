"""Volumes: the indexed payments of a window per wallet.

`wallet_demand` contains the demand of each wallet (core/score/demand), which depends on all others:
jobs/index measures the chain periodically, and each score reads its row.

- A window is exact: whole UTC days come from their sums, partial days at its ends from single
  transfers. Today's sums are used whole if no indexed block is after the window's end.
- A wallet is indexed from its `low` to the chain's cursor; `indexed_ms` states the known part of
  the window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, address_bytes, address_text, day_of
from tollgauge.core.score.demand import Measurement, addresses_on, measure_demand
from tollgauge.core.score.evidence import Anchor, DemandEvidence
from tollgauge.core.score.income import Flow
from tollgauge.db import meta
from tollgauge.db.codec import Amount
from tollgauge.store import rows
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import wallets as wallet_rows
from tollgauge.store.chain.transfers import transfer, transfer_day
from tollgauge.store.chain.wallets import chain_wallet

DEMANDS: Final = rows.ChainResults(
    "wallet_demand", sa.Column("wallet", sa.LargeBinary, primary_key=True), DemandEvidence
)

_ANCHORS: Final = TypeAdapter(tuple[Anchor, ...])
_ANCHORS_KEY: Final = "anchors"
_ROWS: Final = 5_000
_NO_FLOW: Final = Flow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The indexed part of a window of a wallet in milliseconds, and the last indexed block with its
    time (ms UTC), None without any.
    """

    indexed_ms: int = 0
    to_block: int | None = None
    to_at: int | None = None


NO_COVERAGE: Final = Coverage()
"""The coverage of an address that is not indexed."""


def coverages(
    tx: Connection, chain: int, addresses: Sequence[str], *, as_of: int
) -> dict[str, Coverage]:
    """Return the indexed part of the 30 days before `as_of` by address; addresses that are not
    indexed are left out.
    """
    cursor = chains.cursor(tx, chain)
    if cursor is None:
        return {}
    return {
        row.address: Coverage(
            indexed_ms=_overlap(row.low_at, cursor.at, as_of=as_of),
            to_block=cursor.number,
            to_at=cursor.at,
        )
        for row in rows.with_any(tx, _LOWS, addresses, chain=chain)
    }


def payers(
    tx: Connection, chain: int, address: str, *, as_of: int, most: int | None = None
) -> tuple[tuple[str, Flow], ...]:
    """Return the payers of an address in the 30 days before `as_of` with their flows, largest
    first, at most `most`.
    """
    wallet = address_bytes(address)
    flows = _flows(tx, chain, (wallet,), as_of=as_of).get(wallet, {})
    paying = ((other, flow) for other, flow in flows.items() if flow.transfers)
    ordered = sorted(paying, key=lambda row: (-row[1].paid, row[0]))
    return tuple((address_text(other), flow) for other, flow in ordered[:most])


def demands_of(
    tx: Connection, chain: int, addresses: Sequence[str], *, as_of: int
) -> dict[str, DemandEvidence]:
    """Return the demand of addresses as last measured with the whole chain, by address.

    Addresses are hexadecimal with 0x. Before the first measurement, the demand is derived from the
    address's own transfers, without proven payers.
    """
    wallets = {address_bytes(address): address for address in addresses}
    stored = DEMANDS.load(tx, chain, wallets)
    demands = {wallets[wallet]: demand for wallet, demand in stored.items()}
    others = [wallet for wallet, address in wallets.items() if address not in demands]
    demands |= dict.fromkeys((wallets[wallet] for wallet in others), DemandEvidence())
    flows = _flows(tx, chain, others, as_of=as_of) if others else {}
    measured = measure_demand(flows.items(), sellers={}, anchors={}, at_anchors=())
    return demands | {wallets[wallet]: demand for wallet, demand in measured.demands}


def measure_chain(
    tx: Connection, chain: int, *, as_of: int, weighed: Collection[bytes] = ()
) -> Measurement:
    """Measure the demand of every wallet with transfers in the window, using the stored anchors,
    and the weights of the payers in `weighed`.
    """
    anchors = anchor_owners(tx, chain)
    return measure_demand(
        _wallets(tx, chain, as_of=as_of),
        sellers=wallet_rows.sellers(tx, chain, as_of=as_of) | anchors,
        anchors=anchors,
        at_anchors=_flows(tx, chain, list(anchors), as_of=as_of).items(),
        owners=[anchor.owner for anchor in anchors_of(tx)],
        weighed=weighed,
    )


def save_anchors(tx: Connection, owners: Mapping[str, Sequence[str]], *, now: int) -> None:
    """Store the anchors of the configuration: addresses by owner.

    An owner with unchanged addresses keeps its date.
    """
    known = {(anchor.owner, anchor.addresses): anchor.since for anchor in anchors_of(tx)}
    anchors = tuple(
        Anchor(owner=owner, since=known.get((owner, addresses), now), addresses=addresses)
        for owner, addresses in sorted(
            (owner, tuple(sorted(set(of_owner)))) for owner, of_owner in owners.items()
        )
    )
    if anchors != anchors_of(tx):
        meta.put(tx, _ANCHORS_KEY, _ANCHORS.dump_json(anchors).decode())


def anchors_of(tx: Connection) -> tuple[Anchor, ...]:
    """Return the anchors by which demand is measured."""
    text = meta.get(tx, _ANCHORS_KEY)
    return () if text is None else _ANCHORS.validate_json(text)


def anchor_owners(tx: Connection, chain: int) -> dict[bytes, str]:
    """Return the owner of each anchor address that counts on a chain."""
    return {
        address_bytes(address): anchor.owner
        for anchor in anchors_of(tx)
        for address in addresses_on(chain, anchor.addresses)
    }


def _wallets(
    tx: Connection, chain: int, *, as_of: int
) -> Iterator[tuple[bytes, dict[bytes, Flow]]]:
    """Yield every wallet with its flows by counterparty, one wallet in memory at a time."""
    query = _window(tx, chain, as_of=as_of)
    result = tx.execute(query, execution_options={"yield_per": _ROWS})
    for wallet, group in groupby(result, key=itemgetter(0)):
        yield wallet, _by_counterparty(group)


def _flows(
    tx: Connection, chain: int, wallets: Sequence[bytes], *, as_of: int
) -> dict[bytes, dict[bytes, Flow]]:
    """Return the flows of some wallets by wallet and counterparty."""
    edges = _edges(tx, chain, as_of=as_of)
    days = list(rows.with_any(tx, _OF_WALLETS, wallets, **edges))
    whole = [row for row in days if edges["first"] <= row.day <= edges["last"]]
    # Single transfers are read only for wallets with transfers on partial days, which are few.
    cut = {row.wallet for row in days if not edges["first"] <= row.day <= edges["last"]}
    for single in _SINGLE_OF_WALLETS:
        whole += rows.with_any(tx, single, cut, **edges)
    of_wallets = rows.group((row.wallet, row) for row in whole)
    return {wallet: _by_counterparty(of_wallet) for wallet, of_wallet in of_wallets.items()}


def _by_counterparty(window_rows: Iterable[Any]) -> dict[bytes, Flow]:
    """Return the flows of one wallet by counterparty."""
    flows: dict[bytes, Flow] = {}
    for _, other, count, paid, returned, _ in window_rows:
        before = flows.get(other, _NO_FLOW)
        flows[other] = Flow(
            before.transfers + count, before.paid + paid, before.returned + returned
        )
    return flows


def _window(tx: Connection, chain: int, *, as_of: int) -> sa.CompoundSelect[Any]:
    """Select (wallet, other, transfers, paid, returned, day) with `as_of - 30 days < at <= as_of`,
    ordered by wallet.
    """
    edges = _edges(tx, chain, as_of=as_of)
    # No index orders the transfers of all wallets by time, but the key orders them by block.
    parts = [
        _single(begin, end).where(
            transfer.c.number >= _after(tx, chain, edges[begin]),
            transfer.c.number < _after(tx, chain, edges[end]),
        )
        for begin, end in _EDGES
    ]
    return sa.union_all(_WHOLE, *parts).order_by("wallet").params(edges)


def _edges(tx: Connection, chain: int, *, as_of: int) -> dict[str, int]:
    """Return the parameters of a chain's window: its whole days and the limits of its partial
    days.
    """
    cursor = chains.cursor(tx, chain)
    begin = as_of - WINDOW_MS
    first, last = begin // DAY_MS + 1, day_of(as_of)
    is_cut = cursor is not None and cursor.at > as_of
    return {
        "chain": chain,
        "first": first,
        "last": last - 1 if is_cut else last,
        "begin": begin,
        "begun": first * DAY_MS - 1,
        "end": last * DAY_MS - 1 if is_cut else as_of,
        "ended": as_of,
    }


def _single(after: str, until: str) -> sa.Select[Any]:
    """Select the transfers with `after < at <= until` (parameter names), each as a row of sums."""
    nothing = sa.literal(0, Amount)
    return sa.select(
        transfer.c.wallet,
        transfer.c.other,
        sa.case((transfer.c.incoming, 1), else_=0).label("transfers"),
        sa.case((transfer.c.incoming, transfer.c.value), else_=nothing).label("paid"),
        sa.case((transfer.c.incoming, nothing), else_=transfer.c.value).label("returned"),
        (transfer.c.at // DAY_MS).label("day"),
    ).where(
        transfer.c.chain == sa.bindparam("chain"),
        transfer.c.at > sa.bindparam(after),
        transfer.c.at <= sa.bindparam(until),
    )


_EDGES: Final = (("begin", "begun"), ("end", "ended"))
_FIRST: Final = sa.bindparam("first", type_=sa.Integer)
_LAST: Final = sa.bindparam("last", type_=sa.Integer)
_OF_DAYS: Final = sa.select(
    *transfer_day.c["wallet", "other", "transfers", "paid", "returned", "day"]
).where(transfer_day.c.chain == sa.bindparam("chain"))
_WHOLE: Final = _OF_DAYS.where(transfer_day.c.day.between(_FIRST, _LAST))
_OF_WALLETS: Final = _OF_DAYS.where(
    rows.any_of(transfer_day.c.wallet), transfer_day.c.day.between(_FIRST - 1, _LAST + 1)
)
_SINGLE_OF_WALLETS: Final = tuple(
    _single(*edge).where(rows.any_of(transfer.c.wallet)) for edge in _EDGES
)
_LOWS: Final = sa.select(*chain_wallet.c["address", "low_at"]).where(
    chain_wallet.c.chain == sa.bindparam("chain"), rows.any_of(chain_wallet.c.address)
)


def _after(tx: Connection, chain: int, at: int) -> int:
    """Return the first block number from which all transfers are later than a time."""
    number, of_chain = transfer.c.number, transfer.c.chain == chain
    limits = (sa.select(limit(number)).where(of_chain) for limit in (sa.func.min, sa.func.max))
    low, last = (tx.execute(query).scalar_one() or 0 for query in limits)
    # Binary search over block numbers, because transfers have no index by time.
    while low <= last:
        middle = (low + last) // 2
        query = sa.select(number, transfer.c.at).where(of_chain, number.between(middle, last))
        first = tx.execute(query.order_by(number).limit(1)).one_or_none()
        if first is None or first.at > at:
            last = middle - 1
        else:
            low = first.number + 1
    return int(low)


def count_covered(tx: Connection, chain: int, *, as_of: int) -> tuple[int, int]:
    """Return the number of wallets, and the indexed share of their windows in permille."""
    cursor = chains.cursor(tx, chain)
    low_at = chain_wallet.c.low_at
    query = sa.select(low_at, sa.func.count()).where(chain_wallet.c.chain == chain)
    count = covered = 0
    for since, wallets in tx.execute(query.group_by(low_at)):
        count += wallets
        covered += wallets * (0 if cursor is None else _overlap(since, cursor.at, as_of=as_of))
    return count, covered * 1_000 // (count * WINDOW_MS) if count else 0


def _overlap(first: int, last: int, *, as_of: int) -> int:
    return max(0, min(last, as_of) - max(first, as_of - WINDOW_MS))
