"""HTTP messages: the bodies and parameters of requests, and the headers of answers.

Requests: size limits, strict JSON bodies, and known query parameters. The size limit of a payment
header is part of the protocol: core/sale/payment.HEADER_MAX.

Answers: the headers of every answer, content negotiation, gzip, conditional requests and ranges
(RFC 9110, sections 12 to 14). The ledger stores the plain bytes of paid answers, so that a stored
one serves every caller; the cache of free answers (web/edge/cache) holds both forms.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.base import strictjson
from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.sale.payment import HEADER_MAX
from tollgauge.core.sale.signature import SIGNATURE_HEADER
from tollgauge.web.edge.problem import Invalid, Problem

URL_MAX: Final = 4_096
"""Path and query, in bytes."""
BODY_MAX: Final = 65_536
HEADERS_MAX: Final = 32_768
"""The names and values of all headers, in bytes."""
_NAME_MAX: Final = 64


def body_too_large() -> Problem:
    """413 for a body above the limit."""
    return Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")


def payment_header_too_large() -> Problem:
    """431 for a payment above the limit."""
    detail = f"Keep the payment under {HEADER_MAX} bytes."
    return Problem(431, "payment-header-too-large", detail)


async def read_body(request: Request, *, bodyless: bool = False) -> object:
    """Return the request's JSON document. If it may be `bodyless`, no body is an empty object.
    Raises Problem 413 or 400.
    """
    body = await request.body()
    if not body and bodyless:
        return {}
    if not body:
        raise Problem(400, "json-invalid", "The body is empty: send a JSON object.")
    if len(body) > BODY_MAX:
        raise body_too_large()
    try:
        return strictjson.loads(body)
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def query_check(read_by_handler: Sequence[str] = ()) -> Callable[[Request], Awaitable[None]]:
    """Make a FastAPI dependency that rejects unknown query parameters. If they were ignored, the
    caller would receive another response than intended.

    `read_by_handler` are parameters that the handler reads from the request; the others are those
    of its signature. The dependency raises Problem 422.
    """

    async def check(request: Request) -> None:
        parameters = request.scope["route"].dependant.query_params
        known = [*read_by_handler, *(parameter.alias for parameter in parameters)]
        unknown = next((name for name in request.query_params if name not in known), None)
        if unknown is None:
            return
        shown = clean_text(unknown, limit=_NAME_MAX)
        takes = "This route takes no parameters."
        if known:
            takes = f"This route takes {', '.join(known)}; in a value write & as %26."
        message = f"There is no parameter {shown}. {takes}"
        errors = (Invalid(path=shown, message=message),)
        raise Problem(422, "unknown-parameter", message, errors=errors)

    return check


EVERY_ANSWER: Final = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        (
            f"PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, {SIGNATURE_HEADER}, ETag, "
            "Accept-Ranges, Content-Range"
        ).encode(),
    ),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
            b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE, OPTIONS"),
    # The wildcard of the Fetch standard leaves Authorization out.
    (b"access-control-allow-headers", b"*, Authorization"),
    (b"access-control-max-age", b"600"),
)
MIN_BYTES: Final = 8_192
"""Smaller answers are not compressed."""
GZIP_LEVEL: Final = 5
"""At most a tenth larger than the best level on histories, in a quarter of its time."""
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.ASCII)


def accepts_csv(header: bytes) -> bool:
    """Whether an `Accept` asks for CSV, the second format of some lists."""
    return b"text/csv" in header


def accepts_page(header: str) -> bool:
    """Whether an `Accept` is a browser's, which shows pages to a person."""
    return "text/html" in header


async def compress_response(request: Request, response: Response) -> Response:
    """Return the answer, gzipped if it is large and the caller accepts that."""
    body = bytes(response.body)
    if len(body) < MIN_BYTES or "content-encoding" in response.headers:
        return response
    response.headers["Vary"] = ", ".join(
        filter(None, (response.headers.get("Vary"), "Accept-Encoding"))
    )
    if accepts_gzip(request.headers.get("accept-encoding", "").encode("latin-1")):
        response.body = await gzip_body(body)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response


async def gzip_body(body: bytes) -> bytes:
    """Return a body in gzip; equal bodies give equal bytes."""
    return await asyncio.to_thread(gzip.compress, body, GZIP_LEVEL, mtime=0)


@lru_cache(maxsize=256)  # at most 8 MB, because of HEADERS_MAX; parsing takes 6 µs
def accepts_gzip(header: bytes) -> bool:
    """Whether an `Accept-Encoding` takes gzip: named, or under `*`, and not with `q=0`."""
    weights: dict[str, str] = {}
    for part in header.decode("latin-1").lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        weights[coding] = weight
    chosen = weights.get("gzip", weights.get("x-gzip", weights.get("*", "0")))
    return chosen.strip("0.") != ""


def names_tag(if_none_match: bytes, etag: bytes) -> bool:
    """Whether an `If-None-Match` names an entity tag, by weak comparison, or any (`*`)."""
    tags = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return etag in tags or tags == [b"*"]


def http_date(timestamp: int) -> str:
    """Format a timestamp (ms UTC) for `Last-Modified`, in whole seconds."""
    return formatdate(timestamp // SECOND_MS, usegmt=True)


def is_unmodified(headers: Headers, *, etag: str, modified: int) -> bool:
    """Whether a client has the version of time `modified` (ms UTC). A date counts only without
    `If-None-Match`.
    """
    tags = headers.get("if-none-match")
    if tags is not None:
        return names_tag(tags.encode("latin-1"), etag.encode("latin-1"))
    since = _seconds(headers.get("if-modified-since", ""))
    return since is not None and modified // SECOND_MS <= since


def requested_range(headers: Headers, size: int, *, etag: str, modified: int) -> range | None:
    """Return the positions of the requested bytes in a file of `size` bytes; empty if the file has
    none of them.

    None means the whole file: there is no `Range`, it may be ignored (several ranges, another unit,
    a mistake), or `If-Range` names another version.
    """
    match = _RANGE.fullmatch(headers.get("range", ""))
    if match is None or not _is_version(headers.get("if-range"), etag=etag, modified=modified):
        return None
    first, last = match[1], match[2]
    if not first:
        return range(max(0, size - int(last)), size) if last else None
    stop = int(last) + 1 if last else size
    return range(int(first), min(stop, size)) if int(first) < stop or not last else None


def _is_version(if_range: str | None, *, etag: str, modified: int) -> bool:
    return if_range is None or if_range == etag or if_range == http_date(modified)


def _seconds(date: str) -> float | None:
    """Return the unix seconds of an HTTP date, None for an invalid one."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
