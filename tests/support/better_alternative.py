"""An endpoint that is a better alternative to another one, for tests that buy `/v1/similar`."""

from __future__ import annotations

from dataclasses import replace

from tests.support.score_rows import stored_score

from tollgauge.core.endpoint.identity import Listing, endpoint_id
from tollgauge.core.score.evidence import Evidence
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores

_HOST = "better-alternative.example"


async def add_better_alternative(store: Store, resource: str, *, now: int) -> None:
    """Store an endpoint like a known one, on another host and with a score of 99; once at most."""
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
    empty = scoring.scored("", Evidence(resource="", as_of=now, first_seen=now))
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
