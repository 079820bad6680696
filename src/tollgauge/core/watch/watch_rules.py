"""Watch: what a watch may ask for, how long it lasts, delivery retries, and how long rows are kept.

Rules (docs/watching.md):
- a watch lasts 30 days; renewing adds 30 days to what is left;
- at most 10 destinations, at most 5 of each kind of field;
- a delivery that fails is tried again after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, each ±20 %;
  the jitter comes from the hash of the delivery id, so it needs no randomness.

docs/operating/database.md has the retention table with reasons; a test compares the two. Payments,
books, counts of forecasts, and rows that exist once per endpoint, wallet or version of the program
are never deleted.
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
"""How long a watch lasts."""
READABLE_MS: Final = 30 * DAY_MS
"""How long an ended watch can still be read and renewed."""
EXPIRING_MS: Final = 3 * DAY_MS
"""How long before its end a watch says so."""
SENSITIVITY_MIN: Final = 1
SENSITIVITY_MAX: Final = 10
SENSITIVITY_DEFAULT: Final = 2
DESTINATIONS_MAX: Final = 10
FIELD_MAX: Final = 5
"""Destinations that one field of a request may name."""
RETRIES_MS: Final = (
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    10 * HOUR_MS,
)
"""The pauses after failed attempts, before their jitter."""
RETRY_AFTER_MIN_MS: Final = SECOND_MS
RETRY_AFTER_MAX_MS: Final = DAY_MS

CREATED: Final = "created"
EDITED: Final = "edited"
CANCELLED: Final = "cancelled"
RENEWED: Final = "renewed"
EXPIRING: Final = "expiring"
EXPIRED: Final = "expired"
LIFECYCLE: Final = (CREATED, EDITED, CANCELLED, RENEWED, EXPIRING, EXPIRED)
"""What happens to a watch itself, letter for letter (docs/watching.md)."""
CONNECTION_TEST: Final = "connection_test"
DIGEST: Final = "daily_digest"

_DISCORD: Final = re.compile(r"(?:(?:canary|ptb)\.)?discord(?:app)?\.com")
_DISCORD_PATH: Final = re.compile(r"/api/(?:v[0-9]+/)?webhooks/")


class WatchState(StrEnum):
    """The state of a watch. A pending one waits for its payment to settle."""

    PENDING = "pending"
    ACTIVE = "active"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DestinationKind(StrEnum):
    """The format of the messages that a destination gets."""

    JSON = "webhook"
    SLACK = "slack"
    DISCORD = "discord"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What a watch asks for: types of events, misses before an alarm, a daily digest."""

    events: tuple[str, ...] = EVENTS
    sensitivity: int = SENSITIVITY_DEFAULT
    digest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A destination as it was asked for: its URL, its format, and the field that named it."""

    url: str
    kind: DestinationKind
    field: str = ""

    @property
    def host(self) -> str:
        """The host that it names, in lower case."""
        return urlsplit(self.url).hostname or ""

    @property
    def masked(self) -> str:
        """What people may see: its path is a secret, so the host and at most the last four
        characters.
        """
        tail = self.url[-4:] if len(urlsplit(self.url).path) >= 16 else ""
        return f"{masked_host(self.host)}…{tail}"


def kind_of(url: str, *, slack: bool = False) -> DestinationKind:
    """The format of a destination's URL: Slack's and Discord's own hosts and paths are
    recognised, and a URL that was given as Slack's gets Slack's format wherever it leads, as
    Slack-compatible receivers want it (Discord's `/slack` among them).
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
    """What every masked URL of a host begins with."""
    return f"https://{host}/"


def retry_at(
    delivery: str, attempts: int, *, now: int, retry_after_ms: int | None = None
) -> int | None:
    """When to try a delivery again (ms UTC) after `attempts` failed attempts, None after the last.
    A receiver's Retry-After, taken as 1 s to 24 h, can only make it later.
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
    """The id of an event of a watch, in polls and deliveries alike: receivers tell repeats by it.
    `event` names what happened: `change_event`, `own_event`, or a text of its own.
    """
    return f"evt_{hashlib.sha256(f'{watch_id}:{event}'.encode()).hexdigest()[:32]}"


def change_event(number: int) -> str:
    """The `event` of `message_id` for a change of the endpoint, by the change's id."""
    return f"flip:{number}"


def own_event(number: int) -> str:
    """The `event` of `message_id` for an event of the watch itself, by its number."""
    return f"own:{number}"


def rotation_text(watch_id: str, base_url: str, signed_at: object) -> str:
    """What the payer of a watch signs for another secret; `signed_at` is in unix seconds."""
    return f"Rotate the secret of watch {watch_id} at {base_url}.\nSigned at: {signed_at}"


def renewed_until(expires_at: int, *, now: int) -> int:
    """The end (ms UTC) of a watch that is renewed now: a period after its end, or after now."""
    return max(expires_at, now) + PERIOD_MS


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
