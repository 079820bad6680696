"""A score keeps what the probes of its day add up to, and an endpoint how often its probes were
recorded late or attributed anew; of the time of closed days only its weighted sums are kept.

A score of before keeps no sums until the next one. Closed days are packed anew, about ten seconds
of 100,000 endpoints.
"""

from __future__ import annotations

import orjson
import sqlalchemy as sa
from alembic import op

from tollgauge.db.compression import compress, decompress

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_ROWS = sa.text(
    "SELECT endpoint_id, day, closed FROM probe_window WHERE endpoint_id > :after"
    " ORDER BY endpoint_id LIMIT 1000"
)
_WEIGHED = sa.text("UPDATE probe_window SET closed = :closed WHERE endpoint_id = :id").bindparams(
    sa.bindparam("closed", type_=sa.LargeBinary)
)
_DAY_WEIGHTS = (
    *(1_000, 906, 820, 743, 673, 610, 552, 500, 453, 410, 371, 336, 305, 276, 250, 226),
    *(205, 186, 168, 152, 138, 125, 113, 103, 93, 84, 76, 69, 63, 57, 51),
)
"""Those of policy 2, by the age of a day."""


def upgrade() -> None:
    op.add_column("score", sa.Column("open_day", sa.LargeBinary()))
    op.add_column("score", sa.Column("open_day_newest", sa.BigInteger()))
    for table in ("score", "endpoint"):
        revised = sa.Column("probes_revised", sa.Integer(), nullable=False, server_default="0")
        op.add_column(table, revised)
    connection = op.get_bind()
    after = ""
    while rows := connection.execute(_ROWS, {"after": after}).all():
        connection.execute(_WEIGHED, [_weighed(*row) for row in rows])
        after = rows[-1][0]


def _weighed(endpoint_id: str, day: int, packed: bytes) -> dict[str, object]:
    """The closed days of an endpoint, of which the newest is `day`, with the sums of their up, down
    and compliance, each times the weight that its day has on the day after.
    """
    numbers, times, *rest = orjson.loads(decompress(bytes(packed)))
    weights = [_DAY_WEIGHTS[day + 1 - number] for number in numbers]
    weighted = [
        sum(time * weight for time, weight in zip(column, weights, strict=True))
        for column in times or ((), (), ())
    ]
    return {"id": endpoint_id, "closed": compress(orjson.dumps((weighted, *rest)))}
