"""The prune loop: close finished days into one row each, and forget what is too old.

Raw probes are kept 90 days; answers that were paid for 30 days; payments that were rejected one
day; watches and their deliveries 30 days after their end; endpoints that are known by request
alone, and were never seen to sell, 7 days. Forecasts are kept 90 days, what came of them for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.units import MINUTE_MS, day_of
from tollgauge.db.engine import Store
from tollgauge.store import never_public
from tollgauge.store.endpoints import forecasts
from tollgauge.store.ledger import retention
from tollgauge.store.probes import archive, closed_days
from tollgauge.store.watches import outbox, watch_payments

KEEP_DAYS: Final = 90
BATCH: Final = 500
ENDPOINTS: Final = 100
"""How many endpoints are forgotten in one transaction: each has hundreds of probes."""


async def run(store: Store, *, clock: Callable[[], int]) -> dict[str, object]:
    """Close up to a batch of endpoint-days, drop old packed days and old answers."""
    now = clock()
    today = day_of(now - MINUTE_MS)  # callers of the last seconds still share its last probes
    closed = await store.writing(archive.close_days, before_day=today, limit=BATCH)
    built = await store.writing(closed_days.build, before_day=today, limit=BATCH)
    forgotten = await store.writing(_forget, before_day=today - KEEP_DAYS, now=now)
    unlisted = await store.writing(never_public.forget, now=now, limit=ENDPOINTS)
    return {
        "closed": closed,
        "windows_built": built,
        **forgotten,
        "unlisted": unlisted,
        "busy": closed >= BATCH or built > 0 or unlisted >= ENDPOINTS,
    }


def _forget(tx: Connection, *, before_day: int, now: int) -> dict[str, int]:
    """Drop packed days of probes before a day, and what else is too old; the counts to report."""
    counts = {
        "dropped": archive.prune(tx, before_day=before_day),
        "forgotten": retention.forget_answers(tx, now=now),
        "rejected": retention.forget_rejected(tx, now=now),
    }
    forecasts.forget(tx, before_day=before_day)
    outbox.forget(tx, now=now)
    watch_payments.forget(tx, now=now)
    return counts
