"""Labels: how figures of the read side are written for people.

Rules: dates are `YYYY-MM-DD`,
shares have one decimal, confidence two, a price is dollars without trailing noise or `not
advertised`. Whatever is unknown is a dash, never a zero. Texts of others are made plain here:
control, bidi, zero-width and tag characters are removed and the length is capped; escaping is the
template engine's work.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from tollgauge.core.text import clean_text
from tollgauge.core.units import DAY_MS, HOUR_MS, LEGACY_NETWORKS
from tollgauge.monitor.reports import Snapshot

DASH: Final = "\N{EM DASH}"
"""Stands for a figure that nobody measured."""

_LONGEST: Final = 4_000

_NETWORK_NAMES: Final = {caip2: name for name, caip2 in LEGACY_NETWORKS.items()}

RECOMMENDATIONS: Final[dict[str, str]] = {
    "proceed": "Nothing that was observed speaks against paying this endpoint.",
    "caution": "Usable with care: start with small payments and check what comes back.",
    "avoid": "Do not pay this endpoint now.",
    "unverified": "Not measured yet, so there is no score to rely on.",
    "not-payable": "It offers no payment that a client could make.",
    "parameterize": "Its address holds a placeholder: fill that in before you call it.",
}
"""What each recommendation means, in one sentence."""

VERDICTS: Final[dict[str, str]] = {
    "flawless": "Flawless: it answered every check of the last 30 days.",
    "near-perfect": "Near-perfect: it missed hardly any check of the last 30 days.",
    "occasional misses": "Occasional misses: it answered most checks of the last 30 days.",
    "frequent outages": "Frequent outages: it was down again and again in the last 30 days.",
    "unreliable": "Unreliable: it was down for much of the last 30 days.",
    "failed every check": "Failed every check: it answered none of the last 30 days' checks.",
}
"""The wording classes of an uptime as sentences."""


def plain(text: str) -> str:
    """A text without characters that hide or reorder what is shown; line ends are kept."""
    return "\n".join(
        line if line.isascii() and line.isprintable() else clean_text(line, _LONGEST)
        for line in text.split("\n")
    )


def date(at: int | None) -> str:
    """`YYYY-MM-DD` of an instant in milliseconds UTC."""
    return DASH if at is None else _moment(at).strftime("%Y-%m-%d")


def day_date(day: int) -> str:
    """`YYYY-MM-DD` of a UTC day."""
    return date(day * DAY_MS)


def minute(at: int) -> str:
    """`YYYY-MM-DD HH:MM UTC` of an instant."""
    return _moment(at).strftime("%Y-%m-%d %H:%M UTC")


def iso(at: int) -> str:
    """The instant for a `datetime` attribute."""
    return _moment(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(at: int, now: int) -> str:
    """How old something is, in whole hours."""
    hours = max(0, now - at) // HOUR_MS
    if hours == 0:
        return "under an hour old"
    return "1 hour old" if hours == 1 else f"{hours} hours old"


def tenths(value: int | None) -> str:
    """A number of tenths with its one decimal: 831 is `83.1`."""
    return DASH if value is None else f"{value // 10}.{value % 10}"


def percent(value: int | None) -> str:
    """Tenths of a percent: 995 is `99.5%`."""
    return DASH if value is None else f"{tenths(value)}%"


def hundredths(value: int) -> str:
    """A number of hundredths with two decimals: 98 is `0.98`."""
    return f"{value // 100}.{value % 100:02d}"


def milliseconds(value: int | None) -> str:
    """`420 ms`, or a dash when every probe failed."""
    return DASH if value is None else f"{count(value)} ms"


def count(value: int) -> str:
    """A whole number in groups of three."""
    return f"{value:,}"


def dollars(micro: int) -> str:
    """Millionths of a dollar without trailing noise: `$0.005`, `$0.10`, `$2`."""
    whole, rest = divmod(micro, 10**6)
    if rest == 0:
        return f"${count(whole)}"
    return f"${count(whole)}." + f"{rest:06d}".rstrip("0").ljust(2, "0")


def amount(text: str) -> str:
    """The text of a change; where it is dollars, without trailing noise."""
    whole, dot, rest = text.removeprefix("$").partition(".")
    if not (text.startswith("$") and dot and whole.isdecimal() and rest.isdecimal()):
        return text
    return dollars(int(whole) * 10**6 + int(rest[:6].ljust(6, "0"))) if len(rest) <= 6 else text


def price(snapshot: Snapshot) -> str:
    """The advertised price; a price in an unknown token is not called a dollar price."""
    if snapshot.price_micro_usd is not None:
        return dollars(snapshot.price_micro_usd)
    return "not in dollars" if snapshot.pay_to else "not advertised"


def price_stability(snapshot: Snapshot) -> str:
    """`stable`, `1 change` or `n changes`; a dash where no price is advertised."""
    if snapshot.price_changes:
        return changes(snapshot.price_changes)
    return "stable" if snapshot.pay_to else DASH


def changes(number: int) -> str:
    """`no change seen`, `1 change` or `n changes`."""
    return "no change seen" if number == 0 else "1 change" if number == 1 else f"{number} changes"


def network_name(network: str | None) -> str:
    """The everyday name of a CAIP-2 network where we know one, else nothing."""
    return _NETWORK_NAMES.get(network or "", "")


def path_of(resource: str) -> str:
    """What follows scheme and authority in a canonical resource."""
    parts = urlsplit(resource)
    return resource[len(f"{parts.scheme}://{parts.netloc}") :] if parts.netloc else resource


def authority_of(snapshot: Snapshot) -> str:
    """Host and, where it is not the default one, port."""
    return urlsplit(snapshot.resource).netloc or snapshot.host


def verdict_sentence(verdict: str) -> str:
    """The wording class of an uptime as a sentence."""
    known = VERDICTS.get(verdict.lower())
    return known if known is not None else verdict


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
