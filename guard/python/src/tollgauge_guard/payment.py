"""Payments: their states, the transitions between them, and the next step of a call.

    reserved -> signed -> in-flight -> delivered | open
    open -> in-flight (sent again) | paid-unanswered | dead | lapsed | written-off

While a payment of a purchase is unfinished, no other payment of that purchase is signed. The table
is guard/cases/payments.json, which every language runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

SETTLE_MARGIN_S: Final = 6  # facilitators refuse an authorization with less validity left
PURCHASE_WINDOW_S: Final = 600


class State(StrEnum):
    """The state of a payment."""

    RESERVED = "reserved"
    SIGNED = "signed"
    IN_FLIGHT = "in-flight"
    OPEN = "open"
    DELIVERED = "delivered"
    PAID_UNANSWERED = "paid-unanswered"
    DEAD = "dead"
    LAPSED = "lapsed"
    WRITTEN_OFF = "written-off"


class Event(StrEnum):
    """What changes the state of a payment."""

    SIGNED = "signed"
    NOT_SIGNED = "not-signed"
    SEND = "send"
    NOT_SENT = "not-sent"
    PROCESS_DIED = "process-died"
    ANSWER = "answer"
    CUT = "cut"
    NO_ANSWER = "no-answer"
    ERROR_ANSWER = "error-answer"
    CHAIN_USED = "chain-used"
    CHAIN_DEAD = "chain-dead"
    CHAIN_UNUSED = "chain-unused"
    CHAIN_UNKNOWN = "chain-unknown"
    WINDOW_OVER = "window-over"
    PAY_AGAIN = "pay-again"
    WRITE_OFF = "write-off"


class Evidence(StrEnum):
    """The chain's evidence about a payment."""

    USED = "used"
    DEAD = "dead"
    UNUSED = "unused"
    UNKNOWN = "unknown"


class Step(StrEnum):
    """The next step of a call with an unfinished payment of its purchase."""

    SIGN = "sign"
    WAIT = "wait"
    DIED = "died"
    RESEND = "resend"
    READ_CHAIN = "read-chain"
    LAPSE = "lapse"
    PAY_AGAIN = "pay-again"
    ASK_OWNER = "ask-owner"
    UNRESOLVED = "unresolved"


class PayAgain(StrEnum):
    """The owner's decision about a payment that was paid, or may have been, and got no answer."""

    NEVER = "never"
    ASK = "ask"
    AUTO_UP_TO = "auto-up-to"


