"""Budgets: sums of exposure per account, network and asset, in buckets of five minutes.

A payment counts from its reservation on. A payment that the chain proves dead is returned to its
bucket. The cases are in guard/cases/budgets.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollgauge_guard.decision import Spent
from tollgauge_guard.payment import LOSSES

if TYPE_CHECKING:
    from tollgauge_guard.journal_file import Rows  # which imports this module

BUCKET_S: Final = 300
DAY_S: Final = 86_400
_LIFETIME: Final = "lifetime"
_ALL: Final = "all"
_ADD: Final = """
INSERT INTO budgets (account, network, asset, scope, bucket, spent) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (account, network, asset, scope, bucket)
DO UPDATE SET spent = budgets.spent + excluded.spent
"""
_SUM: Final = """
SELECT coalesce(sum(spent), 0) FROM budgets
WHERE account = ? AND network = ? AND asset = ? AND scope = ? AND bucket >= ?
"""
# One statement: a call reads the budgets twice, and each statement takes the locks of the file.
_SPENT: Final = f"""
SELECT ({_SUM}), ({_SUM}), ({_SUM}), ({_SUM}), coalesce(sum(exposure), 0), count(*)
FROM payments WHERE host = ? AND changed_at > ? AND account = ?
AND state IN ({", ".join(f"'{state}'" for state in LOSSES)})
"""  # noqa: S608 - our names


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Where the exposure of a payment counts. `at` is when it was reserved (unix seconds)."""

    account: str
    network: str
    asset: str
    host: str
    session: str
    at: int


def add_exposure(rows: Rows, where: Exposure, micro_usd: int) -> None:
    """Add an amount to all budgets of a payment; a negative amount gives it back."""
    if micro_usd == 0:
        return
    bucket = where.at // BUCKET_S
    scopes = [(_ALL, bucket), (f"host:{where.host}", bucket), (_LIFETIME, 0)]
    if where.session:
        scopes.append((f"session:{where.session}", 0))
    account = (where.account, where.network, where.asset)
    rows.executemany(_ADD, [(*account, scope, index, micro_usd) for scope, index in scopes])


def load_spent(rows: Rows, where: Exposure) -> Spent:
    """Return the spent amounts at `where.at`, from at most 290 rows per budget."""
    now, account = where.at, (where.account, where.network, where.asset)
    first = first_bucket(now)
    scopes = [(f"host:{where.host}", first), (_ALL, first)]
    scopes += [(f"session:{where.session}", 0), (_LIFETIME, 0)]
    values = [value for scope in scopes for value in (*account, *scope)]
    values += [where.host, now - DAY_S, where.account]
    host, day, session, lifetime, lost, losses = map(int, rows.execute(_SPENT, values).fetchone())
    return Spent(host=host, day=day, session=session, lifetime=lifetime, lost=lost, losses=losses)


def first_bucket(now: int) -> int:
    """Return the oldest bucket that is at least partly less than 24 hours old."""
    return (now - DAY_S) // BUCKET_S if now >= DAY_S else 0
