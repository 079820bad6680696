"""Client of the x402 v2 facilitator: verify a payment, settle it.

`verify` returns None or `Refused`; `settle` returns `SettledReply` or `Unclear`. There is no
failed settlement: a facilitator that reports a failure may still have broadcast the transaction, so
only the chain can decide. The operator chooses the facilitator's address, so requests use httpx and
not egress.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx
from pydantic import BeforeValidator, Field, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.peer import WebUrl, public_authorities
from tollgauge.core.base import strictjson
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, EVM_WORD_PATTERN
from tollgauge.core.sale.payment import X402_VERSION, Payment

SILENT: Final = 5
TRIAL_S: Final = 2.0
_REPLY_MAX: Final = 65_536
_KIND_MAX: Final = 120
_HEADERS: Final = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_TIMEOUT_MAX_S: Final = 80
"""A settlement must end within the ledger's lease (web/paid/settle)."""
_SLUG: Final = re.compile(r"[^a-z0-9_:-]+")


class FacilitatorUnavailable(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """The facilitator did not respond or its reply is invalid; never the payer's fault."""


def _headers(value: object) -> object:
    """Parse headers in the form `Name: value`, one per line or separated by `;`."""
    if not isinstance(value, str):
        return value
    pairs = [line.partition(":") for line in value.replace(";", "\n").splitlines()]
    if not all(colon and name.strip() for name, colon, _ in pairs):
        raise ValueError("must be lines of the form `Name: value`")
    return tuple((name.strip(), text.strip()) for name, _, text in pairs)


Headers = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_headers)]
Timeout = Annotated[float, Field(gt=0, le=_TIMEOUT_MAX_S)]


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorSettings:
    """Address, timeouts and maximum number of concurrent sales."""

    url: WebUrl = ""
    """Base URL of an x402 v2 facilitator."""
    headers: Headers = field(default=(), repr=False)
    """Headers that the facilitator requires: "Authorization: Bearer ...; X-Other: ..."."""
    verify_timeout_s: Timeout = 10.0
    """Timeout for verifying a payment."""
    settle_timeout_s: Timeout = 45.0
    """Timeout for settling a payment."""
    sales_at_once: PositiveInt = 256
    """Maximum concurrent sales. Further requests receive 503 with Retry-After before any payment is
    claimed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Supported:
    """The payment kinds that a facilitator settles, such as `v2 exact eip155:8453`, and the
    addresses with which it signs on EVM chains, in lower-case hex.
    """

    kinds: frozenset[str]
    signers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The facilitator would not settle the payment; `reason` is its sanitised code."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReply:
    """The facilitator reports that the payment settled in `transaction` (lower-case hex)."""

    transaction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """The reply leaves open whether the payment settled; `transaction` if it names one."""

    reason: str
    transaction: str | None = None


class Breaker:
    """Circuit breaker of one kind of call, for a facilitator that does not respond.

    After SILENT consecutive calls without a response it opens, and one call per TRIAL_S passes
    until any response, good or bad, closes it. Errors do not open it: otherwise a buyer who can
    cause an error could stop the sales of others. Times are seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._silent = 0
        self._trial_at = 0.0

    def passes(self, now_s: float) -> bool:
        """Return whether a call may be made now. While it is open, that call is the trial."""
        if self._silent < SILENT:
            return True
        if now_s < self._trial_at:
            return False
        self._trial_at = now_s + TRIAL_S
        return True

    def record_response(self) -> None:
        """Record a response."""
        self._silent = 0

    def record_silence(self, now_s: float) -> None:
        """Record a call that ended without a response."""
        self._silent += 1
        if self._silent == SILENT:
            self._trial_at = now_s + TRIAL_S


