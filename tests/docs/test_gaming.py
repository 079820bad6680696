"""docs/gaming.md is current, and no trick gains more than the page states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.gaming import attacks, gaming
from docs.gaming_attack import Attack

PAGE = Path(__file__).parents[2] / "docs" / "gaming.md"
FEW_POINTS = 50
"""Maximum gain of a bounded trick, in tenths of a point."""
BOUGHT = re.compile(r"own wallets spend \$(\d+) at each of two anchors")
SETTLED = re.compile(
    r"payTo pays itself|wallets pay \$|wallets pay 1 cent each|zero-value|three shops|triangle"
    r"|circle of|ring of wallets|one bought|two anchors that|another seller's payTo|one note"
)


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
        assert attack.gain_tenths <= FEW_POINTS, attack.trick
        if attack.without.recommendation == "avoid":
            assert attack.with_it.recommendation == "avoid", attack.trick


def test_open_tricks_gain_as_the_page_states(known: dict[str, Attack]) -> None:
    for attack in known.values():
        if attack.open and not BOUGHT.search(attack.trick):
            assert attack.gain_tenths > FEW_POINTS, attack.trick


def test_refusals_and_pauses_gain_nothing(known: dict[str, Attack]) -> None:
    refusals = ("429", "401", "511", "a bot wall", "one 503", "up for 6 days")
    found = [attack for trick, attack in known.items() if trick.startswith(refusals)]
    assert len(found) == 7
    for attack in found:
        assert attack.gain_tenths <= 0
        assert attack.with_it.recommendation == attack.without.recommendation


def test_payments_without_spending_at_two_anchors_gain_nothing(known: dict[str, Attack]) -> None:
    tricks = [trick for trick in known if SETTLED.search(trick)]
    assert len(tricks) == 12
    assert {known[trick].gain_tenths for trick in tricks} == {0}


def test_griefing_by_payments_costs_nothing(known: dict[str, Attack]) -> None:
    griefed = [attack for trick, attack in known.items() if trick.startswith("griefing")]
    assert len(griefed) == 3
    for attack in griefed:
        assert attack.without.score_tenths == attack.with_it.score_tenths
        assert (attack.without.score_tenths or 0) > 850


def test_three_points_cost_44_dollars_at_each_of_two_anchors(known: dict[str, Attack]) -> None:
    gains = {
        int(found[1]): attack.gain_tenths
        for trick, attack in known.items()
        if (found := BOUGHT.search(trick)) and "20 shops" not in trick
    }
    assert gains[22] < 30
    assert gains[200] < 100
    shared = next(attack for trick, attack in known.items() if "20 shops" in trick)
    assert shared.gain_tenths < 10
