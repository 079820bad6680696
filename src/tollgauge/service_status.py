"""The time, and what can be stated about a service without opening it: its loops and its status.

Commands import this module instead of app, which imports all loops and routes (0.4 s of CPU time).
"""

from __future__ import annotations

import time
from typing import Final

from tollgauge.config import Config
from tollgauge.config.rules import advice
from tollgauge.core.base.units import Clock
from tollgauge.db.engine import Store
from tollgauge.monitor import status
from tollgauge.monitor.status import Status, index_loop

EVERY_LOOP: Final = (
    *("schedule", "lateness", "probe", "alert", "score"),
    *("similar", "rank", "prune", "calibrate", "bundle", "seller-files"),
)
"""The loops of every configuration."""


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def loops(config: Config) -> tuple[str, ...]:
    """Return the names of the configured loops (`Opened.jobs`)."""
    discovers = ("discover",) if config.sources else ()
    settles = () if config.sale_chain is None else ("settle",)
    indexes = (index_loop(chain.chain_id) for chain in config.indexed_chains)
    return (*EVERY_LOOP, *discovers, *settles, *indexes)


async def read_status(config: Config, store: Store, *, clock: Clock) -> Status:
    """Read the service's status (monitor/status).

    Raises:
        StoreUnavailable: The database cannot serve.
    """
    figures = await store.reading(status.read, now=clock(), cadence=config.probe.cadence)
    return status.assess(
        figures,
        sources=[source.name for source in config.sources],
        loops=loops(config),
        advice=advice(config),
    )
