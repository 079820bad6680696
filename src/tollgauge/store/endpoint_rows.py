"""Convert rows of the table `endpoint` to Endpoint and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from tollgauge.core.endpoint.identity import Endpoint, Listing, site
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows

QUOTE: Final = ("quote_network", "quote_asset", "quote_amount", "quote_pay_to")
COLUMNS: Final = endpoint_table.c[
    (
        *(field.name for field in fields(Endpoint) if field.name != "quote"),
        *QUOTE,
        "adopted",
    )
]
"""The columns that `from_row` reads, two thirds of all."""


def to_row(endpoint: Endpoint) -> dict[str, Any]:
    """Return an endpoint as column values."""
    quote = {name: getattr(endpoint.quote, name.removeprefix("quote_"), None) for name in QUOTE}
    return rows.to_columns(endpoint, "quote", site=site(endpoint.host), **quote)


def from_row(row: Any) -> Endpoint:
    """Build an endpoint from a row."""
    status = Listing.UNLISTED if row.adopted else Listing(row.status)
    return rows.from_columns(Endpoint, row, status=status, quote=quote_from_row(row))


def quote_from_row(row: Any) -> Quote | None:
    """Return the price in a row, or None."""
    if row.quote_network is None:
        return None
    return Quote(
        network=row.quote_network,
        asset=row.quote_asset,
        amount=row.quote_amount,
        pay_to=row.quote_pay_to,
    )


def host_row(host: str) -> dict[str, str]:
    """Return the column values of a new host."""
    return {"host": host, "site": site(host)}
