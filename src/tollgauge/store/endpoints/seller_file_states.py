"""Rows of sellers' files, and of announced payTo changes and lists of sites with valid signatures.

monitor/seller_files decides when a file is fetched and what an announcement means for a change;
core/directory/seller_file parses the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.directory.seller_file import Announcement, SellerFile, SiteList
from tollgauge.core.watch.watch_rules import ANNOUNCEMENTS_MS
from tollgauge.db.codec import Texts, columns_of
from tollgauge.db.schema import ForeignText, metadata
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows

seller_file = sa.Table(
    "seller_file",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("next_due", sa.BigInteger, nullable=False),
    # Time of the last fetch and of the last file; NULL before.
    sa.Column("asked_at", sa.BigInteger),
    sa.Column("read_at", sa.BigInteger),
    sa.Column("contact", ForeignText, nullable=False, server_default=""),
    sa.Column("statement", ForeignText, nullable=False, server_default=""),
    sa.Column("opt_out", sa.Boolean, nullable=False, server_default=sa.false()),
    # The file's problems: this service's messages.
    sa.Column("problems", Texts, nullable=False, server_default="[]"),
    sa.Index("ix_seller_file_next_due", "next_due"),
    sqlite_with_rowid=False,
)

announcement = sa.Table(
    "payto_announcement",
    metadata,
    *columns_of(Announcement, key=("host", "network", "before", "after", "not_before")),
    # When it was first read, which is before `not_before`.
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Index("ix_payto_announcement_not_before", "not_before"),
    sqlite_with_rowid=False,
)

site_list = sa.Table(
    "payto_site_list",
    metadata,
    *columns_of(SiteList, key=("network", "pay_to")),
    # The host that published it first.
    sa.Column("host", sa.Text, nullable=False),
    # When it was first read.
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Index("ix_payto_site_list_host", "host"),
    sa.Index("ix_payto_site_list_expires", "expires"),
    sqlite_with_rowid=False,
)

_LISTS: Final = sa.select(site_list).order_by(site_list.c.network, site_list.c.pay_to)
_OF_NETWORK: Final = _LISTS.where(site_list.c.network == sa.bindparam("network"))
_OF_PAY_TOS: Final = _OF_NETWORK.where(rows.any_of(site_list.c.pay_to))
_CONTENT: Final = ("contact", "statement", "opt_out", "problems")
_EMPTY: Final = {"contact": "", "statement": "", "opt_out": False, "problems": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSellerFile:
    """A host's file as of `read_at` (ms UTC), its announced changes of payTo, and the lists of
    sites that it published first. `problems` are this service's messages; the other texts are the
    seller's.
    """

    host: str
    read_at: int
    contact: str
    statement: str
    opt_out: bool
    problems: tuple[str, ...]
    announcements: tuple[Announcement, ...] = ()
    site_lists: tuple[SiteList, ...] = ()


def find_unknown(tx: Connection, *, limit: int) -> tuple[str, ...]:
    """Return hosts without a row, by name."""
    query = (
        sa.select(host_table.c.host)
        .where(~sa.exists().where(seller_file.c.host == host_table.c.host))
        .order_by(host_table.c.host)
        .limit(limit)
    )
    return tuple(tx.execute(query).scalars())


def add(tx: Connection, due: Iterable[tuple[str, int]]) -> None:
    """Add rows of hosts with their due times (ms UTC); existing rows are not changed."""
    rows.add_missing(tx, seller_file, [{"host": host, "next_due": at} for host, at in due])


def due(tx: Connection, *, now: int, limit: int) -> tuple[str, ...]:
    """Lock and return due hosts, longest overdue first."""
    query = (
        sa.select(seller_file.c.host)
        .where(seller_file.c.next_due <= now)
        .order_by(seller_file.c.next_due, seller_file.c.host)
        .limit(limit)
        # SKIP LOCKED: another worker may be claiming the same hosts; it gets different ones.
        .with_for_update(skip_locked=True)
    )
    return tuple(tx.execute(query).scalars())


def postpone(tx: Connection, hosts: Sequence[str], *, until: int) -> None:
    """Make hosts due again at a time (ms UTC)."""
    for chunk in rows.chunks(hosts):
        tx.execute(seller_file.update().where(seller_file.c.host.in_(chunk)).values(next_due=until))


def bring_forward(tx: Connection, host: str, *, now: int, pause_ms: int) -> None:
    """Make a host due as soon as possible, at least `pause_ms` after its last fetch."""
    earliest = rows.greatest(seller_file.c.asked_at + pause_ms, now)
    tx.execute(
        seller_file.update()
        .where(seller_file.c.host == host, seller_file.c.next_due > now)
        .values(next_due=rows.least(seller_file.c.next_due, earliest))
    )


def save(
    tx: Connection, host: str, file: SellerFile | None, *, now: int, next_due: int, gone: bool
) -> None:
    """Store that a host's file was fetched now, and the file.

    Without a file the stored one is kept, unless it is `gone`. `next_due` is the time of the next
    fetch (ms UTC).
    """
    columns: dict[str, object] = {"host": host, "asked_at": now, "next_due": next_due}
    if file is not None:
        columns |= {"read_at": now} | {name: getattr(file, name) for name in _CONTENT}
    elif gone:
        columns |= {"read_at": None, **_EMPTY}
    rows.put(tx, seller_file, [columns])


def announce(tx: Connection, announcements: Iterable[Announcement], *, now: int) -> None:
    """Store announcements with valid signatures. An existing one keeps its `seen_at`."""
    columns = [rows.to_columns(item, seen_at=now) for item in announcements]
    rows.add_missing(tx, announcement, columns)


def get(tx: Connection, host: str) -> StoredSellerFile | None:
    """Return a host's file, or None."""
    was_read = (seller_file.c.host == host, seller_file.c.read_at.is_not(None))
    row = tx.execute(sa.select(seller_file).where(*was_read)).first()
    if row is None:
        return None
    announced = tx.execute(
        sa.select(announcement)
        .where(announcement.c.host == host)
        .order_by(announcement.c.not_before, announcement.c.after)
    )
    return rows.from_columns(
        StoredSellerFile,
        row,
        announcements=tuple(rows.from_columns(Announcement, item) for item in announced),
        site_lists=tuple(
            rows.from_columns(SiteList, item)
            for item in tx.execute(_LISTS.where(site_list.c.host == host))
        ),
    )


