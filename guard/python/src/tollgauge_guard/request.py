"""The request that is being paid: which URL it asks, and what was allowed and signed for it.

The hooks of the x402 client see an offer but not the request, so the transport (or, without one,
the hook of the HTTP client) puts the request into a context variable, and they take it from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from tollgauge_guard.decision import Code, Refuse
from tollgauge_guard.entry import PaidRequest
from tollgauge_guard.errors import GuardError
from tollgauge_guard.offer import Terms
from tollgauge_guard.receipt import PAYMENT_HEADERS
from tollgauge_guard.resource import Resource, ResourceError, parse
from tollgauge_guard.signed import Authorization

ADVICE: Final = {
    Code.RESOURCE_MISMATCH: (
        "Send the request to the seller's own address, through the client that the guard returned."
    ),
    Code.ASSET_UNKNOWN: (
        "Add the token to `assets` of the policy to pay with it; another scheme is never paid."
    ),
    Code.AMOUNT_INVALID: "The seller has to mend its offer.",
    Code.OVER_CALL_CAP: "Raise `max_call` of the policy if the price is right.",
    Code.PAYTO_MALFORMED: "The seller has to mend its offer.",
    Code.TIMEOUT_INVALID: "Raise `max_timeout` of the policy, or tell the seller.",
    Code.NOT_PAYABLE: "Use another seller.",
    Code.AVOID: "Use another seller.",
    Code.PAYTO_UNKNOWN: (
        "Ask the seller in another way whether the address is its own, or wait for a newer list."
    ),
    Code.PAYTO_VARIES: (
        "Give the guard a function `ask` that agrees, or pin the host in `pins` of the policy."
    ),
    Code.NETWORK_UNKNOWN: (
        "Ask the seller in another way whether it has moved, or wait for a newer list."
    ),
    Code.PRICE_JUMP: (
        "Wait for a newer list, or raise `price_factor` of the policy if the price is right."
    ),
    Code.CAUTION: "Give the guard a function `ask` that agrees.",
    Code.GRADE_LOW: (
        "Give the guard a function `ask` that agrees, or lower `min_grade` of the policy."
    ),
    Code.BUNDLE_OLD: (
        "Look whether the bundle can be had, and whether the key is the one that signs it."
    ),
    Code.UNKNOWN_RESOURCE: (
        "Give the guard a function `ask` that agrees, or raise `unknown_max` of the policy."
    ),
    Code.BUNDLE_STALE: (
        "Look whether the address of the bundle can be reached, or give the guard `ask`."
    ),
    Code.OVER_HOST_BUDGET: "Wait for the next day (UTC), or raise `max_host_day` of the policy.",
    Code.OVER_DAY_BUDGET: "Wait for the next day (UTC), or raise `max_day` of the policy.",
    Code.RETRY_STORM: (
        "Look why the answers did not serve; the request may be paid again in ten minutes."
    ),
    Code.PAYMENT_UNRESOLVED: "Ask a node with `tollgauge-guard resolve`.",
    Code.SIGNED_DIFFERS: "Look for a hook, an extension or a redirect that changes the payment.",
}
"""What to do about a refusal."""


_CREDENTIALS: Final = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"),
        *("x-auth-token", "sign-in-with-x", *PAYMENT_HEADERS),
    }
)
"""Headers that never follow a redirect to another origin."""


class PaymentRefusedError(GuardError):
    """The guard refused a payment: nothing left the process. `code` is the rule that decided."""

    def __init__(self, refusal: Refuse, *, hint: str = "") -> None:
        hint = hint or ADVICE[refusal.code]
        super().__init__(f"{refusal.code}: {refusal.reason}", hint=hint)
        self.code: Code = refusal.code
        self.reason = refusal.reason


@dataclass(frozen=True, slots=True)
class Unresolved(Refuse):
    """A purchase whose earlier payment has no answer. `state` is `open`, or `paid-unanswered` where
    the chain shows that it was taken. Until `retry_until` (unix seconds) the same payment may be
    sent again. `nonce` is None while the payment is being signed. `remedy` says what to do.
    """

    nonce: str | None
    network: str | None
    payer: str | None
    resource: str
    state: str
    retry_until: int | None
    remedy: str


class PaymentUnresolved(PaymentRefusedError):  # noqa: N818  # the name in every language
    """An earlier payment of the same purchase was sent and has no answer, so no other one was
    signed. The attributes are those of `Unresolved`.
    """

    def __init__(self, unresolved: Unresolved) -> None:
        super().__init__(unresolved, hint=unresolved.remedy)
        self.nonce = unresolved.nonce
        self.network = unresolved.network
        self.payer = unresolved.payer
        self.resource = unresolved.resource
        self.state = unresolved.state
        self.retry_until = unresolved.retry_until


def error_of(refusal: Refuse) -> PaymentRefusedError:
    """The error that tells a caller of a refusal."""
    if isinstance(refusal, Unresolved):
        return PaymentUnresolved(refusal)
    return PaymentRefusedError(refusal)


class Stage(Enum):
    """How far a payment has come."""

    ASKED = auto()
    """Nothing is reserved for it."""
    RESERVED = auto()
    """Its amount is set aside, and nothing that was signed is written down."""
    SIGNED = auto()
    """It is signed and written down, and has not left."""
    KEPT = auto()
    """It was signed earlier and may have left then; it is about to be sent again."""
    CONCLUDED = auto()
    """It has left, and its outcome is written down."""


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One request that may have to be paid.

    `url` is what was asked, `digest` tells the same call again, `alias` is another name by which
    the 402 may call it, `hops` are the URLs that redirected to it. `terms` are what was allowed,
    `entry` is the row of the journal, `signed` what was signed and checked, `header` the text that
    may leave as the payment; each is None until then. `payers` are the addresses of the client's
    wallets, and `payer` the one that pays. `is_behind` an unfinished payment of the same purchase.
    `refusal` is why nothing may leave. `owner` is the client that pays: hooks of another guard on
    the same x402 client leave it alone. `is_of_transport`: a transport knows the request and ends
    it; otherwise a hook saw its URL.
    """

    owner: object
    url: str
    digest: str
    alias: str | None = None
    hops: tuple[str, ...] = ()
    is_of_transport: bool = True
    payers: tuple[str, ...] = ()
    payer: str = ""
    is_behind: bool = False
    stage: Stage = Stage.ASKED
    terms: Terms | None = None
    entry: int | None = None
    signed: Authorization | None = None
    header: str | None = None
    refusal: Refuse | None = None

    @property
    def resource(self) -> Resource:
        """The canonical resource. Raises ResourceError for a URL that cannot be read."""
        return parse(self.url)

    @property
    def paid_request(self) -> PaidRequest:
        """The request as the journal knows it: without its query, which may hold secrets."""
        resource = self.resource
        return PaidRequest(
            host=resource.host, resource=resource.url, digest=self.digest, payers=self.payers
        )


