"""The cases that every payment guard must agree on (guard/cases), with what the service makes of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.guard.bundle import PaidAddress, TrustRecord

CASES_FOLDER: Final = Path(__file__).parents[2] / "guard/cases"


def record_of(row: Sequence[Any], resource: str = "") -> TrustRecord:
    """The record of a line of the bundle."""
    _, recommendation, grade, score, addresses, network, amount, flags, as_of = row
    return TrustRecord(
        resource=resource,
        recommendation=recommendation,
        grade=grade,
        score_tenths=None if score is None else round(score * 10),
        addresses=tuple(PaidAddress(pay_to=to, since=at * SECOND_MS) for to, at in addresses),
        network=network,
        amount=None if amount is None else int(amount),
        flags=tuple(flags),
        as_of=as_of * SECOND_MS,
    )
