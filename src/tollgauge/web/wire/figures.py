"""Figures: the integers of the read side as decimals, dollars and ISO times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


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
    text = datetime.fromtimestamp(at // 1000, UTC).isoformat()[: len("2026-01-01T00:00:00")]
    return f"{text}.{at % 1000:03d}Z" if at % 1000 else f"{text}Z"


def day(at: int) -> str:
    """An instant as its UTC date."""
    return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d")


def minute(at: int) -> str:
    """An instant to the minute, as snapshots show it."""
    return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
