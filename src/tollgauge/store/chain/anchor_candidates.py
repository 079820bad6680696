"""Sellers that an operator may configure as anchors (docs/operating/anchors.md)."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import address_text
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store.chain import cursors
from tollgauge.store.chain.volumes import anchor_owners, anchors_of, demands_of
from tollgauge.store.chain.wallets import chain_wallet


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorCandidate:
    """A seller that may become an anchor: its site and payTo, its age, and what payers proven at
    another anchor spent there (atomic USDC).
    """

    site: str
    address: str
    chain: int
    age_ms: int
    proven_payers: int
    proven_volume: int


def rank_candidates(tx: Connection, *, now: int, limit: int) -> tuple[AnchorCandidate, ...]:
    """Return sellers that are not anchors, largest proven spending first, then the oldest.

    A site appears once, with its first address.
    """
    anchors = {
        (chain, address_text(address))
        for chain in cursors.chains(tx)
        for address in anchor_owners(tx, chain)
    }
    owners = {anchor.owner for anchor in anchors_of(tx)}
    first_seen = (
        sa.select(endpoint_table.c.site, sa.func.min(endpoint_table.c.first_seen).label("at"))
        .group_by(endpoint_table.c.site)
        .subquery()
    )
    query = (
        sa.select(*chain_wallet.c["chain", "address", "site"], first_seen.c.at)
        .join_from(chain_wallet, first_seen, first_seen.c.site == chain_wallet.c.site)
        .order_by(*chain_wallet.c["site", "chain", "address"])
    )
    found: dict[str, AnchorCandidate] = {}
    for row in tx.execute(query):
        chain, address, site = row.chain, row.address, row.site
        if (chain, address) in anchors or site in owners or site in found:
            continue
        demand = demands_of(tx, chain, (address,), as_of=now)[address]
        found[site] = AnchorCandidate(
            site=site,
            address=address,
            chain=chain,
            age_ms=now - row.at,
            proven_payers=demand.proven_payers,
            proven_volume=demand.proven_volume,
        )
    ranked = sorted(found.values(), key=lambda one: (-one.proven_volume, -one.age_ms, one.site))
    return tuple(ranked[:limit])
