"""Rows of vantages: the latest result of each endpoint per vantage, and its next due time there.

Probes of the primary vantage are also in the archive (store/probes/probes); its rows have no
`next_due`. A probe from any vantage needs the lease of the endpoint's host. An endpoint that the
primary vantage asks about (`asked_at`) is due immediately at all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.attribution import LastUp, NetworkProbe, VantageState
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.db.codec import enum_of
from tollgauge.db.schema import ForeignText, metadata
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes.probes import read_last_up, read_network_probe
from tollgauge.store.schedule import hosts

vantage_probe = sa.Table(
    "vantage_probe",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("vantage", sa.Text, primary_key=True),
    sa.Column("primary", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("next_due", sa.BigInteger),
    # When the primary vantage last saw a failure to be confirmed here.
    sa.Column("asked_at", sa.BigInteger),
    # The latest result; NULL before any.
    sa.Column("at", sa.BigInteger),
    sa.Column("outcome", enum_of(Outcome)),
    sa.Column("attribution", enum_of(Attribution)),
    sa.Column("reason", ForeignText),
    sa.Column("status", sa.Integer),
    sa.Column("up", sa.Boolean),
    sa.Column("payable", sa.Boolean),
    sa.Column("latency_ms", sa.Integer),
    # As in `endpoint` (db/schema), seen from this vantage.
    sa.Column("up_at", sa.BigInteger),
    sa.Column("down_since", sa.BigInteger),
    sa.Index("ix_vantage_probe_due", "vantage", "next_due"),
    sa.Index("ix_vantage_probe_at", "vantage", "at"),
    sqlite_with_rowid=False,
)
_OF_ENDPOINTS: Final = sa.select(vantage_probe).where(rows.any_of(vantage_probe.c.endpoint_id))
_AT_VANTAGE: Final = _OF_ENDPOINTS.where(vantage_probe.c.vantage == sa.bindparam("vantage"))
_STATES: Final = _OF_ENDPOINTS.where(vantage_probe.c.at.is_not(None)).order_by(
    vantage_probe.c.primary.desc(), vantage_probe.c.vantage
)
_WATCHED_HERE: Final = sa.and_(
    endpoint_table.c.status == Listing.LISTED, endpoint_table.c.adopted.is_(False)
)
"""Secondary vantages probe only listed endpoints."""
_HOSTS_TRIED: Final = 4  # due rows read per wanted host, because some share a host
_UNKNOWN: Final = LastUp()


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageResult:
    """A result from a vantage with the endpoint's state as seen from there.

    `next_due` is the next probe from there (ms UTC), None for the primary vantage, whose due time
    is in the endpoint's row.
    """

    endpoint_id: str
    result: ProbeResult
    last_up: LastUp = _UNKNOWN
    next_due: int | None = None


def find_unknown(tx: Connection, vantage: str, *, limit: int) -> tuple[str, ...]:
    """Return the IDs of at most `limit` endpoints without a row for a vantage."""
    row = sa.exists().where(
        vantage_probe.c.endpoint_id == endpoint_table.c.id, vantage_probe.c.vantage == vantage
    )
    query = sa.select(endpoint_table.c.id).where(_WATCHED_HERE, ~row).limit(limit)
    return tuple(tx.execute(query).scalars())


def add(tx: Connection, vantage: str, due: Mapping[str, int]) -> None:
    """Add rows of endpoints with the time of their first probe."""
    # A new row locks its endpoint: sorted by ID, like all batches of probes, to avoid deadlocks.
    columns = [
        {"endpoint_id": id_, "vantage": vantage, "next_due": due[id_]} for id_ in sorted(due)
    ]
    rows.add_missing(tx, vantage_probe, columns)


def claim_due(
    tx: Connection, vantage: str, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Claim endpoints that are due at a vantage, at most one per host, most overdue first.

    Their hosts are leased to `owner` until `now + lease_ms`.
    """
    due = (
        sa.select(vantage_probe.c.endpoint_id, host_table.c.host)
        .join(endpoint_table, endpoint_table.c.id == vantage_probe.c.endpoint_id)
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            vantage_probe.c.vantage == vantage,
            vantage_probe.c.next_due <= now,
            endpoint_table.c.paused_until <= now,
            host_table.c.free_at <= now,
            hosts.is_unleased(now),
            _WATCHED_HERE,
        )
        .order_by(vantage_probe.c.next_due, vantage_probe.c.endpoint_id)
        .limit(_HOSTS_TRIED * limit)
        # SKIP LOCKED: another worker may be claiming the same hosts; it gets different ones.
        .with_for_update(skip_locked=True, of=host_table)
    )
    by_host: dict[str, str] = {}
    for row in tx.execute(due):
        if len(by_host) < limit:
            by_host.setdefault(row.host, row.endpoint_id)
    if not by_host:
        return ()
    leased = hosts.lease_free(tx, by_host, owner=owner, now=now, lease_ms=lease_ms)
    return tuple(endpoints.get_many(tx, [by_host[host] for host in leased]).values())


