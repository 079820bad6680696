"""Evidence: what readings of a chain prove about a payment. Pure.

Only the chain decides that a payment is used or dead; an answer, an error code, an expiry or a
silent node decides nothing. The rules by scheme are cases in guard/cases/payments.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tollgauge_guard.payment import Evidence

MIN_DEPTH: Final = 12  # blocks above the one that shows a small payment unused
MAX_SHALLOW_EXPOSURE: Final = 1_000_000  # micro-dollars; above it the block must be finalized


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReading:
    """Whether an authorization is used at one block; `is_used` None: the node did not answer."""

    timestamp: int
    depth: int
    is_finalized: bool
    is_used: bool | None


def prove_evm(
    *, latest: bool | None, block: BlockReading | None, dead_from: int, exposure: int
) -> Evidence:
    """Judge the readings of an EIP-3009 authorization or a Permit2 nonce.

    Args:
        latest: whether it is used at the latest block; None: unknown.
        block: a reading at a deep block.
        dead_from: the first block timestamp at which an unused authorization cannot be used.
        exposure: micro-dollars.
    """
    if latest or (block is not None and block.is_used):
        return Evidence.USED
    if latest is None:
        return Evidence.UNKNOWN
    if block is None or block.is_used is None or block.timestamp < dead_from:
        return Evidence.UNUSED
    is_small = exposure <= MAX_SHALLOW_EXPOSURE
    is_deep = block.is_finalized or (is_small and block.depth >= MIN_DEPTH)
    return Evidence.DEAD if is_deep else Evidence.UNUSED


def prove_solana(
    *, is_found: bool | None, finalized_height: int | None, last_valid_height: int | None
) -> Evidence:
    """Judge a complete scan of the payer's token account for the payer's own signature."""
    if is_found:
        return Evidence.USED
    if is_found is None:
        return Evidence.UNKNOWN
    if finalized_height is None or last_valid_height is None:
        return Evidence.UNUSED
    return Evidence.DEAD if finalized_height > last_valid_height else Evidence.UNUSED


def combine(readings: Iterable[Evidence]) -> Evidence:
    """Combine the evidence of several nodes: one proves `used`, only all prove `dead`."""
    found = list(readings)
    if Evidence.USED in found:
        return Evidence.USED
    if not found or Evidence.UNKNOWN in found:
        return Evidence.UNKNOWN
    return Evidence.UNUSED if Evidence.UNUSED in found else Evidence.DEAD
