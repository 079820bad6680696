"""The opened resources that the routes work with, made once by the composition root (app.py)."""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.db.engine import Store
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.catalogue import PaidDependencies
from tollgauge.web.paid.gate import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies(PaidDependencies):
    """What any route may use. A product is given the same object as PaidDependencies: its store
    only reads there, because a sale writes under its payment's claim alone (docs/payments.md).
    """

    store: Store
    gate: Gate
    edge: EdgeSettings
