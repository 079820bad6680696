"""Rules about the HTTP response: its status and the headers next to the envelope.

An unpaid request must be answered with 402 before anything else. Sources: x402 v2 HTTP transport,
RFC 4648 (base64), RFC 9111 (caching), Fetch (CORS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final

from tollgauge.core.lint.parsing import HEADER, HeaderFault
from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import Rule, error, warning

_NAMED: Final = {*range(200, 400), 400, 401, 402, 403, 404, 405, 410, 422, 429, *range(500, 600)}
"""402 and every status that a rule of this module covers."""


def _status_error(fix: str) -> Callable[[Callable[[int], bool]], Rule[Reading]]:
    """Make a check of the status an error at the place `status`."""

    def decorate(check: Callable[[int], bool]) -> Rule[Reading]:
        @wraps(check)
        def find(reading: Reading) -> Iterator[str]:
            if reading.status is not None and check(reading.status):
                yield "status"

        return error(fix, expected="HTTP 402")(find)

    return decorate


@error(
    "Answer unpaid requests over HTTPS: the server did not respond, so clients cannot learn the"
    " price.",
    expected="HTTP 402",
)
def no_answer(reading: Reading) -> Iterator[str]:
    """The request ended in a fault without an HTTP response."""
    if reading.status is None:
        yield "status"


@_status_error("Answer unpaid requests with 402: this request was served without a payment.")
def status_unpaid(status: int) -> bool:
    """A success status. Directories drop such a listing, because the resource is not paid."""
    return 200 <= status < 300


@_status_error("Answer 402 at the listed URL itself, or list the URL that the redirect points to.")
def status_redirect(status: int) -> bool:
    """A redirect. Directories probe the advertised URL, and a payment is bound to its resource."""
    return 300 <= status < 400


@_status_error(
    "Require payment before validating the request: answer 402 to every unpaid request, and 400 or"
    " 422 only to a paid one."
)
def status_validates_first(status: int) -> bool:
    """400 or 422. Directories send empty bodies, so validation hides the challenge from them."""
    return status in (400, 422)


@_status_error("Answer unpaid requests with 402 before any login, API key check or bot filter.")
def status_forbidden(status: int) -> bool:
    """401 or 403. The endpoint is up, but an agent that only has money cannot use it."""
    return status in (401, 403)


@_status_error("Serve the listed path, or remove the listing: the resource does not exist.")
def status_not_found(status: int) -> bool:
    """404 or 410."""
    return status in (404, 410)


@_status_error(
    "Declare the method that the resource accepts in extensions.bazaar.info.input.method: this"
    " method is not allowed."
)
def status_method(status: int) -> bool:
    """405: the request used a method that the resource does not accept."""
    return status == 405


@_status_error("Raise the rate limit for unpaid requests, or send Retry-After.")
def status_throttled(status: int) -> bool:
    """429: the challenge could not be checked."""
    return status == 429


@_status_error("Fix the server: it fails before it asks for payment.")
def status_server_error(status: int) -> bool:
    """Any 5xx."""
    return 500 <= status < 600


@_status_error("Answer unpaid requests with 402 Payment Required.")
def status_other(status: int) -> bool:
    """Any status that is not 402 and is not covered by another rule."""
    return status not in _NAMED


HEADER_SOFT_MAX: Final = 8_192
"""Usual limit of proxies for one header; a payment returns resource and extensions in one."""


@error(
    "Encode the PAYMENT-REQUIRED header as standard base64 (RFC 4648 section 4) of the JSON"
    " envelope.",
    expected="standard base64 of the envelope's JSON",
    stops=(),
)
def header_base64(reading: Reading) -> Iterator[str]:
    """The header is present but is not base64 in any variant. Both official clients stop here; only
    a client of version 1 can still pay, from a body of version 1.
    """
    if reading.header.fault is HeaderFault.BASE64:
        yield "header"


@error(
    "Encode one JSON object (UTF-8, nested at most 32 levels) in the base64 of PAYMENT-REQUIRED.",
    expected="base64 of one JSON object",
    stops=(),
)
def header_json(reading: Reading) -> Iterator[str]:
    """The header decodes to bytes that are not JSON, or to JSON that is nested too deeply."""
    if reading.header.fault is HeaderFault.JSON:
        yield "header"


@error(
    "Send the whole envelope {x402Version, resource, accepts} in PAYMENT-REQUIRED, not only a"
    " part of it.",
    expected="base64 of the whole envelope, an object with x402Version and accepts",
    stops=(),
)
def header_object(reading: Reading) -> Iterator[str]:
    """The header contains JSON that is not an object; often the bare `accepts` array."""
    if reading.header.fault is HeaderFault.OBJECT:
        yield "header"


@error(
    'Wrap the payment requirements in an envelope: {"x402Version": 2, "resource": {"url": ...},'
    ' "accepts": [the requirements]}.',
    expected="base64 of the whole envelope, with these requirements in accepts",
)
def header_requirements(reading: Reading) -> Iterator[str]:
    """The header contains the requirements of one payment instead of the envelope that lists them
    in `accepts`. Both official clients stop here.
    """
    if reading.header.fault is HeaderFault.REQUIREMENTS:
        yield "header"


@error(
    "Send exactly one PAYMENT-REQUIRED header.",
    expected="one PAYMENT-REQUIRED header",
    stops=(),
)
def header_repeated(reading: Reading) -> Iterator[str]:
    """Clients join repeated headers with a comma (RFC 9110 section 5.3), and the result does not
    decode.
    """
    if reading.header.count > 1:
        yield "header"


@error(
    "Name the header PAYMENT-REQUIRED: clients do not read X-PAYMENT-REQUIRED.",
    expected="a header named PAYMENT-REQUIRED",
    stops=(),
)
def header_name(reading: Reading) -> Iterator[str]:
    """A header with the old `X-` prefix, and no header with the correct name."""
    answer = reading.answer
    unnamed = reading.status == 402 and not reading.header.text
    if unnamed and answer and answer.header("x-payment-required") is not None:
        yield "header"


@warning(
    "Encode PAYMENT-REQUIRED with the standard base64 alphabet (+ and /): the official TypeScript"
    " client rejects - and _.",
    expected="the standard base64 alphabet, with + and /",
)
def header_base64url(reading: Reading) -> Iterator[str]:
    """The URL-safe alphabet. The specification does not name an alphabet, so the terms are read,
    but clients that require the standard alphabet fail.
    """
    if reading.header.urlsafe:
        yield "header"


@warning(
    "Remove the whitespace around or inside PAYMENT-REQUIRED.",
    expected="base64 without whitespace",
)
def header_whitespace(reading: Reading) -> Iterator[str]:
    """Whitespace in the value. HTTP strips it at the ends, not inside."""
    if reading.header.spaced:
        yield "header"


@warning(
    "Pad the base64 of PAYMENT-REQUIRED with = to a multiple of four.",
    expected="base64 padded with = to a multiple of four characters",
)
def header_padding(reading: Reading) -> Iterator[str]:
    """Missing padding, which the official Python client rejects."""
    if reading.header.unpadded:
        yield "header"


@warning(
    "Keep PAYMENT-REQUIRED under 8 KB: the payment returns resource and extensions, and proxies"
    " reject larger headers. Shorten the bazaar schema.",
    expected="at most 8,192 characters",
)
def header_large(reading: Reading) -> Iterator[str]:
    """The header is longer than the usual limits of proxies."""
    if len(reading.header.text) > HEADER_SOFT_MAX:
        yield "header"


@warning(
    "Send Cache-Control: no-store with the 402.",
    expected="Cache-Control: no-store",
)
def cache_control(reading: Reading) -> Iterator[str]:
    """A cached challenge shows stale prices, or the 402 to a client that has paid."""
    if (
        reading.envelope.exists
        and not reading.tool
        and "no-store" not in reading.words("cache-control")
    ):
        yield "header"


@warning(
    "Send Access-Control-Expose-Headers: PAYMENT-REQUIRED, PAYMENT-RESPONSE. Otherwise browsers"
    " cannot read the price.",
    expected="Access-Control-Expose-Headers: PAYMENT-REQUIRED, PAYMENT-RESPONSE",
)
def cors_expose(reading: Reading) -> Iterator[str]:
    """Scripts of other origins see only the headers that this header lists (Fetch, CORS)."""
    names = reading.words("access-control-expose-headers")
    exposed = "*" in names or {HEADER, "payment-response"} <= names
    if reading.header.document is not None and not exposed:
        yield "header"
