"""What the closed days add up to apart from their texts, which a score keeps as they are; scores
without the digest of their evidence, which is computed when a report names it.

It packs one row an endpoint anew: about ten seconds of 100,000 endpoints. Scores of before keep
their whole evidence until the next one.
"""

from __future__ import annotations

import orjson
import sqlalchemy as sa
from alembic import op

from tollgauge.db.compression import compress, decompress

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_ROWS = sa.text(
    "SELECT endpoint_id, closed FROM probe_window WHERE endpoint_id > :after"
    " ORDER BY endpoint_id LIMIT 1000"
)
_SPLIT = sa.text(
    "UPDATE probe_window SET closed = :closed, texts = :texts WHERE endpoint_id = :id"
).bindparams(sa.bindparam("closed", type_=sa.LargeBinary))
_NAMED = """
UPDATE score SET named_at = evidence.named_at FROM evidence WHERE evidence.digest = score.digest
"""


def upgrade() -> None:
    connection = op.get_bind()
    empty = sa.text("''" if connection.dialect.name == "postgresql" else "x''")
    texts = sa.Column("texts", sa.LargeBinary(), nullable=False, server_default=empty)
    op.add_column("probe_window", texts)
    after = ""
    while rows := connection.execute(_ROWS, {"after": after}).all():
        connection.execute(_SPLIT, [_split(id_, bytes(closed)) for id_, closed in rows])
        after = rows[-1][0]
    op.add_column("score", sa.Column("closed_days", sa.LargeBinary()))
    op.add_column("score", sa.Column("named_at", sa.BigInteger()))
    op.execute(sa.text(_NAMED))
    op.drop_column("score", "digest")


def _split(endpoint_id: str, packed: bytes) -> dict[str, object]:
    """The sums and the texts of closed days, which were one text. Of the spans by day only what a
    score weighs stays: up, down and compliance.
    """
    head, _, texts = decompress(packed).partition(b"\n")
    numbers, spans, *rest = orjson.loads(head)
    up, _, down, compliance, *_ = spans or ((),) * 6
    closed = orjson.dumps((numbers, (up, down, compliance), *rest))
    return {"id": endpoint_id, "closed": compress(closed), "texts": compress(texts)}
