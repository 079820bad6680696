"""Lists of endpoints, with the figures that a list shows. Those of the scores are columns of the
endpoints' own rows (store/scores/scores), so that a list reads no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.score import Down
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import RANKED
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import down_from_row, quote_from_row
from tollgauge.store.endpoints.endpoints import PUBLIC
from tollgauge.store.lists.ranking import BEST_FIRST, behind

_ROWS: Final = sa.select(
    *endpoint_table.c["id", "resource", "host", "first_seen", "simulated"],
    *endpoint_table.c["quote_network", "quote_asset", "quote_amount", "quote_pay_to"],
    *endpoint_table.c["ranked_score", "ranked_confidence", "ranked_grade"],
    *endpoint_table.c["ranked_recommendation", "ranked_uptime", "ranked_latency"],
    *endpoint_table.c["ranked_down_since", "ranked_down_reason", "ranked_down_confirmed"],
)

_WHOLE: Final = PreparedAny(
    lambda ids: _ROWS.add_columns(
        *endpoint_table.c["status", "adopted", "last_probed", "service_name", "description"],
        endpoint_table.c.ranked_payable_24h,
    ).where(endpoint_table.c.id.in_(ids), PUBLIC)
)
_OF_HOST: Final = _ROWS.where(endpoint_table.c.host == sa.bindparam("host"), PUBLIC).limit(
    sa.bindparam("limit", type_=sa.Integer)
)
_WITH_SCORE: Final = _OF_HOST.where(endpoint_table.c.ranked_score.is_not(None)).order_by(
    endpoint_table.c.ranked_score.desc(), endpoint_table.c.id.desc()
)
_WITHOUT_SCORE: Final = _OF_HOST.where(endpoint_table.c.ranked_score.is_(None)).order_by(
    endpoint_table.c.id.desc()
)
_SCORED: Final = Prepared(_WITH_SCORE)
_SCORED_BEHIND: Final = Prepared(
    _WITH_SCORE.where(
        sa.tuple_(endpoint_table.c.ranked_score, endpoint_table.c.id)
        < sa.tuple_(sa.bindparam("score", type_=sa.Integer), sa.bindparam("id", type_=sa.Text))
    )
)
_UNSCORED: Final = Prepared(_WITHOUT_SCORE)
_UNSCORED_BEHIND: Final = Prepared(_WITHOUT_SCORE.where(endpoint_table.c.id < sa.bindparam("id")))
_OF_PAY_TO: Final = Prepared(
    sa.select(endpoint_table.c.id)
    .where(endpoint_table.c.quote_pay_to == sa.bindparam("pay_to"), PUBLIC)
    .order_by(endpoint_table.c.ranked_score.desc().nulls_last(), endpoint_table.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_PLACE: Final = Prepared(
    sa.select(endpoint_table.c.id, endpoint_table.c.ranked_score).where(
        endpoint_table.c.id == sa.bindparam("id"), endpoint_table.c.host == sa.bindparam("host")
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEndpoint:
    """An endpoint as a row of a list. `first_seen` is ms UTC; `ranked_score` and `ranked_uptime`
    are tenths, `ranked_confidence` hundredths, `ranked_latency` milliseconds; None while it has no
    score. `down` is the outage that its score names.
    """

    id: str
    resource: str
    host: str
    first_seen: int
    simulated: bool
    quote: Quote | None
    ranked_score: int | None
    ranked_confidence: int | None
    ranked_grade: str | None
    ranked_recommendation: str | None
    ranked_uptime: int | None
    ranked_latency: int | None
    down: Down | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedEndpoint(ListedEndpoint):
    """The same with what its provider says of it, the end of its last probe (ms UTC), and the
    chance that it is payable in 24 hours (thousandths); None while nothing was measured.
    """

    status: Listing
    last_probed: int | None
    service_name: str
    description: str
    ranked_payable_24h: int | None = None


def described(tx: Connection, ids: Sequence[str]) -> dict[str, DescribedEndpoint]:
    """The public ones of some endpoints, by id."""
    return {
        row.id: rows.from_columns(
            DescribedEndpoint,
            row,
            status=Listing.UNLISTED if row.adopted else Listing(row.status),
            quote=quote_from_row(row),
            down=down_from_row(row),
        )
        for row in _WHOLE.rows(tx, ids)
    }


def of_host(
    tx: Connection, host: str, *, after: str | None = None, limit: int
) -> tuple[ListedEndpoint, ...]:
    """A page of the public endpoints of a host: those with the best scores first, then those
    without; of equal ones those with the greatest ids. `after` is the id of the last endpoint of
    the page before; one that the host does not have gives the first page.
    """
    # Each part is read in the order of its index: a host may have tens of thousands.
    place = _place(tx, host, after)
    if place is None:
        parts = [_SCORED, _UNSCORED]
    elif place.ranked_score is None:
        parts = [_UNSCORED_BEHIND]
    else:
        parts = [_SCORED_BEHIND, _UNSCORED]
    last = {} if place is None else {"score": place.ranked_score, "id": place.id}
    listed: list[ListedEndpoint] = []
    for part in parts:
        values = {"host": host, "limit": limit - len(listed), **last}
        listed += map(_from_row, part.rows(tx, values))
        if len(listed) == limit:
            break
    return tuple(listed)


def ids_of_pay_to(tx: Connection, pay_to: str, *, limit: int) -> tuple[str, ...]:
    """The ids of the public endpoints that ask to be paid at an address, the best scores first."""
    return tuple(row.id for row in _OF_PAY_TO.rows(tx, {"pay_to": pay_to, "limit": limit}))


def page(
    tx: Connection, *, after: tuple[int, int, str] | None, limit: int
) -> tuple[ListedEndpoint, ...]:
    """A page of the ranked population, best first: those behind a (score, confidence, id)."""
    query = _ROWS.where(RANKED).order_by(*BEST_FIRST).limit(limit)
    if after is not None:
        query = query.where(behind(after))
    return tuple(map(_from_row, tx.execute(query)))


def _place(tx: Connection, host: str, endpoint_id: str | None) -> Any:
    """The score and id of an endpoint of a host; None for an unknown id."""
    if endpoint_id is None:
        return None
    return _PLACE.first(tx, {"id": endpoint_id, "host": host})


def _from_row(row: Any) -> ListedEndpoint:
    return rows.from_columns(
        ListedEndpoint, row, quote=quote_from_row(row), down=down_from_row(row)
    )
