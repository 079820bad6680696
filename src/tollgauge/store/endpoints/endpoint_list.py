"""Lists of endpoints, with the figures that a list shows. Those of the scores are columns of the
endpoints' own rows (store/endpoints/scores), so that a list reads no score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.terms import Quote
from tollgauge.db.schema import RANKED
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows
from tollgauge.store.endpoints.endpoint_rows import quote_from_row
from tollgauge.store.endpoints.endpoints import best_of_host
from tollgauge.store.endpoints.ranking import BEST_FIRST, behind

_ROWS: Final = sa.select(
    *endpoint_table.c["id", "resource", "host", "simulated"],
    *endpoint_table.c["quote_network", "quote_asset", "quote_amount", "quote_pay_to"],
    *endpoint_table.c["ranked_score", "ranked_confidence", "ranked_grade"],
    *endpoint_table.c["ranked_recommendation", "ranked_uptime", "ranked_latency"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEndpoint:
    """An endpoint as a row of a list. `ranked_score` and `ranked_uptime` are tenths,
    `ranked_confidence` hundredths, `ranked_latency` milliseconds; None while it has no score.
    """

    id: str
    resource: str
    host: str
    simulated: bool
    quote: Quote | None
    ranked_score: int | None
    ranked_confidence: int | None
    ranked_grade: str | None
    ranked_recommendation: str | None
    ranked_uptime: int | None
    ranked_latency: int | None


def of_host(tx: Connection, host: str, *, limit: int) -> tuple[ListedEndpoint, ...]:
    """Public endpoints of a host, in the order of `endpoints.best_of_host`."""
    return tuple(map(_from_row, best_of_host(tx, _ROWS, host, limit=limit)))


def page(
    tx: Connection, *, after: tuple[int, int, str] | None, limit: int
) -> tuple[ListedEndpoint, ...]:
    """A page of the ranked population, best first: those behind a (score, confidence, id)."""
    query = _ROWS.where(RANKED).order_by(*BEST_FIRST).limit(limit)
    if after is not None:
        query = query.where(behind(after))
    return tuple(map(_from_row, tx.execute(query)))


def _from_row(row: Any) -> ListedEndpoint:
    return rows.from_columns(ListedEndpoint, row, quote=quote_from_row(row))
