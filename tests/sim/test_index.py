"""The indexer against a chain that reorganises and nodes that lag, lie, throttle and break.

The oracle is a linear replay of the canonical chain, which the fake chain keeps itself: whatever
happened on the way, in the end the table is exactly that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sim.fake_chain import (
    BLOCK_SECONDS,
    PAYERS,
    START,
    STRANGER,
    TOKEN,
    USED,
    WALLETS,
    FakeChain,
    FakeNode,
    Mood,
    address,
)

from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.core.blocks import DeepReorgError
from tollgauge.core.endpoint import Endpoint, parse_resource
from tollgauge.core.terms import Quote
from tollgauge.core.units import day_of
from tollgauge.db.engine import Store
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexSettings
from tollgauge.monitor import scoring
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import deposits, transfers, volumes
from tollgauge.store.endpoints import endpoints

NETWORK = "eip155:8453"
NUMBERS = itertools.count()
QUICK = IndexSettings(
    audit=1,
    dirty_every_ms=0,
    volume_every_ms=0,
    span=50,
    tip_span=16,
    fill_wallets=3,
    check=0.2,
    rest_s=0.0,
)


@dataclass
class Indexer:
    """A process that indexes: a store and clients of its own, gone when it is killed."""

    path: Path
    urls: Sequence[str]
    chain: FakeChain
    settings: IndexSettings = QUICK
    own: bytes | None = None
    tallies: list[dict[str, Any]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        self.store = Store.open(f"sqlite:///{self.path}")
        self.logs = ChainLogs(
            [Node(url, timeout_s=2) for url in self.urls],
            chain_id=8453,
            token=TOKEN,
            settings=self.settings.asking,
            seed=1,
        )

    async def stop(self) -> None:
        await self.logs.close()
        await self.store.close()

    def now(self) -> int:
        return 1_000 * (START + (len(self.chain.blocks) + 5) * BLOCK_SECONDS)

    async def watch(self, *wallets: bytes) -> None:
        async with self.store.write() as tx:
            for wallet in wallets:
                resource = parse_resource(f"https://seller-{wallet.hex()}.dev/pay")
                quote = Quote(
                    network=NETWORK, asset=TOKEN, amount=5_000, pay_to="0x" + wallet.hex()
                )
                found = Endpoint(
                    id=resource.id,
                    resource=resource.url,
                    host=resource.host,
                    first_seen=1_000 * START,
                    last_seen=1_000 * START,
                    quote=quote,
                    quote_at=1_000 * START,
                )
                if await endpoints.get(tx, resource.id) is None:
                    await endpoints.insert(tx, found)

    async def round(self) -> dict[str, Any]:
        pay_to = "" if self.own is None else "0x" + self.own.hex()
        tally = await index.run(
            self.store, self.logs, settings=self.settings, clock=self.now, pay_to=pay_to
        )
        self.tallies.append(tally)
        return tally

    async def killed_round(self, after: float) -> None:
        """A round that dies somewhere on its way, and a process that starts anew."""
        task = asyncio.create_task(self.round())
        await asyncio.wait({task}, timeout=after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, DeepReorgError):
            await task
        await self.stop()
        self.start()

    async def settle(self, rounds: int = 60) -> None:
        """Rounds until nothing is left to do."""
        for _ in range(rounds):
            tally = await self.round()
            work = ("blocks", "filled", "audited", "unreachable", "unconfirmed", "moved")
            if not any(tally.get(each) for each in work):
                return
        raise AssertionError(f"still at work: {self.tallies[-3:]}")

    async def rows(self) -> set[tuple[Any, ...]]:
        async with self.store.read() as tx:
            found = (await tx.execute(sa.select(transfers.transfer))).all()
        assert all(row.nonce is not None for row in found if row.incoming)
        table = [
            (
                row.number,
                row.block_hash,
                row.log_index,
                row.wallet,
                row.other,
                row.incoming,
                int(row.value),
                row.at,
            )
            for row in found
        ]
        assert len(set(table)) == len(table)
        return set(table)

    async def deposits(self) -> set[tuple[Any, ...]]:
        """Everything that was booked as having come to us."""
        async with self.store.read() as tx:
            found = (await tx.execute(sa.select(deposits.deposit))).all()
        assert {row.pay_to for row in found} <= {"0x" + (self.own or b"").hex()}
        table = [
            (
                row.number,
                row.block_hash,
                row.log_index,
                bytes.fromhex(row.payer[2:]),
                int(row.value),
                row.nonce is not None,
                row.at,
            )
            for row in found
        ]
        assert len(set(table)) == len(table)
        return set(table)

    async def days(self) -> dict[tuple[Any, ...], tuple[int, int, int]]:
        async with self.store.read() as tx:
            found = (await tx.execute(sa.select(transfers.transfer_day))).all()
        return {
            (row.wallet, row.day, row.other): (row.transfers, int(row.paid), int(row.returned))
            for row in found
        }


def summed(rows: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """The day sums that follow from rows."""
    sums: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for _, _, _, wallet, other, incoming, value, at in rows:
        key = (wallet, day_of(at), other)
        count, paid, back = sums.get(key, (0, 0, 0))
        sums[key] = (count + 1, paid + value, back) if incoming else (count, paid, back + value)
    return {key: value for key, value in sums.items() if any(value)}


async def agrees(indexer: Indexer, wallets: Sequence[bytes]) -> None:
    """The table is the linear replay of the canonical chain, and so are its sums."""
    expected = indexer.chain.expected(wallets)
    rows = await indexer.rows()
    assert rows == expected, {"extra": rows - expected, "missing": expected - rows}
    assert await indexer.days() == summed(expected)
    if indexer.own is not None:
        came, payment_of = indexer.chain.deposits(indexer.own), await indexer.deposits()
        assert payment_of == came, {"extra": payment_of - came, "missing": came - payment_of}
    async with indexer.store.read() as tx:
        cursor = await chains.cursor(tx, 8453)
        kept = await chains.kept(tx, 8453)
    assert cursor is not None
    assert (cursor.number, cursor.hash) == (indexer.chain.head.number, indexer.chain.head.hash)
    assert all(indexer.chain.blocks[n].hash == each for n, each in kept.items())


@pytest.fixture
def database(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


@contextlib.asynccontextmanager
async def world(
    path: Path,
    chain: FakeChain,
    *moods: Mood,
    settings: IndexSettings = QUICK,
    own: bytes | None = None,
) -> AsyncIterator[tuple[Indexer, list[FakeNode]]]:
    """An indexer and its nodes, one a mood."""
    nodes = [FakeNode(chain, seed, mood) for seed, mood in enumerate(moods or (Mood(),))]
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(node.served()) for node in nodes]
        indexer = await stack.enter_async_context(Indexer(path, urls, chain, settings, own))
        yield indexer, nodes


async def test_the_table_is_a_replay_of_the_chain(database: Path) -> None:
    chain = FakeChain(1)
    chain.mine_some(150)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await agrees(indexer, WALLETS)
        chain.mine_some(100)
        await indexer.settle()
        await agrees(indexer, WALLETS)
    assert nodes[0].methods_with_pending == 0


@pytest.mark.parametrize("depth", [1, 2, 7, 30])
@pytest.mark.parametrize("growth", [-1, 0, 1, 5])
@pytest.mark.parametrize("by_hash", [0, 400])
async def test_a_reorganisation_replaces_what_is_gone(
    database: Path, depth: int, growth: int, by_hash: int
) -> None:
    settings = IndexSettings(**{**_fields(QUICK), "by_hash": by_hash})
    chain = FakeChain(depth)
    chain.mine_some(100)
    async with world(database, chain, settings=settings) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        chain.reorg(depth, max(1, depth + growth))
        await indexer.settle()
        if depth + growth < 1:
            chain.mine_some(2)
            await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_a_node_that_is_merely_late_undoes_nothing(database: Path) -> None:
    chain = FakeChain(3)
    chain.mine_some(100)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.lag = 25
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_an_empty_answer_of_a_node_that_is_behind_is_not_believed(database: Path) -> None:
    """Blocks come from a node that has 200 of them, logs from a replica that has only 80: it
    knows nothing of the final blocks from 81 to 160, and says so with an empty list.
    """
    chain = FakeChain(4)
    chain.mine_some(200)

    class Balanced(FakeNode):
        def result(self, method: str, params: list[Any]) -> Any:
            ranged = method == "eth_getLogs" and "fromBlock" in params[0]
            self.mood.lag = 120 if ranged or method == "eth_blockNumber" else 0
            return super().result(method, params)

    node = Balanced(chain)
    async with node.served() as url, Indexer(database, [url], chain) as indexer:
        await indexer.watch(*WALLETS)
        for _ in range(4):
            await indexer.round()
        async with indexer.store.read() as tx:
            lows = await chains.wallets(tx, 8453)
        assert set(lows.values()) == {161}, "the replica's silence about blocks to 160 was believed"
        assert await indexer.rows() <= chain.expected(WALLETS)
    async with FakeNode(chain).served() as url, Indexer(database, [url], chain) as indexer:
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_a_wallet_that_is_learned_late_is_filled_in(database: Path) -> None:
    chain = FakeChain(5)
    chain.mine_some(120)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(WALLETS[0])
        await indexer.settle()
        await agrees(indexer, WALLETS[:1])
        chain.mine_some(10)
        await indexer.watch(*WALLETS[1:4])
        await indexer.round()
        chain.reorg(5, 8)
        await indexer.watch(WALLETS[4])
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_everything_that_comes_to_us_is_booked_whatever_made_it(database: Path) -> None:
    chain = FakeChain(16)
    chain.mine_some(120)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.watch(WALLETS[0])
        await indexer.settle()
        await agrees(indexer, WALLETS[:1])
        await indexer.watch(WALLETS[1])
        chain.mine_some(20)
        await indexer.settle()
        await agrees(indexer, WALLETS[:2])
        kinds = {authorized for *_, authorized, _ in await indexer.deposits()}
        assert kinds == {True, False}


async def test_we_are_followed_where_nobody_is_monitored(database: Path) -> None:
    chain = FakeChain(17)
    chain.mine_some(120)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.settle()
        chain.reorg(9, 12)
        await indexer.settle()
        await agrees(indexer, ())
        assert await indexer.deposits()


async def test_an_address_that_we_sell_to_no_longer_is_still_booked(database: Path) -> None:
    chain = FakeChain(18)
    chain.mine_some(80)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.settle()
        indexer.own = WALLETS[2]
        chain.mine_some(20)
        await indexer.settle()
        came = chain.deposits(WALLETS[1]), chain.deposits(WALLETS[2])
        async with indexer.store.read() as tx:
            rows = (await tx.execute(sa.select(deposits.deposit))).all()
    for own, expected in zip(WALLETS[1:3], came, strict=True):
        mine = [row for row in rows if row.pay_to == "0x" + own.hex()]
        assert {(row.number, row.block_hash, row.log_index) for row in mine} == {
            each[:3] for each in expected
        }
        assert len(mine) == len(expected) > 20


async def test_an_authorization_that_a_node_hid_is_told_when_the_block_is_final(
    database: Path,
) -> None:
    """At first the transfer looks like one that paid for nothing."""
    chain = FakeChain(19)
    chain.mine_some(60)

    class Reticent(FakeNode):
        silent = True

        def logs(self, where: dict[str, Any]) -> list[dict[str, Any]]:
            found = super().logs(where)
            return [log for log in found if not (self.silent and log["topics"][0] == USED)]

    node = Reticent(chain)
    async with (
        node.served() as url,
        Indexer(database, [url], chain, own=WALLETS[1]) as indexer,
    ):
        node.silent = False
        await indexer.settle()
        node.silent = True
        chain.mine(chain.write.payment((PAYERS[0], WALLETS[1], 5_000)))
        await indexer.round()
        assert await indexer.deposits() != chain.deposits(WALLETS[1])
        node.silent = False
        for _ in range(50):
            chain.mine()
        await indexer.settle()
        await agrees(indexer, ())


async def test_limits_of_a_provider_divide_the_question(database: Path) -> None:
    chain = FakeChain(6)
    chain.mine_some(200, txs=6)
    mood = Mood(range_max=7, results_max=9, topics_max=3, batch_max=4)
    async with world(database, chain, mood) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle(200)
        await agrees(indexer, WALLETS)
    assert nodes[0].largest_topics <= 5


async def test_a_list_of_topics_never_holds_more_than_500(database: Path) -> None:
    chain = FakeChain(7)
    chain.mine_some(60)
    many = [address(f"other wallet {n}") for n in range(1_300)]
    settings = IndexSettings(audit=1, span=500)
    async with world(database, chain, Mood(), settings=settings) as (indexer, nodes):
        await indexer.watch(*WALLETS, *many)
        await indexer.settle()
        await agrees(indexer, [*WALLETS, *many])
        assert nodes[0].largest_topics == 500


async def test_a_node_that_hides_logs_is_found_out_by_another(database: Path) -> None:
    chain = FakeChain(8)
    chain.mine_some(150)
    async with world(database, chain, Mood(lie_empty=1.0), Mood()) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_what_a_node_hid_at_the_tip_is_added_when_the_block_is_final(database: Path) -> None:
    """One node alone, which lies while the blocks are new: nobody can tell until later."""
    chain = FakeChain(9)
    chain.mine_some(60)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.lie_partly = 0.7
        chain.mine_some(30)
        await indexer.round()
        assert await indexer.rows() < chain.expected(WALLETS)
        nodes[0].mood.lie_partly = 0.0
        for _ in range(50):
            chain.mine()
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_two_nodes_on_two_forks_end_on_the_longer_one(database: Path) -> None:
    chain = FakeChain(10)
    chain.mine_some(100)
    async with world(database, chain, Mood(), Mood()) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.fork = list(chain.blocks)
        chain.reorg(6, 12)
        for _ in range(6):
            with contextlib.suppress(DeepReorgError):
                await indexer.round()
        nodes[0].mood.fork = None
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_a_chain_that_contradicts_what_is_final_is_not_followed(database: Path) -> None:
    chain = FakeChain(11)
    chain.mine_some(120)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        before = await indexer.rows()
        chain.final = 0
        chain.reorg(70, 75)
        with pytest.raises(DeepReorgError):
            await indexer.round()
        assert await indexer.rows() == before


async def test_a_node_of_another_chain_is_not_asked(database: Path) -> None:
    chain = FakeChain(12)
    chain.mine_some(50)

    class Stranger(FakeNode):
        def result(self, method: str, params: list[Any]) -> Any:
            return hex(1) if method == "eth_chainId" else super().result(method, params)

    node = Stranger(chain)
    async with node.served() as url, Indexer(database, [url], chain) as indexer:
        await indexer.watch(*WALLETS)
        assert (await indexer.round())["unreachable"] == 1
        assert "eth_getLogs" not in node.calls


async def test_without_the_finalized_tag_a_depth_stands_in(database: Path) -> None:
    chain = FakeChain(13)
    chain.mine_some(130)
    settings = IndexSettings(audit=1, finality=50, tip_span=16, span=40)
    async with world(database, chain, Mood(finalized=False), settings=settings) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        chain.reorg(20, 25)
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_settlements_reach_the_evidence_and_the_statistics(database: Path) -> None:
    chain = FakeChain(14, stamped=True)
    wallet, (first, second) = WALLETS[0], PAYERS[:2]
    chain.mine(chain.write.payment((first, wallet, 700), (second, wallet, 50)))
    chain.mine(chain.write.payment((first, wallet, 300)), chain.write.plain(first, wallet, 9_999))
    chain.mine(chain.write.payment((wallet, wallet, 1_000)), chain.write.plain(wallet, second, 20))
    chain.mine(chain.write.plain(wallet, STRANGER, 4))
    async with world(database, chain) as (indexer, _):
        await indexer.watch(wallet)
        await indexer.settle()
        async with indexer.store.read() as tx:
            (found,) = (await endpoints.of_host(tx, f"seller-{wallet.hex()}.dev", limit=9),)
            seen = await scoring.gather(tx, found[0], as_of=indexer.now())
            (volume,) = await volumes.published(tx)
    assert seen.chain is not None
    payers = {each.payer: each for each in seen.chain.payers}
    assert payers.keys() == {"0x" + each.hex() for each in (first, second, wallet)}
    assert (payers["0x" + first.hex()].paid, payers["0x" + first.hex()].transfers) == (1_000, 2)
    assert payers["0x" + second.hex()].returned == 20
    assert seen.chain.indexed_to_block == chain.head.number
    assert seen.chain.indexed_ms > 0
    assert (volume.raw, volume.organic) == (2_050, 1_030)
    assert (volume.receivers, volume.payers, volume.wallets) == (1, 3, 1)


async def test_only_endpoints_whose_payto_got_something_are_scored_again(database: Path) -> None:
    chain = FakeChain(15)
    chain.mine_some(60)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS[:3])
        await indexer.settle()
        async with indexer.store.write() as tx:
            await endpoints.claim_dirty(tx, now=indexer.now(), limit=9, max_age_ms=10**12)
        chain.mine(chain.write.payment((PAYERS[0], WALLETS[1], 5)))
        tally = await indexer.round()
        assert tally["told"] == 1
        async with indexer.store.write() as tx:
            dirty = await endpoints.claim_dirty(tx, now=indexer.now(), limit=9, max_age_ms=10**12)
            found = await endpoints.get_many(tx, dirty)
    assert [each.quote.pay_to for each in found.values() if each.quote] == ["0x" + WALLETS[1].hex()]


def ops() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    share = st.sampled_from((0.0, 0.0, 0.1, 0.3))
    moods = st.builds(
        Mood,
        lag=st.sampled_from((0, 0, 3, 45)),
        lie_empty=share,
        lie_partly=share,
        duplicate=share,
        throttle=share,
        garbage=share,
        cut=share,
        range_max=st.sampled_from((None, 5, 33)),
        results_max=st.sampled_from((None, 4)),
        topics_max=st.sampled_from((None, 2)),
        batch_max=st.sampled_from((None, 3)),
        finalized=st.sampled_from((True, True, False)),
    )
    # The second node may fail in every way but one: somebody has to tell the truth.
    truthful = moods.map(lambda mood: Mood(**{**vars(mood), "lie_empty": 0.0, "lie_partly": 0.0}))
    return st.lists(
        st.one_of(
            st.tuples(st.just("mine"), st.integers(1, 25)),
            st.tuples(st.just("reorg"), st.integers(1, 30), st.integers(1, 33)),
            st.tuples(st.just("round")),
            st.tuples(st.just("kill"), st.integers(0, 60)),
            st.tuples(st.just("watch"), st.integers(0, len(WALLETS) - 1)),
            st.tuples(st.just("mood"), moods),
            st.tuples(st.just("other"), truthful),
            st.tuples(st.just("fork")),
        ),
        min_size=3,
        max_size=14,
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


async def play(path: Path, schedule: Sequence[tuple[Any, ...]], seed: int) -> None:
    """A schedule, then calm: the nodes tell the truth and the blocks become final."""
    chain = FakeChain(seed, stamped=bool(seed % 2))
    chain.mine_some(60)
    changes = {"finality": 45, "check": 1.0, "by_hash": 0 if seed % 3 == 0 else 400}
    patient = IndexSettings(**{**_fields(QUICK), **changes})
    watched = {WALLETS[0]}
    # The address that we sell to: sometimes one that is monitored too, sometimes learned later.
    own = WALLETS[seed % len(WALLETS)]
    async with world(path, chain, Mood(), Mood(), settings=patient, own=own) as (indexer, nodes):
        await indexer.watch(WALLETS[0])
        for what, *rest in schedule:
            await act(indexer, nodes, watched, what, rest)
        for node in nodes:
            node.mood = Mood()
        for _ in range(50):
            chain.mine()
        await indexer.settle(150)
        await agrees(indexer, sorted(watched))


async def act(
    indexer: Indexer, nodes: list[FakeNode], watched: set[bytes], what: str, rest: list[Any]
) -> None:
    chain = indexer.chain
    if what == "mine":
        chain.mine_some(*rest)
    elif what == "reorg":
        chain.reorg(*rest)
    elif what == "round":
        await indexer.round()
    elif what == "kill":
        await indexer.killed_round(rest[0] / 1_000)
    elif what == "watch":
        watched.add(WALLETS[rest[0]])
        await indexer.watch(WALLETS[rest[0]])
    elif what == "mood":
        nodes[0].mood = rest[0]
    elif what == "other":
        nodes[1].mood = rest[0]
    elif what == "fork":
        nodes[0].mood.fork = list(chain.blocks)


def _fields(given: IndexSettings) -> dict[str, Any]:
    return {name: getattr(given, name) for name in IndexSettings.__dataclass_fields__}


@settings(
    max_examples=int(os.environ.get("TOLLGAUGE_SCHEDULES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schedule=ops(), seed=st.integers(0, 10**6))
def test_any_schedule_ends_in_a_replay_of_the_chain(
    folder: Path, empty_sqlite: Path, schedule: list[tuple[Any, ...]], seed: int
) -> None:
    path = Path(shutil.copy(empty_sqlite, folder / f"{next(NUMBERS)}.db"))
    asyncio.run(play(path, schedule, seed))
