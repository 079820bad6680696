"""The request that is being paid: its URL, its purchase, and the allowed and signed payment.

The hooks of the x402 client see an offer but not the request, so the transport (or, without one,
the hook of the HTTP client) puts the request into a context variable, and they take it from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from tollgauge_guard.authorization import Authorization
from tollgauge_guard.budget import Exposure
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.decision import Ask, Asked, Known, Refuse, Spent
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Refusal
from tollgauge_guard.offer import Offer, Terms
from tollgauge_guard.purchase_key import (
    Purchase,
    account_id,
    given_key,
    request_key,
    url_digest,
)
from tollgauge_guard.resource import Resource, ResourceError, parse

MAX_REDIRECTS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The owner's options for one call. The values only tighten the policy."""

    purchase: str | None = None
    max_amount: int | None = None
    expect_pay_to: str | None = None


OPTIONS: Final[ContextVar[CallOptions]] = ContextVar("tollgauge_guard", default=CallOptions())  # noqa: B039  # frozen


@contextmanager
def paying(
    *, purchase: str | None = None, max_amount: int | None = None, expect_pay_to: str | None = None
) -> Iterator[None]:
    """Name the purchase of the calls inside, or tighten the policy for them.

    Args:
        purchase: the caller's key of the purchase, for example an order number. It never ends.
        max_amount: limit in micro-dollars.
        expect_pay_to: the only payTo that is accepted.

    Raises:
        GuardError: `purchase` is empty or too long, or `max_amount` is not a limit.
    """
    if purchase is not None:
        given_key(purchase)
    if max_amount is not None and (type(max_amount) is not int or max_amount < 0):
        raise GuardError("max_amount is a whole number of micro-dollars.")
    options = CallOptions(purchase=purchase, max_amount=max_amount, expect_pay_to=expect_pay_to)
    token = OPTIONS.set(options)
    try:
        yield
    finally:
        OPTIONS.reset(token)


