"""The next blocks to index, and the effect of a reorganisation."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tollgauge.core.chain.blocks import (
    BlockHeader,
    DeepReorgError,
    Span,
    are_linked,
    find_fork,
    next_span,
    previous_span,
)


def chain(*forks: int) -> dict[int, bytes]:
    """Hashes from block 10 on; equal numbers at equal places are equal blocks."""
    return {10 + index: bytes([index, branch]) for index, branch in enumerate(forks)}


def test_chain_that_goes_on_is_followed() -> None:
    assert find_fork(chain(0, 0, 0), chain(0, 0, 0, 0), head=13) is None


def test_longer_fork_undoes_back_to_the_last_common_block() -> None:
    assert find_fork(chain(0, 0, 0, 0), chain(0, 0, 1, 1, 1), head=14) == 11


def test_fork_of_the_same_or_a_smaller_height_is_followed_too() -> None:
    assert find_fork(chain(0, 0, 0), chain(0, 0, 1), head=12) == 11
    assert find_fork(chain(0, 0, 0, 0), chain(0, 1), head=11) == 10


def test_node_that_is_behind_on_the_same_chain_undoes_nothing() -> None:
    assert find_fork(chain(0, 0, 0, 0), chain(0, 0), head=11) is None
    assert find_fork(chain(0, 0), {}, head=5) is None


def test_fork_below_the_finalized_block_is_refused() -> None:
    with pytest.raises(DeepReorgError) as caught:
        find_fork(chain(0, 0, 0), chain(1, 1, 1), head=12)
    assert "10" in str(caught.value)
    assert caught.value.hint


@settings(deadline=None)
@given(ours=st.integers(1, 40), theirs=st.integers(0, 60), same=st.integers(0, 40))
def test_fork_follows_from_the_last_common_block(ours: int, theirs: int, same: int) -> None:
    assume(same <= min(ours, theirs))
    mine = {n: bytes([n, 0]) for n in range(ours)}
    node = {n: bytes([n, 0 if n < same else 1]) for n in range(theirs)}
    head = theirs - 1
    if same == 0:
        if head < 0:
            assert find_fork(mine, node, head=head) is None
            return
        with pytest.raises(DeepReorgError):
            find_fork(mine, node, head=head)
    elif same in (ours, theirs):
        assert find_fork(mine, node, head=head) is None
    else:
        assert find_fork(mine, node, head=head) == same - 1


@settings(deadline=None)
@given(
    indexed=st.integers(0, 10_000),
    head=st.integers(0, 10_000),
    finalized=st.integers(0, 10_000),
    most=st.integers(1, 500),
    tip=st.integers(1, 100),
)
def test_steps_forward_never_cross_the_finalized_block(
    indexed: int, head: int, finalized: int, most: int, tip: int
) -> None:
    assume(finalized <= head)
    span = next_span(indexed, head=head, finalized=finalized, most=most, most_tip=tip)
    if indexed >= head:
        assert span is None
        return
    assert span is not None
    assert span.first == indexed + 1
    assert span.first <= span.last <= head
    assert span.final == (span.last <= finalized)
    assert span.final or span.first > finalized
    assert span.blocks <= (most if span.final else tip)


@settings(deadline=None)
@given(
    low=st.integers(1, 10_000),
    floor=st.integers(0, 10_000),
    finalized=st.integers(0, 10_000),
    most=st.integers(1, 500),
    tip=st.integers(1, 100),
)
def test_steps_back_reach_the_floor_without_gaps(
    low: int, floor: int, finalized: int, most: int, tip: int
) -> None:
    span = previous_span(low, floor=floor, most=most, finalized=finalized, most_tip=tip)
    if floor >= low:
        assert span is None
        return
    assert span is not None
    assert span.last == low - 1
    assert floor <= span.first <= span.last
    assert span.final == (span.last <= finalized)
    assert span.final or span.first > finalized


def test_headers_that_follow_one_another_are_linked() -> None:
    one = BlockHeader(5, b"5", b"4", 0)
    two = BlockHeader(6, b"6", b"5", 2)
    assert are_linked([one, two], parent=b"4")
    assert are_linked([one, two], parent=None)
    assert are_linked([], parent=b"4")
    assert not are_linked([one, two], parent=b"x")
    assert not are_linked([one, BlockHeader(7, b"6", b"5", 2)], parent=b"4")
    assert not are_linked([one, BlockHeader(6, b"6", b"x", 2)], parent=b"4")


def test_span_counts_both_ends() -> None:
    assert Span(3, 3, final=True).blocks == 1
