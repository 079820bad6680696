"""docs/gaming.md: what each known trick gains and costs, computed with the real scorer.

The attacks are data: an endpoint as it is, and the same endpoint with the trick (demo/history). A
test says when the page is out of date, and that no trick gains more than this page admits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from tollgauge.core.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.evidence import TermChange
from tollgauge.core.exchange import Answer, Defect, Fault, FaultKind
from tollgauge.core.lookalike import lookalike_paths
from tollgauge.core.score import Score
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.demo.behaviours import perfect_v2
from tollgauge.demo.history import EVERY_MS, Behaviour, History, Scores, history
from tollgauge.demo.seller import Request
from tollgauge.demo.sellers import SELLERS

_START: Final = 20_600 * DAY_MS
_SELLER: Final = SELLERS[0]
_402: Final = perfect_v2(_SELLER, Request(method="GET", path=_SELLER.path), _START).answer
FREE: Final = "nothing"
_503: Final = Answer(status=503)
_429: Final = Answer(status=429)
_TIMEOUT: Final = Fault(kind=FaultKind.TIMEOUT)
_SERVFAIL: Final = Fault(kind=FaultKind.DNS_FAILED)
_TOO_LONG: Final = Fault(kind=FaultKind.LOCAL)
_OLD_CHECK: Final = re.compile(r"/[0-9a-f]{16}")
"""The paths that the wildcard check asked for before they looked like the host's own."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A trick: what is said without it and with it, what it costs, and what bounds it. `open` says
    that nothing here does.
    """

    trick: str
    without: Scores
    with_it: Scores
    cost: str
    bound: str
    open: bool = False

    def gain_tenths(self, policy: int) -> int:
        """What the trick adds to the score, in tenths of a point."""
        return _tenths(self.with_it[policy]) - _tenths(self.without[policy])

    def row(self) -> tuple[str, ...]:
        """Its row of the table."""
        return (self.trick, self._effect(1), self._effect(2), self.cost, self.bound)

    def _effect(self, policy: int) -> str:
        without, with_it = self.without[policy], self.with_it[policy]
        return f"{_words(without)} → {_words(with_it)} ({_signed(self.gain_tenths(policy))})"


@cache
def attacks() -> tuple[Attack, ...]:
    """Every attack that a score can be computed for, in the order of the page."""
    groups = (_silences, _left_behind, _terms, _seen_by_the_prober)
    return tuple(attack for group in groups for attack in group())


# Down, and not seen to be


def _silences() -> Iterator[Attack]:
    quarter = _endpoint(_in_turns(6, 18, _503)).best_of_last_day()
    half = _endpoint(_in_turns(6, 6, _503)).best_of_last_day()
    week = _endpoint(_for_hours(6 * 24, _503)).best_of_last_day()
    counted = "Time counts, not answers: a refusal is time that nobody was served"
    unheard = "`stale` after 3 hours of silence: `unverified` until it is up again"
    for trick, answer, bound in (
        ("429 instead of 503 while down", _429, counted),
        ("401 instead of 503 while down", Answer(status=401), counted),
        ("name servers that answer SERVFAIL while down", _SERVFAIL, unheard),
        ("a listed input that is too long to be asked, while down", _TOO_LONG, unheard),
    ):
        yield Attack(
            trick=f"{trick}, up 6 of 24 hours",
            without=quarter,
            with_it=_endpoint(_in_turns(6, 18, answer)).best_of_last_day(),
            cost=FREE,
            bound=bound,
            open=bound == unheard,
        )
    yield Attack(
        trick="up for 6 days, then dead behind 429 for 24",
        without=week,
        with_it=_endpoint(_for_hours(6 * 24, _429)).best_of_last_day(),
        cost=FREE,
        bound=f"{counted}; the forecast caps what is not payable now",
    )
    asks = Answer(status=503, headers=(("retry-after", str(6 * 3_600)),))
    yield Attack(
        trick="one 503 with a Retry-After of 6 hours for each outage, up half of the time",
        without=half,
        with_it=_endpoint(_in_turns(6, 6, asks)).best_of_last_day(),
        cost=FREE,
        bound="A failure speaks until one and a half times its pause has passed",
    )
    yield from _short_outages()


def _short_outages() -> Iterator[Attack]:
    """The same outage of two hours, ended otherwise than with an answer."""
    now = 30 * DAY_MS - MINUTE_MS
    honest = _endpoint(_for_hours(30 * 24 - 2, _503)).scores(_START + now)
    expired = Fault(kind=FaultKind.TLS_INVALID, defect=Defect.CERTIFICATE_EXPIRED)
    for trick, fault in (
        ("connection refused", Fault(kind=FaultKind.CONNECT)),
        ("no answer in time", _TIMEOUT),
        ("a wrong certificate", expired),
    ):
        yield Attack(
            trick=f"{trick} instead of 503, down for 2 hours",
            without=honest,
            with_it=_endpoint(_for_hours(30 * 24 - 2, fault)).scores(_START + now),
            cost=FREE,
            bound="Every failure is one; the forecast caps what is not payable now",
        )


# A record that is left behind


def _left_behind() -> Iterator[Attack]:
    good = _endpoint(_for_hours(30 * 24, _503), days=53)
    slow = _endpoint(_for_hours(30 * 24, _TIMEOUT), days=53, daily_after=30)
    yield Attack(
        trick="up for 30 days, then delisted and dead for 23",
        without=good.best_of_last_day(),
        with_it=slow.best_of_last_day(listed=False, interval=DAY_MS),
        cost=FREE,
        bound="Time counts, not probes: a failure of a daily cadence speaks for a day",
    )
    bad = _endpoint(_in_turns(6, 18, _503)).best_of_last_day()
    fresh = _endpoint(_always)
    yield Attack(
        trick="a new path after a bad record, 6 days old and always up",
        without=bad,
        with_it=fresh.scores(_START + 6 * DAY_MS, site_median_tenths=_tenths(bad[2])),
        cost=FREE,
        bound="`new-path-of-known-site`: for 7 days no better than the site's others in the middle",
    )
    for age, since in (("half a day", 12 * HOUR_MS), ("6 days", 6 * DAY_MS)):
        yield Attack(
            trick=f"a new domain after a bad record, {age} old and always up",
            without=bad,
            with_it=fresh.scores(_START + since),
            cost="a domain",
            bound="Age: `caution` for half a day, no A for 9 days at least",
            open=True,
        )


# Price and payTo


def _terms() -> Iterator[Attack]:
    month = _endpoint(_always, days=62)
    before = month.scores(_START + 30 * DAY_MS)
    for days in (0, 8):
        yield Attack(
            trick=f"price × 100 after a good month, {_ago(days)}",
            without=before,
            with_it=_after_changes(month, days, [_price(30, 1_000, 100_000)]),
            cost=FREE,
            bound="`price-jumped`: at most 64.9 for 7 days",
        )
    prices = [1_000, 1_900, 3_610, 6_859, 13_032]
    steps = [_price(9 + 7 * week, *prices[week : week + 2]) for week in range(4)]
    yield Attack(
        trick="price × 1.9 every week, × 13 in 4 weeks",
        without=before,
        with_it=_after_changes(month, 0, steps),
        cost=FREE,
        bound="10 of 100 in stability for each step; the price is in every report",
    )
    for days in (0, 8, 31):
        yield Attack(
            trick=f"payTo hijacked after a good month, {_ago(days)}",
            without=before,
            with_it=_after_changes(month, days, [_pay_to(30)]),
            cost="a break-in",
            bound="`payto-changed-recently`: at most 49 for 7 days, and `caution` for 30",
        )
    yield Attack(
        trick="another payTo every day",
        without=before,
        with_it=_after_changes(month, 0, [_pay_to(day) for day in range(1, 31)]),
        cost=FREE,
        bound="Each change costs as much as a hijacking",
    )


# What the prober is shown


def _seen_by_the_prober() -> Iterator[Attack]:
    shown = _endpoint(_always)
    found = {wild: shown.best_of_last_day(wildcard=wild) for wild in (True, False)}
    old_paths = ["/" + "0" * 16]
    new_paths = lookalike_paths("/api/premium-data", lambda choices: 7 % choices)
    for trick, sells, bound in (
        (
            "402 everywhere, but 404 for the pattern of the wildcard check",
            lambda path: not _OLD_CHECK.fullmatch(path),
            "The check asks for paths that look like the host's own, others each time",
        ),
        (
            "402 for every path below `/api/`, 404 elsewhere",
            lambda path: path.startswith("/api/"),
            "More than 20 endpoints with the same terms and answer are a wildcard too",
        ),
    ):
        wild = {1: all(map(sells, old_paths)), 2: all(map(sells, new_paths))}
        yield Attack(
            trick=trick,
            without=found[True],
            with_it={policy: found[wild[policy]][policy] for policy in wild},
            cost=FREE,
            bound=bound,
            open=not wild[2],
        )
    honest = _endpoint(_in_turns(6, 18, _503)).best_of_last_day()
    for trick, bought, bound in (
        ("402 for the prober alone (by its User-Agent or address), else dead", False, _CLOAKING),
        (
            "the same, and one of the last purchases was not delivered",
            True,
            "`paid-not-delivered`: at most 49",
        ),
    ):
        yield Attack(
            trick=trick,
            without=honest,
            with_it=shown.best_of_last_day(paid_not_delivered=bought),
            cost=FREE,
            bound=bound,
            open=not bought,
        )


_CLOAKING: Final = "Nothing that an unpaid prober can see; see below"


# Behaviours and changes


def _endpoint(behave: Behaviour, *, days: int = 30, daily_after: int | None = None) -> History:
    """An endpoint that was probed for some days, after `daily_after` of them only once a day.
    Behaviours and the scores of the attacks count time from when it was first seen.
    """
    daily = _START + (days if daily_after is None else daily_after) * DAY_MS
    return history(
        _SELLER.url,
        lambda at: behave(at - _START),
        start=_START,
        until=_START + days * DAY_MS - MINUTE_MS,
        every=lambda at: EVERY_MS if at < daily else DAY_MS,
    )


def _always(_since: int) -> Answer:
    return _402


def _in_turns(up_hours: int, down_hours: int, answer: Answer | Fault) -> Behaviour:
    period = (up_hours + down_hours) * HOUR_MS
    return lambda since: _402 if since % period < up_hours * HOUR_MS else answer


def _for_hours(hours: int, answer: Answer | Fault) -> Behaviour:
    """Up for some hours, and never again."""
    return lambda since: _402 if since < hours * HOUR_MS else answer


def _price(day: int, before: int, after: int) -> TermChange:
    return _changed(PRICE_CHANGED, day, str(before), str(after))


def _pay_to(day: int) -> TermChange:
    return _changed(PAYTO_CHANGED, day, f"0x{day:040x}", f"0x{day + 1:040x}")


def _changed(kind: str, day: int, before: str, after: str) -> TermChange:
    at = _START + day * DAY_MS
    return TermChange(at=at, kind=kind, source="probe", before=before, after=after)


def _after_changes(endpoint: History, days: int, changes: Iterable[TermChange]) -> Scores:
    """The scores an hour and some days after a month with changes."""
    return endpoint.scores(_START + (30 + days) * DAY_MS + HOUR_MS, changes=tuple(changes))


def _ago(days: int) -> str:
    return f"{days} days later" if days else "at once"


# The page


def gaming() -> str:
    """The page, in Markdown."""
    head = ("attack", "policy 1", "policy 2", "costs", "bounded by")
    rows = [attack.row() for attack in attacks()]
    lines = [head, tuple("---" for _ in head), *rows, _SPAM]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join((_HEAD, table, *_SECTIONS)) + "\n"


def _tenths(computed: Score) -> int:
    return computed.score_tenths or 0


def _words(computed: Score) -> str:
    return f"{_points(_tenths(computed))} {computed.grade} {computed.recommendation}"


def _points(tenths: int) -> str:
    return f"{tenths // 10}.{tenths % 10}"


def _signed(tenths: int) -> str:
    return ("−" if tenths < 0 else "+") + _points(abs(tenths))


_HEAD: Final = """\
# Gaming the score: what each trick gains, and what it costs