class Stage(Enum):
    """The progress of an attempt's payment."""

    ASKED = auto()
    """Nothing is reserved."""
    RESERVED = auto()
    """Its exposure is reserved, and nothing that was signed is recorded."""
    SIGNED = auto()
    """It is signed and recorded, and has not left."""
    KEPT = auto()
    """It was signed earlier, and is about to be sent again."""
    CONCLUDED = auto()
    """It has left, and its outcome is or will be recorded."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of the program, with all requests that its redirects lead to. It is paid once.

    `key` is the purchase key of its first request: a seller chooses where redirects lead.
    `hops` are the URLs of its requests. `redirected` is the payment that was answered by a
    redirect: the answer to the call decides its outcome.
    """

    key: str | None = None
    hops: list[str] = field(default_factory=list)
    paid: Attempt | None = None
    redirected: Attempt | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One request that may have to be paid, and the progress of its payment.

    Attributes:
        owner: the client that pays; hooks of another guard on the same x402 client ignore it.
        key: its purchase key.
        alias: another name by which the 402 may call it.
        tool: the name of the called tool of an MCP server.
        hops: the URLs that redirected to it.
        is_of_transport: a transport knows the request and ends it; otherwise a hook saw its URL.
        wallets: the addresses of the client's wallets.
        payer: the wallet that pays.
        required: the 402 that is paid, as given to the SDK.
        is_behind: an unfinished payment of the same purchase was found while reserving.
        terms: the allowed terms.
        payment: ID of the journal's row.
        signed: the checked authorization.
        header: the only text that may leave as the payment.
        refusal: why nothing may leave.
        dropped: the refusals of offers that were removed from the selection.
        known, spent: records and sums that the decisions about its offers share.
        contradicted: the terms of entries that a signed offer of the seller contradicts.
    """

    owner: object
    url: str
    key: str
    options: CallOptions = field(default_factory=OPTIONS.get)
    alias: str | None = None
    tool: str = ""
    call: Call | None = None
    hops: tuple[str, ...] = ()
    is_of_transport: bool = True
    wallets: tuple[str, ...] = ()
    payer: str = ""
    bundle: Bundle | None = None
    required: Any = None
    is_behind: bool = False
    stage: Stage = Stage.ASKED
    terms: Terms | None = None
    payment: int | None = None
    handle: str | None = None
    signed: Authorization | None = None
    header: str | None = None
    refusal: Refuse | None = None
    dropped: list[Refuse] = field(default_factory=list)
    known: dict[object, Known] = field(default_factory=dict)
    spent: dict[Exposure, Spent] = field(default_factory=dict)
    contradicted: frozenset[tuple[str, ...]] = frozenset()

    @property
    def resource(self) -> Resource:
        """The canonical resource. Raises ResourceError for a URL that cannot be read."""
        return parse(self.url)

    def mark_paid(self) -> None:
        """Mark the call as paid: its redirects are not."""
        if self.call is not None:
            self.call.paid = self

    def as_question(self, *, is_stopped: bool) -> Asked:
        """Return the request as the decision needs it."""
        return Asked(
            url=self.url,
            hops=self.hops,
            max_amount=self.options.max_amount,
            expect_pay_to=self.options.expect_pay_to,
            is_stopped=is_stopped,
        )

    def purchase(self, session: str) -> Purchase:
        """Return the purchase as the journal knows it. Raises ResourceError."""
        return _build_purchase(self.url, self.key, self.options.purchase, self.wallets, session)


@lru_cache(maxsize=256)  # the steps of a payment need it five times
def _build_purchase(
    url: str, key: str, given: str | None, wallets: tuple[str, ...], session: str
) -> Purchase:
    resource = parse(url)
    return Purchase(
        account=account_id(wallets),
        wallets=wallets,
        session=session,
        key=key if given is None else given_key(given),
        host=resource.host,
        resource=resource.url,
        url_digest=url_digest(url),
    )


CALL: Final[ContextVar[Call | None]] = ContextVar("tollgauge_guard_call", default=None)
"""The call that this thread is making (requests)."""
CURRENT: Final[ContextVar[Attempt | None]] = ContextVar("tollgauge_guard_attempt", default=None)
"""The request that this task or thread is about to pay."""


@contextmanager
def in_call() -> Iterator[None]:
    """Make all requests inside one call, which is paid once."""
    token = CALL.set(Call())
    try:
        yield
    finally:
        CALL.reset(token)


@contextmanager
def outside_call() -> Iterator[None]:
    """Run code that is not part of the current call. It pays separately."""
    call, attempt, options = CALL.set(None), CURRENT.set(None), OPTIONS.set(CallOptions())
    try:
        yield
    finally:
        OPTIONS.reset(options)
        CURRENT.reset(attempt)
        CALL.reset(call)


@contextmanager
def set_current(attempt: Attempt) -> Iterator[Attempt]:
    """Make a request the current one while it is sent."""
    token = CURRENT.set(attempt)
    try:
        yield attempt
    finally:
        CURRENT.reset(token)


def start_attempt(
    owner: object,
    call: Call | None,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Attempt:
    """Return the attempt of a request that is about to be sent as a part of a call."""
    key = request_key(method, url, headers, body)
    hops: tuple[str, ...] = ()
    if call is not None:
        key = call.key = call.key or key
        hops = tuple(call.hops)
        call.hops.append(url)
    return Attempt(owner=owner, url=url, key=key, call=call, hops=hops)


def build_refusal(
    attempt: Attempt, refused: Refuse | Ask, offer: Offer | None, now: int
) -> Refusal:
    """Return a decision other than allow, as the journal records it."""
    try:
        resource = attempt.resource
        host, url = resource.host, resource.url
    except ResourceError:
        host, url = "", ""
    return Refusal(
        at=now,
        account=account_id(attempt.wallets),
        host=host,
        resource=url,
        decision="ask" if isinstance(refused, Ask) else "refuse",
        code=refused.code,
        reason=refused.reason,
        network=None if offer is None else str(offer.network)[:64],
        pay_to=None if offer is None else str(offer.pay_to)[:128],
        amount=None if offer is None else str(offer.amount)[:80],
    )