@dataclass(slots=True, eq=False)
class Call:
    """One call of the program, with all requests that its redirects lead to. It is paid once.

    `digest` is that of its first request: a seller chooses where its redirects lead. `hops` are
    the URLs of its requests. `redirected` is the payment whose answer was a redirect: the answer
    to the call decides what became of it.
    """

    digest: str | None = None
    hops: list[str] = field(default_factory=list)
    paid: Attempt | None = None
    redirected: Attempt | None = None


CALL: Final[ContextVar[Call | None]] = ContextVar("tollgauge_guard_call", default=None)
"""The call that this task or thread is making."""
CURRENT: Final[ContextVar[Attempt | None]] = ContextVar("tollgauge_guard_attempt", default=None)
"""The request that this task or thread is about to pay."""


@contextmanager
def calling() -> Iterator[None]:
    """Make what is sent meanwhile one call, which is paid once."""
    token = CALL.set(Call())
    try:
        yield
    finally:
        CALL.reset(token)


@contextmanager
def apart() -> Iterator[None]:
    """Run code that is no part of the call that is being made: what it pays is another payment."""
    call, attempt = CALL.set(None), CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(attempt)
        CALL.reset(call)


@contextmanager
def asking(attempt: Attempt) -> Iterator[Attempt]:
    """Make a request the current one while it is sent."""
    token = CURRENT.set(attempt)
    try:
        yield attempt
    finally:
        CURRENT.reset(token)


def drop_credentials(attempt: Attempt, headers: MutableMapping[str, Any]) -> None:
    """Remove from a redirected request what must not reach another origin than the one that was
    asked first.
    """
    if not attempt.hops or _is_same_origin(attempt.hops[0], attempt.url):
        return
    for name in [name for name in headers if name.lower() in _CREDENTIALS]:
        del headers[name]


def _is_same_origin(first: str, other: str) -> bool:
    """Whether two URLs have one origin. From `http` to `https` on the default ports is no change:
    whoever reads the second could read the first.
    """
    try:
        asked, landed = parse(first), parse(other)
    except ResourceError:
        return False
    is_upgrade = (asked.scheme, landed.scheme) == ("http", "https") and asked.names_host_of(landed)
    return asked.origin == landed.origin or is_upgrade


def attempt_of(owner: object, method: str, url: str, body: bytes) -> Attempt:
    """A request that a transport is about to send, as a part of the call that is being made."""
    digest = request_digest(method, url, body)
    if (call := CALL.get()) is not None:
        digest = call.digest = call.digest or digest
        call.hops.append(url)
    hops = () if call is None else tuple(call.hops[:-1])
    return Attempt(owner=owner, url=url, digest=digest, hops=hops)


def request_digest(method: str, url: str, body: bytes) -> str:
    """By what the same request is known again: SHA-256 over its method, URL and body."""
    whole = url.partition("#")[0]  # no fragment is sent
    parts = (method.upper().encode(), whole.encode(), body)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
