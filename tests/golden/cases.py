"""Evidence of format 2 for the golden vectors of policy 2: the published pairs, the tricks that
policy 2 answers, and every flag, cap, grade and recommendation.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.golden.figures import AS_OF, BASE_USDC, DAY, WINDOW
from tests.golden.history import (
    HALF_HOUR,
    START,
    Json,
    chain_2,
    change,
    evidence_2,
    payers,
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
    """Payable whenever it was asked, for a week; known for a year, without settlements."""
    return evidence_2(probes(always(), since=WEEK), **more)


def lately(story: Story, **more: Any) -> Json:
    """A story of the last week."""
    return evidence_2(probes(story, since=WEEK), **more)


def unconfirmed(document: Json) -> Json:
    return document | {"state": document["state"] | {"unconfirmed": True}}


def with_rules(document: Json, *rules: tuple[str, str]) -> Json:
    """Evidence whose latest envelope broke some rules."""
    said = [[slug, severity, "Mend it."] for slug, severity in rules]
    place = "envelope" if document["envelope"] else "last"
    return document | {place: document[place] | {"rules": said}}


def known_for(days: Fraction | int, story: Story, **more: Any) -> Json:
    """An endpoint that was first seen so many days ago."""
    seen = AS_OF - int(days * DAY)
    return evidence_2(probes(story, since=max(seen, START)), firstSeen=seen, **more)


def price(days_ago: int, before: str, after: str, source: str = "probe") -> Json:
    return change("price-changed", days_ago, source) | {"before": before, "after": after}


def dead_after_delisting() -> Json:
    """Payable for a week, then delisted, probed every six hours, and never up again."""
    story = probes(until(23 * 48, "payable", "timeout"))
    kept = [(at, kind) for at, kind in story if kind == "payable" or (NOW - at) % (6 * HOUR) == 0]
    return evidence_2(kept, hold_for=6 * HOUR, interval=6 * HOUR, listed=False)


def pauses() -> Json:
    """Payable for six hours, then one 503 that asks for six hours of silence, again and again."""
    results = probes(bursts(12, 12))
    kept = [results[0]]
    kept += [after for before, after in pairwise(results) if "payable" in (before[1], after[1])]
    return evidence_2(kept, hold_for=6 * HOUR)


def mended_in_a_minute() -> Json:
    history = probes(until(1, "payable", "timeout"), since=WEEK)
    return evidence_2([*history, (history[-1][0] + 60_000, "mended")], asOf=AS_OF + 60_000)


def confirmed_down() -> Json:
    history = probes(until(1, "payable", "timeout"), since=WEEK)
    return evidence_2([*history, (history[-1][0] + 60_000, "confirmed")], asOf=AS_OF + 60_000)


def last_millisecond() -> Json:
    """All that is known lies on the oldest day of the window, of which a millisecond is left."""
    end = START + 31 * DAY - 1
    return evidence_2(probes(always(), until=START + DAY - 60_000), asOf=end, interval=30 * DAY)


def just_two_fifths() -> Json:
    """Down, with lambda = 1/52 and mu = 35/26: mu / (2 + mu + lambda) = 2/5."""
    document = evidence_2([(NOW, "timeout")])
    idle = document["days"][0]["spans"] | {"up": 0, "down": 0}
    whole = {"up": DAY, "payable": DAY, "compliance": 100 * DAY}
    times = [whole] * 11 + [
        {"up": 2 * HOUR, "payable": 2 * HOUR, "down": 34 * HOUR // 10, "failures": 6, "repairs": 5}
    ]
    days = [
        document["days"][0] | {"day": NOW // DAY - back, "spans": idle | time}
        for back, time in enumerate(reversed(times))
    ]
    return document | {"days": days}


PAIRS: dict[str, Json] = {
    "always-payable-fast": evidence_2(probes(always())),
    "always-payable-slow": evidence_2(probes(always()), ms=1_500, chain=None),
    "payable-93.5": evidence_2(probes(bursts(29, 2)), ms=1_000),
    "payable-43.7": evidence_2(probes(bursts(7, 9)), ms=5_200),
    "never-up": evidence_2(probes(always("timeout")), chain=None),
}
"""What the specification says of such scores is checked in test_vectors_2."""

TRICKS: dict[str, Json] = {
    "429-while-down": evidence_2(probes(bursts(12, 36, "refused"))),
    "503-while-down": evidence_2(probes(bursts(12, 36))),
    "dead-behind-429-for-24-days": evidence_2(probes(until(24 * 48, "payable", "refused"))),
    "429-for-seven-hours": evidence_2(probes(until(14, "payable", "refused"))),
    "429-for-five-hours": evidence_2(probes(until(10, "payable", "refused"))),
    "429-since-it-is-known": known_for(1, always("refused")),
    "503-with-a-pause-of-six-hours": pauses(),
    "delisted-then-dead": dead_after_delisting(),
    "new-path-after-a-bad-record": known_for(1, always(), siteMedianTenths=352),
    "new-path-of-a-good-site": known_for(2, always(), siteMedianTenths=905),
    "price-times-100": good(changes=[price(2, "5000", "500000")], quote=quote(500_000)),
    "price-in-three-steps": good(
        changes=[price(5, "5000", "9000"), price(3, "9000", "12000"), price(1, "12000", "10001")]
    ),
    "price-back-again": good(
        changes=[price(5, "5000", "50000"), price(1, "50000", "5000"), price(9, "1", "5000", "z")]
    ),
    "price-in-another-asset": good(
        changes=[price(3, f"5000 {BASE_USDC}", f"5000000000000000 0x{'9' * 40}")]
    ),
    "payto-hijack-of-day-8": good(changes=[change("payto-changed", 8)]),
    "payto-hijack-of-day-3": good(changes=[change("payto-changed", 3)]),
    "payto-announced-on-day-3": good(changes=[change("payto-changed", 3) | {"announced": True}]),
    "hundred-wallets-of-dust": good(chain=chain_2([1] * 100, high=[])),
    "hundred-wallets-of-a-dollar": good(chain=chain_2([DOLLAR] * 100)),
    "hundred-wallets-one-note": good(
        chain=chain_2([100 * DOLLAR] * 100, low=[3 * DOLLAR] * 2, weight=2_000_000, clusters=1)
    ),
    "ring-of-ten-sellers": good(chain=chain_2([50 * DOLLAR] * 9, high=[], clusters=1)),
    "paid-by-itself": good(chain=chain_2([90 * DOLLAR], organic=[], own="90000000", returned="0")),
    "round-trips": good(chain=chain_2([90 * DOLLAR, DOLLAR], organic=[DOLLAR])),
    "one-big-payer": good(chain=chain_2([900 * DOLLAR, CENT], transfers=1_000)),
}

ORGANIC: dict[str, Json] = {
    "thirty-real-buyers": good(
        chain=chain_2([20 * DOLLAR] * 30, low=[10 * DOLLAR] * 30, weight=24_500_000, clusters=12)
    ),
    "real-buyers-of-four-hosts": good(
        chain=chain_2([20 * DOLLAR] * 30, low=[DOLLAR] * 10, weight=10_000_000, hosts=4)
    ),
    "everything-full": good(
        ms=90, chain=chain_2([100 * DOLLAR] * 100, low=[100 * DOLLAR] * 100, clusters=100)
    ),
    "low-end-of-more-effective-payers": good(
        chain=chain_2([500 * DOLLAR] + [DOLLAR] * 9, low=[DOLLAR] * 9)
        | {"indexedMs": WINDOW // 2, "indexedToBlock": None, "indexedTo": None}
    ),
    "settlements-unknown": good(chain=chain_2() | {"sums": None, "indexedMs": 0}),
    "weights-of-half-payers": good(
        chain=chain_2([5 * DOLLAR] * 6) | {"sums": chain_2([5 * DOLLAR] * 6)["sums"]
        | {"low": payers([5 * DOLLAR] * 6, 3_000_001)}}
    ),
}  # fmt: skip

STATES: dict[str, Json] = {
    "never-probed": evidence_2([], quote=None, chain=None),
    "only-our-own-faults": lately(always("ours")),
    "only-our-own-faults-amid-success": lately(bursts(3, 1, "ours")),
    "first-contact": evidence_2([(AS_OF, "payable")], firstSeen=AS_OF, chain=None),
    "first-contact-with-401": evidence_2([(AS_OF, "forbidden")], firstSeen=AS_OF, chain=None),
    "first-contact-with-200": evidence_2([(AS_OF, "open")], firstSeen=AS_OF, chain=None),
    "known-for-nine-hours": known_for(Fraction(9, 24), always()),
    "known-for-five-days": known_for(5, always()),
    "known-for-nine-days": known_for(9, always()),
    "known-for-seventeen-days-slow": known_for(17, always(), ms=1_000),
    "never-fast-enough-for-an-a": good(ms=5_200),
    "first-failure": unconfirmed(lately(until(1, "payable", "timeout"))),
    "first-failure-with-a-lint-error": with_rules(
        unconfirmed(lately(until(1, "payable", "wrong"))), ("amount-form", "error")
    ),
    "failure-mended-in-a-minute": mended_in_a_minute(),
    "failure-confirmed": confirmed_down(),
    "down-for-two-hours": lately(until(4, "payable", "timeout")),
    "down-for-two-days": evidence_2(probes(until(96, "payable", "timeout"))),
    "up-for-an-hour-after-a-week": evidence_2(
        probes(lambda i: "timeout" if 2 <= i < 2 + 7 * 48 else "payable")
    ),
    "down-half-an-hour-each-day": evidence_2(probes(bursts(47, 1))),
    "down-half-a-day-each-week": evidence_2(probes(bursts(7 * 48 - 24, 24))),
    "down-half-a-day-each-two-days": evidence_2(probes(bursts(72, 24))),
    "stale-for-thirteen-hours": lately(lambda i: "payable" if i >= 26 else None),
    "slow-cadence-is-not-stale": lately(
        lambda i: "payable" if i >= 26 and i % 8 == 2 else None, interval=4 * HOUR
    ),
    "stale-and-capped": evidence_2(probes(lambda i: "timeout" if i >= 26 else None), wildcard=True),
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
        templated=True, changes=[price(2, "1", "500"), change("payto-changed", 2)]
    ),
    "payto-that-varies": good(payToVaries=True, changes=[change("payto-changed", 2)]),
    "upto-is-not-measured": good(forms=["eip155:8453 eip3009", "eip155:8453 upto"]),
    "template-with-a-decoy": good(templated=True, quote=quote(5_000 * DOLLAR)),
    "delisted-injected-expiring": good(listed=False, injection=True)
    | {"last": good()["last"] | {"tlsNotAfter": AS_OF + 13 * DAY}},
    "lowest-cap-wins": good(
        wildcard=True, siteMedianTenths=311, changes=[price(1, "5000", "50000")]
    ),
    "prices-seen-twice": good(
        changes=[
            price(9, "5000", "6000"),
            price(20, "6000", "20000"),
            price(20, "6000", "20000"),
            price(20, "6000", "20000", "bazaar"),
            price(31, "1", "6000", "bazaar"),
        ]
    ),
    "four-doublings": good(changes=[price(20 + i, "10", "21") for i in range(4)]),
}

EDGES: dict[str, Json] = {
    "429-for-just-six-hours": evidence_2(probes(until(12, "payable", "refused"), since=WEEK)),
    "silent-for-just-three-hours": evidence_2(probes(always(), since=WEEK, until=AS_OF - 3 * HOUR)),
    "silent-for-a-moment-more": evidence_2(
        probes(always(), since=WEEK, until=AS_OF - 3 * HOUR - 1)
    ),
    "23-half-hours": evidence_2(probes(always(), since=NOW - 22 * HALF_HOUR)),
    "24-half-hours": evidence_2(probes(always(), since=NOW - 23 * HALF_HOUR)),
    "price-just-doubled": good(changes=[price(1, "5000", "10000")]),
    "price-more-than-doubled": good(changes=[price(1, "5000", "10001")]),
    "price-jumped-eight-days-ago": good(changes=[price(8, "5000", "500000")]),
    "payable-now-is-just-two-fifths": just_two_fifths(),
    "failed-as-the-window-began": evidence_2(
        [(START - HALF_HOUR, "payable")] + [(START + i * HALF_HOUR, "timeout") for i in range(16)]
    ),
}
"""What lies on a limit, and just beyond."""

CASES = PAIRS | TRICKS | ORGANIC | STATES | FLAGS | EDGES
assert len(CASES) == sum(map(len, (PAIRS, TRICKS, ORGANIC, STATES, FLAGS, EDGES)))
