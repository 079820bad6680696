"""Fetch schedule of sellers' files, and announced changes of payTo (docs/seller-file.md).

A host's file is fetched daily, and soon after a probe detected a change of its payTo. An
announcement is stored only if its signature is valid and its start is in the future: a file that is
read after a change cannot announce it. Each source can use an announcement once per endpoint, so it
does not cover a second change after the payTo changed back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.directory.seller_file import VARIES, Announcement, SellerFile, SiteList
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import Advertised
from tollgauge.store.endpoints import endpoints, listings, rated_endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.schedule import claims, hosts

EVERY_MS: Final = DAY_MS
MIN_PAUSE_MS: Final = HOUR_MS  # between two fetches from a host whose payTo changes
BUSY_MS: Final = MINUTE_MS  # retry delay if the host is being probed or is pausing
RESCORED_MAX: Final = 1_000  # endpoints rescored because of a new list; others within a day
_NEW_HOSTS_BATCH: Final = 1_000


def claim(tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int) -> tuple[str, ...]:
    """Lease hosts whose files are due to `owner` and return them.

    A fetch is charged to the probe budget like a probe, and follows the host's lease and pause.
    Hosts without a row get one first, due within a day.
    """
    new = seller_files.find_unknown(tx, limit=_NEW_HOSTS_BATCH)
    seller_files.add(tx, ((host, now + _jitter(host) % EVERY_MS) for host in new))
    room = claims.lock_remaining_budget(tx, now=now, most=limit)
    due = seller_files.due(tx, now=now, limit=room) if room else ()
    free = [
        host
        for host in sorted(due)
        if hosts.claim(tx, host, owner=owner, now=now, lease_ms=lease_ms)
    ]
    claims.spend_budget(tx, now=now, probes=len(free), most=limit)
    # If the worker dies, the file is due again once the lease has expired.
    seller_files.postpone(tx, free, until=now + lease_ms)
    seller_files.postpone(tx, sorted({*due} - {*free}), until=now + BUSY_MS)
    return tuple(free)


def record(
    tx: Connection,
    host: str,
    file: SellerFile | None,
    announced: Iterable[Announcement] = (),
    lists: Iterable[SiteList] = (),
    *,
    now: int,
    gone: bool = False,
) -> None:
    """Store a host's file, and its announcements and lists of sites with valid signatures.

    `file`: the file, or None if the host has none (`gone`) or it could not be read. A file that
    could not be read leaves the stored one unchanged.
    """
    next_due = now + EVERY_MS + _jitter(f"{host}:{now}") % (EVERY_MS // 10)
    seller_files.save(tx, host, file, now=now, next_due=next_due, gone=gone)
    ahead = (item for item in announced if item.not_before * SECOND_MS >= now)
    seller_files.announce(tx, ahead, now=now)
    for item in lists:
        if seller_files.save_site_list(tx, host, item, now=now):
            endpoint_ids = rated_endpoints.ids_of_pay_to(tx, item.pay_to, limit=RESCORED_MAX)
            endpoints.mark_dirty(tx, endpoint_ids, now=now)


def is_announced(
    tx: Connection,
    endpoint: Endpoint,
    before: Advertised | None,
    after: Advertised | None,
    *,
    at: int,
    source: str,
) -> bool:
    """Return whether a change of payTo, seen by `source` at `at` (ms UTC), was announced before.

    False if the payTo did not change, or if the network changed too.
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
    """Return whether the old payTo announced that each offer will have a different payTo."""
    known = seller_files.announcements(
        tx, endpoint.host, network=after.network, before=before.pay_to, after=VARIES
    )
    return any(item.covers(at) for item in known)


def ask_soon(tx: Connection, host: str, *, now: int) -> None:
    """Fetch the file of a host whose payTo changed soon."""
    seller_files.bring_forward(tx, host, now=now, pause_ms=MIN_PAUSE_MS)


def _jitter(text: str) -> int:
    """Return a large pseudo-random number derived from a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
