"""The opened resources that the routes work with, made once by the composition root (app.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tollgauge.db.engine import Store
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.catalogue import PaidDependencies
from tollgauge.web.paid.gate import Gate

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies(PaidDependencies):
    """What any route may use. A product is given the same object as PaidDependencies: its store
    only reads there, because a sale writes under its payment's claim alone (docs/payments.md).
    """

    store: Store
    gate: Gate
    edge: EdgeSettings

    async def read_now(self, read: Callable[..., R], *arguments: object) -> R:
        """What a function of monitor/reports gives as of now."""
        return await self.store.reading(read, *arguments, now=self.clock())