<!-- Generated by docs/generate.py from docs/gaming.py; do not edit. -->

Every figure is computed with the real linter, probe rules and scorer, from probes every 30 minutes
of a simulated endpoint that is otherwise right (a 402 without a finding after 200 ms, no
settlements): without the trick → with it, and the points that it adds. Where an endpoint comes and
goes, each figure is that of the hour of the last day at which it looks best to a buyer."""
_SPAM: Final = (
    "30,000 paths of one host in the directory",
    "25 of 25 rows of the leaderboard",
    "3 of 25 rows",
    "a listing for each",
    "At most 3 rows a site; more than 20 endpoints with the same terms and answers are a wildcard",
)
_OPEN: Final = """\
## What is not bounded

- **Cloaking.** Whoever recognises the prober can answer it alone. The prober names itself in its
  User-Agent, so that owners know who asks and can opt out; without that its addresses would give it
  away. No unpaid probe can see what others are told. An operator can change `egress.user_agent` now
  and then, keep a contact in it, and run `tollgauge work` on a machine with another address; scores
  that then fall show who cloaked. What settles the question is a purchase: one that was settled and
  not delivered caps the score at 49.
- **An empty shop.** A 402 is cheap to keep up, whatever stands behind it. Purchases, and payments
  by independent buyers, tell it from a service.
- **Silence that looks like ours.** A name that its own name servers do not resolve, and an input
  that cannot be sent, are nobody's failure: that time is not counted, and the endpoint is
  `unverified` after 3 hours of it, until it is up again.
- **A new name.** A bad record stays with the site (the registrable domain). A new domain begins
  without one, as every honest newcomer does.
- **A wildcard below a prefix**, with 20 endpoints or fewer, is not told from a path with a
  parameter."""
_SECTIONS: Final = (_OPEN,)
