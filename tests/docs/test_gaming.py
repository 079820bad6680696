"""docs/gaming.md is current, and no trick gains more than it admits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.gaming import Attack, attacks, gaming

PAGE = Path(__file__).parents[2] / "docs" / "gaming.md"
FEW_POINTS = 50
"""Tenths: what a trick that is bounded may gain."""
FREE_POINTS = 30
"""Tenths: what payments may gain that cost nothing."""
OUTSIDE = re.compile(r"outside spending of \$(\d+) a day")


@pytest.fixture(scope="module")
def known() -> dict[str, Attack]:
    return {attack.trick: attack for attack in attacks()}


def test_the_page_is_current() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == gaming(), "run: .venv/bin/python docs/generate.py"


def test_what_is_bounded_gains_few_points_and_no_better_advice(known: dict[str, Attack]) -> None:
    bounded = [attack for attack in known.values() if not attack.open]
    assert len(bounded) > len(known) / 2
    for attack in bounded:
        if spending := OUTSIDE.search(attack.trick):
            assert attack.gain_tenths <= FREE_POINTS + 10 * int(spending[1]), attack.trick
        else:
            assert attack.gain_tenths <= FEW_POINTS, attack.trick
        if attack.without.recommendation == "avoid":
            assert attack.with_it.recommendation == "avoid", attack.trick


def test_every_trick_that_is_called_open_is(known: dict[str, Attack]) -> None:
    for attack in known.values():
        if attack.open:
            assert attack.gain_tenths > FEW_POINTS, attack.trick


def test_refusals_and_pauses_gain_nothing(known: dict[str, Attack]) -> None:
    refusals = [attack for trick, attack in known.items() if trick[:3] in ("429", "401", "one")]
    assert len(refusals) == 3
    for attack in refusals:
        assert attack.gain_tenths <= 0


def test_payments_that_come_back_gain_at_most_three_points(known: dict[str, Attack]) -> None:
    gains = [known[trick].gain_tenths for trick in known if "wallets pay" in trick]
    assert gains == [30, 30, 30]
