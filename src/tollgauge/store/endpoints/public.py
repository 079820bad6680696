"""Public endpoints: those that a directory lists or once listed, and those that were seen to ask
for payment.

Rules (docs/operating.md, *what is public*):
- anyone can have any URL probed by buying a report on it, so a URL alone says nothing about its
  host: until it is listed or answers 402, only its buyer sees it;
- if unlisted paths of the host answer 402 too, a 402 says nothing either; until that has been
  tried, the endpoint is not public;
- what is not public after a week is removed (store/never_public), unless it is watched.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint import Endpoint
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store.endpoints.endpoint_rows import from_row
from tollgauge.store.endpoints.endpoints import PUBLIC

_ONE: Final = Prepared(
    sa.select(endpoint_table).where(endpoint_table.c.id == sa.bindparam("id"), PUBLIC)
)


def get(tx: Connection, endpoint_id: str) -> Endpoint | None:
    """The endpoint with an id; None for an unknown id and for an endpoint that is not public."""
    row = _ONE.first(tx, {"id": endpoint_id})
    return None if row is None else from_row(row)
