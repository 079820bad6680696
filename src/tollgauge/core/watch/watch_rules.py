"""Watches: limits, duration, delivery retries, and retention periods of rows.

Rules (docs/watching.md):
- a watch lasts 30 days; renewal adds 30 days to the remaining time;
- at most 10 destinations, at most 5 per kind of field;
- a failed delivery is retried after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, each ±20%; the
  jitter is derived from the hash of the delivery ID, so it needs no randomness.

docs/operating/database.md has the retention table with reasons; a test compares the two. Payments,
books, counts of forecasts, and rows that exist once per endpoint, wallet or program version are
never deleted.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.watch.changes import EVENTS

PERIOD_MS: Final = 30 * DAY_MS
"""Duration of a watch."""
READABLE_MS: Final = 30 * DAY_MS
"""Period in which an ended watch can still be read and renewed."""
EXPIRING_MS: Final = 3 * DAY_MS
"""Time before its end at which a watch sends a reminder."""
SENSITIVITY_MIN: Final = 1
SENSITIVITY_MAX: Final = 10
SENSITIVITY_DEFAULT: Final = 2
DESTINATIONS_MAX: Final = 10
FIELD_MAX: Final = 5
"""Maximum number of destinations per field of a request."""
RETRIES_MS: Final = (
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    10 * HOUR_MS,
)
"""Delays after failed attempts, before jitter."""
RETRY_AFTER_MIN_MS: Final = SECOND_MS
RETRY_AFTER_MAX_MS: Final = DAY_MS

CREATED: Final = "created"
EDITED: Final = "edited"
CANCELLED: Final = "cancelled"
RENEWED: Final = "renewed"
EXPIRING: Final = "expiring"
EXPIRED: Final = "expired"
LIFECYCLE: Final = (CREATED, EDITED, CANCELLED, RENEWED, EXPIRING, EXPIRED)
"""The events of a watch itself; clients compare these names exactly (docs/watching.md)."""
CONNECTION_TEST: Final = "connection_test"
DIGEST: Final = "daily_digest"

_DISCORD: Final = re.compile(r"(?:(?:canary|ptb)\.)?discord(?:app)?\.com")
_DISCORD_PATH: Final = re.compile(r"/api/(?:v[0-9]+/)?webhooks/")

# Retention periods of rows; those without a text start when the row was written.
RAW_DAYS: Final = 90
"""UTC days before today whose probes and day sums are kept."""
CHANGES_MS: Final = 90 * DAY_MS
"""Changes, unless a watch that is still readable saw them."""
DISCOVERY_EVENTS_MS: Final = 90 * DAY_MS
CRAWLS_MS: Final = 90 * DAY_MS
"""Crawls, unless the next one is compared with them."""
FORECASTS_MS: Final = 90 * DAY_MS
EVIDENCE_MS: Final = 90 * DAY_MS
"""Evidence of a sold report, from the last sale that named it."""
ANNOUNCEMENTS_MS: Final = 90 * DAY_MS
"""Announced changes of payTo, from the announced time."""
ANSWERS_MS: Final = 30 * DAY_MS
"""The response of a payment, from the time its outcome is known; until then it is kept."""
REJECTED_MS: Final = DAY_MS
"""Rejected payments."""
DELIVERIES_MS: Final = 30 * DAY_MS
"""Deliveries that have ended; queued ones are kept."""
WATCHES_MS: Final = READABLE_MS
"""Ended watches, with their events and destinations."""
UNLISTED_MS: Final = 7 * DAY_MS
"""Endpoints that were never public, with all their rows."""
SETTLEMENTS_MS: Final = 40 * DAY_MS
"""Settlements of wallets, and their sums by day."""


class WatchState(StrEnum):
    """The state of a watch. A pending one waits for its payment to settle."""

    PENDING = "pending"
    ACTIVE = "active"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DestinationKind(StrEnum):
    """The message format of a destination."""

    JSON = "webhook"
    SLACK = "slack"
    DISCORD = "discord"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The options of a watch: types of events, misses before an alert, a daily digest."""

    events: tuple[str, ...] = EVENTS
    sensitivity: int = SENSITIVITY_DEFAULT
    digest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A requested destination: its URL, its format, and the field that named it."""

    url: str
    kind: DestinationKind
    field: str = ""

    @property
    def host(self) -> str:
        """The host of its URL, in lower case."""
        return urlsplit(self.url).hostname or ""

    @property
    def masked(self) -> str:
        """The URL for display: its path is a secret, so only the host and at most the last four
        characters.
        """
        tail = self.url[-4:] if len(urlsplit(self.url).path) >= 16 else ""
        return f"{masked_host(self.host)}…{tail}"


def kind_of(url: str, *, slack: bool = False) -> DestinationKind:
    """Return the format of a destination's URL.

    The hosts and paths of Slack and Discord are recognised. Any other URL given as Slack's gets
    Slack's format, for Slack-compatible receivers (including Discord's `/slack`).
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host == "hooks.slack.com":
        return DestinationKind.SLACK
    if _DISCORD.fullmatch(host) and _DISCORD_PATH.match(parts.path):
        return (
            DestinationKind.SLACK
            if parts.path.rstrip("/").endswith("/slack")
            else DestinationKind.DISCORD
        )
    return DestinationKind.SLACK if slack else DestinationKind.JSON


def masked_host(host: str) -> str:
    """Return the prefix of every masked URL of a host."""
    return f"https://{host}/"


def retry_at(
    delivery: str, attempts: int, *, now: int, retry_after_ms: int | None = None
) -> int | None:
    """Return the time of the next attempt (ms UTC) after `attempts` failed attempts; None after the
    last.

    A receiver's Retry-After, limited to 1 s to 24 h, can only delay it.
    """
    if attempts > len(RETRIES_MS):
        return None
    usual = RETRIES_MS[attempts - 1]
    seed = hashlib.sha256(f"{delivery}:{attempts}".encode()).digest()
    pause = usual * 8 // 10 + usual * 4 // 10 * int.from_bytes(seed[:4], "big") // 2**32
    if retry_after_ms is not None:
        requested = min(max(retry_after_ms, RETRY_AFTER_MIN_MS), RETRY_AFTER_MAX_MS)
        pause = max(pause, requested)
    return now + pause


def message_id(watch_id: str, event: str) -> str:
    """Return the ID of an event of a watch, equal in polls and deliveries: receivers detect repeats
    by it.

    `event` identifies the event: `change_event`, `own_event`, or any other text.
    """
    return f"evt_{hashlib.sha256(f'{watch_id}:{event}'.encode()).hexdigest()[:32]}"


def change_event(number: int) -> str:
    """Return the `event` of `message_id` for a change of the endpoint, by the change's ID."""
    return f"flip:{number}"


def own_event(number: int) -> str:
    """Return the `event` of `message_id` for an event of the watch itself, by its number."""
    return f"own:{number}"


def rotation_text(watch_id: str, base_url: str, signed_at: object) -> str:
    """Return the text that the payer of a watch signs to replace its secret; `signed_at` is in Unix
    seconds.
    """
    return f"Rotate the secret of watch {watch_id} at {base_url}.\nSigned at: {signed_at}"


def compute_renewal(expires_at: int, *, now: int) -> int:
    """Return the end (ms UTC) of a watch that is renewed now: a period after its end, or after
    now.
    """
    return max(expires_at, now) + PERIOD_MS