def save(tx: Connection, vantage: str, results: Sequence[VantageResult]) -> None:
    """Replace the results of a secondary vantage."""
    rows.put(tx, vantage_probe, [_columns(vantage, saved) for saved in results])


def save_primary(tx: Connection, vantage: str, results: Sequence[VantageResult]) -> None:
    """Replace the results of the primary vantage. A previous primary vantage becomes secondary."""
    rows.put(tx, vantage_probe, [_columns(vantage, saved) | {"primary": True} for saved in results])
    ids = [saved.endpoint_id for saved in results]
    others = (vantage_probe.c.vantage != vantage, vantage_probe.c.primary.is_(True))
    tx.execute(
        vantage_probe.update()
        .where(vantage_probe.c.endpoint_id.in_(ids), *others)
        .values(primary=False)
    )


def ask(tx: Connection, ids: Iterable[str], *, now: int) -> None:
    """Make endpoints due at all other vantages, because the primary one saw a failure."""
    for chunk in rows.chunks(sorted(set(ids))):
        tx.execute(
            vantage_probe.update()
            .where(vantage_probe.c.endpoint_id.in_(chunk), vantage_probe.c.next_due.is_not(None))
            .values(asked_at=now, next_due=rows.least(vantage_probe.c.next_due, now))
        )


def load_request_times(tx: Connection, vantage: str, ids: Iterable[str]) -> dict[str, int | None]:
    """Return when the primary vantage last asked this one about endpoints, by ID."""
    known = rows.with_any(tx, _AT_VANTAGE, set(ids), vantage=vantage)
    return {row.endpoint_id: row.asked_at for row in known}


def states(tx: Connection, ids: Iterable[str]) -> dict[str, tuple[VantageState, ...]]:
    """Return the latest result of each vantage by endpoint ID, the primary one first, then by name.

    Empty if there never were several vantages.
    """
    known = rows.with_any(tx, _STATES, sorted(set(ids)))
    by_id = rows.group((row.endpoint_id, rows.from_columns(VantageState, row)) for row in known)
    return {id_: tuple(states) for id_, states in by_id.items()}


def load_last_since(tx: Connection, vantage: str, since: int) -> tuple[NetworkProbe, ...]:
    """Return the last probe from a vantage of each endpoint that it probed after a time (ms
    UTC).
    """
    query = (
        sa.select(vantage_probe, endpoint_table.c.host)
        .join(endpoint_table, endpoint_table.c.id == vantage_probe.c.endpoint_id)
        .where(vantage_probe.c.vantage == vantage, vantage_probe.c.at > since)
    )
    return tuple(map(read_network_probe, tx.execute(query)))


def last_up_of(tx: Connection, vantage: str, ids: Iterable[str]) -> dict[str, LastUp]:
    """Return when endpoints were last up as seen from a vantage, by ID."""
    known = rows.with_any(tx, _AT_VANTAGE, set(ids), vantage=vantage)
    return {row.endpoint_id: read_last_up(row) for row in known}


def _columns(vantage: str, saved: VantageResult) -> dict[str, Any]:
    result = saved.result
    names = ("at", "outcome", "attribution", "reason", "status", "up", "payable", "latency_ms")
    return {
        "vantage": vantage,
        **{name: getattr(result, name) for name in names},
        **rows.to_columns(saved, "result", "last_up"),
        **rows.to_columns(saved.last_up),
    }
