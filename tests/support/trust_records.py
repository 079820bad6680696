"""Endpoints with a price, a score and changes of their payTo, as the service stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import zstandard
from sqlalchemy import Connection
from tests.support import score_rows
from tests.support.score_rows import NOW, row

from tollgauge.core.base.units import BASE, DAY_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.guard.bundle import Bundle
from tollgauge.db.engine import Store
from tollgauge.monitor import terms
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.endpoints.listings import DiscoveryEvent
from tollgauge.store.scores import scores

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0xa")


def priced(path: str, **changes: Any) -> Endpoint:
    """A listed endpoint with a price."""
    known: dict[str, Any] = {"sources": ("cdp",), "quote": QUOTE, "quote_at": NOW - 90 * DAY_MS}
    return replace(score_rows.endpoint(path), **(known | changes))


async def add(store: Store, *added: Endpoint, adopted: bool = False) -> None:
    await store.writing(endpoints.insert, *added, adopted=adopted)


async def scored(
    store: Store, path: str, tenths: int, *flags: str, recommendation: str = "proceed"
) -> None:
    """Give an endpoint its score, with these flags."""
    await store.writing(save_score, path, tenths, *flags, recommendation=recommendation)


async def paid_to(store: Store, path: str, pay_to: str, *, at: int) -> None:
    """A probe sees an endpoint ask to be paid at an address."""
    await store.writing(save_pay_to, path, pay_to, at=at)


def save_score(
    tx: Connection, path: str, tenths: int, *flags: str, recommendation: str = "proceed"
) -> None:
    result = {"stats": {"avg_latency_ms": 90}, "flags": [{"code": code} for code in flags]}
    scores.save(tx, row(path, tenths, recommendation=recommendation, result=orjson.dumps(result)))


def save_pay_to(tx: Connection, path: str, pay_to: str, *, at: int) -> None:
    quote = replace(QUOTE, pay_to=pay_to)
    terms.observe_quotes(tx, {score_rows.endpoint(path).id: (quote, at)})


def listed_with(
    tx: Connection, path: str, before: str, after: str, *, source: str, at: int
) -> None:
    """A directory names another address than before."""
    event = DiscoveryEvent(at=at, event=PAYTO_CHANGED, source=source, before=before, after=after)
    listings.add_events(tx, [(score_rows.endpoint(path).id, event)])


def content(body: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
    """The header and the records of a bundle's bytes."""
    header, *records = zstandard.ZstdDecompressor().decompress(body).splitlines()
    return orjson.loads(header), [orjson.loads(record) for record in records]


def records_of(bundles: Sequence[Bundle]) -> list[list[Any]]:
    """The records of the first of some bundles."""
    return content(bundles[0].body)[1]
