"""Retention: how long each kind of row is kept. docs/operating has the same as a table, with the
reasons; a test compares the two.

What is not here is never deleted: payments and the books, the counts of forecasts, and
whatever there is one of for each endpoint, wallet or version of the program.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch.watch import READABLE_MS

RAW_DAYS: Final = 90
"""UTC days before today whose probes and day sums are kept."""
CHANGES_MS: Final = 90 * DAY_MS
"""A change, unless a watch that is still readable saw it."""
DISCOVERY_EVENTS_MS: Final = 90 * DAY_MS
CRAWLS_MS: Final = 90 * DAY_MS
"""A crawl, unless the next one is compared with it."""
FORECASTS_MS: Final = 90 * DAY_MS
EVIDENCE_MS: Final = 90 * DAY_MS
"""Evidence that a sold report names, from when one named it last."""
ANNOUNCEMENTS_MS: Final = 90 * DAY_MS
"""A change of payTo that a seller announced, from the instant that it names."""
ANSWERS_MS: Final = 30 * DAY_MS
"""The answer of a payment, from when its outcome is known; until then it stays."""
REJECTED_MS: Final = DAY_MS
"""A payment that was rejected."""
DELIVERIES_MS: Final = 30 * DAY_MS
"""A delivery that has ended; one that is queued stays."""
WATCHES_MS: Final = READABLE_MS
"""A watch that has ended, with its events and destinations."""
UNLISTED_MS: Final = 7 * DAY_MS
"""An endpoint that was never public, with all that belongs to it."""
SETTLEMENTS_MS: Final = 40 * DAY_MS
"""A settlement of a wallet, and its sums by day."""
