"""Health: whether the database accepts the writes of a sale, and if not, why.

Rules:
- the writes of a sale are tried and rolled back (store/tables) at most every EVERY_MS; all
  requests in between share the result;
- the cause is a fixed sentence without paths, addresses or texts of the driver;
- a change of the cause is logged;
- late probes are reported next to `ready`, because stored results can still be sold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import JSONResponse, Response

from tollgauge.core.base.units import SECOND_MS, Clock
from tollgauge.db.engine import Cause, Store, StoreUnavailable
from tollgauge.observe import log
from tollgauge.store.schedule import claims
from tollgauge.store.tables import rehearse_sale
from tollgauge.web.edge.problem import Problem

EVERY_MS: Final = 5 * SECOND_MS
TRY_SECONDS: Final = 4.0
"""Timeout of a check; load balancers rarely wait longer."""
LATE_SECONDS: Final = 1.0
"""Timeout for reading the delay of probes; after it, the last result is reported."""

UNSIGNED: Final = "Nothing is signed: there is no signing key (TOLLGAUGE_SIGNING_KEY)."
CAUSES: Final[dict[Cause, str]] = {
    Cause.CORRUPT: "The database is damaged: stop the service and restore a backup.",
    Cause.FULL: "The database's disk takes no more: it is full, or a quota or a limit is reached.",
    Cause.LOCKED: "The database is locked: another program holds it, or it is too busy.",
    Cause.READ_ONLY: "The database may only be read: it is a standby, or its file is protected.",
    Cause.TABLES: "The database's tables are not those of this version: run tollgauge migrate.",
    Cause.UNREACHABLE: "The database cannot be reached: it is down, or its place is gone.",
}
"""The message for the operator per cause."""


@dataclass(slots=True)
class Loading:
    """Progress of loading the demo's history: `percent` of `days`, None if nothing is loading. It
    changes over time.
    """

    days: int = 0
    percent: int | None = None

    @property
    def text(self) -> str:
        """The text on pages, such as `loading 30 days of history: 42%`, or nothing."""
        if self.percent is None:
            return ""
        what = f"{self.days} days of history" if self.days else "the first round"
        return f"loading {what}: {self.percent}%"


async def healthz() -> Response:
    """Check that the process is running."""
    return _status("ok")


@dataclass(slots=True)
class Readiness:
    """Whether one process can sell. Probes are late when a host has waited for `late_ms`; `signs`
    is whether there is a signing key, `loading` the progress of the demo's history.
    """

    store: Store
    clock: Clock
    late_ms: int
    signs: bool
    loading: Loading
    _trial: asyncio.Task[Cause | None] | None = None
    _at: int = 0
    _logged: Cause | None = None
    _overdue: Mapping[str, int] = field(default_factory=dict)

    async def readyz(self) -> Response:
        """Check that the service can sell: its database accepts the writes of a sale. Otherwise
        the answer is 503 with the cause.
        """
        now = self.clock()
        old = not self._at <= now < self._at + EVERY_MS
        if self._trial is None or (old and self._trial.done()):
            self._at = now
            self._trial = asyncio.create_task(self._try())
        cause = await asyncio.shield(self._trial)
        if cause is not None:
            extra: dict[str, object] = {"cause": cause.value}
            raise Problem(503, "store-unavailable", CAUSES[cause], retry_after=5, extra=extra)
        more: dict[str, object] = {} if self.signs else {"detail": UNSIGNED}
        if self.loading.percent is not None:
            more["loadingPercent"] = self.loading.percent
        elif max(self._overdue.values(), default=0) > self.late_ms:
            more["probesLateSeconds"] = {
                name: overdue // SECOND_MS for name, overdue in self._overdue.items()
            }
        return _status("ready", **more)

    async def _try(self) -> Cause | None:
        cause = None
        try:
            await self.store.try_write(rehearse_sale, seconds=TRY_SECONDS)
            # If the database hangs from here on, the next try finds out; this answer does not wait.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LATE_SECONDS):
                    self._overdue = await self.store.reading(claims.overdue_ms, now=self.clock())
        except StoreUnavailable as error:
            cause = error.cause
        if cause is not self._logged:
            self._logged = cause
            if cause is None:
                log().info("store.ready")
            else:
                log().error("store.unready", cause=cause.value, detail=CAUSES[cause])
        return cause


def _status(status: str, **more: object) -> Response:
    return JSONResponse({"status": status} | more, headers={"Cache-Control": "no-store"})
