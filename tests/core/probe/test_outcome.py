"""The table of outcomes is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.outcome_texts import OUTCOME_TEXTS
from tollgauge.core.probe.exchange import Answer, Exchange, FaultKind, Lint
from tollgauge.core.probe.outcome import (
    BOT_WALL_MARKERS,
    BOT_WALL_STATUSES,
    FAULTS,
    OUTCOMES,
    Attribution,
    Outcome,
    buyer_text,
    classify_answer,
)
from tollgauge.core.probe.probe import judge
from tollgauge.web.pages import labels

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_a_row_with_all_texts(outcome: Outcome) -> None:
    row, texts = OUTCOMES[outcome], OUTCOME_TEXTS[outcome]
    assert all(text.strip() for text in (row.buyer, row.page, texts.methodology, texts.operating))
    assert buyer_text(outcome.value) == row.buyer
    assert labels.outcome(outcome.value) == row.page


def test_no_two_outcomes_share_a_text() -> None:
    rows = [OUTCOMES[outcome] for outcome in Outcome]
    for texts in (
        {row.buyer for row in rows},
        {row.page for row in rows},
        {OUTCOME_TEXTS[outcome].methodology for outcome in Outcome},
    ):
        assert len(texts) == len(Outcome)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_documented(outcome: Outcome) -> None:
    texts = OUTCOME_TEXTS[outcome]
    for page, text in (
        ("methodology.md", texts.methodology),
        ("operating/configure.md", texts.operating),
    ):
        lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
        (line,) = [line for line in lines if line.startswith(f"| `{outcome.value}` |")]
        assert text in line


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_that_a_target_can_cause_has_a_gaming_row(outcome: Outcome) -> None:
    gaming = OUTCOME_TEXTS[outcome].gaming
    caused_by_target = OUTCOMES[outcome].attribution is Attribution.TARGET
    assert (gaming is not None) == caused_by_target
    if gaming is not None:
        url = "https://a.example.com/x"
        exchange = Exchange(url=url, method="GET", at=0, result=gaming.answer)
        nothing = Lint(payable=False, compliant=False, version=None)
        assert judge(exchange, nothing).outcome is outcome
        page = (DOCS / "gaming.md").read_text(encoding="utf-8")
        assert f"| {gaming.trick} instead of 503 while down" in page


def test_every_outcome_is_reached_by_a_status_or_a_fault() -> None:
    by_status = {classify_answer(Answer(status=status)) for status in range(1_000)}
    by_fault = {FAULTS[kind].outcome for kind in FaultKind}
    assert by_status | by_fault == set(Outcome) - {Outcome.BLOCKED}


@pytest.mark.parametrize("status", [200, 401, 402, 403, 429, 503])
@pytest.mark.parametrize("name", BOT_WALL_MARKERS)
def test_marker_of_a_bot_wall_counts_with_a_refusing_status(status: int, name: str) -> None:
    value = next(iter(BOT_WALL_MARKERS[name] or {"anything"}))
    outcome = classify_answer(Answer(status=status, headers=((name, f" {value.upper()} "),)))
    assert (outcome is Outcome.BLOCKED) is (status in BOT_WALL_STATUSES)


def test_other_values_of_a_marker_are_not_a_bot_wall() -> None:
    answer = Answer(status=403, headers=(("cf-mitigated", "none"), ("server", "challenge")))
    assert classify_answer(answer) is Outcome.FORBIDDEN


def test_unknown_outcome_of_foreign_evidence_has_a_neutral_text() -> None:
    assert buyer_text("from-the-future") == "it did not ask for a payment"
    assert labels.outcome("from-the-future") == "from-the-future"
