"""Badges: the picture, and the JSON that shields.io reads."""

from __future__ import annotations

import pytest

from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.score.score import Down
from tollgauge.web.pages.badge import badge_response, badge_svg


def figures(
    recommendation: str, grade: str | None, tenths: int | None, down: Down | None = None
) -> ScoreFigures:
    return ScoreFigures(recommendation=recommendation, grade=grade, score_tenths=tenths, down=down)


def test_badge_is_a_standalone_file_with_the_recommendation() -> None:
    text = badge_svg(figures("proceed", "A", 911)).decode()
    assert "tollgauge: A 91 \N{MIDDLE DOT} proceed" in text
    assert "class=" not in text
    assert "style" not in text
    assert "tollgauge: unverified<" in badge_svg(figures("unverified", None, None)).decode()


def test_badge_shows_a_good_grade_only_with_a_payable_recommendation() -> None:
    for advice in ("avoid", "not-payable", "unverified", "parameterize"):
        assert f"tollgauge: {advice}<" in badge_svg(figures(advice, "A", 911)).decode()


def test_badge_of_an_endpoint_to_avoid_shows_its_grade() -> None:
    assert "tollgauge: D 41 \N{MIDDLE DOT} avoid<" in badge_svg(figures("avoid", "D", 419)).decode()


def test_badge_has_an_accessible_name() -> None:
    text = badge_svg(figures("caution", "C", 555)).decode()
    assert 'role="img"' in text
    assert "<title>tollgauge: C 55 \N{MIDDLE DOT} caution</title>" in text


@pytest.mark.parametrize("advice", ["proceed", "caution", "avoid", "unverified"])
def test_json_of_a_badge_matches_the_picture(advice: str) -> None:
    shown = figures(advice, "D", 419)
    shield = badge_response(shown)
    assert f"<title>tollgauge: {shield.message}</title>" in badge_svg(shown).decode()
    assert f'fill="#{shield.color}"' in badge_svg(shown).decode()


def test_points_of_a_badge_are_not_rounded_into_a_better_grade() -> None:
    assert "B 80 \N{MIDDLE DOT} caution" in badge_svg(figures("caution", "B", 809)).decode()


@pytest.mark.parametrize(
    ("confirmed", "text"),
    [
        (True, "down since 2026-05-27 11:00 UTC"),
        (False, "failed once at 2026-05-27 11:00 UTC"),
    ],
)
def test_badge_of_a_down_endpoint_states_only_the_outage_in_red(confirmed: bool, text: str) -> None:
    down = Down(since=1_779_879_600_000, reason="it answered with an error", confirmed=confirmed)
    shown = figures("proceed", "A", 850, down)
    shield = badge_response(shown)
    assert (shield.message, shield.color) == (text, "b3261e")
    assert f"<title>tollgauge: {text}</title>" in badge_svg(shown).decode()


def test_badge_with_history_has_a_bar_per_day_and_says_what_they_show() -> None:
    days = (None, 1_000, 999, 0)
    text = badge_svg(figures("proceed", "A", 911), days=days).decode()
    assert "; 3 of 4 days measured, 2 with an outage</title>" in text
    up, outage, unknown = "#6fb7e9", "#ff7a6b", "#8a97a0"
    assert [text.count(f'fill="{colour}"') for colour in (up, outage, unknown)] == [2, 2, 1]
    plain = badge_svg(figures("proceed", "A", 911)).decode()
    assert up not in plain
    assert _width_of(text) == _width_of(plain) + 4 * len(days) + 9


def _width_of(svg: str) -> int:
    return int(svg.split('width="', 1)[1].split('"', 1)[0])
