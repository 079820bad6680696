"""The index loop of Solana: its table must equal the payments that a local network made, whatever
nodes and processes do. The transactions ran in litesvm with the real token program.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from solders.keypair import Keypair
from tests.support.databases import on_each, on_sqlite
from tests.support.fake_node import Mood, RefusedError
from tests.support.solana_node import Change, SolanaNode
from tests.support.statements import fetch

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.solana import SolanaReader
from tollgauge.core.base.units import DAY_MS, SECOND_MS, base58_bytes, chain_number, day_of
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import KnownOffer, Quote, Terms, indexable_addresses, list_offers
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.scoring import score
from tollgauge.db.engine import Store
from tollgauge.demo.solana_ledger import DEVNET, SolanaLedger, token_account, transfer_checked
from tollgauge.jobs import index_solana
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.monitor import scoring, settlement
from tollgauge.observe import REGISTRY
from tollgauge.store.chain import cursors, followed, transfers, volumes, wallets
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes

CHAIN: Final = chain_number(DEVNET) or 0
MINT: Final = str(SolanaLedger().mint)
QUICK: Final = IndexSettings(dirty_every_ms=0, volume_every_ms=0, check=0.3, rest_s=0.0)
FACILITATOR, RELAYER, STRANGER, *PAYERS = (Keypair.from_seed(bytes([n]) * 32) for n in range(1, 7))
SELLERS: Final = [Keypair.from_seed(bytes([n]) * 32) for n in range(20, 23)]

Row = tuple[bytes, bytes, bytes, bool, int]


@dataclass
class Market:
    """A local network whose payments are known."""

    ledger: SolanaLedger = field(default_factory=SolanaLedger)
    expected: set[Row] = field(default_factory=set)
    memo: int = 0

    def __post_init__(self) -> None:
        for owner in (*PAYERS, *SELLERS, STRANGER):
            self.ledger.fund(owner.pubkey(), 10**12)

    def pay(self, payer: Keypair, seller: Keypair, amount: int, by: Keypair = FACILITATOR) -> str:
        """Pay through a facilitator."""
        self.memo += 1
        signature = self.ledger.pay(
            payer, seller.pubkey(), amount, fee_payer=by, memo=b"%d" % self.memo
        )
        ends = bytes(seller.pubkey()), bytes(payer.pubkey())
        self.expected.add((base58_bytes(signature), *ends, True, amount))
        return signature

    def send(self, sender: Keypair, receiver: Keypair, amount: int) -> None:
        """Send money without a facilitator: what leaves a seller counts, what arrives does not."""
        mint = self.ledger.mint
        accounts = [token_account(one.pubkey(), mint) for one in (sender, receiver)]
        transfer = transfer_checked(accounts[0], mint, accounts[1], sender.pubkey(), amount)
        signature = base58_bytes(self.ledger.send([transfer], [sender]))
        if sender in SELLERS:
            ends = bytes(sender.pubkey()), bytes(receiver.pubkey())
            self.expected.add((signature, *ends, False, amount))

    def fail(self, payer: Keypair, seller: Keypair) -> None:
        """Submit a payment of more than the payer has."""
        self.memo += 1
        self.ledger.pay(
            payer, seller.pubkey(), 10**13, fee_payer=FACILITATOR, memo=b"%d" % self.memo
        )

    def trade(self, dice: random.Random, steps: int) -> None:
        """Make payments, refunds and decoys."""
        for _ in range(steps):
            payer, seller = dice.choice(PAYERS), dice.choice(SELLERS)
            amount = dice.randint(100, 10**6)
            kind = dice.random()
            if kind < 0.6:
                self.pay(payer, seller, amount, dice.choice((FACILITATOR, RELAYER)))
            elif kind < 0.75:
                self.send(seller, payer, amount)
            elif kind < 0.9:
                self.send(STRANGER, seller, amount)
            else:
                self.fail(payer, seller)


@dataclass
class SolanaIndexer:
    """A process that indexes: its store and nodes are gone when it is killed."""

    database: str
    nodes: Sequence[SolanaNode]
    market: Market
    late_ms: int = 0
    anchors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tallies: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        self.store = Store.open(self.database)
        self.reader = SolanaReader(
            [Node("http://node.example", reply_max=1 << 22, transport=node) for node in self.nodes],
            chain_id=CHAIN,
            mint=str(self.market.ledger.mint),
            check=QUICK.check,
            rest_s=0.0,
            seed=1,
        )
        self.state = IndexState()

    async def stop(self) -> None:
        await self.reader.close()
        await self.store.close()

    def now(self) -> int:
        return self.market.ledger.now + self.late_ms

    async def offer(self, *sellers: Keypair, fee_payers: Sequence[Keypair]) -> None:
        """Add endpoints that offer a payment with each of the fee payers."""
        for seller in sellers:
            for payer in fee_payers:
                await self.store.writing(_insert, seller, payer)

    async def round(self) -> dict[str, Any]:
        tally = await index_solana.run(
            self.store,
            self.reader,
            self.state,
            settings=QUICK,
            clock=self.now,
            anchors=self.anchors,
        )
        self.tallies.append(tally)
        return tally

    async def killed_round(self, after: float) -> None:
        """Run a round that dies at some point, and a process that starts again."""
        task = asyncio.create_task(self.round())
        await asyncio.wait({task}, timeout=after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self.stop()
        self.start()

    async def settle(self, rounds: int = 150) -> None:
        """Run rounds until no work is left."""
        for _ in range(rounds):
            tally = await self.round()
            work = ("transactions", "accounts", "unreachable", "unconfirmed", "busy")
            if not any(tally.get(name) for name in work):
                return
        raise AssertionError(f"still at work: {self.tallies[-3:]}")

    async def next_day(self) -> None:
        """Let a day pass, after which the token accounts are read again."""
        self.market.ledger.slot += DAY_MS // 400 + 10
        await self.settle()

    async def rows(self) -> list[Row]:
        columns = transfers.transfer.c["transaction", "wallet", "other", "incoming", "value"]
        query = sa.select(*columns).where(transfers.transfer.c.chain == CHAIN)
        return [(*row[:4], int(row[4])) for row in await fetch(self.store, query)]

    async def agrees(self) -> None:
        """Check that the table and its sums equal the payments that were made."""
        rows = await self.rows()
        assert len(set(rows)) == len(rows)
        expected = self.market.expected
        assert set(rows) == expected, {
            "extra": len(set(rows) - expected),
            "missing": len(expected - set(rows)),
        }
        days = (await fetch(self.store, sa.select(transfers.transfer_day))).all()
        assert sum(int(day.paid) for day in days) == sum(row[4] for row in expected if row[3])
        assert sum(int(day.returned) for day in days) == sum(
            row[4] for row in expected if not row[3]
        )


def _insert(tx: sa.Connection, seller: Keypair, fee_payer: Keypair) -> None:
    pay_to, payer = str(seller.pubkey()), str(fee_payer.pubkey())
    resource = parse_resource(f"https://s{bytes(seller.pubkey()).hex()[:12]}.dev/{payer}")
    quote = Quote(network=DEVNET, asset=MINT, amount=5_000, pay_to=pay_to)
    endpoint = Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=1,
        last_seen=1,
        quote=quote,
        quote_at=1,
    )
    endpoints.insert(tx, endpoint)
    offer = KnownOffer(DEVNET, "exact", pay_to, 5_000, fee_payer=payer)
    wallets.save_offered(tx, {endpoint.id: indexable_addresses([offer])})


@pytest.fixture
def sqlite_url(tmp_path: Path, empty_sqlite: Path) -> str:
    """A database of one kind, for tests whose statements others run on both."""
    return f"sqlite:///{shutil.copy(empty_sqlite, tmp_path / 'index.db')}"


@contextlib.asynccontextmanager
async def run_indexer(
    database: str, market: Market, *nodes: SolanaNode
) -> AsyncIterator[SolanaIndexer]:
    indexer = SolanaIndexer(database, nodes, market)
    indexer.start()
    try:
        yield indexer
    finally:
        await indexer.stop()


def node(market: Market, **options: Any) -> SolanaNode:
    return SolanaNode(chain=market.ledger, **options)


async def test_payments_and_refunds_are_stored_and_decoys_are_not(database: str) -> None:
    market = Market()
    market.trade(random.Random(1), 60)
    async with run_indexer(database, market, node(market)) as indexer:
        await indexer.offer(*SELLERS, fee_payers=[FACILITATOR, RELAYER])
        await indexer.settle()
        await indexer.agrees()
        market.trade(random.Random(2), 20)
        tally = await indexer.round()
        assert tally["entries"]
        await indexer.next_day()
        await indexer.agrees()
        cursor = await indexer.store.reading(cursors.cursor, CHAIN)
        assert cursor is not None
        assert cursor.at > indexer.now() - 10 * SECOND_MS


@on_each(range(3), postgres=range(3, 6))
async def test_restarts_and_faulty_nodes_lose_and_duplicate_no_transfer(
    database: str, value: int
) -> None:
    dice, market = random.Random(value), Market()
    first = node(
        market,
        seed=value,
        omit=0.3,
        page_max=7,
        mood=Mood(cut=0.05, garbage=0.05, throttle=0.02, lag=3),
    )
    second = node(market, seed=value + 100, page_max=5, mood=Mood(cut=0.05, batch_max=4))
    async with run_indexer(database, market, first, second) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        for turn in range(8):
            market.trade(dice, dice.randint(0, 12))
            if turn == 3:
                await indexer.offer(*SELLERS, fee_payers=[RELAYER])
            await indexer.killed_round(dice.random() * 0.05)
        first.mood, second.mood = Mood(), Mood()
        await indexer.settle()
        await indexer.next_day()
        await indexer.agrees()


def read_counter(name: str) -> float:
    """Return a metric of the network."""
    labels = {"chain": str(CHAIN)}
    return REGISTRY.get_sample_value(f"tollgauge_index_{name}_total", labels) or 0


@on_sqlite
async def test_token_accounts_show_what_a_node_omits_from_lists_of_fee_payers(
    database: str,
) -> None:
    market = Market()

    def omit(method: str, params: list[Any], result: Any) -> Any:
        is_payer = method == "getSignaturesForAddress" and params[0] == str(FACILITATOR.pubkey())
        return [] if is_payer else result

    async with run_indexer(database, market, node(market, change=omit)) as indexer:
        counted = [read_counter(name) for name in ("transfers", "missed")]
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        market.pay(PAYERS[0], SELLERS[0], 600)
        await indexer.settle()
        market.pay(PAYERS[0], SELLERS[0], 700)
        await indexer.settle()
        assert len(await indexer.rows()) == 1
        await indexer.next_day()
        await indexer.agrees()
        assert sum(tally.get("missed", 0) for tally in indexer.tallies) == 1
        more = [read_counter(name) for name in ("transfers", "missed")]
        assert [after - before for after, before in zip(more, counted, strict=True)] == [2, 1]


async def test_payment_that_one_node_omits_is_not_lost_while_the_other_is_down(
    sqlite_url: str,
) -> None:
    market, is_down, omitted = Market(), True, set[str]()

    def omit(method: str, params: list[Any], result: Any) -> Any:
        lists = method == "getSignaturesForAddress"
        return [one for one in result if one["signature"] not in omitted] if lists else result

    def refuse(method: str, params: list[Any], result: Any) -> Any:
        if is_down and method == "getSignaturesForAddress":
            raise RefusedError(-32000, "try again later")
        return result

    nodes = node(market, change=omit), node(market, change=refuse)
    async with run_indexer(sqlite_url, market, *nodes) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        omitted.add(market.pay(PAYERS[0], SELLERS[0], 600))
        market.pay(PAYERS[0], SELLERS[0], 700)
        for _ in range(5):
            await indexer.round()
        is_down = False
        await indexer.settle()
        await indexer.next_day()
        await indexer.agrees()


async def test_transfers_from_a_seller_are_not_counted_as_missed_payments(sqlite_url: str) -> None:
    market = Market()
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        market.pay(PAYERS[0], SELLERS[0], 600)
        await indexer.settle()
        before, stored = read_counter("missed"), read_counter("transfers")
        market.pay(PAYERS[0], SELLERS[0], 700)
        market.send(SELLERS[0], STRANGER, 50)  # no fee payer's list has it
        await indexer.settle()
        await indexer.next_day()
        await indexer.agrees()
        assert sum(tally.get("missed", 0) for tally in indexer.tallies) == 0
        assert read_counter("missed") == before
        assert read_counter("transfers") == stored + 1  # the payment: both are of the same kind


async def test_coverage_starts_where_the_history_of_the_node_starts(sqlite_url: str) -> None:
    market = Market()
    market.pay(PAYERS[0], SELLERS[0], 500)
    market.expected.clear()
    market.ledger.slot += DAY_MS // 400
    begin = market.ledger.slot
    market.pay(PAYERS[0], SELLERS[0], 600)
    market.ledger.slot += DAY_MS // 400
    async with run_indexer(sqlite_url, market, node(market, first_slot=begin)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        await indexer.settle()
        await indexer.agrees()
        address, now = str(SELLERS[0].pubkey()), indexer.now()
        covered = await indexer.store.reading(volumes.coverages, CHAIN, [address], as_of=now)
        coverage = covered.get(address)
        assert coverage is not None
        assert abs(coverage.indexed_ms - DAY_MS) < 10 * SECOND_MS


async def test_wallet_named_as_fee_payer_stays_a_wallet(sqlite_url: str) -> None:
    market = Market()
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        await indexer.offer(SELLERS[1], fee_payers=[SELLERS[0]])
        market.pay(PAYERS[0], SELLERS[0], 600)
        await indexer.settle()
        await indexer.agrees()
        before = await indexer.store.reading(followed.list_due, CHAIN, before=1 << 50, limit=99)
        await indexer.settle()
        after = await indexer.store.reading(followed.list_due, CHAIN, before=1 << 50, limit=99)
        assert before == after  # no scan starts again


async def test_nodes_that_disagree_about_a_transaction_write_nothing(sqlite_url: str) -> None:
    market = Market()

    def forge(method: str, params: list[Any], result: Any) -> Any:
        if method == "getTransaction" and result is not None:
            return result | {"blockTime": result["blockTime"] + 1}
        return result

    async with run_indexer(sqlite_url, market, node(market), node(market, change=forge)) as indexer:
        indexer.reader._check = 1.0  # type: ignore[misc]
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        market.pay(PAYERS[0], SELLERS[0], 600)
        for _ in range(4):
            await indexer.round()
        assert await indexer.rows() == []


def _replace(method: str, value: Any) -> Change:
    return lambda named, params, result: value if named == method else result


def _other_transaction(market: Market) -> Change:
    def change(method: str, params: list[Any], result: Any) -> Any:
        others = [one for one in market.ledger.transactions if one is not result]
        return others[0] if method == "getTransaction" and others else result

    return change


def _repeat(method: str, params: list[Any], result: Any) -> Any:
    if method == "getSignaturesForAddress" and "before" in params[1]:
        return [{"signature": params[1]["before"], "slot": 1_000, "blockTime": None, "err": None}]
    return result


HOSTILE: Final[dict[str, Any]] = {
    "other transaction": _other_transaction,
    "repeated page": lambda _: _repeat,
    "other chain": lambda _: _replace("getGenesisHash", "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"),
    "wrong type of chain": lambda _: _replace("getGenesisHash", 7),
    "slot is a text": lambda _: _replace("getSlot", "7"),
    "slot is a boolean": lambda _: _replace("getSlot", True),
    "negative time": lambda _: _replace("getBlockTime", -1),
    "time in the future": lambda _: _replace("getBlockTime", 1 << 39),
    "signatures are an object": lambda _: _replace("getSignaturesForAddress", {"a": 1}),
    "signatures of numbers": lambda _: _replace("getSignaturesForAddress", [1, 2]),
    "too many signatures": lambda _: _replace("getSignaturesForAddress", [{}] * 1_001),
    "huge signature": lambda _: _replace(
        "getSignaturesForAddress", [{"signature": "1" * 10**6, "slot": 1}]
    ),
    "huge reply": lambda _: _replace("getTransaction", "x" * (5 << 20)),
    "transaction is a list": lambda _: _replace("getTransaction", [[]]),
    "accounts are a number": lambda _: _replace("getTokenAccountsByOwner", 5),
    "account is no key": lambda _: _replace(
        "getTokenAccountsByOwner", {"value": [{"pubkey": "0x00"}]}
    ),
    "too many accounts": lambda _: _replace("getTokenAccountsByOwner", {"value": [{}] * 100}),
}


@pytest.fixture(scope="module")
def market_with_two_payments() -> Market:
    market = Market()
    for amount in (600, 700):
        market.pay(PAYERS[0], SELLERS[0], amount)
    return market


@pytest.mark.parametrize("fault", HOSTILE)
async def test_hostile_node_causes_no_error_and_no_false_transfer(
    sqlite_url: str, market_with_two_payments: Market, fault: str
) -> None:
    market = market_with_two_payments
    change = HOSTILE[fault](market)
    async with run_indexer(sqlite_url, market, node(market, change=change)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        for _ in range(4):
            await indexer.round()
        assert set(await indexer.rows()) <= market.expected
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.settle()
        await indexer.agrees()


def _without_meta(market: Market, signature: str) -> Change:
    """Return what a node does whose history lacks the result of a transaction."""

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method == "getTransaction" and params[0] == signature:
            return result | {"meta": None}
        return result

    return change


def _of_unknown_version(market: Market, signature: str) -> Change:
    """Return what a node does at a transaction of a version that clients do not know yet."""

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method == "getTransaction" and params[0] == signature:
            raise RefusedError(-32015, "Transaction version (1) is not supported by the client")
        return result

    return change


@pytest.mark.parametrize("fault", [_without_meta, _of_unknown_version])
async def test_unreadable_transaction_does_not_stop_the_loop_for_ever(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Market, str], Change]
) -> None:
    monkeypatch.setattr(index_solana, "PATIENCE", 5)
    market = Market()
    market.pay(PAYERS[0], SELLERS[0], 600)
    change = fault(market, market.pay(PAYERS[0], SELLERS[0], 700))
    async with run_indexer(sqlite_url, market, node(market, change=change)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        await indexer.settle()
        assert {row[4] for row in await indexer.rows()} == {600}


@pytest.mark.parametrize("fault", [_without_meta, _of_unknown_version])
async def test_transaction_that_one_node_cannot_show_is_read_from_the_other(
    sqlite_url: str, fault: Callable[[Market, str], Change]
) -> None:
    market = Market()
    change = fault(market, market.pay(PAYERS[0], SELLERS[0], 700))
    nodes = node(market, change=change), node(market)
    async with run_indexer(sqlite_url, market, *nodes) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        await indexer.settle()
        await indexer.agrees()


def _list_more(row: dict[str, Any]) -> Change:
    """Add an invented signature to each list, as its newest one."""
    invented = {"signature": "2" * 88, "blockTime": None, "err": None} | row

    def change(method: str, params: list[Any], result: Any) -> Any:
        return [invented, *result] if method == "getSignaturesForAddress" else result

    return change


def _list_with(**fields: Any) -> Change:
    """Replace fields of all listed signatures."""

    def change(method: str, params: list[Any], result: Any) -> Any:
        if method == "getSignaturesForAddress":
            return [row | fields for row in result]
        return result

    return change


FORGED_LISTS: Final = {
    "invented failure in a later slot": _list_more({"slot": (1 << 40) - 1, "err": {}}),
    "invented failure in a near slot": _list_more({"slot": 1_500, "err": {}}),
    "payments are said to have failed": _list_with(err={}),
    "payments are said to be old": _list_with(blockTime=1),
    "payments are said to be in another slot": _list_with(slot=3),
}


@pytest.mark.parametrize("fault", FORGED_LISTS)
@pytest.mark.parametrize("position", [0, 1])
async def test_forged_list_of_one_node_hides_no_payment(
    sqlite_url: str, fault: str, position: int
) -> None:
    market = Market()
    nodes = [node(market), node(market)]
    nodes[position].change = FORGED_LISTS[fault]
    async with run_indexer(sqlite_url, market, *nodes) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        for amount in (600, 700, 800):
            market.pay(PAYERS[0], SELLERS[0], amount)
            await indexer.round()
            await indexer.round()
        assert set(await indexer.rows()) <= market.expected
        nodes[position].change = node(market).change
        market.pay(PAYERS[0], SELLERS[0], 900)
        await indexer.settle()
        await indexer.next_day()
        await indexer.agrees()


async def test_position_after_the_newest_slot_is_dropped(sqlite_url: str) -> None:
    market = Market()
    market.ledger.slot += 10_000
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        market.pay(PAYERS[0], SELLERS[0], 600)
        await indexer.settle()
        poisoned = {"until": "2" * 88, "until_slot": 1 << 39}
        await indexer.store.writing(
            lambda tx: tx.execute(followed.followed_address.update().values(poisoned))
        )
        market.pay(PAYERS[0], SELLERS[0], 700)
        await indexer.settle()
        await indexer.agrees()


async def test_idle_round_moves_its_positions_together(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = Market()
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR, RELAYER])
        for payer in (FACILITATOR, RELAYER):
            market.pay(PAYERS[0], SELLERS[0], 600, payer)
        await indexer.settle()
        market.ledger.slot += 100
        with monkeypatch.context() as patch:
            patch.delattr(followed, "move")  # writes one position
            await indexer.round()
        newest = market.ledger.now // SECOND_MS * SECOND_MS
        read = await indexer.store.reading(followed.list_fee_payers, CHAIN)
        assert [one.at for one in read] == [newest] * 2
        cursor = await indexer.store.reading(cursors.cursor, CHAIN)
        assert cursor is not None
        assert cursor.at == newest
        market.pay(PAYERS[0], SELLERS[0], 700, RELAYER)
        await indexer.settle()
        await indexer.agrees()


async def test_position_that_was_reset_meanwhile_is_not_moved(sqlite_url: str) -> None:
    market = Market()
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        market.pay(PAYERS[0], SELLERS[0], 600)
        await indexer.settle()
        (idle,) = await indexer.store.reading(followed.list_fee_payers, CHAIN)
        reset = replace(idle, until="", until_slot=0, at=0)
        await indexer.store.writing(followed.move, idle, reset)
        await indexer.store.writing(followed.move_idle, [idle], at=market.ledger.now + 1)
        assert await indexer.store.reading(followed.list_fee_payers, CHAIN) == [reset]


async def test_sums_are_by_the_day_of_the_block(sqlite_url: str) -> None:
    market = Market()
    market.pay(PAYERS[0], SELLERS[0], 600)
    day = day_of(market.ledger.now)
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        await indexer.offer(SELLERS[0], fee_payers=[FACILITATOR])
        await indexer.settle()
        (row,) = await fetch(indexer.store, sa.select(transfers.transfer_day))
        assert (row.day, row.transfers) == (day, 1)


@on_sqlite
async def test_payers_are_proven_by_what_they_pay_to_anchors_on_solana(database: str) -> None:
    market, dollar = Market(), 1_000_000
    seller, *proving = SELLERS[:3]
    for payee in (seller, *proving):
        market.pay(PAYERS[0], payee, 12 * dollar)
    market.pay(PAYERS[1], seller, 12 * dollar)
    async with run_indexer(database, market, node(market)) as indexer:
        first, second = (str(one.pubkey()) for one in proving)
        indexer.anchors = {"books.example": (first,), "maps.example": (f"{DEVNET}:{second}",)}
        await indexer.offer(seller, fee_payers=[FACILITATOR])
        await indexer.settle()
        await settlement.measure(indexer.store, CHAIN, now=indexer.now())
        pay_to = str(seller.pubkey())
        demands = await indexer.store.reading(
            volumes.demands_of, CHAIN, [pay_to], as_of=indexer.now()
        )
    demand = demands[pay_to]
    assert (demand.payers, demand.proven_payers, demand.proven_volume) == (2, 1, 12 * dollar)
    assert [owner for owner, _ in demand.weights] == ["books.example", "maps.example"]


async def test_report_counts_payments_on_solana_and_states_their_coverage(sqlite_url: str) -> None:
    market = Market()
    market.pay(PAYERS[0], SELLERS[0], 700)
    market.pay(PAYERS[1], SELLERS[0], 900)
    market.send(SELLERS[1], STRANGER, 5)  # it has an account, and was never paid
    async with run_indexer(sqlite_url, market, node(market)) as indexer:
        results = []
        for seller in SELLERS[:2]:
            listed = await _probe(indexer, seller)
            await indexer.settle()
            endpoint = await indexer.store.reading(endpoints.get, listed)
            assert endpoint is not None
            evidence = await indexer.store.reading(
                scoring.gather, endpoint, as_of=indexer.now() + 1_000
            )
            assert from_json(to_json(evidence)) == evidence
            results.append(score(evidence))
    paid, unpaid = results
    assert paid.demand is not None
    assert (paid.demand.payers, paid.demand.volume) == (2, 1_600)
    assert paid.coverage == unpaid.coverage == {DEVNET: {"exact": "read"}}
    assert not paid.is_activity_partial
    codes = [{flag.code for flag in result.flags} for result in results]
    assert ["no-settlements" in one for one in codes] == [False, True]
    assert not any("settlements-not-measured" in one for one in codes)


async def _probe(indexer: SolanaIndexer, seller: Keypair) -> str:
    """Add an endpoint by a probe whose 402 names the fee payer; return its ID."""
    pay_to = str(seller.pubkey())
    asset = str(indexer.market.ledger.mint)
    resource = parse_resource(f"https://probed-{pay_to[:8].lower()}.dev/pay")
    quote = Quote(network=DEVNET, asset=asset, amount=5_000, pay_to=pay_to)
    found = Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=1,
        last_seen=1,
        quote=quote,
        quote_at=1,
    )
    await indexer.store.writing(lambda tx: endpoints.insert(tx, found))
    terms = Terms(
        version=2,
        scheme="exact",
        network=DEVNET,
        asset=asset,
        amount=5_000,
        pay_to=pay_to,
        fee_payer=str(FACILITATOR.pubkey()),
    )
    seen = ProbeResult(
        at=indexer.now(),
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        payable=True,
        status=402,
        timings=Timings(total=80),
        accepts=1,
        quote=quote,
        forms=(terms.form,),
        offers=list_offers([terms]),
    )
    await indexer.store.writing(probes.record_many, found.id, [seen])
    return found.id
