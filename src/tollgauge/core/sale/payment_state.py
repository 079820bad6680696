"""States of a payment, their transitions, and the state that the chain's proof leads to.

A settlement without proof is `unknown` until the chain decides it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import MINUTE_MS


class State(StrEnum):
    """The state of a payment."""

    CLAIMED = "claimed"
    """A worker verifies it and computes the response."""
    REJECTED = "rejected"
    """Refused before settlement: nothing was charged."""
    SETTLING = "settling"
    """A request to the facilitator to settle it was sent or is about to be sent."""
    SETTLED = "settled"
    """It was paid."""
    UNKNOWN = "unknown"
    """The facilitator's reply proves nothing; the chain decides."""
    FAILED = "failed"
    """The chain shows that the authorization was cancelled or used for another transfer."""
    EXPIRED = "expired"
    """It was not used before `validBefore` and can no longer be used."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.CLAIMED: frozenset({State.CLAIMED, State.REJECTED, State.SETTLING}),
    State.REJECTED: frozenset({State.CLAIMED}),
    State.SETTLING: frozenset({State.SETTLED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.SETTLING, State.SETTLED, State.FAILED, State.EXPIRED}),
    State.SETTLED: frozenset({State.UNKNOWN}),
    State.FAILED: frozenset(),
    State.EXPIRED: frozenset(),
}
"""The states that may follow each state. `claimed` may follow itself if a worker takes over a dead
worker's claim; `rejected` may be claimed again because nothing was charged; `settled` returns to
`unknown` only if the transfer is missing when the chain is checked again after finality.
"""
PATHS: Final[dict[State, tuple[State, ...]]] = {
    State.SETTLING: (State.UNKNOWN,),
    State.SETTLED: (State.UNKNOWN,),
    State.UNKNOWN: (),
}
"""The states between an abandoned row's state and `unknown`, from which the chain's proof
moves it.
"""

BEFORE_SETTLEMENT: Final = frozenset({State.CLAIMED, State.REJECTED})
"""The facilitator has received no request to settle: nothing can have been charged."""
IN_WORK: Final = frozenset({State.CLAIMED, State.SETTLING})
"""A worker holds the payment until its lease ends."""
IN_DOUBT: Final = frozenset({State.SETTLING, State.UNKNOWN})
"""It may have been charged; only the chain can decide."""
NEVER_PAID: Final = frozenset({State.FAILED, State.EXPIRED})
"""The chain has proved that it will never be paid."""
NOT_PAID: Final = NEVER_PAID | {State.REJECTED}
"""It brought no money: refused, or proved never to be paid. A rejected payment may be claimed
again.
"""
CONCLUDED: Final = NOT_PAID | {State.SETTLED}
"""The outcome is known."""
CHECKED_ON_CHAIN: Final = frozenset(PATHS)
"""The reconciler queries the chain about these: unclear outcomes, and settled ones until final."""


class Proof(StrEnum):
    """Evidence of the chain about an authorization."""

    PAID = "paid"
    """`AuthorizationUsed` and the matching `Transfer` are in one transaction."""
    CANCELLED = "cancelled"
    """The payer cancelled it; it can never pay."""
    OTHER = "other"
    """It was used for another transfer than the signed one."""
    UNUSED = "unused"
    """The known part of the chain does not contain it."""


REST_MS: Final = 15_000
"""Delay before the reconciler checks an unclear settlement again."""
FINAL_MS: Final = 30 * MINUTE_MS
"""Delay after settlement before a payment is checked again: Base's blocks are final by then."""
EXPIRY_GRACE_S: Final = 120
"""Minimum time by which the chain's clock must be past validBefore: allows for a short
reorganisation.
"""


def proven_state(proof: Proof | None, *, valid_before_s: int, now_s: int | None) -> State | None:
    """Return the state that a proof moves an unknown payment to; None while the outcome is open.

    `now_s` is the chain's time at the proof (Unix seconds), not the local time: a node that lags by
    minutes lacks recent blocks. `authorizationState` is not sufficient as a proof, because it is
    true for a cancelled authorization too.
    """
    if proof is Proof.PAID:
        return State.SETTLED
    if proof in (Proof.CANCELLED, Proof.OTHER):
        return State.FAILED
    late = now_s is not None and now_s > valid_before_s + EXPIRY_GRACE_S
    return State.EXPIRED if proof is Proof.UNUSED and late else None
