"""`GET /trust/bundle`: the trust records of all listed endpoints as one file, for clients that
decide offline whether to pay (docs/bundle.md).

A loop builds the file and stores it (jobs/bundle); here it is only sent. Every process has the same
bytes: it keeps them in memory, and checks every CHECK_MS whether there are newer ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.guard.bundle import Variant
from tollgauge.core.sale import answer_signature
from tollgauge.db.engine import StoreUnavailable
from tollgauge.store.scores import bundles
from tollgauge.store.scores.bundles import StoredBundle
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.headers import http_date, is_unmodified, requested_range
from tollgauge.web.edge.problem import Problem

PATH: Final = "/trust/bundle"
AVOID_PATH: Final = f"{PATH}/avoid"
SUMMARY: Final = "What is known of every listed endpoint, as one signed file"
AVOID_SUMMARY: Final = "The same of those alone that must not be paid"
MEDIA_TYPE: Final = "application/zstd"
CHECK_MS: Final = 5 * SECOND_MS
RETRY_S: Final = 60
_CACHE_CONTROL: Final = "public, max-age=3600"
_PART: Final = 64 * 1024
"""How much is sent at once: a slow client holds no more of the file in the socket's buffer."""


@dataclass(slots=True)
class _Cached:
    """The newest bundle of a variant that this process read: what is said of it, its bytes, and
    when it was last compared with the stored one (ms UTC).
    """

    stored: StoredBundle | None = None
    body: bytes = b""
    checked_at: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Bundles:
    """The handlers of both variants."""

    dependencies: Dependencies
    _cached: dict[Variant, _Cached] = field(
        default_factory=lambda: {variant: _Cached() for variant in Variant}
    )

    async def all(self, request: Request) -> Response:
        """Every listed endpoint."""
        return await self._answer(request, Variant.ALL)

    async def avoid(self, request: Request) -> Response:
        """Those alone that must not be paid."""
        return await self._answer(request, Variant.AVOID)

    async def _answer(self, request: Request, variant: Variant) -> Response:
        stored, body = await self._newest(variant)
        etag = f'"{stored.digest[:32]}"'
        headers = {
            "ETag": etag,
            "Last-Modified": http_date(stored.as_of),
            "Cache-Control": _CACHE_CONTROL,
            "Accept-Ranges": "bytes",
        }
        if stored.signature is not None:
            headers[answer_signature.HEADER] = stored.signature
        if is_unmodified(request.headers, etag=etag, modified=stored.as_of):
            return Response(status_code=304, headers=headers)
        part = requested_range(request.headers, len(body), etag=etag, modified=stored.as_of)
        if part is None:
            return _sent(body, range(len(body)), headers)
        if not part:
            return _no_such_part(len(body))
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(body)}"
        return _sent(body, part, headers, status=206)

    async def _newest(self, variant: Variant) -> tuple[StoredBundle, bytes]:
        """The newest bundle and its bytes, which are read only where they are new. Raises Problem
        503 before the first; while the database cannot serve, the one in memory is the newest.
        """
        cached, now = self._cached[variant], self.dependencies.clock()
        async with cached.lock:
            if not cached.checked_at <= now < cached.checked_at + CHECK_MS:
                try:
                    await self._refresh(variant, cached)
                except StoreUnavailable:
                    if cached.stored is None:
                        raise
                cached.checked_at = now
        if cached.stored is None:
            detail = "There is no bundle until a directory lists an endpoint. Ask again soon."
            raise Problem(503, "bundle-unavailable", detail, retry_after=RETRY_S)
        return cached.stored, cached.body

    async def _refresh(self, variant: Variant, cached: _Cached) -> None:
        reading = self.dependencies.store.reading
        if await reading(bundles.newest, variant) == cached.stored:
            return
        whole = await reading(bundles.whole, variant)
        if whole is not None:
            cached.stored, cached.body = whole


def _sent(body: bytes, part: range, headers: dict[str, str], *, status: int = 200) -> Response:
    """A part of the body, as it is."""
    view = memoryview(body)[part.start : part.stop]

    async def pieces() -> AsyncIterator[memoryview]:
        for at in range(0, len(view), _PART):
            yield view[at : at + _PART]

    headers = headers | {"Content-Length": str(len(view))}
    return StreamingResponse(pieces(), status, headers, media_type=MEDIA_TYPE)


def _no_such_part(size: int) -> Response:
    problem = Problem(
        416, "range-not-satisfiable", f"The file has {size} bytes: ask for a range within them."
    )
    response = problem.response()
    response.headers["Content-Range"] = f"bytes */{size}"
    return response
