"""`GET /trust/bundle`: trust records of all listed endpoints in one file, for clients that decide
offline (docs/bundle.md).

A loop builds and stores the file (jobs/score). Each process keeps it in memory and checks for a
newer one every CHECK_MS.
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
from tollgauge.core.sale.signature import SIGNATURE_HEADER
from tollgauge.db.engine import StoreUnavailable
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.messages import http_date, is_unmodified, requested_range
from tollgauge.web.edge.problem import Problem

PATH: Final = "/trust/bundle"
AVOID_PATH: Final = f"{PATH}/avoid"
SUMMARY: Final = "Download the trust records of all listed endpoints as a signed file"
AVOID_SUMMARY: Final = "Download only the records of endpoints that must not be paid"
MEDIA_TYPE: Final = "application/zstd"
CHECK_MS: Final = 5 * SECOND_MS
RETRY_S: Final = 60
_CACHE_CONTROL: Final = "public, max-age=3600"
_CHUNK_BYTES: Final = 64 * 1024
"""Size of a write, and so of the data that a slow client keeps in the socket's buffer."""


@dataclass(slots=True)
class _Cached:
    """The bundle in memory, and the time of its last comparison with the store (ms UTC)."""

    stored: StoredBundle | None = None
    body: bytes = b""
    checked_at: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Bundles:
    """Handlers of both variants."""

    dependencies: Dependencies
    _cached: dict[Variant, _Cached] = field(
        default_factory=lambda: {variant: _Cached() for variant in Variant}
    )

    async def all(self, request: Request) -> Response:
        """Return the records of all listed endpoints."""
        return await self._answer(request, Variant.ALL)

    async def avoid(self, request: Request) -> Response:
        """Return only the records of endpoints that must not be paid."""
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
            headers[SIGNATURE_HEADER] = stored.signature
        if is_unmodified(request.headers, etag=etag, modified=stored.as_of):
            return Response(status_code=304, headers=headers)
        part = requested_range(request.headers, len(body), etag=etag, modified=stored.as_of)
        if part is None:
            return _send(body, range(len(body)), headers)
        if not part:
            return _range_not_satisfiable(len(body))
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(body)}"
        return _send(body, part, headers, status=206)

    async def _newest(self, variant: Variant) -> tuple[StoredBundle, bytes]:
        """Return the newest bundle. Raises Problem 503 if none was built yet.

        If the database is unavailable, the bundle in memory is returned.
        """
        cached, now = self._cached[variant], self.dependencies.clock()
        # The lock lets one request refresh while the others wait: the file has several megabytes.
        async with cached.lock:
            if not cached.checked_at <= now < cached.checked_at + CHECK_MS:
                try:
                    await self._refresh(variant, cached)
                except StoreUnavailable:
                    if cached.stored is None:
                        raise
                cached.checked_at = now
        if cached.stored is None:
            detail = "The first bundle has not been built yet. Retry in a minute."
            raise Problem(503, "bundle-unavailable", detail, retry_after=RETRY_S)
        return cached.stored, cached.body

    async def _refresh(self, variant: Variant, cached: _Cached) -> None:
        reading = self.dependencies.store.reading
        if await reading(trust_records.newest_bundle, variant) == cached.stored:
            return
        whole = await reading(trust_records.load_bundle, variant)
        if whole is not None:
            cached.stored, cached.body = whole


def _send(body: bytes, part: range, headers: dict[str, str], *, status: int = 200) -> Response:
    view = memoryview(body)[part.start : part.stop]

    async def pieces() -> AsyncIterator[memoryview]:
        for at in range(0, len(view), _CHUNK_BYTES):
            yield view[at : at + _CHUNK_BYTES]

    headers = headers | {"Content-Length": str(len(view))}
    return StreamingResponse(pieces(), status, headers, media_type=MEDIA_TYPE)


def _range_not_satisfiable(size: int) -> Response:
    problem = Problem(
        416, "range-not-satisfiable", f"The file has {size} bytes. Request a range within them."
    )
    response = problem.response()
    response.headers["Content-Range"] = f"bytes */{size}"
    return response
