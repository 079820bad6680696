"""Purchases: before a payment is signed, the earlier payment of the same purchase is resolved.

A second authorization is signed only after `resolve_earlier` has returned: the chain proves the
first one dead, the purchase has ended, or the owner decided. The steps are those of
guard/cases/payments.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from tollgauge_guard import defaults
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Allow, Ask, Decision, Refuse
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.nodes import NodeReader, Reading
from tollgauge_guard.offer import Offer, Terms, find_asset
from tollgauge_guard.payment import (
    ON_CHAIN,
    Event,
    Evidence,
    Payment,
    Situation,
    State,
    Step,
    next_step,
)
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import Purchase
from tollgauge_guard.refusal import Unresolved
from tollgauge_guard.units import dollars

_T = TypeVar("_T")
QUEUE_S: Final = 30.0  # waiting time for an identical call
POLL_S: Final = 0.05
_EVENTS: Final = {
    Step.DIED: Event.PROCESS_DIED,
    Step.LAPSE: Event.WINDOW_OVER,
    Step.PAY_AGAIN: Event.PAY_AGAIN,
}


class PayingGuard(Protocol):
    """The parts of a guard that `resolve_earlier` uses."""

    journal: Journal
    policy: Policy
    nodes: NodeReader

    @property
    def now(self) -> int:
        """Unix seconds."""

    @property
    def has_approver(self) -> bool:
        """Whether questions can be answered."""

    def change(self, payment: Payment, event: Event, **values: Any) -> bool:
        """Apply an event to a payment that still has the state that was read."""


class Caller(Protocol):
    """A client that waits for the answers of nodes and of the approver."""

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""

    async def read_chain(self, payment: Payment) -> Reading:
        """Read a payment from the owner's nodes."""

    async def judge_again(self, offer: Offer, payment: Payment) -> Decision:
        """Decide about an offer that an open payment pays."""

    async def ask_again(self, question: Ask) -> bool:
        """Ask whether to pay a purchase again."""


class RefusedStepError(Exception):
    """The call must not pay; `refusal` states the reason."""

    def __init__(self, refusal: Refuse) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


async def resolve_earlier(
    guard: PayingGuard,
    caller: Caller,
    purchase: Purchase,
    read_offers: Callable[[], Sequence[Offer]],
) -> Payment | None:
    """Run the steps before a purchase is paid.

    Args:
        guard: the guard that pays.
        caller: waits for nodes and the approver.
        purchase: the request that is paid for.
        read_offers: returns the entries of the new 402; called if there is an earlier payment.

    Returns:
        A payment that is in flight again and must be sent, or None if a payment may be signed.

    Raises:
        RefusedStepError: the earlier payment is unresolved, or must not be sent again.
    """
    deadline = time.monotonic() + QUEUE_S
    readings: dict[int, Evidence] = {}
    while (payment := guard.journal.find_unfinished(purchase)) is not None:
        offer = find_offer(payment, purchase.url_digest, purchase.resource, read_offers())
        situation = _situation(
            guard,
            payment,
            deadline,
            may_resend=offer is not None,
            evidence=readings.get(payment.id),
        )
        match next_step(situation):
            case Step.WAIT:
                await caller.sleep(POLL_S)
            case Step.RESEND if offer is not None:
                decision = await caller.judge_again(offer, payment)
                if isinstance(decision, Ask):
                    decision = Refuse(decision.code, f"{decision.reason} It was not approved.")
                if not isinstance(decision, Allow):
                    raise RefusedStepError(decision)
                if guard.change(payment, Event.SEND):
                    return payment
            case Step.READ_CHAIN:
                reading = await caller.read_chain(payment)
                readings[payment.id] = reading.evidence
                apply_reading(guard, payment, reading)
            case (Step.DIED | Step.LAPSE | Step.PAY_AGAIN) as step:
                guard.change(payment, _EVENTS[step])
            case Step.ASK_OWNER:
                if not await caller.ask_again(_question(payment)):
                    raise RefusedStepError(
                        build_unresolved(guard.journal, purchase.resource, payment)
                    )
                guard.change(payment, Event.PAY_AGAIN)
            case _:
                # A payment that is being signed by another call has nothing to resolve yet.
                shown = None if payment.nonce is None else payment
                raise RefusedStepError(build_unresolved(guard.journal, purchase.resource, shown))
    return None


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that waits only by blocking."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    work.close()
    raise RuntimeError("The coroutine waits for an event loop.")


def apply_reading(guard: PayingGuard, payment: Payment, reading: Reading) -> None:
    """Record the chain's evidence about a payment."""
    settled = None
    asset = find_asset(payment.network, payment.asset, guard.policy)
    if reading.settled is not None and asset is not None:
        settled = asset.micro_usd(reading.settled)
    guard.change(payment, ON_CHAIN[reading.evidence], settled=settled)