ON_CHAIN: Final = {
    Evidence.USED: Event.CHAIN_USED,
    Evidence.DEAD: Event.CHAIN_DEAD,
    Evidence.UNUSED: Event.CHAIN_UNUSED,
    Evidence.UNKNOWN: Event.CHAIN_UNKNOWN,
}
UNFINISHED: Final = (State.SIGNED, State.IN_FLIGHT, State.OPEN, State.PAID_UNANSWERED)
LOSSES: Final = (State.PAID_UNANSWERED, State.LAPSED, State.WRITTEN_OFF)
_BEING_PAID: Final = (State.RESERVED, State.SIGNED, State.IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class Transition:
    """The state after an event; None: the row is deleted."""

    to: State | None
    release: bool = False
    settle: bool = False
    drop_payload: bool = False
    keep_hint: bool = False


_TO_OPEN: Final = Transition(State.OPEN)
_TO_DELIVERED: Final = Transition(State.DELIVERED, drop_payload=True)
_TO_DEAD: Final = Transition(State.DEAD, release=True, drop_payload=True)
_TO_LAPSED: Final = Transition(State.LAPSED, drop_payload=True)
_TO_WRITTEN_OFF: Final = Transition(State.WRITTEN_OFF, drop_payload=True)
_DELETED: Final = Transition(None, release=True)

TRANSITIONS: Final[Mapping[tuple[State, Event], Transition]] = MappingProxyType(
    {
        (State.RESERVED, Event.SIGNED): Transition(State.SIGNED),
        (State.RESERVED, Event.NOT_SIGNED): _DELETED,
        (State.RESERVED, Event.PROCESS_DIED): _DELETED,
        (State.SIGNED, Event.SEND): Transition(State.IN_FLIGHT),
        (State.SIGNED, Event.NOT_SENT): _TO_DEAD,
        # Without `durable`, a power failure may lose the transition to in-flight.
        (State.SIGNED, Event.PROCESS_DIED): _TO_OPEN,
        (State.IN_FLIGHT, Event.ANSWER): _TO_DELIVERED,
        (State.IN_FLIGHT, Event.CUT): _TO_OPEN,
        (State.IN_FLIGHT, Event.NO_ANSWER): _TO_OPEN,
        (State.IN_FLIGHT, Event.PROCESS_DIED): _TO_OPEN,
        (State.IN_FLIGHT, Event.ERROR_ANSWER): Transition(State.OPEN, keep_hint=True),
        (State.IN_FLIGHT, Event.NOT_SENT): _TO_OPEN,
        (State.OPEN, Event.SEND): Transition(State.IN_FLIGHT),
        (State.OPEN, Event.ANSWER): _TO_DELIVERED,
        (State.OPEN, Event.ERROR_ANSWER): Transition(State.OPEN, keep_hint=True),
        (State.OPEN, Event.CHAIN_USED): Transition(
            State.PAID_UNANSWERED, settle=True, drop_payload=True
        ),
        (State.OPEN, Event.CHAIN_DEAD): _TO_DEAD,
        (State.OPEN, Event.CHAIN_UNUSED): _TO_OPEN,
        (State.OPEN, Event.CHAIN_UNKNOWN): _TO_OPEN,
        (State.OPEN, Event.WINDOW_OVER): _TO_LAPSED,
        (State.OPEN, Event.PAY_AGAIN): _TO_WRITTEN_OFF,
        (State.OPEN, Event.WRITE_OFF): _TO_WRITTEN_OFF,
        (State.DELIVERED, Event.CHAIN_USED): Transition(State.DELIVERED, settle=True),
        (State.PAID_UNANSWERED, Event.ANSWER): Transition(State.DELIVERED),
        (State.PAID_UNANSWERED, Event.CHAIN_USED): Transition(State.PAID_UNANSWERED, settle=True),
        # A reorganisation removed the block that showed it used.
        (State.PAID_UNANSWERED, Event.CHAIN_UNUSED): _TO_OPEN,
        (State.PAID_UNANSWERED, Event.CHAIN_DEAD): _TO_DEAD,
        (State.PAID_UNANSWERED, Event.CHAIN_UNKNOWN): Transition(State.PAID_UNANSWERED),
        (State.PAID_UNANSWERED, Event.WINDOW_OVER): Transition(State.LAPSED),
        (State.PAID_UNANSWERED, Event.PAY_AGAIN): Transition(State.WRITTEN_OFF),
        (State.PAID_UNANSWERED, Event.WRITE_OFF): Transition(State.WRITTEN_OFF),
        (State.LAPSED, Event.ANSWER): Transition(State.DELIVERED),
        (State.WRITTEN_OFF, Event.ANSWER): Transition(State.DELIVERED),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state of the unfinished payment of a purchase, as a call sees it.

    `evidence` is None until the chain was read during this call. `may_resend` requires the same
    URL, the payload, and the offer in the new 402; `seconds_left` is the remaining validity.
    """

    state: State | None
    is_busy: bool = False
    is_queue_over: bool = False
    may_resend: bool = False
    seconds_left: int = 0
    evidence: Evidence | None = None
    is_window_over: bool = False
    pay_again: PayAgain = PayAgain.ASK
    pay_again_max: int = 0
    exposure: int = 0
    has_approver: bool = False


def next_step(now: Situation) -> Step:
    """Return the next step of a call. Only `SIGN` lets it sign another authorization."""
    if now.state not in (*_BEING_PAID, State.OPEN, State.PAID_UNANSWERED):
        return Step.SIGN
    if now.state in _BEING_PAID:
        if not now.is_busy:
            return Step.DIED
        return Step.UNRESOLVED if now.is_queue_over else Step.WAIT
    if now.evidence is None:
        is_valid = now.seconds_left > SETTLE_MARGIN_S
        is_resent = now.state is State.OPEN and now.may_resend and is_valid
        return Step.RESEND if is_resent else Step.READ_CHAIN
    if now.evidence is Evidence.DEAD:
        return Step.SIGN
    if now.is_window_over:
        return Step.LAPSE
    if now.seconds_left > SETTLE_MARGIN_S and now.evidence is not Evidence.USED:
        return Step.UNRESOLVED  # it can still be sent again from its own URL
    is_automatic = now.pay_again is PayAgain.AUTO_UP_TO and now.exposure <= now.pay_again_max
    if is_automatic:
        return Step.PAY_AGAIN
    may_ask = now.pay_again is not PayAgain.NEVER and now.has_approver
    return Step.ASK_OWNER if may_ask else Step.UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """One payment of the journal.

    Times are unix seconds, `amount` is in atomic units, `exposure` in micro-dollars. EVM values are
    lower-case hex. `handle` names the payment to callers and commands. `status` and `settlement`
    (a transaction) come from the seller's last answer and prove nothing.
    """

    id: int
    handle: str
    account: str
    purchase: str
    session: str
    owner: str
    state: State
    at: int
    changed_at: int
    host: str
    resource: str
    url_digest: str
    scheme: str
    method: str
    network: str
    asset: str
    pay_to: str
    amount: int
    exposure: int
    payer: str
    nonce: str | None
    valid_before: int
    valid_height: int | None
    evidence: str | None
    payload: str | None
    payment_id: str | None
    status: int | None
    settlement: str | None
    found_at: int | None
    replaces: int | None

    @property
    def is_keyed(self) -> bool:
        """Whether the caller gave the purchase key; such a purchase never ends."""
        return self.purchase.startswith("key:")

    @property
    def retry_until(self) -> int:
        """Until when the same payment may be sent again (unix seconds)."""
        return self.valid_before - SETTLE_MARGIN_S

    @property
    def ends_at(self) -> int:
        """When the window of a digest purchase ends (unix seconds)."""
        return max(self.valid_before, self.found_at or 0) + PURCHASE_WINDOW_S

    def is_window_over(self, now: int) -> bool:
        """Whether this purchase has ended without the chain or the owner."""
        return not self.is_keyed and now >= self.ends_at
