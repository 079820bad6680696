"""Blocks: which range to index next, and what a reorganised chain means for what is indexed.

Rules (docs/indexing.md):
- blocks up to the finalized one never change; above it their hashes are stored, so that a
  reorganisation is seen as a parent that does not match, and undone back to the last common block;
- one step never crosses the finalized block: below it ranges are asked for by number, above it
  every block is asked for by its hash, because a number may mean two blocks;
- a node that is behind what is indexed, on the same chain, is late: nothing is undone for it;
- a chain that disagrees at or below the finalized block is not followed (DeepReorgError).

Asking nodes is clients/chain's work, storing what is indexed store/chain's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tollgauge.core.base.errors import TollgaugeError


class BlockHeader(NamedTuple):
    """A block: number, hash, its parent's hash, and its time in ms UTC."""

    number: int
    hash: bytes
    parent: bytes
    at: int


class Span(NamedTuple):
    """Blocks `first` to `last`, both included. `final`: none of them can change any more."""

    first: int
    last: int
    final: bool

    @property
    def blocks(self) -> int:
        """How many blocks it holds."""
        return self.last - self.first + 1


class DeepReorgError(TollgaugeError):
    """The node's chain disagrees with what is indexed at or below the finalized block."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"The node's chain disagrees with what is indexed at finalized block {number}.",
            hint="Check that every RPC URL is of the right chain; a chain that was started again "
            "needs a new database.",
        )


def next_span(indexed: int, *, head: int, finalized: int, most: int, most_tip: int) -> Span | None:
    """The blocks to index after block `indexed`, None when there are none.

    At most `most` final blocks, or `most_tip` that may still change.
    """
    first = indexed + 1
    if first <= finalized:
        return Span(first, min(finalized, head, indexed + most), final=True)
    if first <= head:
        return Span(first, min(head, indexed + most_tip), final=False)
    return None


def fork(ours: Mapping[int, bytes], theirs: Mapping[int, bytes], *, head: int) -> int | None:
    """The last block that our index and the node's chain have in common, where what is indexed
    above it is no longer part of the chain; None where nothing is to be undone.

    `ours` are the hashes of the indexed blocks from the finalized one to the last, `theirs` the
    node's hashes of the same numbers as far as it has them; `head` is the node's last block.
    Raises DeepReorgError when they have none in common and the node is not merely behind.
    """
    common = max(
        (number for number, hash_ in ours.items() if theirs.get(number) == hash_), default=None
    )
    if common is None and head >= min(ours):
        raise DeepReorgError(min(ours))
    return None if common is None or common >= min(head, max(ours)) else common


def linked(headers: Sequence[BlockHeader], *, parent: bytes | None) -> bool:
    """Whether headers follow one another, the first one after `parent` (None: after any block)."""
    for before, after in pairwise(headers):
        if after.number != before.number + 1 or after.parent != before.hash:
            return False
    return not headers or parent is None or headers[0].parent == parent


def previous_span(low: int, *, floor: int, most: int, finalized: int, most_tip: int) -> Span | None:
    """The blocks to index next below block `low`, downwards to `floor`; None when that is reached.

    At most `most` final blocks, or `most_tip` that may still change.
    """
    last = low - 1
    if last < floor:
        return None
    if last > finalized:
        return Span(max(floor, finalized + 1, last - most_tip + 1), last, final=False)
    return Span(max(floor, last - most + 1), last, final=True)
