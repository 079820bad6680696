"""docs/gaming.md is current, and no trick gains more than the page states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.gaming import Attack, attacks, gaming

PAGE = Path(__file__).parents[2] / "docs" / "gaming.md"
FEW_POINTS = 50
"""Maximum gain of a bounded trick, in tenths of a point."""
FREE_POINTS = 30
"""Maximum gain of payments that cost the seller nothing, in tenths of a point."""
OUTSIDE = re.compile(r"outside spending of \$(\d+) a day")


@pytest.fixture(scope="module")
def known() -> dict[str, Attack]:
    return {attack.trick: attack for attack in attacks()}


def test_page_is_current() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == gaming(), "run: .venv/bin/python docs/generate.py"


def test_bounded_tricks_gain_few_points_and_no_better_recommendation(
    known: dict[str, Attack],
) -> None:
    bounded = [attack for attack in known.values() if not attack.open]
    assert len(bounded) > len(known) / 2
    for attack in bounded:
        if spending := OUTSIDE.search(attack.trick):
            assert attack.gain_tenths <= FREE_POINTS + 10 * int(spending[1]), attack.trick
        else:
            assert attack.gain_tenths <= FEW_POINTS, attack.trick
        if attack.without.recommendation == "avoid":
            assert attack.with_it.recommendation == "avoid", attack.trick


def test_open_tricks_gain_as_the_page_states(known: dict[str, Attack]) -> None:
    for attack in known.values():
        if attack.open:
            assert attack.gain_tenths > FEW_POINTS, attack.trick


def test_refusals_and_pauses_gain_nothing(known: dict[str, Attack]) -> None:
    refusals = [attack for trick, attack in known.items() if trick[:3] in ("429", "401", "one")]
    assert len(refusals) == 3
    for attack in refusals:
        assert attack.gain_tenths <= 0


def test_payments_that_return_gain_at_most_three_points(known: dict[str, Attack]) -> None:
    gains = [known[trick].gain_tenths for trick in known if "wallets pay" in trick]
    assert gains == [30, 30, 30]
