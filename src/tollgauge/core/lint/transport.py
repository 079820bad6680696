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


def _status_error(check: Callable[[int], bool]) -> Rule[Reading]:
    """Make a check of the status an error at the place `status`."""

    @wraps(check)
    def find(reading: Reading) -> Iterator[str]:
        if reading.status is not None and check(reading.status):
            yield "status"

    return error()(find)


def _elements(reading: Reading, header: str) -> set[str]:
    """Return the elements of a list header (RFC 9110 section 5.6.1), in lower case."""
    values = reading.answer.header_values(header) if reading.answer else ()
    return {element.strip() for element in ",".join(values).lower().split(",")}


@error()
def no_answer(reading: Reading) -> Iterator[str]:
    """The request ended in a fault without an HTTP response."""
    if reading.status is None:
        yield "status"


@_status_error
def status_unpaid(status: int) -> bool:
    """A success status. Directories drop such a listing, because the resource is not paid."""
    return 200 <= status < 300


@_status_error
def status_redirect(status: int) -> bool:
    """A redirect. Directories probe the advertised URL, and a payment is bound to its resource."""
    return 300 <= status < 400


@_status_error
def status_validates_first(status: int) -> bool:
    """400 or 422. Directories send empty bodies, so validation hides the challenge from them."""
    return status in (400, 422)


@_status_error
def status_forbidden(status: int) -> bool:
    """401 or 403. The endpoint is up, but an agent that only has money cannot use it."""
    return status in (401, 403)


@_status_error
def status_not_found(status: int) -> bool:
    """404 or 410."""
    return status in (404, 410)


@_status_error
def status_method(status: int) -> bool:
    """405: the request used a method that the resource does not accept."""
    return status == 405


@_status_error
def status_throttled(status: int) -> bool:
    """429: the challenge could not be checked."""
    return status == 429


@_status_error
def status_server_error(status: int) -> bool:
    """Any 5xx."""
    return 500 <= status < 600


@_status_error
def status_other(status: int) -> bool:
    """Any status that is not 402 and is not covered by another rule."""
    return status not in _NAMED


HEADER_SOFT_MAX: Final = 8_192
"""Usual limit of proxies for one header; a payment returns resource and extensions in one."""


@error(stops=())
def header_base64(reading: Reading) -> Iterator[str]:
    """The header is present but is not base64 in any variant. Both official clients stop here; only
    a client of version 1 can still pay, from a body of version 1.
    """
    if reading.header.fault is HeaderFault.BASE64:
        yield "header"


@error(stops=())
def header_json(reading: Reading) -> Iterator[str]:
    """The header decodes to bytes that are not JSON, or to JSON that is nested too deeply."""
    if reading.header.fault is HeaderFault.JSON:
        yield "header"


@error(stops=())
def header_object(reading: Reading) -> Iterator[str]:
    """The header contains JSON that is not an object; often the bare `accepts` array."""
    if reading.header.fault is HeaderFault.OBJECT:
        yield "header"


@error()
def header_requirements(reading: Reading) -> Iterator[str]:
    """The header contains the requirements of one payment instead of the envelope that lists them
    in `accepts`. Both official clients stop here.
    """
    if reading.header.fault is HeaderFault.REQUIREMENTS:
        yield "header"


@error(stops=())
def header_repeated(reading: Reading) -> Iterator[str]:
    """Clients join repeated headers with a comma (RFC 9110 section 5.3), and the result does not
    decode.
    """
    if reading.header.count > 1:
        yield "header"


@error(stops=())
def header_name(reading: Reading) -> Iterator[str]:
    """A header with the old `X-` prefix, and no header with the correct name."""
    answer = reading.answer
    unnamed = reading.status == 402 and not reading.header.text
    if unnamed and answer and answer.header("x-payment-required") is not None:
        yield "header"


@warning()
def header_base64url(reading: Reading) -> Iterator[str]:
    """The URL-safe alphabet. The specification does not name an alphabet, so the terms are read,
    but clients that require the standard alphabet fail.
    """
    if reading.header.urlsafe:
        yield "header"


@warning()
def header_whitespace(reading: Reading) -> Iterator[str]:
    """Whitespace in the value. HTTP strips it at the ends, not inside."""
    if reading.header.spaced:
        yield "header"


@warning()
def header_padding(reading: Reading) -> Iterator[str]:
    """Missing padding, which the official Python client rejects."""
    if reading.header.unpadded:
        yield "header"


@warning()
def header_large(reading: Reading) -> Iterator[str]:
    """The header is longer than the usual limits of proxies."""
    if len(reading.header.text) > HEADER_SOFT_MAX:
        yield "header"


@warning()
def cache_control(reading: Reading) -> Iterator[str]:
    """A cached challenge shows stale prices, or the 402 to a client that has paid."""
    if (
        reading.envelope.exists
        and not reading.tool
        and "no-store" not in _elements(reading, "cache-control")
    ):
        yield "header"


@warning()
def cors_expose(reading: Reading) -> Iterator[str]:
    """Scripts of other origins see only the headers that this header lists (Fetch, CORS)."""
    names = _elements(reading, "access-control-expose-headers")
    exposed = "*" in names or {HEADER, "payment-response"} <= names
    if reading.header.document is not None and not exposed:
        yield "header"
