"""Counts over everything that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.monitor import ranking
from tollgauge.store.chain import volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecosystem:
    """Counts over all known endpoints as of an instant, at most two minutes ago
    (monitor/ranking); shares are in thousandths of the `monitored` ones, which have a score.

    Settlements of the last 30 days on every indexed chain, None while none is: `volume_micro_usd`
    is all that authorizations brought to known payTo addresses, `organic_micro_usd` that without
    self-payments and round trips; `receivers` of it, and `payers`. `indexed_permille` is the
    share of these addresses' last 30 days that is indexed.
    """

    as_of: int
    listed: int
    delisted: int
    monitored: int
    reachable_permille: int | None
    compliant_permille: int | None
    grades: tuple[tuple[str, int], ...]
    simulated: bool = False
    volume_micro_usd: int | None = None
    organic_micro_usd: int | None = None
    receivers: int | None = None
    payers: int | None = None
    indexed_permille: int | None = None


def ecosystem(tx: Connection, *, now: int) -> Ecosystem:
    """Counts over everything that is known."""
    counted = ranking.current(tx, now=now)
    population = counted.population
    return Ecosystem(
        as_of=counted.as_of,
        listed=counted.listed,
        delisted=counted.delisted,
        monitored=population.scored,
        reachable_permille=_share(population.reachable, population.scored),
        compliant_permille=_share(population.compliant, population.scored),
        grades=population.grades,
        simulated=counted.simulated > 0,
        **_settlements(volumes.published(tx)),
    )


def _settlements(chains: Sequence[volumes.ChainVolume]) -> dict[str, int]:
    """The settlements of all indexed chains together; nothing while none is indexed."""
    if not chains:
        return {}
    wallets = sum(chain.wallets for chain in chains)
    indexed = sum(chain.indexed_permille * chain.wallets for chain in chains)
    return {
        "volume_micro_usd": sum(chain.raw for chain in chains),
        "organic_micro_usd": sum(chain.organic for chain in chains),
        "receivers": sum(chain.receivers for chain in chains),
        "payers": sum(chain.payers for chain in chains),
        "indexed_permille": indexed // wallets if wallets else 0,
    }


def _share(part: int, whole: int) -> int | None:
    return None if not whole else (part * 2000 + whole) // (2 * whole)
