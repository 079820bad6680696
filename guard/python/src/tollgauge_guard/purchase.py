"""Purchase: the first authorization of a purchase stays the only one until it is dead.

`find_kept` runs before a payment is signed. If an earlier payment of the same purchase has no
answer, it is sent again, or a node is asked about it, or the call is refused. Only the chain, the
end of the purchase or the owner make way for another payment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollgauge_guard import defaults
from tollgauge_guard.chain import Fate, find_fate
from tollgauge_guard.decision import Allow, Ask, Code, Refuse
from tollgauge_guard.entry import SETTLE_MARGIN_S, UNFINISHED, Entry, Outcome, Unfinished
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.offer import Offer
from tollgauge_guard.request import Attempt, Unresolved, error_of
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.units import dollars

QUEUE_S: Final = 30.0
"""How long a call waits for an identical one that is being paid."""
POLL_S: Final = 0.05
_OF_FATE: Final = {Fate.USED: Outcome.PAID_UNANSWERED, Fate.DEAD: Outcome.DEAD}
_log = logging.getLogger("tollgauge_guard")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Judge:
    """Decide about an offer again, which the payment of a row pays. Answer: a Decision."""

    offer: Offer
    entry: Entry


@dataclass(frozen=True, slots=True)
class AskChain:
    """Ask a node about a payment. Answer: a Fate."""

    node: str
    entry: Entry


Steps = Generator[Sleep | Judge | AskChain, Any, "tuple[int, str] | None"]


def find_kept(
    journal: Journal,
    nodes: Mapping[str, str],
    clock: Callable[[], float],
    attempt: Attempt,
    offers: Sequence[Offer],
) -> Steps:
    """The steps before a purchase is paid; synchronous and asynchronous clients run them.

    Returns the row and the header of a payment that is to be sent again, or None if a payment may
    be signed. Raises PaymentUnresolved, and PaymentRefusedError where the earlier payment must not
    be sent again.
    """
    try:
        request = attempt.paid_request
    except ResourceError:
        return None  # which the decision explains
    deadline = time.monotonic() + QUEUE_S
    while (found := journal.unfinished(request, now := int(clock()))) is not None:
        entry = found.entry
        if entry is None or (found.is_busy and now < entry.ends_at):
            if time.monotonic() >= deadline:
                raise _refuse(attempt, unresolved(journal, request.resource, entry))
            yield Sleep(POLL_S)
        elif (offer := _offer_again(found, entry, attempt, offers, now)) is not None:
            decision = yield Judge(offer, entry)
            if isinstance(decision, Ask):
                decision = Refuse(decision.code, f"{decision.reason} Nobody was asked.")
            if not isinstance(decision, Allow):
                raise _refuse(attempt, decision)
            if (header := journal.send_again(found.id, int(clock()))) is not None:
                return found.id, header
        else:
            node = nodes.get(entry.network)
            fate = Fate.UNKNOWN
            if node is not None and entry.outcome != Outcome.PAID_UNANSWERED:
                fate = yield AskChain(node, entry)
            if not _make_way(journal, entry, fate, now):
                raise _refuse(attempt, unresolved(journal, entry.resource, entry))
    return None


def resolve(journal: Journal, nonce: str, *, node: str | None, write_off: bool, now: int) -> Entry:
    """Ask a node about a payment and write down what it shows. `write_off` is the owner's consent
    to sign another payment for the same purchase, whatever became of this one.

    Raises GuardError where the journal has no such payment, and where a program waits for its
    answer.
    """
    entries = sorted(journal.of_nonce(nonce), key=lambda entry: entry.outcome not in UNFINISHED)
    if not entries:
        raise GuardError(
            f"The journal has no payment with the nonce {nonce}.",
            hint="`tollgauge-guard unresolved` lists the payments without an answer.",
        )
    entry = entries[0]
    if entry.outcome not in UNFINISHED:
        return entry
    if journal.is_busy(entry.id) and now < entry.ends_at:
        raise GuardError(
            f"A program is waiting for the answer to the payment {nonce}.",
            hint="Try again when it has ended. Nothing was changed.",
        )
    fate = Fate.UNKNOWN if node is None else find_fate(node, entry)
    outcome = _OF_FATE.get(fate)
    if outcome is not None:
        journal.close_unfinished(entry, outcome, now)
    entry = journal.entry(entry.id) or entry
    if write_off and entry.outcome in UNFINISHED:
        journal.close_unfinished(entry, Outcome.WRITTEN_OFF, now)
    return journal.entry(entry.id) or entry


def unresolved(journal: Journal, resource: str, entry: Entry | None) -> Unresolved:
    """What is told of a purchase whose earlier payment has no answer."""
    if entry is None:
        return Unresolved(
            Code.PAYMENT_UNRESOLVED,
            "An identical call is signing a payment for this purchase.",
            nonce=None,
            network=None,
            payer=None,
            resource=resource,
            state=Outcome.OPEN,
            retry_until=None,
            remedy="Call again later. Nothing was paid for this call.",
        )
    money = f"{dollars(entry.micro_usd)} to {entry.pay_to} on {entry.network}"
    command = _command(journal, entry)
    if entry.outcome == Outcome.PAID_UNANSWERED:
        reason = f"{money} was taken for {entry.resource} and not answered (nonce {entry.nonce})."
        remedy = (
            f"No other payment was signed. Ask the seller for the answer. {command('--write-off')} "
            "lets the guard pay for this purchase again."
        )
    else:
        reason = (
            f"A payment of {money} for {entry.resource} has no answer and may be taken "
            f"(nonce {entry.nonce}, valid until {_time(entry.valid_before)})."
        )
        remedy = (
            f"No other payment was signed. Call again before {_time(entry.retry_until)} to send "
            f"the same one. {command('--node URL')} asks the chain what became of it."
        )
    state = entry.outcome if entry.outcome == Outcome.PAID_UNANSWERED else Outcome.OPEN
    return Unresolved(
        Code.PAYMENT_UNRESOLVED,
        reason,
        nonce=entry.nonce,
        network=entry.network,
        payer=entry.payer,
        resource=entry.resource,
        state=state,
        retry_until=entry.retry_until,
        remedy=remedy,
    )


def _offer_again(
    found: Unfinished, entry: Entry, attempt: Attempt, offers: Sequence[Offer], now: int
) -> Offer | None:
    """The offer that an open payment still pays, None where it must not be sent again."""
    is_sendable = found.header is not None and entry.valid_before - now > SETTLE_MARGIN_S
    if not is_sendable or entry.resource != attempt.resource.url:
        return None
    price = (entry.network, entry.asset, entry.pay_to, str(entry.amount))
    return next((offer for offer in offers if _price(offer) == price), None)


def _price(offer: Offer) -> tuple[str, str, str, str]:
    asset, pay_to = str(offer.asset).lower(), str(offer.pay_to).lower()
    return str(offer.network), asset, pay_to, str(offer.amount)


def _make_way(journal: Journal, entry: Entry, fate: Fate, now: int) -> bool:
    """Write down what is known of a payment that cannot be sent again. Returns whether the journal
    has to be looked at again.
    """
    outcome = _OF_FATE.get(fate)
    if outcome is None and now >= entry.ends_at:
        outcome = Outcome.LAPSED
        _log.warning(
            "purchase.lapsed nonce=%s resource=%s micro_usd=%d: the payment counts as a loss",
            *(entry.nonce, entry.resource, entry.micro_usd),
        )
    if outcome is None:
        return False
    journal.close_unfinished(entry, outcome, now)
    return True


def _refuse(attempt: Attempt, refusal: Refuse) -> Exception:
    attempt.refusal = refusal
    return error_of(refusal)


def _command(journal: Journal, entry: Entry) -> Callable[[str], str]:
    """How the owner resolves a payment: the command, or for a journal in memory the method."""
    if journal.path == MEMORY:
        values = {"--node URL": 'node="URL"', "--write-off": "write_off=True"}
        return lambda option: f'`guard.resolve("{entry.nonce}", {values[option]})`'
    is_usual = journal.path == str(defaults.journal_file())
    file = "" if is_usual else f" --journal {journal.path}"
    return lambda option: f"`tollgauge-guard resolve {entry.nonce} {option}{file}`"


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
