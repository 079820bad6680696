"""Improvements: what would raise the latest score of an endpoint, from the evidence it names."""

from __future__ import annotations

from sqlalchemy import Connection

from tollgauge.core.evidence import from_json
from tollgauge.core.improvement import Improvement, improvements
from tollgauge.core.policy import POLICIES
from tollgauge.store.endpoints import scores


def improvements_of(tx: Connection, endpoint_id: str) -> tuple[Improvement, ...]:
    """What would raise the latest score of an endpoint; empty without one. It takes as long as
    scoring it several times.
    """
    row = scores.get(tx, endpoint_id)
    policy = None if row is None else POLICIES.get(row.policy_version)
    return () if row is None or policy is None else improvements(from_json(row.evidence), policy)
