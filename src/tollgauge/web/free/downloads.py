"""Signed files: the bundle of trust records (docs/bundle.md), and the packages of the guards.

The bundle has the trust records of all listed endpoints, for clients that decide offline. A loop
builds and stores it (jobs/score). Each process keeps it in memory and checks for a newer one every
CHECK_MS. `make packages` builds the packages, which are read once, when the process starts.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.guard.bundle import Variant
from tollgauge.core.sale.signature import SIGNATURE_HEADER, SigningKey
from tollgauge.db.engine import StoreUnavailable
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle
from tollgauge.web.dependencies import Dependencies, Service
from tollgauge.web.edge.messages import http_date, is_unmodified, requested_range
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.route import Route, Routes
from tollgauge.web.signing import signature_header
from tollgauge.web.wire import openapi
from tollgauge.web.wire.parameters import path
from tollgauge.web.wire.response_model import ResponseModel

ROUTES: Final = Routes(tag="free", strict_query=True)
BUNDLE_PATH: Final = "/trust/bundle"
GUARD_PATH: Final = "/guard"
BUNDLE_TYPE: Final = "application/zstd"
CHECK_MS: Final = 5 * SECOND_MS
RETRY_S: Final = 60
_CACHE_CONTROL: Final = "public, max-age=3600"
_CHUNK_BYTES: Final = 64 * 1024
"""Size of a write, and so of the data that a slow client keeps in the socket's buffer."""
PackageName = Annotated[
    str, path("File name of a package", "tollgauge_guard-0.1.0-py3-none-any.whl")
]
_PACKAGE_TYPES: Final = {".whl": "application/zip", ".tgz": "application/gzip"}


@dataclass(slots=True)
class _Cached:
    """The bundle in memory, and the time of its last comparison with the store (ms UTC)."""

    stored: StoredBundle | None = None
    body: bytes = b""
    checked_at: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Bundles:
    """Handlers of both variants of the bundle, which each application keeps in memory."""

    dependencies: Dependencies
    _cached: dict[Variant, _Cached] = field(
        default_factory=lambda: {variant: _Cached() for variant in Variant}
    )

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of both variants."""
        routes = Routes(tag="free", strict_query=True, saved_as="bundle.zst")
        answers = openapi.file(BUNDLE_TYPE, {503: "The first bundle is being built"})
        routes.get(BUNDLE_PATH, answers, name="get_bundle_all", example="")(self.all)
        routes.get(f"{BUNDLE_PATH}/avoid", answers, name="get_bundle_avoid")(self.avoid)
        return tuple(routes.rows)

    async def all(self, request: Request) -> Response:
        """Download the trust records of all listed endpoints as a signed file."""
        return await self._answer(request, Variant.ALL)

    async def avoid(self, request: Request) -> Response:
        """Download only the records of endpoints that must not be paid."""
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
    return StreamingResponse(pieces(), status, headers, media_type=BUNDLE_TYPE)


def _range_not_satisfiable(size: int) -> Response:
    problem = Problem(
        416, "range-not-satisfiable", f"The file has {size} bytes. Request a range within them."
    )
    response = problem.response()
    response.headers["Content-Range"] = f"bytes */{size}"
    return response


class GuardPackageResponse(ResponseModel):
    """A package. `install` is the command that installs this file and the x402 client for EVM
    networks; `signature` is a detached JWS over its SHA-256, null if the service does not sign.
    """

    name: str
    url: str
    size: int
    sha256: str
    signature: str | None
    install: str


class GuardPackagesResponse(ResponseModel):
    """The packages, for Python and Node.js; empty if the operator offers none."""

    packages: list[GuardPackageResponse]


@ROUTES.get(
    GUARD_PATH,
    openapi.free(GuardPackagesResponse, "guard_packages"),
    example="",
)
async def guard_packages(service: Service) -> Response:
    """List the packages of the payment guards."""
    base_url, key = service.base_url, service.signing_key
    now = service.clock()
    return json_response(describe(service.guard_packages, base_url=base_url, key=key, now=now))


@ROUTES.get(
    f"{GUARD_PATH}/{{name}}",
    openapi.add_signature(
        openapi.page("application/octet-stream", own={404: "No package has this name"})
    ),
)
async def guard_package(service: Service, name: PackageName) -> Response:
    """Download a package of a payment guard. Raises Problem 404."""
    body = service.guard_packages.get(name)
    if body is None:
        raise Problem(404, "unknown-package", "No such package. GET /guard lists the packages.")
    now, key = service.clock(), service.signing_key
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
    headers |= signature_header(key, body, "tollgauge-guard", now)
    return Response(body, media_type=_PACKAGE_TYPES[Path(name).suffix], headers=headers)


def read_packages(folder: str) -> dict[str, bytes]:
    """Return the wheels and npm packages in a folder, by name; none without a folder.

    Raises OSError if the folder cannot be read.
    """
    if not folder:
        return {}
    files = sorted(file for file in Path(folder).iterdir() if file.suffix in _PACKAGE_TYPES)
    return {file.name: file.read_bytes() for file in files}


def describe(
    packages: Mapping[str, bytes], *, base_url: str, key: SigningKey | None, now: int
) -> GuardPackagesResponse:
    """Build the list of packages; `now` is the time of the signatures (ms UTC)."""
    listed = []
    for name, body in packages.items():
        url, digest = f"{base_url}{GUARD_PATH}/{name}", hashlib.sha256(body).hexdigest()
        signed = signature_header(key, body, "tollgauge-guard", now)
        listed.append(
            GuardPackageResponse(
                name=name,
                url=url,
                size=len(body),
                sha256=digest,
                signature=signed.get(SIGNATURE_HEADER),
                # pip compares the file with the digest in the fragment.
                install=f"pip install 'tollgauge-guard[evm] @ {url}#sha256={digest}'"
                if name.endswith(".whl")
                else f"npm install {url} @x402/core @x402/fetch @x402/evm viem",
            )
        )
    return GuardPackagesResponse(packages=listed)
