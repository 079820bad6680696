"""Wallets: addresses that endpoints are paid to, each with the first block indexed for it.

A wallet is added when an endpoint first names it, or as an anchor of demand. Functions that move a
`low` are called by store/chain/cursors, in the transaction that changes the cursor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import address_bytes, address_text, is_address, network_of
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files

chain_wallet = sa.Table(
    "chain_wallet",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("address", sa.Text, primary_key=True),
    # The site of the first endpoint with this payTo, to which its demand belongs; empty for
    # anchors.
    sa.Column("site", sa.Text, nullable=False),
    # The first block indexed for it, and that block's time (ms).
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("low_at", sa.BigInteger, nullable=False),
    # Whether back-filling is complete.
    sa.Column("done", sa.Boolean, nullable=False),
    # Whether its settlements changed since `marked_at`, when its endpoints were last marked dirty.
    sa.Column("touched", sa.Boolean, nullable=False),
    sa.Column("marked_at", sa.BigInteger, nullable=False),
    sa.Index("ix_chain_wallet_low", "chain", "done", "low"),
    sa.Index("ix_chain_wallet_touched", "chain", "touched"),
    sqlite_with_rowid=False,
)

offered_address = sa.Table(
    "offered_address",
    metadata,
    # The addresses of endpoints whose latest envelope names several, or a fee payer. The address
    # of the quote of every endpoint is in its own row.
    sa.Column("network", sa.Text, primary_key=True),
    sa.Column("pay_to", sa.Text, primary_key=True),
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    # The account that pays the fee of a payment on Solana; empty if none is named.
    sa.Column("fee_payer", sa.Text, nullable=False),
    sa.Index("ix_offered_address_endpoint", "endpoint_id"),
    sqlite_with_rowid=False,
)

_OF_CHAIN: Final = sa.and_(
    chain_wallet.c.chain == sa.bindparam("chain"), rows.any_of(chain_wallet.c.address)
)
_KNOWN: Final = sa.select(chain_wallet.c.address).where(_OF_CHAIN)
_SITES: Final = sa.select(chain_wallet.c.address, chain_wallet.c.site).where(
    _OF_CHAIN, chain_wallet.c.site != ""
)
_QUOTING: Final = sa.select(*endpoint_table.c["quote_pay_to", "site", "first_seen", "id"]).where(
    endpoint_table.c.quote_network == sa.bindparam("network"),
    rows.any_of(endpoint_table.c.quote_pay_to),
)
_OFFERING: Final = (
    sa.select(offered_address.c.pay_to, *endpoint_table.c["site", "first_seen", "id"])
    .join_from(offered_address, endpoint_table)
    .where(
        offered_address.c.network == sa.bindparam("network"),
        rows.any_of(offered_address.c.pay_to),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Wallets to back-fill together from block `low` down to `floor`, where the next wallets
    begin.
    """

    low: int
    floor: int
    wallets: frozenset[bytes]


def new_addresses(tx: Connection, chain: int, anchors: Collection[str] = ()) -> tuple[str, ...]:
    """Return payTo addresses of endpoints on this chain, and anchors, that are not wallets yet."""
    is_wallet = sa.exists().where(
        chain_wallet.c.chain == chain, chain_wallet.c.address == endpoint_table.c.quote_pay_to
    )
    query = (
        sa.select(endpoint_table.c.quote_pay_to)
        .distinct()
        .where(endpoint_table.c.quote_network == network_of(chain), ~is_wallet)
        .order_by(endpoint_table.c.quote_pay_to)
    )
    offered = sa.select(offered_address.c.pay_to).where(
        offered_address.c.network == network_of(chain)
    )
    named = {*tx.execute(query).scalars(), *tx.execute(offered.distinct()).scalars(), *anchors}
    addresses = [one for one in named if is_address(one, chain=chain)]
    indexed = {row.address for row in rows.with_any(tx, _KNOWN, addresses, chain=chain)}
    return tuple(sorted(set(addresses) - indexed))


