"""The prune loop: close finished days into one row each and delete expired rows.

core/watch/watch_rules states how long each kind of row is kept. Each step is a transaction that
touches at most one batch, so that other writers wait only briefly. An unfinished round is followed
by the next one immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tollgauge.core.base.units import MINUTE_MS, Clock, day_of
from tollgauge.db import disk
from tollgauge.db.engine import Store
from tollgauge.store import tables
from tollgauge.store.endpoints import buyers_reports, crawls, listings
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.ledger import payments
from tollgauge.store.probes import archive
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.scores import forecasts, scores
from tollgauge.store.watches import outbox, watch_payments

BATCH: Final = 500
ENDPOINTS_BATCH: Final = 100  # endpoints deleted per transaction: each has hundreds of probes


FORGET: Final[Mapping[str, Callable[..., int]]] = {
    "answers": payments.forget_answers,
    "rejected": payments.forget_rejected,
    "forecasts": forecasts.forget,
    "evidence": scores.forget_evidence,
    "deliveries": outbox.forget,
    "watches": watch_payments.forget,
    "changes": changes.forget,
    "events": listings.forget_events,
    "crawls": crawls.forget,
    "announcements": seller_files.forget,
    "buyers_reports": buyers_reports.forget,
}
"""The store functions that delete up to `limit` rows that are expired at `now`, and return their
number.
"""


async def run(store: Store, *, clock: Clock) -> dict[str, object]:
    """Close and archive up to a batch of days, delete a batch of each kind of expired row, and
    return free space to the system. The tally counts them.
    """
    now = clock()
    today = day_of(
        now - MINUTE_MS
    )  # live reports of the last seconds may still use the day's last probes
    tally = {
        "closed": await store.writing(archive.close_days, before_day=today, limit=BATCH),
        "days": await store.writing(archive.forget, now=now, limit=BATCH),
    }
    for name, forget in FORGET.items():
        tally[name] = await store.writing(forget, now=now, limit=BATCH)
    unlisted = await store.writing(tables.forget_never_public, now=now, limit=ENDPOINTS_BATCH)
    pages = await store.writing(disk.give_back_pages)
    full = unlisted >= ENDPOINTS_BATCH or pages >= disk.STEP_PAGES
    busy = full or any(count >= BATCH for count in tally.values())
    return {**tally, "unlisted": unlisted, "pages": pages, "busy": busy}