def save_site_list(tx: Connection, host: str, item: SiteList, *, now: int) -> bool:
    """Store a list with a valid signature; return whether it is newer than the stored one."""
    key = (site_list.c.network == item.network, site_list.c.pay_to == item.pay_to)
    if rows.exist(tx, *key, site_list.c.issued >= item.issued):
        return False
    columns = rows.to_columns(item, host=host, seen_at=now)
    rows.put(tx, site_list, [columns])
    return True


def site_lists(
    tx: Connection, network: str, pay_tos: Iterable[str] | None = None, *, as_of: int
) -> dict[str, SiteList]:
    """Return the valid lists of payTo addresses on a network, by default of all of them."""
    found = (
        tx.execute(_OF_NETWORK, {"network": network})
        if pay_tos is None
        else rows.with_any(tx, _OF_PAY_TOS, pay_tos, network=network)
    )
    lists = (rows.from_columns(SiteList, row) for row in found)
    return {item.pay_to: item for item in lists if item.is_valid(as_of)}


def announcements(
    tx: Connection, host: str, *, network: str, before: str, after: str
) -> tuple[Announcement, ...]:
    """Return a host's announcements of one change of payTo."""
    query = sa.select(announcement).where(
        announcement.c.host == host,
        announcement.c.network == network,
        announcement.c.before == before,
        announcement.c.after == after,
    )
    return tuple(rows.from_columns(Announcement, row) for row in tx.execute(query))


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` old announcements and as many expired lists; return their number."""
    at = (now - ANNOUNCEMENTS_MS) // SECOND_MS
    lists = rows.delete_batch(tx, site_list, site_list.c.expires < at, limit=limit)
    return lists + rows.delete_batch(tx, announcement, announcement.c.not_before < at, limit=limit)
