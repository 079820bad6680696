"""The admin port: metrics for Prometheus, and the status of the service. On loopback only.

Rules:
- `/metrics` always answers: figures of a database that cannot be read are left out, and
  `tollgauge_database_up` is 0;
- `/readyz` is what `tollgauge status --json` prints: 200 while the database can be read, whatever
  needs attention, else 503. The public `/readyz` (web/edge/health) says whether the service can
  sell;
- the database is read at most every EVERY_S seconds, however many requests come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tollgauge.db.engine import StoreUnavailable
from tollgauge.observe import (
    ATTENTION,
    BUNDLE_AGE,
    BUNDLE_BYTES,
    BUNDLE_SECONDS,
    DATABASE_BYTES,
    DATABASE_UP,
    DISK_FULL,
    INDEX_LAG,
    PAYMENTS,
    PAYMENTS_STUCK,
    PROBES_LATE,
    QUEUE_AGE,
    QUEUE_DUE,
    metrics_text,
)

EVERY_S: Final = 10.0
TRY_S: Final = 5.0
_LABELLED: Final = (
    *(QUEUE_DUE, QUEUE_AGE, INDEX_LAG, PAYMENTS, BUNDLE_AGE, BUNDLE_BYTES, BUNDLE_SECONDS),
)


class Admin:
    """The ASGI application. `read_status` gives the status (monitor/status.report)."""

    def __init__(self, read_status: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._read_status = read_status
        self._lock = asyncio.Lock()
        self._read_at = -EVERY_S
        self._status: Mapping[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (await self._response(scope["path"]))(scope, receive, send)

    async def _response(self, path: str) -> Response:
        if path == "/healthz":
            return _json(200, {"status": "ok"})
        if path not in ("/metrics", "/readyz"):
            return Response(b"not found\n", status_code=404, media_type="text/plain")
        status = await self._recent()
        if path == "/readyz":
            unknown = {"good": False, "attention": ["The database cannot be read."]}
            return _json(200 if status else 503, status or unknown)
        _measure(status)
        return Response(metrics_text(), media_type="text/plain; version=0.0.4")

    async def _recent(self) -> Mapping[str, Any] | None:
        """The status, at most EVERY_S seconds old; None where the database cannot be read."""
        async with self._lock:
            if time.monotonic() >= self._read_at + EVERY_S:
                try:
                    async with asyncio.timeout(TRY_S):
                        self._status = await self._read_status()
                except (StoreUnavailable, TimeoutError):
                    self._status = None
                self._read_at = time.monotonic()
            return self._status


def _measure(status: Mapping[str, Any] | None) -> None:
    """Set the gauges of the status; without one, remove those that have labels."""
    for gauge in _LABELLED:
        gauge.clear()
    DATABASE_UP.set(status is not None)
    if status is None:
        return
    for queue, due in (("probes", "due"), ("scores", "due"), ("deliveries", "queued")):
        QUEUE_DUE.labels(queue).set(status[queue][due])
        QUEUE_AGE.labels(queue).set(status[queue]["oldestSeconds"] or 0)
    PROBES_LATE.set(status["probes"]["late"] / max(1, status["probes"]["monitored"]))
    for chain in status["chains"]:
        INDEX_LAG.labels(chain["chain"]).set(chain["lagSeconds"])
    for bundle in status["bundles"]:
        BUNDLE_AGE.labels(bundle["variant"]).set(bundle["ageSeconds"])
        BUNDLE_BYTES.labels(bundle["variant"]).set(bundle["bytes"])
        BUNDLE_SECONDS.labels(bundle["variant"]).set(bundle["buildSeconds"])
    for state, count in status["payments"]["byState"].items():
        PAYMENTS.labels(state).set(count)
    PAYMENTS_STUCK.set(len(status["payments"]["stuck"]))
    DATABASE_BYTES.set(status["disk"]["databaseBytes"] + status["disk"]["logBytes"])
    DISK_FULL.set((status["disk"]["fullPercent"] or 0) / 100)
    ATTENTION.set(len(status["attention"]))


def _json(code: int, document: Mapping[str, Any]) -> Response:
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    return Response(body, code, {"Cache-Control": "no-store"}, media_type="application/json")
