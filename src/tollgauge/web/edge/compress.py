"""Compression: a large answer is gzipped where the caller accepts it (RFC 9110 section 12.5.3).

The ledger stores the plain bytes of paid answers, so that a stored one serves every caller; the
cache of free answers (web/edge/cache) holds both forms. Answers under MIN_BYTES stay plain.
"""

from __future__ import annotations

import asyncio
import gzip
from functools import lru_cache
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

MIN_BYTES: Final = 8_192
_REMEMBERED_MAX: Final = 128
"""Bytes: a longer `Accept-Encoding` is parsed each time, a shorter one is cached."""
LEVEL: Final = 5
"""On histories at most a tenth larger than the best level, in a quarter of its time."""


async def compressed(request: Request, response: Response) -> Response:
    """The same answer, gzipped where it is large and the caller accepts it."""
    body = bytes(response.body)
    if len(body) < MIN_BYTES or "content-encoding" in response.headers:
        return response
    response.headers["Vary"] = ", ".join(
        filter(None, (response.headers.get("Vary"), "Accept-Encoding"))
    )
    if accepts_gzip(request.headers.get("accept-encoding", "").encode("latin-1")):
        response.body = await gzipped(body)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response


async def gzipped(body: bytes) -> bytes:
    """A body in gzip; equal bodies give equal bytes."""
    return await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)


def accepts_gzip(header: bytes) -> bool:
    """Whether an `Accept-Encoding` takes gzip: named, or under `*`, and not with `q=0`."""
    return (_takes_gzip if len(header) > _REMEMBERED_MAX else _known_takes_gzip)(header)


def _takes_gzip(header: bytes) -> bool:
    weights: dict[str, str] = {}
    for part in header.decode("latin-1").lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        weights[coding] = weight
    chosen = weights.get("gzip", weights.get("x-gzip", weights.get("*", "0")))
    return chosen.strip("0.") != ""


_known_takes_gzip: Final = lru_cache(maxsize=256)(_takes_gzip)
