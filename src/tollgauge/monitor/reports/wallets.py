"""Report on a payTo address: who names it, its income, and its changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import (
    address_bytes,
    chain_number,
    is_address,
    is_solana_key,
    network_of,
)
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.demand import MIN_OWNERS
from tollgauge.core.score.income import WalletIncome
from tollgauge.store.chain import cursors, volumes, wallets
from tollgauge.store.chain.periods import INCOMES
from tollgauge.store.endpoints import listings, rated_endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.listings import PayToChange
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile

WALLET_ROWS: Final = 100  # endpoints on the page; the list by payTo has all of them
CHANGES_MAX: Final = 50
STATEMENTS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkIncome:
    """The income of an address on a network.

    `owner` is the site that its demand belongs to, None if no endpoint named it there. `income` is
    None without payments in its periods; `indexed` states whether the address is indexed.
    `shared_by` are the sites of the valid list that the address signed, which share its demand.
    `measured` is False without anchors to prove payers.
    """

    network: str
    owner: str | None
    indexed: bool
    measured: bool
    income: WalletIncome | None
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wallet:
    """A payTo address: the public endpoints that name it now, best scores first (at most
    WALLET_ROWS, `more` if there are others), its income by network, the changes to and from it, and
    the files of the hosts that name it.
    """

    address: str
    rows: tuple[RatedEndpoint, ...]
    more: bool
    networks: tuple[NetworkIncome, ...]
    changes: tuple[PayToChange, ...]
    seller_files: tuple[StoredSellerFile, ...]

    @property
    def former(self) -> tuple[PayToChange, ...]:
        """The latest change away from it of each endpoint that named it and does not now."""
        named = {row.id for row in self.rows}
        left: dict[str, PayToChange] = {}
        for change in self.changes:
            if change.before == self.address and change.endpoint_id not in named:
                left.setdefault(change.endpoint_id, change)
        return tuple(left.values())


def read_wallet(tx: Connection, address: str, *, now: int) -> Wallet | None:
    """Read the report on an address; None if no public endpoint names it or is known to have.

    The number of rows read is bounded; figures of the chain are stored per wallet.
    """
    ids = rated_endpoints.ids_of_pay_to(tx, address, limit=WALLET_ROWS + 1)
    changes = listings.payto_changes(tx, address, limit=CHANGES_MAX)
    if not ids and not changes:
        return None
    known = rated_endpoints.get_many(tx, ids[:WALLET_ROWS])
    rows = tuple(known[id_] for id_ in ids[:WALLET_ROWS] if id_ in known)
    hosts = dict.fromkeys(row.host for row in rows)
    files = (seller_files.get(tx, host) for host in list(hosts)[:STATEMENTS_MAX])
    return Wallet(
        address=address,
        rows=rows,
        more=len(ids) > WALLET_ROWS,
        networks=_networks(tx, address, {row.network for row in rows if row.network}, now=now),
        changes=changes,
        seller_files=tuple(file for file in files if file is not None),
    )


def _networks(
    tx: Connection, address: str, named: set[str], *, now: int
) -> tuple[NetworkIncome, ...]:
    """Return the income on the networks that endpoints name it on, and on indexed chains."""
    if not is_address(address, chain=0) and not is_solana_key(address):
        return tuple(
            NetworkIncome(network=one, owner=None, indexed=False, measured=False, income=None)
            for one in sorted(named)
        )
    measured = len(volumes.anchors_of(tx)) >= MIN_OWNERS
    found = []
    for network in sorted(named | {network_of(chain) for chain in cursors.chains(tx)}):
        chain = chain_number(network)
        sites = {} if chain is None else wallets.sites_of(tx, chain, (address,))
        if network not in named and not sites:
            continue
        lists = seller_files.site_lists(tx, network, (address,), as_of=now)
        key = address_bytes(address)
        incomes = {} if chain is None else INCOMES.load(tx, chain, (key,))
        found.append(
            NetworkIncome(
                network=network,
                owner=sites.get(address),
                indexed=bool(sites),
                measured=measured,
                income=incomes.get(key),
                shared_by=lists[address].sites if address in lists else (),
            )
        )
    return tuple(found)