# The methods import x402 themselves: it takes 25 ms of CPU time, and every command imports this
# module for the settings. A service imports x402 at its start (web/paid/request).
class Facilitator:
    """A connection pool to one facilitator."""

    def __init__(self, settings: FacilitatorSettings) -> None:
        self._settings = settings
        # One connection per sale: waiting for a connection would use up a sale's time.
        self._http = httpx.AsyncClient(
            headers=_HEADERS | dict(settings.headers),
            follow_redirects=False,
            trust_env=False,
            verify=public_authorities(),
            limits=httpx.Limits(max_connections=settings.sales_at_once),
        )
        self._breakers = {verb: Breaker() for verb in ("verify", "settle", "supported")}

    @property
    def sales_at_once(self) -> int:
        """Maximum number of concurrent sales."""
        return self._settings.sales_at_once

    def takes_sales(self) -> bool:
        """Whether a new sale may begin: not while verify or settle does not respond, except for
        occasional trials.
        """
        now_s = asyncio.get_running_loop().time()
        # A sale does not need `supported`, which the index loop reads.
        return all(self._breakers[verb].passes(now_s) for verb in ("verify", "settle"))

    async def close(self) -> None:
        """Close the pool."""
        await self._http.aclose()

    @property
    def host(self) -> str:
        """Its host; empty without a URL."""
        return urlsplit(self._settings.url).hostname or ""

    async def read_supported(self) -> Supported:
        """Request `/supported`.

        Raises:
            FacilitatorUnavailable: It did not respond, or the reply is invalid.
        """
        status, reply = await self._exchange("supported", self._settings.verify_timeout_s)
        if status != 200:
            raise FacilitatorUnavailable(f"The facilitator returned {status} for supported.")
        from x402.schemas import SupportedResponse

        try:
            answer = SupportedResponse.model_validate(strictjson.loads(reply))
        except (strictjson.StrictJsonError, ValidationError) as error:
            problem = "The facilitator's supported reply is malformed."
            raise FacilitatorUnavailable(problem) from error
        kinds = ((one.x402_version, one.scheme, one.network) for one in answer.kinds)
        return Supported(
            kinds=frozenset(
                clean_text(f"v{version} {scheme} {network}", _KIND_MAX)
                for version, scheme, network in kinds
            ),
            signers=frozenset(
                address.lower()
                for family, addresses in answer.signers.items()
                if family.startswith("eip155:")
                for address in addresses
                if EVM_ADDRESS_PATTERN.fullmatch(address)
            ),
        )

    async def verify(self, payment: Payment, requirements: dict[str, object]) -> Refused | None:
        """Verify a payment; None if the facilitator would settle it. Raises
        FacilitatorUnavailable.
        """
        status, reply = await self._post(
            "verify", payment, requirements, self._settings.verify_timeout_s
        )
        if status >= 500:
            raise FacilitatorUnavailable(f"The facilitator returned {status} for verify.")
        from x402.schemas import VerifyResponse

        try:
            answer = VerifyResponse.model_validate(reply, strict=True)  # "true" is not true
        except ValidationError as error:
            raise FacilitatorUnavailable("The facilitator's verify reply is malformed.") from error
        if not answer.is_valid:
            return Refused(reason=_slug(answer.invalid_reason))
        if status != 200:
            raise FacilitatorUnavailable(f"The facilitator replied valid with status {status}.")
        if answer.payer and answer.payer.lower() != payment.payer:
            return Refused(reason="payer_mismatch")
        return None

    async def settle(
        self, payment: Payment, requirements: dict[str, object]
    ) -> SettledReply | Unclear:
        """Settle a payment. Facilitator errors are returned as Unclear, never raised."""
        from x402.schemas import SettleResponse

        try:
            status, reply = await self._post(
                "settle", payment, requirements, self._settings.settle_timeout_s
            )
            answer = SettleResponse.model_validate(reply, strict=True)
        except FacilitatorUnavailable as error:
            return Unclear(reason=str(error))
        except ValidationError:
            return Unclear(reason="The facilitator's settle reply is malformed.")
        transaction = (
            answer.transaction.lower() if EVM_WORD_PATTERN.fullmatch(answer.transaction) else None
        )
        if status != 200 or not answer.success or transaction is None:
            return Unclear(reason=_slug(answer.error_reason), transaction=transaction)
        for replied, expected, reason in (
            (answer.network, payment.network, "network_mismatch"),
            ((answer.payer or payment.payer).lower(), payment.payer, "payer_mismatch"),
            (answer.amount or str(payment.value), str(payment.value), "amount_mismatch"),
        ):
            if replied != expected:
                return Unclear(reason=reason, transaction=transaction)
        return SettledReply(transaction=transaction)

    async def _post(
        self, verb: str, payment: Payment, requirements: dict[str, object], timeout_s: float
    ) -> tuple[int, object]:
        body = {
            "x402Version": X402_VERSION,
            "paymentPayload": payment.document,
            "paymentRequirements": requirements,
        }
        # ASCII: a payer's text may contain half of a surrogate pair, which UTF-8 cannot encode.
        content = json.dumps(body, separators=(",", ":")).encode()
        status, reply = await self._exchange(verb, timeout_s, content)
        try:
            return status, strictjson.loads(reply)
        except strictjson.StrictJsonError as error:
            raise FacilitatorUnavailable(f"The {verb} reply is not JSON.") from error

    async def _exchange(
        self, verb: str, timeout_s: float, content: bytes | None = None
    ) -> tuple[int, bytes]:
        """POST `content`, or GET without it; returns status and body."""
        url, breaker = f"{self._settings.url.rstrip('/')}/{verb}", self._breakers[verb]
        method = "GET" if content is None else "POST"
        try:
            # httpx's timeout applies to each read: a slow trickle could outlast the lease.
            async with (
                asyncio.timeout(timeout_s),
                self._http.stream(method, url, content=content, timeout=timeout_s) as response,
            ):
                reply = await _body(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            if isinstance(error, httpx.TimeoutException | TimeoutError):
                breaker.record_silence(asyncio.get_running_loop().time())
            raise FacilitatorUnavailable(f"The facilitator did not respond to {verb}.") from error
        except FacilitatorUnavailable:  # an unusable reply is still a reply: close the breaker
            breaker.record_response()
            raise
        breaker.record_response()
        return response.status_code, reply


async def _body(response: httpx.Response) -> bytes:
    """Read a reply's body of at most _REPLY_MAX bytes.

    A compressed reply is rejected, because none was requested and a few bytes could decompress to
    more than the memory of this machine. Raises FacilitatorUnavailable.
    """
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise FacilitatorUnavailable("The facilitator's reply is compressed.")
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _REPLY_MAX:
            raise FacilitatorUnavailable("The facilitator's reply is too long.")
    return bytes(body)


def _slug(text: str | None) -> str:
    return _SLUG.sub("_", (text or "unspecified").lower())[:80].strip("_") or "unspecified"
