"""Followed addresses of Solana: fee payers that offers name, wallets, and their token accounts.

The transactions of an address are listed newest first, so that a scan goes from its `top` down to
`until`, the newest transaction of the last complete scan; `before` is the position of a running
scan. A row moves in the transaction that writes the transfers found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import is_solana_key, network_of
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.chain.cursors import CursorOvertakenError
from tollgauge.store.chain.wallets import chain_wallet, offered_address

FEE_PAYERS_MAX: Final = 500  # per network; those that most endpoints name come first

_SCAN: Final = ("chain", "owner", "address", "until", "before", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A followed address.

    Attributes:
        owner: Empty for a fee payer; the wallet of a token account. The wallet's own row has the
            time at which its token accounts were listed. Part of the key: an offer may name a
            wallet as fee payer, which must not end the scans of the wallet.
        until, until_slot: The newest transaction of the last complete scan, and its slot.
        top, top_slot, before: The newest transaction of a running scan, its slot, and the scan's
            position.
        began_at: When the running scan began (ms UTC, time of the chain).
        at, low_at: The time up to which complete scans read the address, and from which; 0 before
            the first.
    """

    chain: int
    owner: str
    address: str
    until: str = ""
    until_slot: int = 0
    top: str = ""
    top_slot: int = 0
    before: str = ""
    began_at: int = 0
    at: int = 0
    low_at: int = 0


followed_address = sa.Table(
    "followed_address",
    metadata,
    *columns_of(Followed, key=("chain", "owner", "address")),
    sqlite_with_rowid=False,
)


def follow_new(tx: Connection, chain: int) -> None:
    """Follow new wallets and new fee payers of offers.

    Wallets whose offers name a new fee payer are scanned from the beginning, because payments with
    it did not count before.
    """
    offers = offered_address.c
    of_network = offers.network == network_of(chain)
    known = {one.address for one in list_fee_payers(tx, chain)}
    named = (
        sa.select(offers.fee_payer)
        .where(of_network, offers.fee_payer != "", offers.fee_payer.not_in(known))
        .group_by(offers.fee_payer)
        .order_by(sa.func.count().desc(), offers.fee_payer)
        .limit(FEE_PAYERS_MAX - len(known))
    )
    new = [one for one in tx.execute(named).scalars() if is_solana_key(one)]
    followed = sa.exists().where(
        followed_address.c.chain == chain,
        followed_address.c.owner == chain_wallet.c.address,
        followed_address.c.address == chain_wallet.c.address,
    )
    wallets = sa.select(chain_wallet.c.address).where(chain_wallet.c.chain == chain, ~followed)
    added = [Followed(chain=chain, owner="", address=one) for one in new]
    added += [
        Followed(chain=chain, owner=one, address=one) for one in tx.execute(wallets).scalars()
    ]
    follow(tx, added)
    if new:
        owners = sa.select(offers.pay_to).where(of_network, offers.fee_payer.in_(new))
        fresh = {"until": "", "until_slot": 0, "top": "", "top_slot": 0, "before": "", "at": 0}
        tx.execute(
            followed_address.update()
            .where(followed_address.c.chain == chain, followed_address.c.owner.in_(owners))
            .values(fresh)
        )


def list_fee_payers(tx: Connection, chain: int) -> list[Followed]:
    """Return the followed fee payers of a chain."""
    return list_accounts(tx, chain, "")


def list_accounts(tx: Connection, chain: int, owner: str) -> list[Followed]:
    """Return the followed token accounts of a wallet."""
    query = sa.select(followed_address).where(
        followed_address.c.chain == chain,
        followed_address.c.owner == owner,
        followed_address.c.address != owner,
    )
    return [rows.from_columns(Followed, row) for row in tx.execute(query)]


def list_due(tx: Connection, chain: int, *, before: int, limit: int) -> list[Followed]:
    """Return wallets and token accounts read before a time (ms UTC), the longest ago first."""
    query = sa.select(followed_address).where(
        followed_address.c.chain == chain,
        followed_address.c.owner != "",
        followed_address.c.at <= before,
    )
    ordered = query.order_by(followed_address.c.at, followed_address.c.address).limit(limit)
    return [rows.from_columns(Followed, row) for row in tx.execute(ordered)]


def follow(tx: Connection, added: list[Followed]) -> None:
    """Follow addresses that are not followed yet."""
    rows.add_missing(tx, followed_address, [rows.to_columns(one) for one in added])


def move(tx: Connection, before: Followed, after: Followed) -> None:
    """Replace a row by compare-and-swap.

    Raises:
        CursorOvertakenError: Another worker moved it first.
    """
    unchanged = [followed_address.c[name] == one for name, one in rows.to_columns(before).items()]
    change = followed_address.update().where(*unchanged).values(rows.to_columns(after))
    if tx.execute(change).rowcount != 1:
        raise CursorOvertakenError


def move_idle(tx: Connection, idle: Sequence[Followed], *, at: int) -> None:
    """Record that addresses without a running scan had no new transactions up to a time (ms UTC).

    Rows that have moved since are left as they are.
    """
    columns = followed_address.c
    is_same = [columns[name] == sa.bindparam(f"{name}_") for name in _SCAN]
    change = followed_address.update().where(*is_same, columns.at < at).values(at=at, began_at=at)
    if idle:
        tx.execute(change, [{f"{name}_": getattr(one, name) for name in _SCAN} for one in idle])
