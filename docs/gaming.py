"""docs/gaming.md: what each known trick gains and costs, computed with the real scorer.

The attacks are data: an endpoint as it is, and the same endpoint with the trick
(docs/gaming_history.py). A test says when the page is out of date, and that no trick gains more
than this page admits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Final

from docs.gaming_history import EVERY_MS, Behaviour, History, history, in_turns, up_until
from docs.gaming_payments import Payment, paid, ring, sums_of, wallets
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX, lookalike_paths
from tollgauge.core.probe.exchange import Answer, Defect, Fault, FaultKind
from tollgauge.core.probe.outcome import OUTCOMES, Outcome
from tollgauge.core.score.evidence import ChainEvidence, TermChange
from tollgauge.core.score.score import Score
from tollgauge.demo.behaviours import perfect_v2
from tollgauge.demo.seller import DemoRequest
from tollgauge.demo.sellers import SELLERS
from tollgauge.monitor.ranking import SITE_ROWS, SIZE

_START: Final = 20_600 * DAY_MS
_SELLER: Final = SELLERS[0]
_402: Final = perfect_v2(_SELLER, DemoRequest(method="GET", path=_SELLER.path), _START).answer
FREE: Final = "nothing"
_503: Final = Answer(status=503)
_NOW: Final = _START + 30 * DAY_MS - MINUTE_MS
_SOLD_AT: Final = b"seller 0"
_RANDOM_PATH: Final = re.compile(r"/[0-9a-f]{16}")
"""Paths that a check without knowledge of the host would ask for."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A trick: what is said without it and with it, what it costs, and what bounds it. `open` says
    that nothing here does.
    """

    trick: str
    without: Score
    with_it: Score
    cost: str = FREE
    bound: str
    open: bool = False

    @property
    def gain_tenths(self) -> int:
        """What the trick adds to the score, in tenths of a point."""
        return _tenths(self.with_it) - _tenths(self.without)

    def row(self) -> tuple[str, ...]:
        """Its row of the table."""
        effect = f"{_words(self.without)} → {_words(self.with_it)} ({_signed(self.gain_tenths)})"
        return (self.trick, effect, self.cost, self.bound)


@cache
def attacks() -> tuple[Attack, ...]:
    """Every attack that a score can be computed for, in the order of the page."""
    groups = (_silences(), _left_behind(), _terms(), _seen_by_the_prober(), _settlements())
    return tuple(chain.from_iterable(groups))


# Down, and not seen to be


def _silences() -> Iterator[Attack]:
    for outcome in Outcome:
        row = OUTCOMES[outcome].gaming
        if row is None:
            continue
        yield Attack(
            trick=f"{row.trick} instead of 503 while down, up 6 of 24 hours",
            without=_up_a_quarter(_503),
            with_it=_up_a_quarter(row.answer),
            bound=row.bound,
            open=not row.bounded,
        )
    counted = "Time counts, not responses: a refusal is time without service"
    yield Attack(
        trick="up for 6 days, then dead behind 429 for 24",
        without=_up_until(6 * DAY_MS, _503).best_of_last_day(),
        with_it=_up_until(6 * DAY_MS, Answer(status=429)).best_of_last_day(),
        bound=f"{counted}; the forecast caps what is not payable now",
    )
    asks = Answer(status=503, headers=(("retry-after", str(6 * 3_600)),))
    yield Attack(
        trick="one 503 with a Retry-After of 6 hours for each outage, up half of the time",
        without=_endpoint(_in_turns(6, 6, _503)).best_of_last_day(),
        with_it=_endpoint(_in_turns(6, 6, asks)).best_of_last_day(),
        bound="A failure speaks until one and a half times its pause has passed",
    )
    expired = Fault(kind=FaultKind.TLS_INVALID, defect=Defect.CERTIFICATE_EXPIRED)
    for trick, fault in (
        ("connection refused", Fault(kind=FaultKind.CONNECT)),
        ("no answer in time", Fault(kind=FaultKind.TIMEOUT)),
        ("a wrong certificate", expired),
    ):
        yield Attack(
            trick=f"{trick} instead of 503, down for 2 hours",
            without=_up_until(30 * DAY_MS - 2 * HOUR_MS, _503).score(_NOW),
            with_it=_up_until(30 * DAY_MS - 2 * HOUR_MS, fault).score(_NOW),
            bound="Every failure is one; the forecast caps what is not payable now",
        )


# A record that is left behind


def _left_behind() -> Iterator[Attack]:
    silent = Fault(kind=FaultKind.TIMEOUT)
    slow = _up_until(30 * DAY_MS, silent, days=53, daily_after=30)
    yield Attack(
        trick="up for 30 days, then delisted and dead for 23",
        without=_up_until(30 * DAY_MS, _503, days=53).best_of_last_day(),
        with_it=slow.best_of_last_day(listed=False, interval=DAY_MS),
        bound="Time counts, not probes: a failure of a daily cadence speaks for a day",
    )
    bad, fresh = _up_a_quarter(_503), _always()
    yield Attack(
        trick="a new path after a bad record, 6 days old and always up",
        without=bad,
        with_it=fresh.score(_START + 6 * DAY_MS, site_median_tenths=_tenths(bad)),
        bound="`new-path-of-known-site`: for 7 days no better than the site's others in the middle",
    )
    for age, since in (("half a day", 12 * HOUR_MS), ("6 days", 6 * DAY_MS)):
        yield Attack(
            trick=f"a new domain after a bad record, {age} old and always up",
            without=bad,
            with_it=fresh.score(_START + since),
            cost="a domain",
            bound="Age: `caution` for half a day, no A for 9 days at least",
            open=True,
        )


# Price and payTo


def _terms() -> Iterator[Attack]:
    prices = [1_000, 1_900, 3_610, 6_859, 13_032]
    steps = [_price(9 + 7 * week, *prices[week : week + 2]) for week in range(4)]
    jump, rotation = [_price(30, 1_000, 100_000)], [_pay_to(day) for day in range(1, 31)]
    hijacked = rotation[-1:]
    jumped = "`price-jumped`: at most 64.9 for 7 days"
    moved = "`payto-changed-recently`: at most 49 for 7 days, and `caution` for 30"
    month = _always(days=62)
    for trick, changes, days, cost, bound in (
        ("price × 100 after a good month, at once", jump, 0, FREE, jumped),
        ("price × 100 after a good month, 8 days later", jump, 8, FREE, jumped),
        ("price × 1.9 every week, × 13 in 4 weeks", steps, 0, FREE, "Each step costs stability"),
        ("payTo hijacked after a good month, at once", hijacked, 0, "a break-in", moved),
        ("payTo hijacked after a good month, 8 days later", hijacked, 8, "a break-in", moved),
        ("payTo hijacked after a good month, 31 days later", hijacked, 31, "a break-in", moved),
        ("another payTo every day", rotation, 0, FREE, moved),
    ):
        now = _START + (30 + days) * DAY_MS + HOUR_MS
        yield Attack(
            trick=trick,
            without=month.score(_START + 30 * DAY_MS),
            with_it=month.score(now, changes=tuple(changes)),
            cost=cost,
            bound=bound,
        )


# What the prober is shown


def _seen_by_the_prober() -> Iterator[Attack]:
    shown = _always()
    scores = {wild: shown.best_of_last_day(wildcard=wild) for wild in (True, False)}
    checked_paths = lookalike_paths("/api/premium-data", lambda choices: 7 % choices)
    for trick, sells, bound in (
        (
            "402 everywhere, but 404 for paths of 16 hex digits",
            lambda path: not _RANDOM_PATH.fullmatch(path),
            "The check asks for paths that look like the host's own, others each time",
        ),
        (
            "402 for every path below `/api/`, 404 elsewhere",
            lambda path: path.startswith("/api/"),
            f"More than {SAME_TERMS_MAX} endpoints with the same terms and answers are one too",
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
    unseen, bought = "Nothing that an unpaid prober can see", "`paid-not-delivered`: at most 49"
    for trick, delivered, bound in (
        ("402 for the prober alone (by its User-Agent or address), else dead", True, unseen),
        ("the same, and one of the last purchases was not delivered", False, bought),
    ):
        yield Attack(
            trick=trick,
            without=_up_a_quarter(_503),
            with_it=shown.best_of_last_day(paid_not_delivered=not delivered),
            bound=bound,
            open=delivered,
        )


# Settlements


def _settlements() -> Iterator[Attack]:
    hundred, friend, circle = wallets("wallet", 100), wallets("friend", 1), wallets("seller", 10)
    for trick, payments, cost in (
        ("the payTo pays itself $1,000", _pay([_SOLD_AT], 1_000), "gas"),
        (
            "a friend pays $1,000 and gets it back",
            [*_pay(friend, 1_000), *_return(1_000, to=friend[0])],
            "gas",
        ),
        ("100 wallets pay 1 cent each", _pay(hundred, Fraction(1, 100)), _spent(1)),
        ("100 wallets pay $1 each", _pay(hundred, 1), _spent(100)),
        (
            "100 wallets pay $100 each, one note that returns through a hub",
            [*_pay(hundred, 100), *_return(10_000, to=b"hub")],
            _spent(100),
        ),
        (
            "10 sellers, each of which pays the others $100 from another wallet",
            ring(circle, 100, now=_NOW),
            _spent(900),
        ),
    ):
        yield _paid(trick, payments, circle, cost, "Without outside spending: at most 3 points")
    for dollars in (1, 3, 10):
        choices = [_outside_spending(dollars, count) for count in (1, 2, 3, 5, 10, 20, 50, 100)]
        yield max(choices, key=lambda attack: attack.gain_tenths)


def _outside_spending(dollars: int, count: int) -> Attack:
    """Wallets that spend this at unrelated sellers, and pay $1,000 each that a hub gives back."""
    names, shops, crowd = wallets("wallet", count), wallets("shop", 4), wallets("customer", 200)
    payments = [*_pay(names, 1_000), *_return(1_000 * count, to=b"hub")]
    for shop in shops:
        payments += _pay(crowd, 50, to=shop)
        payments += _pay(names, Fraction(31 * dollars, count * len(shops)), to=shop)
    return _paid(
        f"{count} such wallets with outside spending of ${dollars} a day",
        payments,
        shops,
        f"${31 * dollars} a month to other sellers, and gas",
        "The low end, which weighs payers by it: after 3 points each costs at least $1 a day",
    )


def _paid(
    trick: str, payments: Iterable[Payment], others: Sequence[bytes], cost: str, bound: str
) -> Attack:
    """An established endpoint with and without these payments."""
    sums = sums_of(payments, {_SOLD_AT, *others}, _SOLD_AT, as_of=_NOW)
    unpaid = ChainEvidence(network="eip155:8453", pay_to="0x", indexed_ms=WINDOW_MS)
    return Attack(
        trick=trick,
        without=_always().score(_NOW, chain=unpaid),
        with_it=_always().score(_NOW, chain=replace(unpaid, sums=sums)),
        cost=cost,
        bound=bound,
    )


def _pay(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes = _SOLD_AT
) -> list[Payment]:
    return paid(payers, dollars, to=to, now=_NOW)


def _return(dollars: int, *, to: bytes) -> list[Payment]:
    return paid([_SOLD_AT], dollars, to=to, now=_NOW, bought=False)


def _spent(dollars: int) -> str:
    return f"${dollars} that comes back, and gas"


# Endpoints and changes


def _endpoint(behave: Behaviour, *, days: int = 30, daily_after: int | None = None) -> History:
    """An endpoint that was probed for some days, after `daily_after` of them only once a day."""
    daily = _START + (days if daily_after is None else daily_after) * DAY_MS
    return history(
        _SELLER.url,
        behave,
        start=_START,
        until=_START + days * DAY_MS - MINUTE_MS,
        every=lambda at: EVERY_MS if at < daily else DAY_MS,
    )


@cache
def _always(*, days: int = 30) -> History:
    return _endpoint(lambda _: _402, days=days)


@cache
def _up_a_quarter(down: Answer | Fault) -> Score:
    return _endpoint(_in_turns(6, 18, down)).best_of_last_day()


def _in_turns(up: int, down: int, answer: Answer | Fault) -> Behaviour:
    return in_turns(up * HOUR_MS, down * HOUR_MS, _402, answer)


def _up_until(since: int, down: Answer | Fault, **probed: int) -> History:
    return _endpoint(up_until(_START + since, _402, down), **probed)


def _price(day: int, before: int, after: int) -> TermChange:
    at, old, new = _START + day * DAY_MS, str(before), str(after)
    return TermChange(at=at, kind=PRICE_CHANGED, source="probe", before=old, after=new)


def _pay_to(day: int) -> TermChange:
    return replace(_price(day, day, day + 1), kind=PAYTO_CHANGED)


# The page


def gaming() -> str:
    """The page, in Markdown."""
    head = ("attack", "gain", "costs", "bounded by")
    rows = [attack.row() for attack in attacks()]
    lines = (head, ["---"] * len(head), *rows, _SPAM)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join((_HEAD, table, _OPEN)) + "\n"


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
    f"{SITE_ROWS} of {SIZE} rows of the leaderboard",
    "a listing for each",
    f"At most {SITE_ROWS} rows a site; {SAME_TERMS_MAX + 1} with the same answers are a wildcard",
)
_OPEN: Final = """\
## What is not bounded

- **Cloaking.** Whoever recognises the prober can answer it alone. The prober names itself in its
  User-Agent, so that owners know who asks and can opt out; without that its addresses would give it
  away. No unpaid probe can see what others are told. An operator can change `egress.user_agent` now
  and then, keep a contact in it, and run `tollgauge work` on a machine with another address; scores
  that then fall show who cloaked. What settles the question is a purchase: one that was settled and
  not delivered caps the score at 49.
- **Up without selling.** A free response, a 400 or a 402 without terms is up time. While it lasts,
  compliance is 0 and `payableNow` falls, but the uptime component does not.
- **An empty shop.** A 402 is cheap to keep up, whatever stands behind it. Purchases, and payments
  by independent buyers, tell it from a service.
- **A new name.** A bad record stays with the site (the registrable domain). A new domain begins
  without one, as every honest newcomer does.
- **A wildcard below a prefix**, with 20 endpoints or fewer, is not told from a path with a
  parameter."""
