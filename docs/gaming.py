"""docs/gaming.md: what each known trick gains and costs, computed with the real scorer.

The attacks are data: an endpoint as it is, and the same endpoint with the trick
(docs/gaming_history.py). A test says when the page is out of date, and that no trick gains more
than this page admits.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Final

from docs.gaming_history import (
    EVERY_MS,
    Behaviour,
    History,
    between_probes,
    history,
    in_turns,
    price_changes,
    up_until,
)
from docs.gaming_payments import (
    ANCHORS,
    EVIDENCE_ANCHORS,
    Payment,
    circle,
    demand_of,
    paid,
    spent_at,
    wallets,
)
from docs.outcome_texts import OUTCOME_TEXTS
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX, lookalike_paths
from tollgauge.core.probe.exchange import Answer, Defect, Fault, FaultKind
from tollgauge.core.probe.outcome import Outcome
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
        row = OUTCOME_TEXTS[outcome].gaming
        if row is None:
            continue
        yield Attack(
            trick=f"{row.trick} instead of 503 while down, up 6 of 24 hours",
            without=_up_a_quarter(_503),
            with_it=_up_a_quarter(row.answer),
            bound=row.bound,
            open=not row.bounded,
        )
    yield Attack(
        trick="up for 6 days, then dead behind 429 for 24",
        without=_up_until(6 * DAY_MS, _503).best_of_last_day(),
        with_it=_up_until(6 * DAY_MS, Answer(status=429)).best_of_last_day(),
        bound="A refusal is a failure from the first one",
    )
    asks = Answer(status=429, headers=(("retry-after", str(6 * 3_600)),))
    yield Attack(
        trick="429 with a Retry-After of 6 hours for each outage, up half of the time",
        without=_endpoint(_in_turns(6, 6, _503)).best_of_last_day(),
        with_it=_endpoint(_in_turns(6, 6, asks)).best_of_last_day(),
        bound="A failure holds until one and a half times its pause has passed; stale with a "
        "failure as last state is `avoid`",
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
            bound="Every failure is one; the forecast caps endpoints that are not payable now",
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
    bad, fresh = _up_a_quarter(_503), _always()
    unsteady = _endpoint(_in_turns(20, 4, _503), days=6)
    yield Attack(
        trick="a new path after a bad record, 6 days old and up 20 of 24 hours",
        without=bad,
        with_it=unsteady.best_of_last_day(site_median_tenths=_tenths(bad)),
        bound="`new-path-of-known-site`: for 7 days at most the median of the site's other paths, "
        "never below 64.9 while it is steady",
    )
    yield Attack(
        trick="the same after the old paths answer 404",
        without=bad,
        with_it=unsteady.best_of_last_day(site_median_tenths=_tenths(bad)),
        bound="A retired path counts for 30 days with its score of the day before",
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
    month = _always(days=62)
    jumped = "`price-jumped`: at most 64.9 for 7 days"
    steps = "Compared with the usual price of 31 days, not with the price before"
    start = (_START, 1_000)
    weekly = [1_000, 1_900, 3_610, 6_859, 13_032]
    daily = [
        (_START + day * DAY_MS + part * EVERY_MS, amount)
        for day in range(10, 31)
        for part, amount in enumerate((100_000, 1_000))
    ]
    creeping = [(_START + day * DAY_MS, 1_000 * 105**day // 100**day) for day in range(1, 31)]
    hundredfold = [start, (_START + 30 * DAY_MS, 100_000)]
    for trick, prices, days, bound in (
        ("price × 100 after a good month, at once", hundredfold, 0, jumped),
        ("price × 100 after a good month, 8 days later", hundredfold, 8, jumped),
        (
            "price × 13 in 4 weekly steps of × 1.9",
            [(_START + (2 + 7 * week) * DAY_MS, price) for week, price in enumerate(weekly)],
            0,
            steps,
        ),
        ("price × 100 for ten minutes a day", [start, *daily], 0, "Each time is an increase"),
        ("price + 5 % every day", [start, *creeping], 0, steps),
    ):
        now = _START + (30 + days) * DAY_MS + HOUR_MS
        yield Attack(
            trick=trick,
            without=month.score(_START + 30 * DAY_MS),
            with_it=month.score(now, changes=price_changes(prices)),
            bound=bound,
        )
    moved = "`payto-changed-recently`: at most 49 for 7 days, and `caution` for 30"
    rotation = [_pay_to(day) for day in range(1, 31)]
    hijacked = rotation[-1:]
    for trick, changes, days, cost in (
        ("payTo hijacked after a good month, at once", hijacked, 0, "a break-in"),
        ("payTo hijacked after a good month, 8 days later", hijacked, 8, "a break-in"),
        ("payTo hijacked after a good month, 31 days later", hijacked, 31, "a break-in"),
        ("another payTo every day", rotation, 0, FREE),
    ):
        now = _START + (30 + days) * DAY_MS + HOUR_MS
        yield Attack(
            trick=trick,
            without=month.score(_START + 30 * DAY_MS),
            with_it=month.score(now, changes=tuple(changes)),
            cost=cost,
            bound=moved,
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
    closing = between_probes(
        _SELLER.url, 24 * MINUTE_MS, _402, _503, start=_START, until=_START + 30 * DAY_MS
    )
    yield Attack(
        trick="closed after each probe, open 24 minutes later (up 20 % of the time)",
        without=_endpoint(in_turns(7 * MINUTE_MS, 30 * MINUTE_MS, _402, _503)).best_of_last_day(),
        with_it=closing.best_of_last_day(),
        bound="Gaps between probes are random: it fails the share of probes that find it closed",
        open=True,
    )
    dice = random.Random(2)  # noqa: S311 - a reproducible simulation
    punctual = history(
        _SELLER.url,
        in_turns(5 * MINUTE_MS, 25 * MINUTE_MS, _402, _503),
        start=_START,
        until=_START + 30 * DAY_MS,
        every=lambda _: dice.randint(EVERY_MS // 6, EVERY_MS * 11 // 6),
    )
    yield Attack(
        trick="open only for the first 5 minutes of each half hour",
        without=_endpoint(_in_turns(4, 20, _503)).best_of_last_day(),
        with_it=punctual.best_of_last_day(),
        bound="Gaps between probes are random: no clock tells when the next one comes",
    )
    unseen, bought = "Nothing that an unpaid prober can see", "`paid-not-delivered`: at most 49"
    for trick, delivered, bound in (
        ("402 only for the prober (by its User-Agent or address), otherwise dead", True, unseen),
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

_SITES: Final = {
    _SOLD_AT: "seller.example",
    **{wallet: f"shop-{number}.example" for number, wallet in enumerate(wallets("shop", 20))},
}
_SHOPS: Final = tuple(wallet for wallet in _SITES if wallet != _SOLD_AT)
_ANCHORS: Final = tuple(ANCHORS)


def _settlements() -> Iterator[Attack]:
    hundred, friend, nine = wallets("wallet", 100), wallets("friend", 1), wallets("nine", 9)
    nothing = "Only payers who spend at anchors have a weight"
    refund = paid([_SOLD_AT], 10_000, to=b"hub", bought=False)
    for trick, payments, cost in (
        ("the payTo pays itself $1,000", paid([_SOLD_AT], 1_000, to=_SOLD_AT), "gas"),
        ("100 wallets pay 1 cent each", _pay(hundred, Fraction(1, 100)), _spent(1)),
        ("100 wallets pay $1 each", _pay(hundred, 1), _spent(100)),
        ("100 wallets pay $100 each, one note through a hub", _pay(hundred, 100) + refund, "gas"),
        ("100,000 zero-value transfers in the name of customers of anchors", _zero_value(), "gas"),
        (
            "three shops of one owner and three groups of nine wallets",
            [
                payment
                for group in range(3)
                for shop in (_SOLD_AT, *_SHOPS[:2])
                for payment in _pay(wallets(f"group {group}", 9), 1, to=shop)
            ],
            _spent(81),
        ),
        ("a triangle of shops", circle((_SOLD_AT, *_SHOPS[:2]), 100), "gas"),
        ("a circle of 20 shops", circle((_SOLD_AT, *_SHOPS[:19]), 100), "gas"),
        (
            "a ring of wallets, prepared for 30 days, on a new free host",
            _pay(nine, 1) + _pay(nine, 1, to=_SHOPS[0]),
            "gas",
        ),
        (
            "one bought anchor: 100 wallets spend $500 there",
            _pay(hundred, 1) + spent_at(hundred, 500, _ANCHORS[:1]),
            "the anchor's silence",
        ),
        (
            "two anchors that send everything back",
            _pay(hundred, 1)
            + spent_at(hundred, 500, _ANCHORS[:2])
            + [
                payment._replace(sender=payment.receiver, receiver=payment.sender, signed=False)
                for payment in spent_at(hundred, 500, _ANCHORS[:2])
            ],
            "gas",
        ),
    ):
        yield _paid(trick, payments, cost, nothing)
    yield Attack(
        trick="another seller's payTo on a new host",
        without=_sold([]),
        with_it=_always().score(
            _NOW,
            chain=replace(_UNPAID, owner="seller.example"),
            anchors=EVIDENCE_ANCHORS,
        ),
        bound="The demand of a payTo belongs to the site first seen to advertise it",
    )
    for dollars in (22, 100, 200):
        yield _bought(dollars, shops=1)
    yield _bought(200, shops=20)
    for trick, payments in (
        ("strangers pay an honest seller $0.20", paid(hundred, Fraction(1, 500), to=_SOLD_AT)),
        ("a stranger pays an honest seller $100,000", paid(friend, 100_000, to=_SOLD_AT)),
        ("10,000 wallets pay an honest seller 1 cent", _crowd(10_000)),
    ):
        honest = _honest()
        yield Attack(
            trick=f"griefing: {trick}",
            without=_sold(honest),
            with_it=_sold([*honest, *payments]),
            cost="the money",
            bound="Payments by strangers change no weight",
        )


def _bought(dollars: int, *, shops: int) -> Attack:
    """Own wallets that spend this at each of two anchors, and pay one or more shops."""
    names = wallets("buyer", -(-dollars // 20))
    sold_at = (_SOLD_AT, *_SHOPS[: shops - 1])
    payments = [payment for shop in sold_at for payment in _pay(names, 1, to=shop)]
    payments += spent_at(names, Fraction(dollars, len(names)), _ANCHORS[:2])
    each = f", one ring for {shops} shops" if shops > 1 else ""
    return _paid(
        f"own wallets spend ${dollars} at each of two anchors{each}",
        payments,
        f"${2 * dollars} a month to the anchors",
        "Real spending at independent sellers: $44 for 3 points and $333 for 10, for each seller",
        open_=_sold(payments).score_tenths != _sold([]).score_tenths,
    )


def _honest() -> list[Payment]:
    """Thirty customers who also buy at anchors."""
    customers = wallets("customer", 30)
    return _pay(customers, 2) + spent_at(customers, 15, _ANCHORS)


def _crowd(count: int) -> list[Payment]:
    return _pay(wallets("crowd", count), Fraction(1, 100))


def _zero_value() -> list[Payment]:
    known = wallets("customer", 30)
    zero = [Payment(payer, _SOLD_AT, 0, signed=False) for payer in known] * 3
    return spent_at(known, 50, _ANCHORS) + zero


def _paid(
    trick: str, payments: Iterable[Payment], cost: str, bound: str, *, open_: bool = False
) -> Attack:
    """An established endpoint with and without these payments."""
    return Attack(
        trick=trick,
        without=_sold([]),
        with_it=_sold(payments),
        cost=cost,
        bound=bound,
        open=open_,
    )


_UNPAID: Final = ChainEvidence(network="eip155:8453", pay_to="0x", indexed_ms=WINDOW_MS)


def _sold(payments: Iterable[Payment]) -> Score:
    """The score of an established endpoint after these payments."""
    demand = demand_of(payments, _SITES, _SOLD_AT)
    return _always().score(_NOW, chain=replace(_UNPAID, demand=demand), anchors=EVIDENCE_ANCHORS)


def _pay(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes = _SOLD_AT
) -> list[Payment]:
    return paid(payers, dollars, to=to)


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


def _pay_to(day: int) -> TermChange:
    return TermChange(
        at=_START + day * DAY_MS,
        kind=PAYTO_CHANGED,
        source="probe",
        before=str(day),
        after=str(day + 1),
    )


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

- **Cloaking.** A seller that recognises the prober can answer it differently. The prober names
  itself in its User-Agent, so that owners know who asks and can opt out; without that its addresses
  would give it away. No unpaid probe can see what others receive. Operators can change
  `egress.user_agent` from time to time (keep a contact address in it) and run `tollgauge work` on a
  machine with another address; scores that then fall show who cloaked. A purchase settles the
  question: one that was settled and not delivered caps the score at 49.
- **Another answer while closed.** A 2xx, a 400, a 422 or a 402 without terms is a response within
  the deadline and counts as up, although nobody can pay it: it keeps the points of uptime. Its
  compliance is 0, and it is not payable, so the state, the forecast and their caps are those of an
  outage. The advice is `avoid` or `caution` while it answers so.
- **An empty shop.** A 402 is cheap to keep up, whether or not there is a service behind it.
  Purchases, and payments by proven customers, tell the two apart.
- **Real customers of anchors.** An owner's ordinary purchases at anchors prove the owner's wallet
  as they would prove any other, and customers of anchors who are paid to come are not told apart
  from those who come by themselves. Each point costs money that the seller does not get back; the
  figures above state how much.
- **A payTo that is not listed yet.** The first site that advertises an address owns its demand. A
  seller whose address a stranger listed first gets no points for its demand and loses none of
  the others.
- **Spending elsewhere.** A payer's weight is divided among the sellers that it pays. If its other
  purchases become known because their seller is listed, its weight at each is smaller.
- **A new name.** A bad record stays with the site (the registrable domain). A new domain begins
  without one, as every honest newcomer does.
- **A wildcard below a prefix**, with 20 endpoints or fewer, is not told from a path with a
  parameter."""
