"""Endpoints with figures: rows, one with a better alternative, and complete reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
from tests.support.score_rows import stored_score

from docs.response_examples import sample_report
from tollgauge.core.endpoint.identity import Listing, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lists.columns import ColumnBuilder, Columns
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.similarity.similarity_index import SimilarityIndex
from tollgauge.core.similarity.tokenizer import TermTable, WeightedTerms
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores
from tollgauge.web.wire.examples import BASE_URL
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import trust_report

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"


def quote(
    price: int | None, pay_to: str | None = None, network: str = "eip155:8453"
) -> Quote | None:
    """Return an offer with a price in millionths of a dollar; None: a price in another token."""
    if price is None and pay_to is None:
        return None
    asset = "0x01" if price is None else USDC
    return Quote(network=network, asset=asset, amount=price or 0, pay_to=pay_to or "")


def make_rated(
    name: str,
    *,
    host: str | None = None,
    price: int | None = None,
    pay_to: str | None = None,
    **values: object,
) -> RatedEndpoint:
    known = {"first_seen": 0, "resource": f"https://{name}.example/", **values}
    return RatedEndpoint(
        id=name,
        host=host or f"{name}.example",
        quote=quote(price, pay_to),
        **known,  # type: ignore[arg-type]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedEndpoint:
    endpoint: RatedEndpoint
    terms: WeightedTerms
    embedding: bytes = b""


def build_columns(rows: Iterable[RatedEndpoint]) -> Columns:
    builder = ColumnBuilder()
    builder.add(rows)
    return Columns(builder)


def build_index(entries: Iterable[IndexedEndpoint]) -> SimilarityIndex:
    known, table = list(entries), TermTable()
    for entry in known:
        table.append(entry.terms)
    packed = b"".join(entry.embedding for entry in known)
    vectors = np.frombuffer(packed, np.float16).reshape(len(known), -1) if packed else None
    return SimilarityIndex(build_columns(entry.endpoint for entry in known), table, vectors)


_HOST = "better-alternative.example"


async def add_better_alternative(store: Store, resource: str, *, now: int) -> None:
    """Store an endpoint like a known one, on another host and with a score of 99; at most once."""
    known = await store.reading(endpoints.get, endpoint_id(resource))
    assert known is not None
    url = resource.replace(known.host, _HOST)
    if await store.reading(endpoints.get, endpoint_id(url)) is not None:
        return
    better = replace(
        known,
        id=endpoint_id(url),
        resource=url,
        host=_HOST,
        quote=None,
        status=Listing.LISTED,
    )
    empty = scoring.score_evidence("", Evidence(resource="", as_of=now, first_seen=now))
    score = stored_score(
        better.id,
        990,
        as_of=now,
        grade="A",
        recommendation="proceed",
        confidence_hundredths=100,
        uptime_tenths=1000,
        compliant=True,
        evidence=empty.evidence,
        result=empty.result,
    )
    await store.writing(endpoints.insert, better)
    await store.writing(scores.save, score)


def whole_report() -> Any:
    """Return the report as JSON value."""
    return orjson.loads(dump(trust_report(sample_report(), base_url=BASE_URL)))
