"""Units as people read them."""

from __future__ import annotations

import pytest

from tollgauge.core.base.units import dollars


@pytest.mark.parametrize(
    ("amount", "decimals", "text"),
    [
        (5_000_000_000, 6, "$5,000.00"),
        (1_000_000, 6, "$1.00"),
        (100_000, 6, "$0.10"),
        (5_000, 6, "$0.005"),
        (11_673, 6, "$0.011673"),
        (1, 6, "$0.000001"),
        (0, 6, "$0.00"),
        (12_345, 2, "$123.45"),
        (1_500_000_000_000, 18, "$0.000002"),
        (10**12 - 1, 18, "$0.000001"),
    ],
)
def test_dollars_have_two_decimals_and_more_where_those_matter(
    amount: int, decimals: int, text: str
) -> None:
    assert dollars(amount, decimals) == text
