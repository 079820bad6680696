"""The demo's customers pay its sellers on a real chain, and the index finds the payments."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from tests.support.token_balance import balance

from tollgauge import app
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.score.score import Score, score_from_json
from tollgauge.demo import seed
from tollgauge.demo.anvil import ChainError
from tollgauge.demo.chain import run_chain
from tollgauge.demo.customers import DEMAND, SLOT_MS, DemoPurchase, first_sales, purchases, sale_at
from tollgauge.demo.envelopes import BASE, POLYGON, SOLANA
from tollgauge.demo.seed import configuration, forget_chain, index_to_head, load_past
from tollgauge.demo.seller import offer_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.settlements import Settlements
from tollgauge.demo.solana_ledger import SolanaLedger, token_account, transfer_checked
from tollgauge.demo.world import World
from tollgauge.monitor.reports.overview import Ecosystem, ecosystem
from tollgauge.store.scores import scores

pytestmark = pytest.mark.usefixtures("anvil")
_END = 1_795_252_000_000
_START = _END - 30 * DAY_MS
_MONTH = list(purchases(_START, _END, present=_END))


def _of(label: str) -> list[DemoPurchase]:
    return [purchase for purchase in _MONTH if purchase.seller.label == label]


def test_month_has_sellers_with_many_payers_with_one_and_with_none() -> None:
    payers: dict[str, set[str]] = defaultdict(set)
    for purchase in _MONTH:
        payers[purchase.seller.label].add(purchase.payer.address)
    assert len(payers["weather"]) >= 30
    assert len(payers["barometer"]) == len(payers["whisper"]) == 1
    assert len(_of("barometer")) >= 10
    assert all(purchase.returned_to == purchase.payer.address for purchase in _of("whisper"))
    unsold = [seller for seller in SELLERS if seller.label not in payers]
    assert len(unsold) > len(SELLERS) // 3
    owners = {purchase.pay_to for purchase in _of("anything") + _of("seo")}
    assert len(owners) == 1
    assert sum(owners <= set(seller.payees) for seller in SELLERS) == 3


def test_customer_pays_the_price_of_that_time() -> None:
    assert {seller.label for seller in SELLERS} > DEMAND.keys()
    for purchase in (*_MONTH, *first_sales(_END), *(sale_at(_END + n) for n in range(99))):
        offer = offer_at(purchase.seller, purchase.at)
        assert (purchase.amount, purchase.pay_to) == (offer.amount, offer.pay_to)
        assert purchase.seller.network in (BASE, SOLANA)
        assert purchase.payer.address != purchase.pay_to


def test_overlapping_spans_of_customers_agree() -> None:
    later = list(purchases(_START + 10 * DAY_MS, _END, present=_END))
    assert later == [purchase for purchase in _MONTH if purchase.at > _START + 10 * DAY_MS]
    assert {purchase.at % SLOT_MS for purchase in _MONTH} == {0}


def test_every_purchase_is_a_different_authorization() -> None:
    keys = Counter((purchase.seller.label, purchase.at, purchase.number) for purchase in _MONTH)
    assert max(keys.values()) == 1


async def test_chain_has_past_blocks_at_their_times_and_then_present_ones() -> None:
    now = time.time_ns() // 1_000_000
    began = now - 2 * DAY_MS
    bought = list(purchases(began, now, present=now))
    expected: Counter[str] = Counter()
    for purchase in bought:
        if not purchase.returned_to and purchase.network == BASE:
            expected[purchase.pay_to] += purchase.amount
    async with run_chain(began=began - HOUR_MS) as chain:
        sales = Settlements(chain)
        await sales.past(bought, until=now)
        for owner, amount in expected.items():
            assert await balance(chain, owner) == amount
        head = await chain.rpc("eth_getBlockByNumber", "latest", False)
        times = {
            int((await chain.rpc("eth_getBlockByNumber", hex(n), False))["timestamp"], 16)
            for n in range(int(head["number"], 16) + 1)
        }
        assert {purchase.at // 1000 for purchase in bought if purchase.network == BASE} < times
        assert int(head["timestamp"], 16) == now // 1000
        sale = next(one for one in map(sale_at, count(now)) if one.network == BASE)
        before = await balance(chain, sale.pay_to)
        await sales.now([sale])
        # A payee that returns the money received the same amount before.
        assert await balance(chain, sale.pay_to) == before + sale.amount


async def test_returned_money_leaves_the_wash_trader_unchanged() -> None:
    round_trip = _of("whisper")[0]
    async with run_chain() as chain:
        sales = Settlements(chain)
        await sales.now([round_trip])
        assert await balance(chain, round_trip.payer.address) == round_trip.amount
        with pytest.raises(ChainError):
            await sales.now([round_trip])


def _give_on_solana(ledger: SolanaLedger, bought: Sequence[DemoPurchase]) -> None:
    """Send money that no facilitator submitted to the payTo of each purchase on Solana."""
    giver = Keypair()
    source = ledger.fund(giver.pubkey(), 10**9)
    for pay_to in {one.pay_to for one in bought if one.network == SOLANA}:
        target = token_account(Pubkey.from_string(pay_to), ledger.mint)
        gift = transfer_checked(source, ledger.mint, target, giver.pubkey(), 7_777)
        ledger.send([gift], [giver])


_SOLD = (
    "searchlight",
    "weather",
    "tokenrisk",
    "whisper",
    "barometer",
    "anything",
    "chess",
    "soltx",
)


async def test_index_finds_past_payments_and_scores_reflect_payers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = app.now_ms()
    began = now - 8 * DAY_MS
    # One day of history does not show a seller's earlier payees, so their payments are left out.
    bought = [
        purchase
        for purchase in purchases(began, now, present=now)
        if purchase.pay_to == offer_at(purchase.seller, now).pay_to
    ]
    paid_sellers = {purchase.seller for purchase in bought}
    with_history = [
        one for one in SELLERS if one in paid_sellers or one.label in ("fx", "anything")
    ]
    monkeypatch.setattr(seed, "SELLERS", tuple(with_history))
    async with World.start(clock=app.now_ms, chain_began=began - HOUR_MS, solana=True) as world:
        for chain in world.chains:
            await Settlements(chain).past(bought, until=app.now_ms())
        assert world.solana is not None
        await world.solana.past(bought, until=app.now_ms())
        _give_on_solana(world.solana.ledger, bought)
        config = configuration(world, port=0, store_url=f"sqlite:///{tmp_path / 'demo.sqlite'}")
        async with app.open_resources(config) as service:
            await load_past(service.store, days=1, now=app.now_ms(), report=_ignore_progress)
            await index_to_head(service, _ignore_progress)
            while (await service.round("score")).get("scored"):
                pass
            figures = await service.store.reading(ecosystem, now=app.now_ms())
            score_by_label = {
                label: score_from_json(row.result)
                for label in (*_SOLD, "fx")
                if (row := await service.store.reading(scores.get, _endpoint(label, world)))
                is not None
            }
    money = {label: score.settlement for label, score in score_by_label.items()}
    flags = {label: {flag.code for flag in score.flags} for label, score in score_by_label.items()}
    paid = Counter[str]()
    for purchase in bought:
        paid[purchase.seller.label] += purchase.amount
    assert all(money.values())
    assert {label: score.settled_volume for label, score in score_by_label.items()} == {
        label: paid[label] + (paid["seo"] if label == "anything" else 0) for label in score_by_label
    }
    both = score_by_label["searchlight"]
    assert both.coverage == {network: {"eip3009": "read"} for network in (BASE, POLYGON)}
    assert both.settlement is not None
    assert [other.network for other in both.settlement.others] == [POLYGON]
    assert both.settlement.volume > 0
    assert both.settlement.others[0].volume > 0
    on_solana = score_by_label["soltx"]
    assert on_solana.coverage == {SOLANA: {"exact": "read"}}
    assert on_solana.demand is not None
    buyers = {purchase.payer for purchase in bought if purchase.network == SOLANA}
    assert on_solana.demand.payers == len(buyers) > 1
    assert figures.demand is not None
    assert figures.demand.volume == sum(paid.values())
    assert _activity(score_by_label["whisper"]) == _activity(score_by_label["fx"]) == 0
    assert _activity(score_by_label["tokenrisk"]) > 0  # its customers also buy at the anchors
    assert "no-settlements" in flags["fx"]
    assert "self-paid" in flags["whisper"]
    assert "no-settlements" not in flags["weather"]


async def test_demo_that_returns_to_its_folder_follows_its_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seed, "SELLERS", SELLERS[:1])
    url = f"sqlite:///{tmp_path / 'demo.sqlite'}"
    figures: list[Ecosystem] = []
    for customers in (6, 3):
        async with World.start(clock=app.now_ms) as world:
            await Settlements(world.chain).now(list(first_sales(app.now_ms()))[:customers])
            async with app.open_resources(configuration(world, port=0, store_url=url)) as service:
                if not figures:
                    await load_past(
                        service.store, days=1, now=app.now_ms(), report=_ignore_progress
                    )
                await service.store.writing(forget_chain)
                figures.append(await _index_until(service, customers))
    price = SELLERS[0].amounts[0]
    assert [figure.demand and figure.demand.volume for figure in figures] == [6 * price, 3 * price]
    assert [figure.demand and figure.demand.payers for figure in figures] == [6, 3]


async def _index_until(service: app.Opened, payers: int) -> Ecosystem:
    """Index until the figures count this many payers; they are recomputed only periodically."""
    async with asyncio.timeout(60):
        while True:
            await service.round("index-8453")
            counts = await service.store.reading(ecosystem, now=app.now_ms())
            if counts.demand is not None and counts.demand.payers >= payers:
                return counts
            await asyncio.sleep(0.05)


def _ignore_progress(_words: str, _done: int, _total: int) -> None:
    """Report no progress."""


def _endpoint(label: str, world: World) -> str:
    seller = next(seller for seller in SELLERS if seller.label == label)
    return parse_resource(seller.url, world.perimeter).id


def _activity(score: Score) -> int:
    return next(row.tenths for row in score.components if row.name == "activity")
