"""States of a payment, their transitions, and the state that the chain's proof leads to.

An outcome of settlement that is not proven is `unknown`, until the chain decides it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import MINUTE_MS


class State(StrEnum):
    """The state of a payment."""

    CLAIMED = "claimed"
    """A worker verifies it and computes the answer."""
    REJECTED = "rejected"
    """Refused before settlement: nothing was charged."""
    SETTLING = "settling"
    """The facilitator was asked, or is about to be asked, to settle it."""
    SETTLED = "settled"
    """It paid."""
    UNKNOWN = "unknown"
    """The facilitator's reply proves nothing; the chain decides."""
    FAILED = "failed"
    """The chain shows that the authorization was cancelled or used for another transfer."""
    EXPIRED = "expired"
    """It was not used before `validBefore` and can no longer be."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.CLAIMED: frozenset({State.CLAIMED, State.REJECTED, State.SETTLING}),
    State.REJECTED: frozenset({State.CLAIMED}),
    State.SETTLING: frozenset({State.SETTLED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.SETTLING, State.SETTLED, State.FAILED, State.EXPIRED}),
    State.SETTLED: frozenset({State.UNKNOWN}),
    State.FAILED: frozenset(),
    State.EXPIRED: frozenset(),
}
"""Which state may follow which. `claimed` may follow itself when a dead worker's claim is taken
over; `rejected` may be claimed again because nothing was charged; `settled` falls back to
`unknown` only when the chain, looked at again when it is final, has lost the transfer."""
PATHS: Final[dict[State, tuple[State, ...]]] = {
    State.SETTLING: (State.UNKNOWN,),
    State.SETTLED: (State.UNKNOWN,),
    State.UNKNOWN: (),
}
"""The states on the way from an abandoned row's state to `unknown`, from where the chain's proof
moves it."""

BEFORE_SETTLEMENT: Final = frozenset({State.CLAIMED, State.REJECTED})
"""The facilitator has not been asked to settle: nothing can have been charged."""
IN_WORK: Final = frozenset({State.CLAIMED, State.SETTLING})
"""A worker holds the payment for as long as its lease lasts."""
IN_DOUBT: Final = frozenset({State.SETTLING, State.UNKNOWN})
"""It may have been charged; only the chain can tell."""
NEVER_PAID: Final = frozenset({State.FAILED, State.EXPIRED})
"""The chain has proved that it never pays."""
NOT_PAID: Final = NEVER_PAID | {State.REJECTED}
"""It brought no money: refused, or proved never to pay. A rejected payment may be claimed again."""
CONCLUDED: Final = NOT_PAID | {State.SETTLED}
"""The outcome is known."""
CHECKED_ON_CHAIN: Final = frozenset(PATHS)
"""The reconciler asks the chain about these: unclear outcomes, and settled ones until final."""


class Proof(StrEnum):
    """What the chain says of an authorization."""

    PAID = "paid"
    """`AuthorizationUsed` and the matching `Transfer` are in one transaction."""
    CANCELLED = "cancelled"
    """The payer cancelled it; it can never pay."""
    OTHER = "other"
    """It was used, but for another transfer than the one that was signed to us."""
    UNUSED = "unused"
    """The chain, as far as it is known, has not seen it."""


REST_MS: Final = 15_000
"""How long the reconciler waits before it looks again at a settlement that was unclear."""
FINAL_MS: Final = 30 * MINUTE_MS
"""How long after settlement a payment is looked at once more: Base's blocks are final by then."""
EXPIRY_GRACE_S: Final = 120
"""How far the chain's own time must be past validBefore: room for a short reorganisation."""


def proven_state(proof: Proof | None, *, valid_before_s: int, now_s: int | None) -> State | None:
    """The state that a proof moves an unknown payment to, or None while the outcome is open.

    `now_s` is the chain's time at the proof (unix seconds), not ours: a node that lags by minutes
    has not seen what was mined since. `authorizationState` alone is no proof: it is true for a
    cancelled authorization as well.
    """
    if proof is Proof.PAID:
        return State.SETTLED
    if proof in (Proof.CANCELLED, Proof.OTHER):
        return State.FAILED
    late = now_s is not None and now_s > valid_before_s + EXPIRY_GRACE_S
    return State.EXPIRED if proof is Proof.UNUSED and late else None
