"""Evidence of the golden vectors: the published pairs, tricks that the policy counters, and every
flag, cap, grade and recommendation.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.golden.figures import AS_OF, DAY, WINDOW
from tests.golden.history import (
    HALF_HOUR,
    START,
    Json,
    chain,
    change,
    evidence,
    price,
    probes,
    quote,
)
from tests.golden.reference import HOUR

Story = Callable[[int], str | None]
NOW = AS_OF - 60_000
WEEK = AS_OF - 7 * DAY
DOLLAR = 1_000_000
CENT = 10_000


def always(kind: str = "payable") -> Story:
    return lambda back: kind


def until(back: int, before: str, since: str) -> Story:
    """`before`, and `since` for the last `back` half hours."""
    return lambda i: since if i < back else before


def bursts(up: int, down: int, kind: str = "timeout") -> Story:
    """Payable now; every `up` payable half hours follow `down` others."""
    return lambda i: "payable" if i % (up + down) < up else kind


def good(**more: Any) -> Json:
    """Return a week of payable probes of an endpoint known for a year, without settlements."""
    return evidence(probes(always(), since=WEEK), **more)


def lately(story: Story, **more: Any) -> Json:
    """A story of the last week."""
    return evidence(probes(story, since=WEEK), **more)


def unconfirm(document: Json) -> Json:
    return document | {"state": document["state"] | {"unconfirmed": True}}


def with_rules(document: Json, *rules: tuple[str, str]) -> Json:
    """Evidence whose latest envelope broke some rules."""
    said = [[slug, severity, "Mend it."] for slug, severity in rules]
    place = "envelope" if document["envelope"] else "last"
    return document | {place: document[place] | {"rules": said}}


def age_endpoint(days: Fraction | int, story: Story, **more: Any) -> Json:
    """Return an endpoint that was first seen `days` ago."""
    seen = AS_OF - int(days * DAY)
    return evidence(probes(story, since=max(seen, START)), firstSeen=seen, **more)


def dead_after_delisting() -> Json:
    """Payable for a week, then delisted, probed every six hours, and never up again."""
    story = probes(until(23 * 48, "payable", "timeout"))
    kept = [(at, kind) for at, kind in story if kind == "payable" or (NOW - at) % (6 * HOUR) == 0]
    return evidence(kept, hold_for=6 * HOUR, interval=6 * HOUR, listed=False)


def pauses() -> Json:
    """Payable for six hours, then one 503 that asks for six hours of silence, again and again."""
    results = probes(bursts(12, 12))
    kept = [results[0]]
    kept += [after for before, after in pairwise(results) if "payable" in (before[1], after[1])]
    return evidence(kept, hold_for=6 * HOUR)


def fix_within_a_minute() -> Json:
    history = probes(until(1, "payable", "timeout"), since=WEEK)
    return evidence([*history, (history[-1][0] + 60_000, "mended")], asOf=AS_OF + 60_000)


def confirmed_down() -> Json:
    history = probes(until(1, "payable", "timeout"), since=WEEK)
    return evidence([*history, (history[-1][0] + 60_000, "confirmed")], asOf=AS_OF + 60_000)


def last_millisecond() -> Json:
    """All that is known lies on the oldest day of the window, of which a millisecond is left."""
    end = START + 31 * DAY - 1
    return evidence(probes(always(), until=START + DAY - 60_000), asOf=end, interval=30 * DAY)


PAIRS: dict[str, Json] = {
    "always-payable-fast": evidence(probes(always())),
    "always-payable-slow": evidence(probes(always()), ms=1_500, chain=None),
    "payable-93.5": evidence(probes(bursts(29, 2)), ms=1_000),
    "payable-43.7": evidence(probes(bursts(7, 9)), ms=5_200),
    "never-up": evidence(probes(always("timeout")), chain=None),
}
"""The published limits of these scores are checked in test_vectors."""

TRICKS: dict[str, Json] = {
    "429-while-down": evidence(probes(bursts(12, 36, "refused"))),
    "503-while-down": evidence(probes(bursts(12, 36))),
    "dead-behind-429-for-24-days": evidence(probes(until(24 * 48, "payable", "refused"))),
    "429-for-seven-hours": evidence(probes(until(14, "payable", "refused"))),
    "429-for-five-hours": evidence(probes(until(10, "payable", "refused"))),
    "429-since-it-is-known": age_endpoint(1, always("refused")),
    "503-with-a-pause-of-six-hours": pauses(),
    "delisted-then-dead": dead_after_delisting(),
    "new-path-after-a-bad-record": age_endpoint(1, always(), siteMedianTenths=352),
    "new-path-of-a-good-site": age_endpoint(2, always(), siteMedianTenths=905),
    "price-times-100": good(changes=[price(2, 5_000, 500_000)], quote=quote(500_000)),
    "price-in-four-steps-of-1.9": good(
        changes=[
            price(27, 1_000, 1_900, usual=1_000),
            price(20, 1_900, 3_610, usual=1_000, upper=1_900),
            price(13, 3_610, 6_859, usual=1_000, upper=1_900),
            price(6, 6_859, 13_032, usual=1_900, upper=3_610),
        ]
    ),
    "price-back-again": good(
        changes=[price(5, 5_000, 50_000), price(1, 50_000, 5_000, usual=5_000)]
    ),
    "price-times-100-for-ten-minutes-a-day": good(
        changes=[
            row
            for day in range(1, 5)
            for row in (price(day, 5_000, 500_000), price(day, 500_000, 5_000, usual=5_000))
        ]
    ),
    "price-plus-5-percent-each-day": good(
        changes=[price(9 - n, 5_000 + 250 * n, 5_250 + 250 * n, usual=5_000) for n in range(9)]
    ),
    "price-in-another-asset": good(
        changes=[
            change("price-changed", 3)
            | {
                "before": "5000 0x1",
                "after": "7 0x9",
                "price": {
                    "unit": "eip155:8453 0x9",
                    "before": None,
                    "after": "7",
                    "usual": None,
                    "upper": None,
                },
            }
        ]
    ),
    "discount": good(changes=[price(3, 5_000, 2_000)]),
    "payto-hijack-of-day-8": good(changes=[change("payto-changed", 8)]),
    "payto-hijack-of-day-3": good(changes=[change("payto-changed", 3)]),
    "payto-announced-on-day-3": good(changes=[change("payto-changed", 3) | {"announced": True}]),
    "hundred-wallets-of-dust": good(chain=chain(100, 100 * CENT)),
    "hundred-wallets-of-a-dollar": good(chain=chain(100, 100 * DOLLAR)),
    "one-bought-anchor": good(chain=chain(9, 90 * DOLLAR, proven=9, weights=(0, 9_000_000, 9))),
    "paid-by-itself": good(chain=chain(0, 0, own="90000000")),
    "round-trips": good(chain=chain(2, 91 * DOLLAR, returned="90000000")),
    "another-site's-address": good(chain=chain(owner="shop.example") | {"demand": None}),
    "blocked-while-down": evidence(probes(bursts(12, 36, "blocked"))),
}

DEMAND: dict[str, Json] = {
    "twenty-weights": good(chain=chain(40, 900 * DOLLAR, proven=25, weights=(20_000_000,) * 3)),
    "smallest-of-three": good(
        chain=chain(40, 900 * DOLLAR, proven=25, weights=(3_000_000, 2_200_000, 9_999_999))
    ),
    "shared-by-four-sites": good(
        chain=chain(40, 900 * DOLLAR, proven=25, weights=(20_000_001,) * 3, shares=4, sharedHosts=9)
    ),
    "everything-full": good(
        ms=90, chain=chain(200, 9_000 * DOLLAR, proven=150, weights=(100_000_000,) * 3)
    ),
    "anchors-of-one-owner": good(
        chain=chain(40, 900 * DOLLAR, proven=25, weights=(20_000_000,))
    ) | {"anchors": good()["anchors"][:1]},
    "settlements-unknown": good(chain=chain(indexedMs=0) | {"demand": None}),
    "half-of-the-window-indexed": good(chain=chain(indexedMs=WINDOW // 2)),
}  # fmt: skip

STATES: dict[str, Json] = {
    "never-probed": evidence([], quote=None, chain=None),
    "only-our-own-faults": lately(always("ours")),
    "only-our-own-faults-amid-success": lately(bursts(3, 1, "ours")),
    "first-contact": evidence([(AS_OF, "payable")], firstSeen=AS_OF, chain=None),
    "first-contact-with-401": evidence([(AS_OF, "forbidden")], firstSeen=AS_OF, chain=None),
    "first-contact-with-200": evidence([(AS_OF, "open")], firstSeen=AS_OF, chain=None),
    "known-for-nine-hours": age_endpoint(Fraction(9, 24), always()),
    "known-for-five-days": age_endpoint(5, always()),
    "known-for-nine-days": age_endpoint(9, always()),
    "known-for-seventeen-days-slow": age_endpoint(17, always(), ms=1_000),
    "never-fast-enough-for-an-a": good(ms=5_200),
    "first-failure": unconfirm(lately(until(1, "payable", "timeout"))),
    "first-failure-with-a-lint-error": with_rules(
        unconfirm(lately(until(1, "payable", "wrong"))), ("amount-form", "error")
    ),
    "failure-mended-in-a-minute": fix_within_a_minute(),
    "failure-confirmed": confirmed_down(),
    "down-for-two-hours": lately(until(4, "payable", "timeout")),
    "down-for-two-days": evidence(probes(until(96, "payable", "timeout"))),
    "up-for-an-hour-after-a-week": evidence(
        probes(lambda i: "timeout" if 2 <= i < 2 + 7 * 48 else "payable")
    ),
    "down-half-an-hour-each-day": evidence(probes(bursts(47, 1))),
    "down-half-a-day-each-week": evidence(probes(bursts(7 * 48 - 24, 24))),
    "down-half-a-day-each-two-days": evidence(probes(bursts(72, 24))),
    "stale-for-thirteen-hours": lately(lambda i: "payable" if i >= 26 else None),
    "slow-cadence-is-not-stale": lately(
        lambda i: "payable" if i >= 26 and i % 8 == 2 else None, interval=4 * HOUR
    ),
    "stale-and-capped": evidence(probes(lambda i: "timeout" if i >= 26 else None), wildcard=True),
    "an-outcome-of-another-version": lately(until(60, "payable", "odd")),
    "last-millisecond-of-the-day": last_millisecond(),
}

FLAGS: dict[str, Json] = {
    "wildcard-402": good(wildcard=True),
    "paid-not-delivered": good(paidNotDelivered=True),
    "decoy-price": good(quote=quote(1_000 * DOLLAR)),
    "price-above-client-cap": good(quote=quote(DOLLAR + 1)),
    "not-evaluated": with_rules(lately(always("unread")), ("not-evaluated", "info")),
    "not-evaluated-then-down": with_rules(
        lately(until(3, "unread", "timeout")), ("not-evaluated", "info")
    ),
    "not-evaluated-of-late": with_rules(
        lately(until(9, "payable", "unread")), ("not-evaluated", "info")
    ),
    "not-payable": lately(always("free")),
    "not-payable-then-down": lately(until(1, "free", "timeout")),
    "never-compliant": lately(always("open")),
    "always-401": lately(always("forbidden")),
    "validates-first": lately(always("validates")),
    "tls-broken": lately(until(3, "payable", "tls")),
    "lint-error-but-payable": with_rules(
        lately(always("warned")), ("resource-url", "error"), ("cache-control", "warn")
    ),
    "lint-error-and-not-payable": with_rules(
        lately(until(3, "payable", "wrong")),
        ("network-form", "warn"),
        ("network-form", "error"),
        ("description", "info"),
    ),
    "signed-offer-of-a-stranger": with_rules(
        lately(always("warned")), ("signed-offer-mismatch", "error")
    ),
    "warnings-and-mismatch": with_rules(lately(always("warned")), ("envelope-mismatch", "warn")),
    "template-never-filled": lately(always("timeout"), templated=True),
    "template-that-varies": good(
        templated=True, changes=[price(2, 1, 500), change("payto-changed", 2)]
    ),
    "payto-that-varies": good(payToVaries=True, changes=[change("payto-changed", 2)]),
    "paid-on-two-networks": good(
        forms=["eip155:137 eip3009", "eip155:8453 eip3009"],
        chain=chain(40, 900 * DOLLAR, proven=25, weights=(20_000_000,) * 3, shares=2),
        otherChains=[
            chain(9, 30 * DOLLAR, proven=4, weights=(0, 4_000_000, 3_000_000))
            | {"network": "eip155:137"}
        ],
    ),
    "upto-is-not-measured": good(forms=["eip155:8453 eip3009", "eip155:8453 upto"]),
    "template-with-a-decoy": good(templated=True, quote=quote(5_000 * DOLLAR)),
    "delisted-injected-expiring": good(listed=False, injection=True)
    | {"last": good()["last"] | {"tlsNotAfter": AS_OF + 13 * DAY}},
    "lowest-cap-wins": good(wildcard=True, siteMedianTenths=311, changes=[price(1, 5_000, 50_000)]),
    "prices-seen-twice": good(
        changes=[
            price(9, 5_000, 6_000),
            price(20, 6_000, 20_000),
            price(20, 6_000, 20_000, source="bazaar"),
            price(31, 1, 6_000, source="bazaar"),
        ]
    ),
    "four-doublings": good(changes=[price(20 + i, 10, 21) for i in range(4)]),
}

EDGES: dict[str, Json] = {
    "429-for-just-six-hours": evidence(probes(until(12, "payable", "refused"), since=WEEK)),
    "silent-for-just-three-hours": evidence(probes(always(), since=WEEK, until=AS_OF - 3 * HOUR)),
    "silent-for-a-moment-more": evidence(probes(always(), since=WEEK, until=AS_OF - 3 * HOUR - 1)),
    "almost-12-hours": evidence(probes(always(), since=NOW - 12 * HOUR + 120_000)),
    "just-12-hours": evidence(probes(always(), since=NOW - 12 * HOUR + 60_000)),
    "new-path-of-a-bad-site-unsure": age_endpoint(
        3, until(5, "payable", "timeout"), siteMedianTenths=311
    ),
    "always-blocked": lately(always("blocked")),
    "blocked-nine-in-ten": lately(lambda i: "open" if i % 10 == 0 else "blocked"),
    "blocked-eight-in-ten": lately(lambda i: "open" if i % 5 == 0 else "blocked"),
    "price-within-10-percent": good(changes=[price(1, 5_000, 5_500)]),
    "price-beyond-10-percent": good(changes=[price(1, 5_000, 5_501)]),
    "price-after-zero": good(changes=[price(1, 0, 1)]),
    "price-just-doubled": good(changes=[price(1, 5_000, 10_000)]),
    "price-more-than-doubled": good(changes=[price(1, 5_000, 10_001)]),
    "price-jumped-eight-days-ago": good(changes=[price(8, 5_000, 500_000)]),
    "failed-as-the-window-began": evidence(
        [(START - HALF_HOUR, "payable")] + [(START + i * HALF_HOUR, "timeout") for i in range(16)]
    ),
}
"""What lies on a limit, and just beyond."""

CASES = PAIRS | TRICKS | DEMAND | STATES | FLAGS | EDGES
assert len(CASES) == sum(map(len, (PAIRS, TRICKS, DEMAND, STATES, FLAGS, EDGES)))
