"""The pages about the score: methodology and calibration."""

from __future__ import annotations

from tests.support.forecasts import empty_calibration, make_calibration
from tests.support.page_reader import BASE, read_page

from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import FLAG_RULES
from tollgauge.web.pages import views
from tollgauge.web.pages.render import render


def test_methodology_contains_every_number_of_the_policy() -> None:
    reader = read_page(views.methodology_html(base_url=BASE))
    for row in POLICY.rows:
        assert f"{row.name} {row.weight}" in reader.words
    for letter, least in POLICY.grades:
        assert f"Grade {letter} {least}.0" in reader.words
    for cap in (*POLICY.caps, *(rule.cap for rule in POLICY.forecast_caps)):
        assert f"{cap.code} {cap.limit_tenths / 10:g} {cap.reason}" in reader.words
    for rule in FLAG_RULES:
        assert f"{rule.code} {rule.severity}" in reader.words
    assert f"policy {POLICY.version}" in reader.words


def test_calibration_page_compares_forecasts_with_outcomes() -> None:
    page = render("calibration.html", BASE, calibration=make_calibration())
    words = read_page(page).words
    assert "Policy 2" in words
    assert words.index("Policy 3") < words.index("Policy 2")
    assert "Forecasts from 2026-01-01 to 2026-01-02" in words
    for figure in ("95.0%", "90.00%", "not enough data", "The share of all outcomes", "proceed"):
        assert figure in words
    assert page.count(b"<circle") == 2
    assert page.count(b'class="diagonal"') == 4


def test_empty_calibration_page_announces_the_first_results() -> None:
    words = read_page(render("calibration.html", BASE, calibration=empty_calibration())).words
    assert "No forecast has been evaluated yet." in words
    assert "Policy" not in words.replace("policy", "").replace("policies", "")
