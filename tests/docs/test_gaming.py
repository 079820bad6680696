"""docs/gaming.md is current, and no trick gains more than it admits."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.gaming import Attack, attacks, gaming

PAGE = Path(__file__).parents[2] / "docs" / "gaming.md"
FEW_POINTS = 50
"""Tenths: what a trick that is bounded may gain."""


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
        assert attack.gain_tenths(2) <= FEW_POINTS, attack.trick
        without, with_it = attack.without[2], attack.with_it[2]
        if without.recommendation == "avoid":
            assert with_it.recommendation == "avoid", attack.trick


def test_every_refusal_gained_under_policy_1_what_it_does_not_under_policy_2(
    known: dict[str, Attack],
) -> None:
    refusals = [attack for trick, attack in known.items() if trick[:3] in ("429", "401", "one")]
    assert len(refusals) == 3
    for attack in refusals:
        assert attack.gain_tenths(1) > 200
        assert attack.gain_tenths(2) <= 0


def test_the_page_says_of_each_open_trick_that_it_is(known: dict[str, Attack]) -> None:
    for attack in known.values():
        gains = attack.gain_tenths(2) > FEW_POINTS
        assert gains == attack.open, attack.trick
