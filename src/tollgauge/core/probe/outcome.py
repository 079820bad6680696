"""The table of outcomes: the rules and texts for each result of a probe.

To add an outcome, add a member to `Outcome`, its row to `OUTCOMES`, and its texts to
docs/outcome_texts.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.probe.exchange import Answer, FaultKind

BOT_WALL_STATUSES: Final = frozenset({401, 403, 503})
BOT_WALL_MARKERS: Final[dict[str, frozenset[str] | None]] = {
    "cf-mitigated": frozenset({"challenge", "block"}),
    "x-amzn-waf-action": frozenset({"challenge", "captcha"}),
    "x-vercel-mitigated": frozenset({"challenge", "deny"}),
    "x-datadome": None,
    "x-sucuri-block": None,
    "x-kpsdk-ct": None,
    "x-px-block-score": None,
}
"""Response headers of bot walls (Cloudflare, AWS WAF, Vercel, DataDome, Sucuri, Kasada, HUMAN) with
the values that mean a challenge; None for any value. Anyone can send them, so they help no endpoint
that was payable before."""


class Attribution(StrEnum):
    """Who caused a result. The values are published in JSON."""

    TARGET = "theirs"
    LOCAL = "ours"
    UNKNOWN = "unknown"


class Sign(StrEnum):
    """Evidence of a result about the network between this machine and its target."""

    ANSWERED = "answered"
    FAILED = "failed"
    TLS_FAILED = "tls-failed"


class Outcome(StrEnum):
    """The result of a probe. The values are stored and published in JSON."""

    PAYMENT_REQUIRED = "payment-required"
    OPEN = "open"
    VALIDATES = "validates-first"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    BLOCKED = "blocked"
    NOT_FOUND = "not-found"
    METHOD_REFUSED = "method-refused"
    REDIRECT = "redirect"
    CLIENT_ERROR = "client-error"
    SERVER_ERROR = "server-error"
    NETWORK_LOGIN = "network-login"
    DNS = "dns-failure"
    CONNECT = "connect-failure"
    TLS = "tls-failure"
    TIMEOUT = "timeout"
    BROKEN = "broken-http"
    LOCAL = "local-failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """The rules and texts of one outcome.

    Attributes:
        statuses: HTTP statuses with this outcome; the shorter list wins over a range.
        up: Whether the probe counts as up.
        attribution: Who caused it, unless core/probe/attribution finds another cause.
        sign: Evidence about the network; None if the request never left this machine.
        refusal: The target answers but does not serve the prober. For an endpoint that was never
            payable its time is neither up nor down.
        local_cause: A faulty resolver, trust store or clock of this machine looks the same.
        sells: Whether an endpoint that never asked for payment can still be watched.
        buyer: Continues "It could not be paid when it was last checked: …".
        page: Label on pages.
    """

    statuses: tuple[int, ...] | range = ()
    up: bool = False
    attribution: Attribution = Attribution.TARGET
    sign: Sign | None = Sign.ANSWERED
    refusal: bool = False
    local_cause: bool = False
    sells: bool = True
    buyer: str
    page: str


OUTCOMES: Final[dict[str, OutcomeRow]] = {
    Outcome.PAYMENT_REQUIRED: OutcomeRow(
        statuses=(402,),
        up=True,
        buyer="a stock client cannot pay its 402",
        page="payment required",
    ),
    Outcome.OPEN: OutcomeRow(
        statuses=range(200, 300),
        up=True,
        sells=False,
        buyer="it answered without asking for a payment",
        page="free response",
    ),
    Outcome.VALIDATES: OutcomeRow(
        statuses=(400, 422),
        up=True,
        buyer="it checks the request before it asks for payment",
        page="validates first",
    ),
    Outcome.FORBIDDEN: OutcomeRow(
        statuses=(401, 403),
        refusal=True,
        buyer="it refused the request (401 or 403)",
        page="forbidden",
    ),
    Outcome.THROTTLED: OutcomeRow(
        statuses=(429,),
        refusal=True,
        buyer="it refused the request (429)",
        page="throttled",
    ),
    Outcome.BLOCKED: OutcomeRow(
        refusal=True,
        buyer="a bot wall blocked the check",
        page="bot wall",
    ),
    Outcome.NOT_FOUND: OutcomeRow(
        statuses=(404, 410),
        sells=False,
        buyer="nothing was found there (404 or 410)",
        page="not found",
    ),
    Outcome.METHOD_REFUSED: OutcomeRow(
        statuses=(405,),
        sells=False,
        buyer="it refused the method (405)",
        page="method refused",
    ),
    Outcome.REDIRECT: OutcomeRow(
        statuses=range(300, 400),
        sells=False,
        buyer="it redirects elsewhere",
        page="redirect",
    ),
    Outcome.CLIENT_ERROR: OutcomeRow(
        statuses=range(400, 500),
        sells=False,
        buyer="it rejected the request (4xx)",
        page="client error",
    ),
    Outcome.SERVER_ERROR: OutcomeRow(
        statuses=range(500, 600),
        buyer="it failed (5xx)",
        page="server error",
    ),
    Outcome.NETWORK_LOGIN: OutcomeRow(
        statuses=(511,),
        buyer="it asked for a network login (511)",
        page="network login",
    ),
    Outcome.DNS: OutcomeRow(
        sign=Sign.FAILED,
        local_cause=True,
        sells=False,
        buyer="its name was not found",
        page="DNS failure",
    ),
    Outcome.CONNECT: OutcomeRow(
        sign=Sign.FAILED,
        buyer="no connection could be made",
        page="connection failed",
    ),
    Outcome.TLS: OutcomeRow(
        sign=Sign.TLS_FAILED,
        local_cause=True,
        buyer="its certificate or TLS failed",
        page="TLS failure",
    ),
    Outcome.TIMEOUT: OutcomeRow(
        sign=Sign.FAILED,
        buyer="it did not answer in time",
        page="timeout",
    ),
    Outcome.BROKEN: OutcomeRow(
        buyer="its response is not valid HTTP or MCP",
        page="broken HTTP",
    ),
    Outcome.LOCAL: OutcomeRow(
        attribution=Attribution.LOCAL,
        sign=None,
        buyer="this machine could not send the request",
        page="local failure",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """The outcome of a request that ended without a response, and its differences from the
    outcome's row.

    `lateness`: a delay of this machine can cause it, because the request is sent too late or the
    other side stops waiting.
    """

    outcome: Outcome
    attribution: Attribution | None = None
    sign: Sign | None = None
    local_cause: bool = False
    lateness: bool = False


FAULTS: Final[dict[str, FaultRow]] = {
    FaultKind.DNS_NOT_FOUND: FaultRow(outcome=Outcome.DNS),
    # The local resolver may have failed; core/probe/attribution decides.
    FaultKind.DNS_FAILED: FaultRow(
        outcome=Outcome.DNS, attribution=Attribution.UNKNOWN, lateness=True
    ),
    FaultKind.NOT_PUBLIC: FaultRow(outcome=Outcome.CONNECT, local_cause=True),
    FaultKind.CONNECT: FaultRow(outcome=Outcome.CONNECT),
    FaultKind.CONNECT_TIMEOUT: FaultRow(outcome=Outcome.TIMEOUT, lateness=True),
    FaultKind.TLS: FaultRow(outcome=Outcome.TLS, lateness=True),
    FaultKind.TLS_INVALID: FaultRow(outcome=Outcome.TLS),
    FaultKind.TIMEOUT: FaultRow(outcome=Outcome.TIMEOUT, lateness=True),
    FaultKind.RESET: FaultRow(outcome=Outcome.CONNECT, lateness=True),
    FaultKind.EMPTY: FaultRow(outcome=Outcome.BROKEN, sign=Sign.FAILED, lateness=True),
    FaultKind.OVERSIZE: FaultRow(outcome=Outcome.BROKEN),
    FaultKind.MALFORMED: FaultRow(outcome=Outcome.BROKEN),
    FaultKind.LOCAL: FaultRow(outcome=Outcome.LOCAL),
}

REFUSALS: Final = frozenset(outcome for outcome in Outcome if OUTCOMES[outcome].refusal)

_BY_STATUS: Final = {
    status: outcome
    for outcome in sorted(Outcome, key=lambda outcome: -len(OUTCOMES[outcome].statuses))
    for status in OUTCOMES[outcome].statuses
}


def classify_answer(answer: Answer) -> Outcome:
    """Return the outcome of an HTTP answer; a status outside 2xx to 5xx is broken HTTP."""
    if answer.status in BOT_WALL_STATUSES and _is_bot_wall(answer):
        return Outcome.BLOCKED
    return _BY_STATUS.get(answer.status, Outcome.BROKEN)


def _is_bot_wall(answer: Answer) -> bool:
    return any(
        name in BOT_WALL_MARKERS
        and ((values := BOT_WALL_MARKERS[name]) is None or value.strip().lower() in values)
        for name, value in answer.headers
    )


def buyer_text(outcome: str) -> str:
    """Return why an endpoint with this outcome could not be paid.

    Evidence made elsewhere may name an outcome that this version does not have.
    """
    row = OUTCOMES.get(outcome)
    return "it did not ask for a payment" if row is None else row.buyer
