"""The indexer under any order of blocks, reorganisations and faults."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.fake_chain import WALLETS, FakeChain
from tests.support.fake_node import FakeNode, Mood
from tests.support.indexer import QUICK, Indexer, _fields, agrees, world

from tollgauge.jobs.loop_settings import IndexSettings

NUMBERS = itertools.count()


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
    # The second node may fail in all ways except one: one node must give true replies.
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
    """Play a schedule and then a quiet period, in which the nodes are correct and the blocks become
    final.
    """
    chain_id = (8453, 137)[seed % 2]
    chain = FakeChain(seed, stamped=bool(seed % 2), chain_id=chain_id, forms=seed % 3 > 0)
    chain.mine_some(60)
    changes = {"finality": 45, "check": 1.0, "by_hash": 0 if seed % 3 == 0 else 400}
    patient = IndexSettings(**{**_fields(QUICK), **changes})
    watched = {WALLETS[0]}
    # The service's own address: sometimes monitored too, sometimes added later.
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
        await indexer.killed_round(rest[0] / 3_000)
    elif what == "watch":
        watched.add(WALLETS[rest[0]])
        await indexer.watch(WALLETS[rest[0]])
    elif what == "mood":
        nodes[0].mood = rest[0]
    elif what == "other":
        nodes[1].mood = rest[0]
    elif what == "fork":
        nodes[0].mood.fork = list(chain.blocks)


@settings(
    max_examples=int(os.environ.get("TOLLGAUGE_SCHEDULES", "10")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schedule=ops(), seed=st.integers(0, 10**6))
def test_any_schedule_ends_in_a_replay_of_the_chain(
    folder: Path, empty_sqlite: Path, schedule: list[tuple[Any, ...]], seed: int
) -> None:
    path = Path(shutil.copy(empty_sqlite, folder / f"{next(NUMBERS)}.db"))
    asyncio.run(play(path, schedule, seed))