def resolve(guard: PayingGuard, handle: str, *, write_off: bool = False) -> Payment:
    """Read a payment from the owner's nodes and record the result.

    Args:
        guard: whose journal and nodes are used.
        handle: of the payment, or its nonce.
        write_off: close the payment if it is still unresolved after that.

    Raises:
        GuardError: there is no such payment, or a running call waits for its answer.
    """
    payment = guard.journal.find(handle)
    if payment is None:
        raise GuardError(
            f"The journal has no payment {handle}.",
            hint="`tollgauge-guard unresolved` lists the payments without an answer.",
        )
    if payment.state in (State.SIGNED, State.IN_FLIGHT):
        if guard.journal.processes.is_alive(payment.owner) and guard.now < payment.ends_at:
            raise GuardError(
                f"A program is waiting for the answer to the payment {handle}.",
                hint="Try again when it has ended. Nothing was changed.",
            )
        guard.change(payment, Event.PROCESS_DIED)
        payment = guard.journal.payment(payment.id) or payment
    is_ceiling = payment.state is State.DELIVERED and payment.scheme == "upto"
    if payment.state in (State.OPEN, State.PAID_UNANSWERED) or is_ceiling:
        apply_reading(guard, payment, guard.nodes.read(payment))
        payment = guard.journal.payment(payment.id) or payment
    if write_off and payment.state in (State.OPEN, State.PAID_UNANSWERED):
        guard.change(payment, Event.WRITE_OFF)
    return guard.journal.payment(payment.id) or payment


def build_unresolved(journal: Journal, resource: str, payment: Payment | None) -> Unresolved:
    """Return the refusal of a purchase whose earlier payment has no answer."""
    if payment is None:
        return Unresolved(
            Code.PAYMENT_UNRESOLVED,
            f"Another call is paying for {resource}.",
            remedy="Call again later. Nothing was paid for this call.",
        )
    money = f"{dollars(payment.exposure)} to {payment.pay_to} on {payment.network}"
    command = f"tollgauge-guard unresolved{_file(journal)}"
    if payment.state is State.PAID_UNANSWERED:
        reason = f"{money} was taken for {payment.resource} and not answered."
        remedy = (
            f"No other payment was signed. `{command} show {payment.handle}` prints the evidence "
            f"for the seller; `{command} pay-again {payment.handle}` lets the guard pay again."
        )
    else:
        until = _time(payment.valid_before)
        reason = f"{money} for {payment.resource} has no answer and may be taken until {until}."
        remedy = (
            f"No other payment was signed. The same call sends the same payment again until "
            f"{_time(payment.retry_until)}; `{command} resolve {payment.handle}` reads the chain."
        )
    return Unresolved(Code.PAYMENT_UNRESOLVED, reason, payment, remedy=remedy)


def _situation(
    guard: PayingGuard,
    payment: Payment,
    deadline: float,
    *,
    may_resend: bool,
    evidence: Evidence | None,
) -> Situation:
    now, policy = guard.now, guard.policy
    return Situation(
        state=payment.state,
        # A process that hangs does not hold the purchase for longer than its window.
        is_busy=guard.journal.processes.is_alive(payment.owner) and now < payment.ends_at,
        is_queue_over=time.monotonic() >= deadline,
        may_resend=may_resend,
        seconds_left=payment.valid_before - now,
        evidence=evidence,
        is_window_over=payment.is_window_over(now),
        pay_again=policy.pay_again,
        pay_again_max=policy.pay_again_max,
        exposure=payment.exposure,
        has_approver=guard.has_approver,
    )


def find_offer(
    payment: Payment, url_digest: str, resource: str, offers: Sequence[Offer]
) -> Offer | None:
    """Return the offer of a new 402 that an open payment pays, if it may be sent to that URL."""
    is_same_url = payment.url_digest == url_digest
    if not payment.url_digest:  # an imported payment
        is_same_url = payment.resource == resource
    if payment.payload is None or not is_same_url:
        return None
    wanted = (payment.scheme, payment.network, payment.asset, payment.pay_to, str(payment.amount))
    return next((offer for offer in offers if _price(offer) == wanted), None)


def _price(offer: Offer) -> tuple[str, ...]:
    asset, pay_to = (
        text.lower() if text.startswith("0x") else text
        for text in (str(offer.asset), str(offer.pay_to))
    )
    return str(offer.scheme), str(offer.network), asset, pay_to, str(offer.amount)


def _question(payment: Payment) -> Ask:
    reason = f"A payment of {dollars(payment.exposure)} to {payment.host} got no answer."
    terms = Terms(
        scheme=payment.scheme,
        method=payment.method,
        network=payment.network,
        asset=payment.asset,
        amount=payment.amount,
        exposed=payment.amount,
        exposure=payment.exposure,
        pay_to=payment.pay_to,
        timeout=0,
        domain_name="",
        domain_version="",
    )
    return Ask(Code.PAY_AGAIN, reason, terms)


def _file(journal: Journal) -> str:
    is_usual = journal.path in (MEMORY, str(defaults.journal_file()))
    return "" if is_usual else f" --journal {journal.path}"


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
