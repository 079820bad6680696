"""Rules about the HTTP response: its status and the headers next to the envelope.

An unpaid request must be answered with 402 before anything else. Sources: x402 v2 HTTP transport,
RFC 4648 (base64), RFC 9111 (caching), Fetch (CORS).
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.lint.parsing import HEADER, HeaderFault
from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import error, warning

_NAMED: Final = {*range(200, 400), 400, 401, 402, 403, 404, 405, 410, 422, 429, *range(500, 600)}
"""402 and every status that a rule of this module covers."""
HEADER_SOFT_MAX: Final = 8_192
"""Usual limit of proxies for one header; a payment returns resource and extensions in one."""


def _elements(reading: Reading, header: str) -> set[str]:
    """Return the elements of a list header (RFC 9110 section 5.6.1), in lower case."""
    values = reading.answer.header_values(header) if reading.answer else ()
    return {element.strip() for element in ",".join(values).lower().split(",")}


@error("status")
def no_answer(reading: Reading) -> bool:
    """The request ended in a fault without an HTTP response."""
    return reading.status is None


@error("status")
def status_unpaid(reading: Reading) -> bool:
    """A success status. Directories drop such a listing, because the resource is not paid."""
    return reading.status in range(200, 300)


@error("status")
def status_redirect(reading: Reading) -> bool:
    """A redirect. Directories probe the advertised URL, and a payment is bound to its resource."""
    return reading.status in range(300, 400)


@error("status")
def status_validates_first(reading: Reading) -> bool:
    """400 or 422. Directories send empty bodies, so validation hides the challenge from them."""
    return reading.status in (400, 422)


@error("status")
def status_forbidden(reading: Reading) -> bool:
    """401 or 403. The endpoint is up, but an agent that only has money cannot use it."""
    return reading.status in (401, 403)


@error("status")
def status_not_found(reading: Reading) -> bool:
    """404 or 410."""
    return reading.status in (404, 410)


@error("status")
def status_method(reading: Reading) -> bool:
    """405: the request used a method that the resource does not accept."""
    return reading.status == 405


@error("status")
def status_throttled(reading: Reading) -> bool:
    """429: the challenge could not be checked."""
    return reading.status == 429


@error("status")
def status_server_error(reading: Reading) -> bool:
    """Any 5xx."""
    return reading.status in range(500, 600)


@error("status")
def status_other(reading: Reading) -> bool:
    """Any status that is not 402 and is not covered by another rule."""
    return reading.status is not None and reading.status not in _NAMED


@error("header", stops=())
def header_base64(reading: Reading) -> bool:
    """The header is present but is not base64 in any variant. Both official clients stop here; only
    a client of version 1 can still pay, from a body of version 1.
    """
    return reading.header.fault is HeaderFault.BASE64


@error("header", stops=())
def header_json(reading: Reading) -> bool:
    """The header decodes to bytes that are not JSON, or to JSON that is nested too deeply."""
    return reading.header.fault is HeaderFault.JSON


@error("header", stops=())
def header_object(reading: Reading) -> bool:
    """The header contains JSON that is not an object; often the bare `accepts` array."""
    return reading.header.fault is HeaderFault.OBJECT


@error("header")
def header_requirements(reading: Reading) -> bool:
    """The header contains the requirements of one payment instead of the envelope that lists them
    in `accepts`. Both official clients stop here.
    """
    return reading.header.fault is HeaderFault.REQUIREMENTS


@error("header", stops=())
def header_repeated(reading: Reading) -> bool:
    """Clients join repeated headers with a comma (RFC 9110 section 5.3), and the result does not
    decode.
    """
    return reading.header.count > 1


@error("header", stops=())
def header_name(reading: Reading) -> bool:
    """A header with the old `X-` prefix, and no header with the correct name."""
    answer = reading.answer
    if answer is None or answer.status != 402 or reading.header.text:
        return False
    return answer.header("x-payment-required") is not None


@warning("header")
def header_base64url(reading: Reading) -> bool:
    """The URL-safe alphabet. The specification does not name an alphabet, so the terms are read,
    but clients that require the standard alphabet fail.
    """
    return reading.header.urlsafe


@warning("header")
def header_whitespace(reading: Reading) -> bool:
    """Whitespace in the value. HTTP strips it at the ends, not inside."""
    return reading.header.spaced


@warning("header")
def header_padding(reading: Reading) -> bool:
    """Missing padding, which the official Python client rejects."""
    return reading.header.unpadded


@warning("header")
def header_large(reading: Reading) -> bool:
    """The header is longer than the usual limits of proxies."""
    return len(reading.header.text) > HEADER_SOFT_MAX


@warning("header")
def cache_control(reading: Reading) -> bool:
    """A cached challenge shows stale prices, or the 402 to a client that has paid."""
    return (
        reading.envelope.exists
        and not reading.tool
        and "no-store" not in _elements(reading, "cache-control")
    )


@warning("header")
def cors_expose(reading: Reading) -> bool:
    """Scripts of other origins see only the headers that this header lists (Fetch, CORS)."""
    names = _elements(reading, "access-control-expose-headers")
    exposed = "*" in names or {HEADER, "payment-response"} <= names
    return reading.header.document is not None and not exposed
