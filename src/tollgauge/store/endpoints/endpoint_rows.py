"""Rows of the table `endpoint` ↔ Endpoint."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.site import site
from tollgauge.core.terms import Quote
from tollgauge.db.codec import texts_from_json, texts_to_json
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows

COLUMNS: Final = endpoint_table.c[
    (
        *(field.name for field in fields(Endpoint) if field.name != "quote"),
        *("quote_network", "quote_asset", "quote_amount", "quote_pay_to", "adopted"),
    )
]
"""What `from_row` reads, two thirds of all."""


def to_row(endpoint: Endpoint) -> dict[str, Any]:
    """An endpoint as column values."""
    quote = endpoint.quote
    return rows.to_columns(
        endpoint,
        "quote",
        site=site(endpoint.host),
        status=endpoint.status.value,
        tags=texts_to_json(endpoint.tags),
        sources=texts_to_json(endpoint.sources),
        quote_network=quote.network if quote else None,
        quote_asset=quote.asset if quote else None,
        quote_amount=str(quote.amount) if quote else None,
        quote_pay_to=quote.pay_to if quote else None,
    )


def from_row(row: Any) -> Endpoint:
    """The inverse of `to_row`."""
    return rows.from_columns(
        Endpoint,
        row,
        status=Listing.UNLISTED if row.adopted else Listing(row.status),
        tags=texts_from_json(row.tags),
        sources=texts_from_json(row.sources),
        quote=quote_from_row(row),
    )


def quote_from_row(row: Any) -> Quote | None:
    """The price in a row of endpoints, None without one."""
    if row.quote_network is None:
        return None
    return Quote(
        network=row.quote_network,
        asset=row.quote_asset,
        amount=int(row.quote_amount),
        pay_to=row.quote_pay_to,
    )


def host_row(host: str) -> dict[str, str]:
    """A host that is not known yet as column values of `host`."""
    return {"host": host, "site": site(host)}
