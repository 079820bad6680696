"""Rows of the table `endpoint` ↔ Endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.terms import Quote
from tollgauge.db.codec import texts_from_json, texts_to_json


def to_row(endpoint: Endpoint) -> dict[str, Any]:
    """An endpoint as column values."""
    quote = endpoint.quote
    return {
        "id": endpoint.id,
        "resource": endpoint.resource,
        "host": endpoint.host,
        "query": endpoint.query,
        "method": endpoint.method,
        "body": endpoint.body,
        "learned": endpoint.learned,
        "status": endpoint.status.value,
        "first_seen": endpoint.first_seen,
        "last_seen": endpoint.last_seen,
        "last_probed": endpoint.last_probed,
        "next_due": endpoint.next_due,
        "watched_until": endpoint.watched_until,
        "service_name": endpoint.service_name,
        "description": endpoint.description,
        "tags": texts_to_json(endpoint.tags),
        "sources": texts_to_json(endpoint.sources),
        "quote_at": endpoint.quote_at,
        "templated": endpoint.templated,
        "simulated": endpoint.simulated,
    } | quote_columns(quote)


def quote_columns(quote: Quote | None) -> dict[str, str | None]:
    """A quote as column values."""
    return {
        "quote_network": quote.network if quote else None,
        "quote_asset": quote.asset if quote else None,
        "quote_amount": str(quote.amount) if quote else None,
        "quote_pay_to": quote.pay_to if quote else None,
    }


def from_row(row: Mapping[Any, Any]) -> Endpoint:
    """The inverse of `to_row`."""
    return Endpoint(
        id=row["id"],
        resource=row["resource"],
        host=row["host"],
        query=row["query"],
        method=row["method"],
        body=row["body"],
        learned=row["learned"],
        status=Listing.UNLISTED if row["adopted"] else Listing(row["status"]),
        first_seen=row["first_seen"],
        last_seen=row["last_seen"],
        last_probed=row["last_probed"],
        next_due=row["next_due"],
        watched_until=row["watched_until"],
        service_name=row["service_name"],
        description=row["description"],
        tags=texts_from_json(row["tags"]),
        sources=texts_from_json(row["sources"]),
        quote=quote_from_row(row),
        quote_at=row["quote_at"],
        templated=row["templated"],
        simulated=row["simulated"],
    )


def quote_from_row(row: Mapping[Any, Any]) -> Quote | None:
    """The inverse of `quote_columns`."""
    if row["quote_network"] is None:
        return None
    return Quote(
        network=row["quote_network"],
        asset=row["quote_asset"],
        amount=int(row["quote_amount"]),
        pay_to=row["quote_pay_to"],
    )
