"""Convert rows of the table `endpoint` to Endpoint and back."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any, Final

import orjson

from tollgauge.core.endpoint.identity import Endpoint, Listing, site
from tollgauge.core.endpoint.terms import PayToHistory, Quote
from tollgauge.db.codec import texts_from_json, texts_to_json
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows

COLUMNS: Final = endpoint_table.c[
    (
        *(field.name for field in fields(Endpoint) if field.name != "quote"),
        *("quote_network", "quote_asset", "quote_amount", "quote_pay_to", "adopted"),
    )
]
"""The columns that `from_row` reads, two thirds of all."""


def to_row(endpoint: Endpoint) -> dict[str, Any]:
    """Return an endpoint as column values."""
    quote = endpoint.quote
    return rows.to_columns(
        endpoint,
        "quote",
        site=site(endpoint.host),
        status=endpoint.status.value,
        forms=texts_to_json(endpoint.forms),
        payto_history=_history_to_json(endpoint.payto_history),
        tags=texts_to_json(endpoint.tags),
        sources=texts_to_json(endpoint.sources),
        quote_network=quote.network if quote else None,
        quote_asset=quote.asset if quote else None,
        quote_amount=str(quote.amount) if quote else None,
        quote_pay_to=quote.pay_to if quote else None,
    )


def from_row(row: Any) -> Endpoint:
    """Build an endpoint from a row."""
    # Not `rows.from_columns`, which takes half as long again: every score and probe reads a row.
    return Endpoint(
        id=row.id,
        resource=row.resource,
        host=row.host,
        query=row.query,
        method=row.method,
        body=row.body,
        learned=row.learned,
        status=Listing.UNLISTED if row.adopted else Listing(row.status),
        first_seen=row.first_seen,
        last_seen=row.last_seen,
        last_probed=row.last_probed,
        next_due=row.next_due,
        watched_until=row.watched_until,
        paused_until=row.paused_until,
        asked_at=row.asked_at,
        listing_changed_at=row.listing_changed_at,
        down_since=row.down_since,
        payable=row.payable,
        failing_since=row.failing_since,
        payable_since=row.payable_since,
        unconfirmed_at=row.unconfirmed_at,
        forms=texts_from_json(row.forms),
        payto_history=None
        if row.payto_history is None
        else PayToHistory(*orjson.loads(row.payto_history)),
        service_name=row.service_name,
        description=row.description,
        tags=texts_from_json(row.tags),
        sources=texts_from_json(row.sources),
        quote=quote_from_row(row),
        quote_at=row.quote_at,
        templated=row.templated,
        simulated=row.simulated,
    )


def _history_to_json(history: PayToHistory | None) -> str | None:
    return None if history is None else orjson.dumps(astuple(history)).decode()


def quote_from_row(row: Any) -> Quote | None:
    """Return the price in a row, or None."""
    if row.quote_network is None:
        return None
    return Quote(
        network=row.quote_network,
        asset=row.quote_asset,
        amount=int(row.quote_amount),
        pay_to=row.quote_pay_to,
    )


def host_row(host: str) -> dict[str, str]:
    """Return the column values of a new host."""
    return {"host": host, "site": site(host)}