def save_offered(tx: Connection, by_endpoint: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
    """Replace the networks and addresses that endpoints offer, with fee payers, by endpoint ID."""
    for ids in rows.chunks(by_endpoint):
        tx.execute(offered_address.delete().where(offered_address.c.endpoint_id.in_(ids)))
    offered = [
        {"network": network, "pay_to": pay_to, "endpoint_id": id_, "fee_payer": fee_payer}
        for id_, pairs in by_endpoint.items()
        for (network, pay_to), fee_payer in pairs.items()
    ]
    if offered:
        tx.execute(offered_address.insert(), offered)


def add(tx: Connection, chain: int, addresses: Iterable[str], *, after: int, at: int) -> None:
    """Add wallets, indexed after block `after` of time `at` (ms UTC)."""
    values = {"chain": chain, "low": after + 1, "low_at": at}
    values |= {"done": False, "touched": False, "marked_at": 0}
    named = list(addresses)
    sites = _first_sites(tx, chain, named)
    added = [values | {"address": one, "site": sites.get(one, "")} for one in named]
    rows.add_missing(tx, chain_wallet, added)


def _first_sites(tx: Connection, chain: int, addresses: Collection[str]) -> dict[str, str]:
    """Return, for each address, the site of the first known endpoint that uses it now."""
    network = network_of(chain)
    naming = [*rows.with_any(tx, _QUOTING, addresses, network=network)]
    naming += rows.with_any(tx, _OFFERING, addresses, network=network)
    newest_first = sorted(naming, key=lambda row: (row.first_seen, row.id), reverse=True)
    return {row[0]: row.site for row in newest_first}


def sellers(tx: Connection, chain: int, *, as_of: int) -> dict[bytes, str]:
    """Return the seller of each wallet of a chain: its site, or itself if sites share it.

    A wallet with a list of sites that is valid at `as_of` (ms UTC) counts as a separate seller, so
    that the sum of a payer's weights does not depend on the sites that share it.
    """
    query = sa.select(chain_wallet.c.address, chain_wallet.c.site)
    found = tx.execute(query.where(chain_wallet.c.chain == chain, chain_wallet.c.site != ""))
    shared = seller_files.site_lists(tx, network_of(chain), as_of=as_of)
    return {
        address_bytes(address): address if address in shared else site for address, site in found
    }


def sites_of(tx: Connection, chain: int, addresses: Collection[str]) -> dict[str, str]:
    """Return the sites of addresses; unknown addresses are left out."""
    return {row.address: row.site for row in rows.with_any(tx, _SITES, addresses, chain=chain)}


def lows(tx: Connection, chain: int) -> dict[bytes, int]:
    """Return all wallets of a chain with the first block indexed for each."""
    query = sa.select(chain_wallet.c.address, chain_wallet.c.low)
    addresses = tx.execute(query.where(chain_wallet.c.chain == chain))
    return {address_bytes(address): low for address, low in addresses}


def backlog(tx: Connection, chain: int, *, limit: int) -> Backlog | None:
    """Return the wallets to back-fill next, those nearest to the cursor, or None."""
    unfinished = (chain_wallet.c.chain == chain, chain_wallet.c.done.is_(False))
    low = rows.highest(tx, chain_wallet.c.low, *unfinished)
    if low is None:
        return None
    below = rows.highest(tx, chain_wallet.c.low, *unfinished, chain_wallet.c.low < low)
    query = (
        sa.select(chain_wallet.c.address)
        .where(*unfinished, chain_wallet.c.low == low)
        .order_by(chain_wallet.c.address)
    )
    addresses = tx.execute(query.limit(limit)).scalars()
    return Backlog(
        low=low,
        floor=below or 0,
        wallets=frozenset(address_bytes(address) for address in addresses),
    )


def fill(
    tx: Connection, chain: int, missing: Backlog, *, low: int, low_at: int, done: bool
) -> bool:
    """Move the `low` of wallets down to a block of time `low_at` (ms UTC).

    Returns False if another worker moved one of them in the meantime.
    """
    values = {"low": low, "low_at": low_at, "done": done} | ({"touched": True} if done else {})
    moved = 0
    for chunk in rows.chunks(map(address_text, sorted(missing.wallets))):
        change = chain_wallet.update().where(
            chain_wallet.c.chain == chain,
            chain_wallet.c.address.in_(chunk),
            chain_wallet.c.low == missing.low,
        )
        moved += tx.execute(change.values(values)).rowcount
    return moved == len(missing.wallets)


def cover(tx: Connection, chain: int, address: str, *, low_at: int) -> None:
    """Record that a wallet is indexed from `low_at` (ms UTC) on, unless it already is from an
    earlier time.
    """
    tx.execute(
        chain_wallet.update()
        .where(chain_wallet.c.chain == chain, chain_wallet.c.address == address)
        .values(low_at=rows.least(chain_wallet.c.low_at, low_at), done=True, touched=True)
    )


def touch(tx: Connection, chain: int, changed: Iterable[bytes]) -> None:
    """Record that the settlements of wallets changed."""
    for chunk in rows.chunks(map(address_text, sorted(changed))):
        tx.execute(
            chain_wallet.update()
            .where(
                chain_wallet.c.chain == chain,
                chain_wallet.c.address.in_(chunk),
                chain_wallet.c.touched.is_(False),
            )
            .values(touched=True)
        )


def mark_dirty(tx: Connection, chain: int, *, now: int, every_ms: int) -> int:
    """Mark the endpoints of touched wallets as dirty; return their number.

    The endpoints of a wallet are marked at most once per `every_ms`, because thousands may share
    it.
    """
    query = sa.select(chain_wallet.c.address).where(
        chain_wallet.c.chain == chain,
        chain_wallet.c.touched.is_(True),
        chain_wallet.c.marked_at <= now - every_ms,
    )
    marked = 0
    for chunk in rows.chunks(tx.execute(query).scalars()):
        paid = sa.select(endpoint_table.c.id).where(
            endpoint_table.c.quote_pay_to.in_(chunk),
            endpoint_table.c.quote_network == network_of(chain),
        )
        offered = sa.select(offered_address.c.endpoint_id).where(
            offered_address.c.pay_to.in_(chunk), offered_address.c.network == network_of(chain)
        )
        ids = list({*tx.execute(paid).scalars(), *tx.execute(offered).scalars()})
        endpoints.mark_dirty(tx, ids, now=now)
        touched = chain_wallet.update().where(
            chain_wallet.c.chain == chain, chain_wallet.c.address.in_(chunk)
        )
        tx.execute(touched.values(touched=False, marked_at=now))
        marked += len(ids)
    return marked
