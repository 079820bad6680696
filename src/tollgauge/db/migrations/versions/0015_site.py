"""The site of each host: which endpoints have an owner in common."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tollgauge.core.site import site

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_HOST = sa.table("host", sa.column("host", sa.Text), sa.column("site", sa.Text))


def upgrade() -> None:
    op.add_column("host", sa.Column("site", sa.Text(), server_default="", nullable=False))
    known = op.get_bind().execute(sa.select(_HOST.c.host)).scalars().all()
    if known:
        statement = _HOST.update().where(_HOST.c.host == sa.bindparam("host_"))
        rows = [{"host_": host, "site_": site(host)} for host in known]
        op.get_bind().execute(statement.values(site=sa.bindparam("site_")), rows)
    op.create_index("ix_host_site", "host", ["site"])
    op.create_index("ix_endpoint_host_first_seen", "endpoint", ["host", "first_seen"])
