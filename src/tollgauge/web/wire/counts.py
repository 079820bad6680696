"""The ecosystem's counts as JSON."""

from __future__ import annotations

from tollgauge.monitor.reports import Ecosystem
from tollgauge.web.wire.figures import iso, micro_usd, permille
from tollgauge.web.wire.shape import Shape


class EcosystemShape(Shape):
    """Counts over everything that is known as of `asOf`, which is at most two minutes ago, and 30
    days of settlements to known payTo addresses (null while no chain is indexed; `indexedShare`
    says how much of those days is).
    """

    as_of: str
    listed: int
    delisted: int
    active: int
    reachable_share: float | None
    compliant_share: float | None
    grades: dict[str, int]
    simulated: bool
    volume_usd30d: float | None
    organic_volume_usd30d: float | None
    receivers30d: int | None
    payers30d: int | None
    indexed_share: float | None


def ecosystem(stats: Ecosystem) -> EcosystemShape:
    """The counts as JSON shape."""
    return EcosystemShape(
        as_of=iso(stats.as_of),
        listed=stats.listed,
        delisted=stats.delisted,
        active=stats.monitored,
        reachable_share=permille(stats.reachable_permille),
        compliant_share=permille(stats.compliant_permille),
        grades=dict(stats.grades),
        simulated=stats.simulated,
        volume_usd30d=micro_usd(stats.volume_micro_usd),
        organic_volume_usd30d=micro_usd(stats.organic_micro_usd),
        receivers30d=stats.receivers,
        payers30d=stats.payers,
        indexed_share=permille(stats.indexed_permille),
    )
