"""Sellers that game the score are probed, and scored after a month, like all others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from docs.gaming_history import History, history
from docs.gaming_payments import EVIDENCE_ANCHORS, Payment, demand_of
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.base.units import DAY_MS, WINDOW_MS, address_bytes
from tollgauge.core.directory import discovery
from tollgauge.core.directory.lookalike import SAME_TERMS_MAX
from tollgauge.core.endpoint.identity import Endpoint, Perimeter, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.score.evidence import ChainEvidence, TermChange
from tollgauge.core.score.prices import changed_price
from tollgauge.core.score.score import Score
from tollgauge.db.engine import Store
from tollgauge.demo import behaviours
from tollgauge.demo.behaviours import play
from tollgauge.demo.customers import purchases
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.seller import PROBER, DemoRequest, Seller, offer_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.sellers.tricks import TRICKS
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule.hosts import HostState

NOW = 20_790 * DAY_MS
SPAM = [seller for seller in TRICKS if seller.kind == "listing-spam"]
KINDS = ["throttles-when-down", "asks-for-silence", "bad-record", "payto-rotating"]
"""Tricks that the probes of one endpoint are enough to detect."""


def one(kind: str) -> Seller:
    return next(seller for seller in TRICKS if seller.kind == kind)


@cache
def honest(seller: Seller) -> Seller:
    """Return the same seller without its trick."""
    return replace(
        seller,
        behave=behaviours.perfect_v2,
        amounts=seller.amounts[:1],
        payees=seller.payees[:1],
        every_path=False,
    )


@cache
def month(seller: Seller, *, until: int = NOW, days: int = 30, agent: str = PROBER) -> History:
    """Return a month of half-hourly probes with the given user agent."""
    request = DemoRequest(method=seller.method, path=seller.path, agent=agent)
    start = until - days * DAY_MS

    def behave(at: int) -> Any:
        return play(seller, request, at).answer

    return history(seller.url, behave, start=start, until=until)


def changes(past: History) -> Iterator[TermChange]:
    """Yield the changes of terms that the probes observed."""
    quoted = [probe for probe in past.probes if probe.quote is not None]
    for before, after in pairwise(quoted):
        for kind, old, new in discovery.find_changes(before.quote, after.quote):
            price = None
            if kind == discovery.PRICE_CHANGED and before.quote and after.quote:
                seen = [probe for probe in past.probes if probe.at < after.at]
                price = changed_price(before.quote, after.quote, seen, at=after.at)
            yield TermChange(
                at=after.at, kind=kind, source="probe", before=old, after=new, price=price
            )


def best(past: History, **known: Any) -> Score:
    """Return the best score of the last day."""
    return past.best_of_last_day(changes=tuple(changes(past)), **known)


@pytest.mark.parametrize("kind", KINDS)
def test_trick_gets_no_a_although_its_honest_twin_does(kind: str) -> None:
    for until in (NOW, NOW + 3 * DAY_MS):
        tricky = best(month(one(kind), until=until))
        twin = best(month(honest(one(kind)), until=until))
        assert (twin.grade, twin.recommendation) == ("A", "proceed")
        assert tricky.grade != "A"
        assert tricky.recommendation in ("avoid", "caution")


def test_price_that_alternates_for_a_month_lowers_the_score() -> None:
    seller = one("price-jumping")
    tricky, twin = best(month(seller)), best(month(honest(seller)))
    # Both prices are usual by then: the upper quartile of the month is the high one.
    assert tricky.score_tenths is not None
    assert twin.score_tenths is not None
    assert tricky.score_tenths < twin.score_tenths


@pytest.mark.parametrize("kind", ["throttles-when-down", "asks-for-silence"])
def test_hiding_an_outage_scores_no_better_than_admitting_it(kind: str) -> None:
    seller = one(kind)
    silent = month(seller)
    said = history(
        seller.url,
        lambda at: answer if (answer := silent_answer(seller, at)).status == 402 else ERROR.answer,
        start=NOW - 30 * DAY_MS,
        until=NOW,
    )
    assert best(silent).score_tenths == best(said).score_tenths


ERROR = behaviours.problem(503, "down")


def silent_answer(seller: Seller, at: int) -> Any:
    return play(seller, DemoRequest(method="GET", path=seller.path), at).answer


def test_fresh_path_scores_no_better_than_its_site() -> None:
    old, fresh = month(one("bad-record")), month(one("fresh-path"), days=3)
    median = best(old).score_tenths
    assert best(old).recommendation == "avoid"
    score = best(fresh, site_median_tenths=median)
    assert median is not None
    assert median < 649
    # Never below 64.9 while a forecast of the path itself is good.
    assert (score.score_tenths, score.recommendation) == (649, "caution")
    assert best(fresh).recommendation == "proceed"


def test_cloaking_by_user_agent_is_detected_by_another_agent_or_a_purchase() -> None:
    seller = one("cloaks-by-agent")
    shown, seen_by_others = best(month(seller)), best(month(seller, agent="a-wallet/1.0"))
    assert (shown.grade, shown.recommendation) == ("A", "proceed")
    assert (seen_by_others.grade, seen_by_others.recommendation) == ("F", "avoid")
    bought = best(month(seller), paid_not_delivered=True)
    assert (bought.grade, bought.recommendation) == ("D", "avoid")


# On the chain


def payments() -> Iterator[Payment]:
    """Yield a month of purchases in the whole market, and the transfers that return money."""
    for purchase in purchases(NOW - 30 * DAY_MS, NOW, present=NOW):
        payer, pay_to = (
            address_bytes(address) for address in (purchase.payer.address, purchase.pay_to)
        )
        yield Payment(payer, pay_to, purchase.amount)
        if purchase.returned_to:
            receiver = address_bytes(purchase.returned_to)
            yield Payment(pay_to, receiver, purchase.amount, signed=False)


@cache
def market_of_a_month() -> tuple[tuple[Payment, ...], dict[bytes, str]]:
    """The payments, and a site for each address that is sold at."""
    month_of_payments = tuple(payments())
    sites = {item.receiver: item.receiver.hex() for item in month_of_payments if item.signed}
    return month_of_payments, sites


def gain_tenths(seller: Seller) -> int:
    """Return the score that settlements add for a seller that is always payable."""
    month_of_payments, sites = market_of_a_month()
    pay_to = offer_at(seller, NOW).pay_to
    demand = demand_of(month_of_payments, sites, address_bytes(pay_to))
    assert demand.transfers > 0
    unpaid = ChainEvidence(network=seller.network, pay_to=pay_to, indexed_ms=WINDOW_MS)
    past = month(honest(one("payto-rotating")))
    paid, without = (
        past.score(NOW, chain=chain, anchors=EVIDENCE_ANCHORS)
        for chain in (replace(unpaid, demand=demand), unpaid)
    )
    return (paid.score_tenths or 0) - (without.score_tenths or 0)


@pytest.mark.parametrize("kind", ["sybil-wallets", "recirculated-money", "ring"])
def test_paying_oneself_buys_no_points(kind: str) -> None:
    assert gain_tenths(one(kind)) == 0


# On the wire


@pytest.fixture
async def market(tmp_path: Path) -> AsyncIterator[DemoMarket]:
    async with run_market(lambda: NOW, tmp_path, latency=lambda *_: 0) as running:
        yield running


@pytest.fixture
async def prober(store: Store, market: DemoMarket) -> AsyncIterator[Prober]:
    egress = Egress(EgressSettings(mapped=market.mapped, ca_file=str(market.ca_file)))
    egress.start()
    yield Prober(store=store, egress=egress, clock=lambda: NOW, cadence=Cadence(host_gap_ms=0))
    await egress.close()


def endpoint(seller: Seller) -> Endpoint:
    resource = parse_resource(seller.url, Perimeter(mapped=frozenset({seller.host})))
    offer = offer_at(seller, NOW)
    usdc = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
    quote = Quote(network=seller.network, asset=usdc, amount=offer.amount, pay_to=offer.pay_to)
    return Endpoint(
        id=resource.id,
        resource=resource.url,
        host=seller.host,
        first_seen=NOW,
        last_seen=NOW,
        quote=quote,
    )


async def is_wildcard(prober: Prober, *sellers: Seller) -> bool | None:
    """Probe the last of several endpoints of a host; return the host's wildcard verdict."""
    known = [endpoint(seller) for seller in sellers]
    await prober.store.writing(endpoints.insert, *known)
    seen = await prober.probe(known[-1], HostState(host=known[-1].host))
    assert seen.sells
    return seen.wildcard


