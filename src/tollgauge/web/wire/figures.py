"""Figures: the integers of the read side as decimals, dollars and ISO times."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tollgauge.core.base.units import DAY_MS, date_of


def tenths(value: int | None) -> Any:
    """Tenths of a point or percent as a number with one decimal."""
    return None if value is None else value / 10


def permille(value: int | None) -> float | None:
    """Thousandths as a share from 0 to 1."""
    return None if value is None else value / 1000


def micro_usd(value: int | None) -> Any:
    """Millionths of a dollar as dollars with six decimals."""
    return None if value is None else value / 1_000_000


def iso(at: int | None) -> Any:
    """An instant as ISO 8601 UTC with `Z`, in whole seconds unless it has milliseconds."""
    if at is None:
        return None
    day_number, of_day = divmod(at, DAY_MS)
    seconds, ms = divmod(of_day, 1_000)
    time = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_date(day_number)}T{time}.{ms:03d}Z" if ms else f"{_date(day_number)}T{time}Z"


def day(at: int) -> str:
    """An instant as its UTC date."""
    return _date(at // DAY_MS)


@lru_cache(maxsize=1_024)
def _date(day_number: int) -> str:
    """A UTC day as its date; answers name the same few days again and again."""
    return date_of(day_number).isoformat()
