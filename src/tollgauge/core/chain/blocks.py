"""Blocks: the range to index next, and reorganisations of the chain.

Rules (docs/indexing.md):
- blocks up to the finalized one never change; above it their hashes are stored, so that a
  reorganisation is detected as a parent that does not match, and undone to the last common block;
- one step never crosses the finalized block: below it ranges are requested by number, above it
  every block by its hash, because a number may refer to two blocks;
- a node on the same chain that lags behind the index is late: nothing is undone for it;
- a chain that disagrees at or below the finalized block is not followed (DeepReorgError).

clients/chain queries nodes, and store/chain stores the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tollgauge.core.base.errors import TollgaugeError

FAST_CHAINS: Final = frozenset({42161, 421614, 143, 10143, 1328, 1329, 4326})
"""Chains with blocks under one second (Arbitrum, Monad, Sei, MegaETH): only their final blocks are
followed, in ranges."""


class BlockHeader(NamedTuple):
    """A block: number, hash, its parent's hash, and its time in ms UTC."""

    number: int
    hash: bytes
    parent: bytes
    at: int


class Span(NamedTuple):
    """Blocks `first` to `last`, inclusive. `final`: none of them can change any more."""

    first: int
    last: int
    final: bool

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.last - self.first + 1


class DeepReorgError(TollgaugeError):
    """The node's chain disagrees with the index at or below the finalized block."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"The node's chain disagrees with the index at finalized block {number}.",
            hint="Check that every RPC URL serves the right chain; a restarted local chain "
            "needs a new database.",
        )


def next_span(indexed: int, *, head: int, finalized: int, most: int, most_tip: int) -> Span | None:
    """Return the blocks to index next; None if there are none.

    Args:
        indexed: The last indexed block.
        head: The node's last block.
        finalized: The last block that cannot change any more.
        most: Maximum number of final blocks in the span.
        most_tip: Maximum number of blocks in a span that may still change.
    """
    first = indexed + 1
    if first <= finalized:
        return Span(first, min(finalized, head, indexed + most), final=True)
    if first <= head:
        return Span(first, min(head, indexed + most_tip), final=False)
    return None


def find_fork(ours: Mapping[int, bytes], theirs: Mapping[int, bytes], *, head: int) -> int | None:
    """Return the last common block of the index and the node's chain if the indexed blocks above it
    are no longer part of the chain; None if nothing is to be undone.

    Args:
        ours: Hashes of the indexed blocks from the finalized one to the last.
        theirs: The node's hashes of the same numbers, as far as it has them.
        head: The node's last block.

    Raises:
        DeepReorgError: They have no common block, and the node is not merely behind.
    """
    common = max(
        (number for number, hash_ in ours.items() if theirs.get(number) == hash_), default=None
    )
    if common is None and head >= min(ours):
        raise DeepReorgError(min(ours))
    return None if common is None or common >= min(head, max(ours)) else common


def are_linked(headers: Sequence[BlockHeader], *, parent: bytes | None) -> bool:
    """Return whether headers are consecutive, the first one after `parent` (None: after any
    block).
    """
    for before, after in pairwise(headers):
        if after.number != before.number + 1 or after.parent != before.hash:
            return False
    return not headers or parent is None or headers[0].parent == parent


def previous_span(low: int, *, floor: int, most: int, finalized: int, most_tip: int) -> Span | None:
    """Return the blocks to index next below block `low`, downwards to `floor`; None at the floor.

    At most `most` final blocks, or `most_tip` that may still change.
    """
    last = low - 1
    if last < floor:
        return None
    if last > finalized:
        return Span(max(floor, finalized + 1, last - most_tip + 1), last, final=False)
    return Span(max(floor, last - most + 1), last, final=True)
