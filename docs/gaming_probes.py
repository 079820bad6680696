"""Attacks on the parts of the score that probes measure: availability, terms and the 402."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Final

from docs.gaming_attack import (
    DOWN,
    FREE,
    NOW,
    PAYABLE,
    SELLER,
    START,
    Attack,
    alternate_hours,
    points_of,
    probe_endpoint,
    probe_payable,
    probe_up_until,
    score_up_a_quarter,
)
from docs.gaming_history import EVERY_MS, alternate, history, price_changes, probe_when_open
from docs.outcome_texts import OUTCOME_TEXTS
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX, lookalike_paths
from tollgauge.core.probe.exchange import Answer, Defect, Fault, FaultKind
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.score.evidence import TermChange

_RANDOM_PATH: Final = re.compile(r"/[0-9a-f]{16}")
"""Paths that a check without knowledge of the host would request."""


def hide_outages() -> Iterator[Attack]:
    """Yield attacks that hide outages."""
    for outcome in Outcome:
        row = OUTCOME_TEXTS[outcome].gaming
        if row is None:
            continue
        yield Attack(
            trick=f"{row.trick} instead of 503 while down, up 6 of 24 hours",
            without=score_up_a_quarter(DOWN),
            with_it=score_up_a_quarter(row.answer),
            bound=row.bound,
            open=not row.bounded,
        )
    yield Attack(
        trick="up for 6 days, then dead behind 429 for 24",
        without=probe_up_until(6 * DAY_MS, DOWN).best_of_last_day(),
        with_it=probe_up_until(6 * DAY_MS, Answer(status=429)).best_of_last_day(),
        bound="A refusal is a failure from the first one",
    )
    asks = Answer(status=429, headers=(("retry-after", str(6 * 3_600)),))
    yield Attack(
        trick="429 with a Retry-After of 6 hours for each outage, up half of the time",
        without=probe_endpoint(alternate_hours(6, 6, DOWN)).best_of_last_day(),
        with_it=probe_endpoint(alternate_hours(6, 6, asks)).best_of_last_day(),
        bound="A failure counts until one and a half times its pause has passed; a stale endpoint "
        "whose last state is a failure is `avoid`",
    )
    asks = Answer(status=503, headers=(("retry-after", str(6 * 3_600)),))
    yield Attack(
        trick="one 503 with a Retry-After of 6 hours for each outage, up half of the time",
        without=probe_endpoint(alternate_hours(6, 6, DOWN)).best_of_last_day(),
        with_it=probe_endpoint(alternate_hours(6, 6, asks)).best_of_last_day(),
        bound="A failure counts until one and a half times its pause has passed",
    )
    expired = Fault(kind=FaultKind.TLS_INVALID, defect=Defect.CERTIFICATE_EXPIRED)
    for trick, fault in (
        ("connection refused", Fault(kind=FaultKind.CONNECT)),
        ("a timeout", Fault(kind=FaultKind.TIMEOUT)),
        ("an expired certificate", expired),
    ):
        yield Attack(
            trick=f"{trick} instead of 503, down for 2 hours",
            without=probe_up_until(30 * DAY_MS - 2 * HOUR_MS, DOWN).score(NOW),
            with_it=probe_up_until(30 * DAY_MS - 2 * HOUR_MS, fault).score(NOW),
            bound="All failures count; the forecast caps endpoints that are not payable now",
        )

    fell = NOW - 24 * HOUR_MS
    short = fell - 3 * DAY_MS
    yield Attack(
        trick="an outage of 40 minutes, repaired, before an outage that has lasted for 24 hours",
        without=probe_up_until(fell - START, DOWN).score(NOW),
        with_it=probe_endpoint(
            lambda at: DOWN if at >= fell or short <= at < short + 40 * MINUTE_MS else PAYABLE
        ).score(NOW),
        cost="an outage",
        bound="A repaired outage makes the next repair likelier, at most up to the caps of an "
        "endpoint that is down: 49, or 64.9 while the forecast expects it back",
        open=True,
    )


def leave_record() -> Iterator[Attack]:
    """Yield attacks that leave a bad record behind."""
    silent = Fault(kind=FaultKind.TIMEOUT)
    slow = probe_up_until(30 * DAY_MS, silent, days=53, daily_after=30)
    yield Attack(
        trick="up for 30 days, then delisted and dead for 23",
        without=probe_up_until(30 * DAY_MS, DOWN, days=53).best_of_last_day(),
        with_it=slow.best_of_last_day(listed=False, interval=DAY_MS),
        bound="Time counts, not probes: with one probe per day, a failure counts for a day",
    )
    bad, fresh = score_up_a_quarter(DOWN), probe_payable()
    unsteady = probe_endpoint(alternate_hours(20, 4, DOWN), days=6)
    yield Attack(
        trick="a new path after a bad record, 6 days old and up 20 of 24 hours",
        without=bad,
        with_it=unsteady.best_of_last_day(site_median_tenths=points_of(bad)),
        bound="`new-path-of-known-site`: for 7 days at most the median of the site's other paths, "
        "never below 64.9 while it is steady",
    )
    yield Attack(
        trick="the same after the old paths return 404",
        without=bad,
        with_it=unsteady.best_of_last_day(site_median_tenths=points_of(bad)),
        bound="A retired path counts for 30 days with its score of the day before",
    )
    for age, since in (("half a day", 12 * HOUR_MS), ("6 days", 6 * DAY_MS)):
        yield Attack(
            trick=f"a new domain after a bad record, {age} old and always up",
            without=bad,
            with_it=fresh.score(START + since),
            cost="a domain",
            bound="Age: `caution` for half a day, no A for at least 9 days",
            open=True,
        )


def change_terms() -> Iterator[Attack]:
    """Yield attacks with price and payTo."""
    month = probe_payable(days=62)
    jumped = "`price-jumped`: at most 64.9 for 7 days"
    steps = "Compared with the usual price of 31 days, not with the previous price"
    start = (START, 1_000)
    weekly = [1_000, 1_900, 3_610, 6_859, 13_032]
    daily = [
        (START + day * DAY_MS + part * EVERY_MS, amount)
        for day in range(10, 31)
        for part, amount in enumerate((100_000, 1_000))
    ]
    creeping = [(START + day * DAY_MS, 1_000 * 105**day // 100**day) for day in range(1, 31)]
    hundredfold = [start, (START + 30 * DAY_MS, 100_000)]
    for trick, prices, days, bound in (
        ("price × 100 after a good month, immediately", hundredfold, 0, jumped),
        ("price × 100 after a good month, 8 days later", hundredfold, 8, jumped),
        (
            "price × 13 in 4 weekly steps of × 1.9",
            [(START + (2 + 7 * week) * DAY_MS, price) for week, price in enumerate(weekly)],
            0,
            steps,
        ),
        (
            "price × 100 for ten minutes a day",
            [start, *daily],
            0,
            "Each time counts as an increase",
        ),
        ("price + 5% every day", [start, *creeping], 0, steps),
    ):
        now = START + (30 + days) * DAY_MS + HOUR_MS
        yield Attack(
            trick=trick,
            without=month.score(START + 30 * DAY_MS),
            with_it=month.score(now, changes=price_changes(prices)),
            bound=bound,
        )
    alternating = [
        (START + day * DAY_MS, 1_000 * (100 if day % 6 else 1)) for day in range(0, 34, 3)
    ]
    now = START + 34 * DAY_MS
    yield Attack(
        trick="price × 100 and back every 3 days for a month",
        without=month.score(now, changes=price_changes([start, (START + 33 * DAY_MS, 100_000)])),
        with_it=month.score(now, changes=price_changes(alternating)),
        cost="half of the sales of a month",
        bound="A price held for half of 31 days is usual; the first increases cap the score at "
        "64.9 for 7 days each",
        open=True,
    )
    moved = "`payto-changed-recently`: at most 49 for 7 days, and `caution` for 30"
    rotation = [_pay_to(day) for day in range(1, 31)]
    hijacked = rotation[-1:]
    for trick, changes, days, cost in (
        ("payTo hijacked after a good month, immediately", hijacked, 0, "a break-in"),
        ("payTo hijacked after a good month, 8 days later", hijacked, 8, "a break-in"),
        ("payTo hijacked after a good month, 31 days later", hijacked, 31, "a break-in"),
        ("another payTo every day", rotation, 0, FREE),
    ):
        now = START + (30 + days) * DAY_MS + HOUR_MS
        yield Attack(
            trick=trick,
            without=month.score(START + 30 * DAY_MS),
            with_it=month.score(now, changes=tuple(changes)),
            cost=cost,
            bound=moved,
        )


def _pay_to(day: int) -> TermChange:
    return TermChange(
        at=START + day * DAY_MS,
        kind=PAYTO_CHANGED,
        source="probe",
        before=str(day),
        after=str(day + 1),
    )


def show_prober() -> Iterator[Attack]:
    """Yield attacks that recognise probes."""
    shown = probe_payable()
    scores = {wild: shown.best_of_last_day(wildcard=wild) for wild in (True, False)}
    checked_paths = lookalike_paths("/api/premium-data", lambda choices: 7 % choices)
    for trick, sells, bound in (
        (
            "402 everywhere, but 404 for paths of 16 hex digits",
            lambda path: not _RANDOM_PATH.fullmatch(path),
            "The check requests paths that look like the host's paths and differ each time",
        ),
        (
            "402 for every path below `/api/`, 404 elsewhere",
            lambda path: path.startswith("/api/"),
            f"More than {SAME_TERMS_MAX} endpoints with equal terms and responses are a wildcard",
        ),
    ):
        wild = all(map(sells, checked_paths))
        yield Attack(
            trick=trick,
            without=scores[True],
            with_it=scores[wild],
            bound=bound,
            open=not wild,
        )
    closing = probe_when_open(
        SELLER.url, 24 * MINUTE_MS, PAYABLE, DOWN, start=START, until=START + 30 * DAY_MS
    )
    yield Attack(
        trick="closed after each probe, open 24 minutes later (up 20% of the time)",
        without=probe_endpoint(
            alternate(7 * MINUTE_MS, 30 * MINUTE_MS, PAYABLE, DOWN)
        ).best_of_last_day(),
        with_it=closing.best_of_last_day(),
        bound="Gaps between probes are random: the probes that find it closed fail",
        open=True,
    )
    dice = random.Random(2)  # noqa: S311 - a reproducible simulation
    punctual = history(
        SELLER.url,
        alternate(5 * MINUTE_MS, 25 * MINUTE_MS, PAYABLE, DOWN),
        start=START,
        until=START + 30 * DAY_MS,
        every=lambda _: dice.randint(EVERY_MS // 6, EVERY_MS * 11 // 6),
    )
    yield Attack(
        trick="open only for the first 5 minutes of each half hour",
        without=probe_endpoint(alternate_hours(4, 20, DOWN)).best_of_last_day(),
        with_it=punctual.best_of_last_day(),
        bound="Gaps between probes are random: the next one cannot be predicted from the time",
    )
    unseen, bought = "None: unpaid probes cannot detect it", "`paid-not-delivered`: at most 49"
    for trick, delivered, bound in (
        ("402 only for the prober (by its User-Agent or address), otherwise dead", True, unseen),
        ("the same, and one of the last purchases was not delivered", False, bought),
    ):
        yield Attack(
            trick=trick,
            without=score_up_a_quarter(DOWN),
            with_it=shown.best_of_last_day(paid_not_delivered=not delivered),
            bound=bound,
            open=delivered,
        )
