"""A record is a frozen dataclass to mypy, and compares like one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tollgauge.core.record import record


@record(frozen=True, kw_only=True)
class Price:
    amount: int
    asset: str = ""


@dataclass(frozen=True, kw_only=True)
class Frozen:
    amount: int
    asset: str = ""


def test_mypy_refuses_to_change_a_record() -> None:
    """Strict mypy also refuses an ignore that nothing needs."""
    price = Price(amount=1)
    price.amount = 2  # type: ignore[misc]
    assert price.amount == 2


def test_records_compare_and_hash_by_value() -> None:
    one, other = Price(amount=1), replace(Price(amount=2), amount=1)
    assert one == other
    assert hash(one) == hash(other) == hash(Frozen(amount=1))
    assert one != Price(amount=1, asset="x")


def test_a_record_reads_like_a_dataclass() -> None:
    assert repr(Price(amount=1)) == repr(Frozen(amount=1)).replace("Frozen", "Price")