async def test_wildcard_that_hides_from_random_paths_is_detected(prober: Prober) -> None:
    assert await is_wildcard(prober, one("cloaks-by-path")) is True
    past = month(one("cloaks-by-path"))
    assert best(past, wildcard=True).recommendation == "avoid"
    assert best(past, wildcard=False).recommendation == "proceed"


async def test_many_paths_with_the_same_terms_are_a_wildcard(prober: Prober) -> None:
    assert len(SPAM) > SAME_TERMS_MAX
    assert await is_wildcard(prober, *SPAM) is True


async def test_paths_up_to_the_limit_are_not_a_wildcard(prober: Prober) -> None:
    assert await is_wildcard(prober, *SPAM[:SAME_TERMS_MAX]) is False


async def test_cloaker_recognises_a_prober_that_names_itself(
    store: Store, market: DemoMarket
) -> None:
    results = []
    for agent in ("tollgauge/1 (contact: a@b.example)", "somebody/1 (contact: a@b.example)"):
        egress = Egress(
            EgressSettings(mapped=market.mapped, ca_file=str(market.ca_file), user_agent=agent)
        )
        egress.start()
        prober = Prober(store=store, egress=egress, clock=lambda: NOW, cadence=Cadence())
        seen = await prober.probe_alone(endpoint(one("cloaks-by-agent")), first=False)
        results.append(seen.result.status)
        await egress.close()
    assert results == [402, 503]


def test_page_of_cheats_names_every_trick() -> None:
    page = (Path(__file__).parents[2] / "docs/demo-cheats.md").read_text(encoding="utf-8")
    one_per_trick = {seller.kind: seller for seller in reversed(TRICKS)}
    for seller in one_per_trick.values():
        assert seller.label.removesuffix("-1") in page
    for resource in re.findall(r"endpoint\?resource=(\S+?)\)", page):
        assert resource in {seller.url for seller in SELLERS}
