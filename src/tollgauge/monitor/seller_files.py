"""Sellers' files: when a host is asked for its file, what is stored of it, and whether a change of
payTo was announced (core/directory/seller_file).

Rules (docs/seller-file.md):
- a host is asked once a day (each time up to a tenth of a day later), and soon after a probe saw
  its payTo change; under its lease and with its pause, as for a probe;
- an announcement is stored once its signature was found good, and only if it names an instant that
  is still to come: what we read afterwards announces nothing;
- it covers a change that each source sees of each endpoint once, so it cannot be used again after
  the payTo went back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.directory.seller_file import VARIES, Announcement, SellerFile
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import Advertised
from tollgauge.store.endpoints import listings
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.schedule import budgets, hosts

EVERY_MS: Final = DAY_MS
SOONEST_MS: Final = HOUR_MS
"""How long after it was asked last a host is asked again because its payTo changed."""
BUSY_MS: Final = MINUTE_MS
"""How long to wait for a host that is being probed, or rests."""
_NEW: Final = 1_000
"""How many hosts get a row at once."""


def claim(tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int) -> tuple[str, ...]:
    """Hosts whose files are due, leased to `owner`. Each takes one probe of the common budget.
    Hosts without a row get one first, due within a day.
    """
    new = seller_files.unknown(tx, limit=_NEW)
    seller_files.add(tx, ((host, now + _jitter(host) % EVERY_MS) for host in new))
    room = budgets.left(tx, now=now, most=limit)
    due = seller_files.due(tx, now=now, limit=room) if room else ()
    free = [
        host
        for host in sorted(due)
        if hosts.claim(tx, host, owner=owner, now=now, lease_ms=lease_ms)
    ]
    budgets.spend(tx, now=now, probes=len(free), most=limit)
    seller_files.put_off(tx, free, until=now + lease_ms)
    seller_files.put_off(tx, sorted({*due} - {*free}), until=now + BUSY_MS)
    return tuple(free)


def record(
    tx: Connection,
    host: str,
    file: SellerFile | None,
    announced: Iterable[Announcement] = (),
    *,
    now: int,
    gone: bool = False,
) -> None:
    """Store a host's file and the announcements in it whose signatures are good. Without a file,
    `gone` says that there is none, else it could not be read, and what it said before stays.
    """
    next_due = now + EVERY_MS + _jitter(f"{host}:{now}") % (EVERY_MS // 10)
    seller_files.save(tx, host, file, now=now, next_due=next_due, gone=gone)
    ahead = (item for item in announced if item.not_before * SECOND_MS >= now)
    seller_files.announce(tx, ahead, now=now)


def is_announced(
    tx: Connection,
    endpoint: Endpoint,
    before: Advertised | None,
    after: Advertised | None,
    *,
    at: int,
    source: str,
) -> bool:
    """Whether a change of an endpoint's payTo that a source saw at an instant (ms UTC) was
    announced ahead. False where the terms have one payTo, or none.
    """
    if before is None or after is None or before.pay_to == after.pay_to:
        return False
    if before.network != after.network:
        return False
    change = {"before": before.pay_to, "after": after.pay_to}
    known = seller_files.announcements(tx, endpoint.host, network=after.network, **change)
    return is_variation_announced(tx, endpoint, before, after, at=at) or any(
        item.covers(at)
        and not listings.has_changed(
            tx, endpoint.id, source=source, since=item.not_before * SECOND_MS, **change
        )
        for item in known
    )


def is_variation_announced(
    tx: Connection, endpoint: Endpoint, before: Advertised, after: Advertised, *, at: int
) -> bool:
    """Whether the payTo before a change announced that each offer will name another one."""
    known = seller_files.announcements(
        tx, endpoint.host, network=after.network, before=before.pay_to, after=VARIES
    )
    return any(item.covers(at) for item in known)


def ask_soon(tx: Connection, host: str, *, now: int) -> None:
    """Ask a host whose payTo changed for its file soon."""
    seller_files.bring_forward(tx, host, now=now, pause_ms=SOONEST_MS)


def _jitter(text: str) -> int:
    """A large number that a text picks."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
