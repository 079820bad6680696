"""Payments to addresses that several endpoints name, by endpoint (core/chain/shared_pay_to).

The index loop computes them together with the demand of the chain, because the builder codes and
amounts of a thousand payments are too many to read for each report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import WINDOW_MS, address_bytes, chain_number, network_of
from tollgauge.core.chain.shared_pay_to import (
    PAYMENTS_MAX,
    PaymentGroup,
    SharedPayTo,
    attribute_payments,
)
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows
from tollgauge.store.chain.transfers import transfer
from tollgauge.store.chain.wallets import chain_wallet, offered_address
from tollgauge.store.endpoints.endpoints import PUBLIC

# Rows of deleted endpoints disappear with the next measurement.
SHARED: Final = rows.ChainResults(
    "shared_pay_to", sa.Column("endpoint_id", sa.Text, primary_key=True), SharedPayTo
)

_COLUMNS: Final = endpoint_table.c["id", "offers"]
_QUOTING: Final = sa.select(endpoint_table.c.quote_pay_to.label("pay_to"), *_COLUMNS).where(
    endpoint_table.c.quote_network == sa.bindparam("network"),
    rows.any_of(endpoint_table.c.quote_pay_to),
    PUBLIC,
)
_OFFERING: Final = (
    sa.select(offered_address.c.pay_to, *_COLUMNS)
    .join_from(offered_address, endpoint_table)
    .where(
        offered_address.c.network == sa.bindparam("network"),
        rows.any_of(offered_address.c.pay_to),
        PUBLIC,
    )
)


def _newest() -> sa.Select[tuple[int, str, int]]:
    newest = (
        sa.select(transfer.c.value, transfer.c.app_code)
        .where(
            transfer.c.chain == sa.bindparam("chain"),
            transfer.c.wallet == sa.bindparam("wallet"),
            transfer.c.at > sa.bindparam("after"),
            transfer.c.incoming,
        )
        .order_by(transfer.c.at.desc())
        .limit(PAYMENTS_MAX)
        .subquery()
    )
    group = (newest.c.value, newest.c.app_code)
    return sa.select(*group, sa.func.count()).group_by(*group)


_GROUPS: Final = _newest()


def list_addresses(tx: Connection, chain: int) -> list[str]:
    """Return the indexed addresses of a chain in order."""
    address = chain_wallet.c.address
    query = sa.select(address).where(chain_wallet.c.chain == chain).order_by(address)
    return list(tx.execute(query).scalars())


def measure(
    tx: Connection, chain: int, pay_tos: Sequence[str], *, as_of: int
) -> dict[str, SharedPayTo]:
    """Return the figures of the endpoints whose quote names one of these addresses, by endpoint ID,
    if others name it too and it was paid.
    """
    network = network_of(chain)
    offers: dict[str, dict[str, list[KnownOffer]]] = {}
    quoting: dict[str, str] = {}
    for query in (_QUOTING, _OFFERING):
        for row in rows.with_any(tx, query, pay_tos, network=network):
            place = (network, row.pay_to)
            named = [one for one in row.offers if (one.network, one.pay_to) == place]
            # A quote of a directory that no 402 has confirmed yet: any amount is possible.
            unknown = KnownOffer(network, "exact", row.pay_to, None)
            offers.setdefault(row.pay_to, {})[row.id] = named or [unknown]
            if query is _QUOTING:
                quoting[row.id] = row.pay_to
    shared = {pay_to: of_one for pay_to, of_one in offers.items() if len(of_one) > 1}
    found: dict[str, SharedPayTo] = {}
    for pay_to, of_one in shared.items():
        window = {"wallet": address_bytes(pay_to), "after": as_of - WINDOW_MS}
        groups = [
            PaymentGroup._make(row) for row in tx.execute(_GROUPS, {"chain": chain, **window})
        ]
        payments = sum(group.payments for group in groups)
        for id_, (certain, possible) in attribute_payments(groups, of_one).items():
            if payments and quoting.get(id_) == pay_to:
                found[id_] = SharedPayTo(
                    pay_to=pay_to,
                    endpoints=len(of_one),
                    payments=payments,
                    certain=certain,
                    possible=possible,
                )
    return found


def get(tx: Connection, endpoint_id: str, quote: Quote | None) -> SharedPayTo | None:
    """Return the figures of an endpoint; None if no other endpoint names the address of its
    quote, or if they were measured for another address.
    """
    chain = chain_number(quote.network) if quote else None
    if quote is None or chain is None:
        return None
    figures = SHARED.load(tx, chain, (endpoint_id,)).get(endpoint_id)
    return figures if figures and figures.pay_to == quote.pay_to else None
