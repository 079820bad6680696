"""The admin port: metrics for Prometheus, and the status of the service. On loopback only.

Rules:
- `/metrics` always answers: figures of a database that cannot be read are left out, and
  `tollgauge_database_up` is 0;
- `/readyz` is the output of `tollgauge status --json`: 200 while the database can be read, even if
  something needs attention, otherwise 503. The public `/readyz` (web/edge/health) states whether
  the service can sell;
- only requests to a name of loopback, or to a configured one, are answered: a web page whose name
  was pointed at loopback (DNS rebinding) reads nothing;
- the database is read at most every EVERY_S seconds, however many requests come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tollgauge.core.base.units import SECOND_MS
from tollgauge.db.engine import StoreUnavailable
from tollgauge.monitor.status import Status, document
from tollgauge.observe import (
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
    PROBLEMS,
    QUEUE_AGE,
    QUEUE_DUE,
    metrics_text,
)

EVERY_S: Final = 10.0
TRY_S: Final = 5.0
_LABELLED: Final = (
    *(QUEUE_DUE, QUEUE_AGE, INDEX_LAG, PAYMENTS, BUNDLE_AGE, BUNDLE_BYTES, BUNDLE_SECONDS),
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def create(read_status: Callable[[], Awaitable[Status]], *, hosts: Sequence[str] = ()) -> ASGIApp:
    """Make the ASGI application of the admin port. `read_status` returns the status
    (monitor/status); `hosts` are allowed Host names in addition to those of loopback.
    """
    allowed = (*_LOOPBACK, *hosts)
    return TrustedHostMiddleware(_Admin(read_status), allowed, www_redirect=False)


class _Admin:
    """Answers requests to an allowed name."""

    def __init__(self, read_status: Callable[[], Awaitable[Status]]) -> None:
        self._read_status = read_status
        self._lock = asyncio.Lock()
        self._read_at = -EVERY_S
        self._status: Status | None = None

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
            if status is None:
                unknown = {"good": False, "problems": ["The database cannot be read."]}
                return _json(503, unknown)
            return _json(200, document(status))
        _measure(status)
        return Response(metrics_text(), media_type="text/plain; version=0.0.4")

    async def _recent(self) -> Status | None:
        """Return the status, at most EVERY_S seconds old; None if the database cannot be read."""
        async with self._lock:
            if time.monotonic() >= self._read_at + EVERY_S:
                try:
                    async with asyncio.timeout(TRY_S):
                        self._status = await self._read_status()
                except (StoreUnavailable, TimeoutError):
                    self._status = None
                self._read_at = time.monotonic()
            return self._status


def _measure(status: Status | None) -> None:
    """Set the gauges of the status; without one, remove those that have labels."""
    for gauge in _LABELLED:
        gauge.clear()
    DATABASE_UP.set(status is not None)
    if status is None:
        return
    figures = status.figures
    probes, scores, deliveries = figures.probes, figures.scores, figures.deliveries
    for queue, due, oldest in (
        ("probes", probes.due, probes.oldest),
        ("scores", scores.due, scores.oldest),
        ("deliveries", deliveries.queued, deliveries.oldest_due),
    ):
        QUEUE_DUE.labels(queue).set(due)
        QUEUE_AGE.labels(queue).set(figures.age_s(oldest) or 0)
    PROBES_LATE.set(probes.late / max(1, figures.monitored))
    for cursor in figures.chains:
        INDEX_LAG.labels(cursor.chain).set(figures.age_s(cursor.at) or 0)
    for bundle in figures.bundles:
        BUNDLE_AGE.labels(bundle.variant).set(figures.age_s(bundle.as_of) or 0)
        BUNDLE_BYTES.labels(bundle.variant).set(bundle.size)
        BUNDLE_SECONDS.labels(bundle.variant).set(bundle.took_ms / SECOND_MS)
    for state, count in figures.payments.items():
        PAYMENTS.labels(state).set(count)
    PAYMENTS_STUCK.set(len(figures.stuck))
    DATABASE_BYTES.set(figures.size.database + figures.size.log)
    DISK_FULL.set((figures.size.full_percent or 0) / 100)
    PROBLEMS.set(len(status.problems))


def _json(code: int, document: Mapping[str, Any]) -> Response:
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    return Response(body, code, {"Cache-Control": "no-store"}, media_type="application/json")
