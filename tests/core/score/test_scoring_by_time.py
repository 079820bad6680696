"""The invariants of the score, on histories of single probes: silence is never health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.timed_evidence import observe, payable, unpaid_probe, unprobed_evidence

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score as score_under

START = 20_600 * DAY_MS
SLOT = 30 * MINUTE_MS
DELISTED = 6 * HOUR_MS
"""How often an endpoint is probed that no directory lists any more."""
LIMITS = settings(max_examples=examples(150), deadline=None)
FAILURES = (Outcome.SERVER_ERROR, Outcome.NOT_FOUND, Outcome.TIMEOUT)
SILENCES = (*(Outcome.THROTTLED, Outcome.FORBIDDEN, Outcome.TIMEOUT, Outcome.CONNECT, Outcome.TLS),)
DO_NOT_PAY = ("avoid", "unverified", "not-payable", "parameterize")
"""Advice, worst first: recommendations not to pay are equally bad."""


class Past(NamedTuple):
    """A history of probes, one a half hour at most, and a later time."""

    probes: tuple[ProbeResult, ...]
    as_of: int
    known_days: int
    listed: bool = True


def score(past: Past, *, unconfirmed: bool = False) -> Score:
    base = unprobed_evidence(as_of=past.as_of, known_days=past.known_days)
    base = replace(base, listed=past.listed, interval=SLOT if past.listed else DELISTED)
    return score_under(observe(past.probes, base, unconfirmed=unconfirmed), POLICY)


def points(result: Score) -> int:
    return -1 if result.score_tenths is None else result.score_tenths


def rank(result: Score) -> int:
    """0 where the advice is not to pay, 1 for caution, 2 for proceed."""
    if result.recommendation in DO_NOT_PAY:
        return 0
    return 2 if result.recommendation == "proceed" else 1


def assert_not_better(changed: Score, honest: Score) -> None:
    assert points(changed) <= points(honest)
    assert rank(changed) <= rank(honest)


@st.composite
def pasts(draw: st.DrawFn, *, failures: int = 0) -> Past:
    """Runs of slots that were payable, failing or not probed, with at least `failures` failures."""
    probes: list[ProbeResult] = []
    at = START + draw(st.integers(0, 47)) * SLOT
    kinds = st.sampled_from(["up", "up", "down", "nothing"])
    for _ in range(draw(st.integers(1, 8))):
        kind, run = draw(kinds), draw(st.integers(1, 60))
        for _ in range(run):
            if kind == "up":
                probes.append(payable(at))
            elif kind == "down":
                probes.append(unpaid_probe(at, draw(st.sampled_from(FAILURES))))
            at += SLOT
    assume(sum(not probe.payable for probe in probes) >= failures)
    return Past(
        probes=tuple(probes),
        as_of=at + draw(st.integers(0, 40 * 48)) * SLOT // 4,
        known_days=draw(st.sampled_from([0, 1, 9, 365])),
    )


def failures_of(probes: Sequence[ProbeResult]) -> list[int]:
    return [place for place, probe in enumerate(probes) if not probe.payable]


@LIMITS
@given(pasts(failures=1), st.sampled_from(SILENCES), st.data())
def test_refusal_instead_of_a_failure_never_improves_a_score(
    past: Past, silence: Outcome, data: st.DataObject
) -> None:
    places = data.draw(st.sets(st.sampled_from(failures_of(past.probes)), min_size=1))
    probes = tuple(
        unpaid_probe(probe.at, silence) if place in places else probe
        for place, probe in enumerate(past.probes)
    )
    assert_not_better(score(past._replace(probes=probes)), score(past))


@LIMITS
@given(pasts(failures=1), st.data())
def test_pause_that_hides_failures_never_improves_a_score(past: Past, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(failures_of(past.probes)))
    pause = data.draw(st.integers(1, 12)) * SLOT
    asked = past.probes[place]
    hidden = [probe for probe in past.probes if asked.at < probe.at < asked.at + pause]
    assume(not any(probe.payable for probe in hidden))
    following = [probe.at for probe in past.probes if probe.at >= asked.at + pause]
    assume(following and following[0] <= asked.at + pause * 3 // 2)
    longer = replace(unpaid_probe(asked.at, asked.outcome, interval_ms=pause))
    probes = (longer, *(probe for probe in past.probes if probe != asked and probe not in hidden))
    assert_not_better(score(past._replace(probes=probes)), score(past))


@LIMITS
@given(pasts(), st.integers(1, 200), st.integers(0, 40 * 48))
def test_delisted_and_dead_endpoint_is_never_better(past: Past, failures: int, later: int) -> None:
    """The same failures, each half hour or each sixth hour."""
    died = past.probes[-1].at + SLOT if past.probes else START
    probed = [unpaid_probe(died + number * SLOT) for number in range(failures)]
    seldom = [unpaid_probe(probe.at, interval_ms=DELISTED) for probe in probed[::12]]
    listed, delisted = (
        past._replace(
            probes=(*past.probes, *dead), as_of=probed[-1].at + later * SLOT, listed=dead is probed
        )
        for dead in (probed, seldom)
    )
    assert_not_better(score(delisted), score(listed))


@LIMITS
@given(pasts(), st.integers(0, 500))
def test_one_more_failure_amid_success_is_never_better(past: Past, slot: int) -> None:
    at = START + slot * SLOT + MINUTE_MS
    earlier = [probe for probe in past.probes if probe.at < at]
    assume(earlier and at < past.as_of)
    before, after = score(past), score(past._replace(probes=(*past.probes, unpaid_probe(at))))
    if past.probes[-1].payable:
        assert_not_better(after, before)
        return
    # Known exception to the rule that one more failure never raises a score: while an endpoint is
    # down, the forecast takes each repaired outage as evidence that this one is repaired too. The
    # cap of a confirmed outage bounds what that is worth.
    assert points(after) <= max(points(before), 649)
    assert rank(after) <= max(rank(before), 1)


@LIMITS
@given(
    pasts(),
    st.lists(st.integers(0, 500), min_size=1, max_size=20),
    st.sampled_from(["ours", "unknown"]),
)
def test_our_own_faults_never_move_it(past: Past, slots: list[int], whose: str) -> None:
    faults = [
        replace(
            unpaid_probe(START + slot * SLOT + 1, Outcome.TIMEOUT), attribution=Attribution(whose)
        )
        for slot in slots
    ]
    before, after = score(past), score(past._replace(probes=(*past.probes, *faults)))
    same = replace(after.stats, probes=before.stats.probes, excluded=before.stats.excluded)
    assert replace(after, stats=same) == before


@LIMITS
@given(pasts())
def test_advice_is_avoid_exactly_where_the_grade_is_d_or_f(past: Past) -> None:
    result = score(past)
    if result.recommendation == "avoid":
        assert result.grade in ("D", "F")
    if result.grade in ("D", "F"):
        assert result.recommendation in DO_NOT_PAY
    if any(flag.severity == "error" for flag in result.flags):
        assert points(result) <= 490


@LIMITS
@given(pasts())
def test_endpoint_that_was_never_payable_has_at_most_49_points(past: Past) -> None:
    probes = tuple(probe for probe in past.probes if not probe.payable)
    result = score(past._replace(probes=probes))
    assert points(result) <= 490
    assert rank(result) == 0


@LIMITS
@given(pasts())
def test_range_holds_the_score(past: Past) -> None:
    result = score(past)
    if result.score_tenths is not None:
        assert result.low_tenths is not None
        assert result.high_tenths is not None
        assert 0 <= result.low_tenths <= result.score_tenths <= result.high_tenths <= 1_000


@LIMITS
@given(pasts())
def test_time_without_probes_never_makes_the_advice_better(past: Past) -> None:
    """A standstill of this service does not describe an endpoint."""
    later = past._replace(as_of=past.as_of + 3 * HOUR_MS)
    assume(past.probes)
    assert rank(score(later)) <= rank(score(past))


@LIMITS
@given(pasts())
def test_score_survives_the_json_form_of_its_evidence(past: Past) -> None:
    base = unprobed_evidence(as_of=past.as_of, known_days=past.known_days)
    evidence = observe(past.probes, base)
    assert score_under(from_json(to_json(evidence)), POLICY) == score_under(evidence, POLICY)


def always(outcome_at: dict[int, Outcome] | None = None, *, days: int = 31, ms: int = 240) -> Past:
    """A probe each half hour of some days, payable but where another outcome is given by slot."""
    outcomes = outcome_at or {}
    probes = tuple(
        unpaid_probe(START + slot * SLOT, outcomes[slot])
        if slot in outcomes
        else payable(START + slot * SLOT, ms=ms)
        for slot in range(days * 48)
    )
    return Past(probes=probes, as_of=START + days * DAY_MS - 1, known_days=365)


@pytest.mark.parametrize(
    ("every", "least", "most", "grade"),
    [(0, 820, 850, "A"), (1, 240, 260, "F")],
)
def test_published_pairs_hold(every: int, least: int, most: int, grade: str) -> None:
    past = always(dict.fromkeys(range(31 * 48), Outcome.TIMEOUT) if every else {})
    result = score(past)
    assert least <= points(result) <= most
    assert result.grade == grade


@pytest.mark.parametrize(
    ("share", "ms", "score_about", "grade"), [(0.935, 1_000, 79, "B"), (0.437, 5_200, 49, "D")]
)
def test_published_shares_hold(share: float, ms: int, score_about: int, grade: str) -> None:
    whole = 31 * 48
    before = [int(slot * (1 - share)) for slot in range(whole)]
    downs = {slot for slot in range(whole - 1) if before[slot] != before[slot + 1]}
    result = score(always(dict.fromkeys(downs, Outcome.TIMEOUT), ms=ms))
    assert abs(points(result) - 10 * score_about) <= 10
    assert result.grade == grade


def test_dead_behind_429_for_24_days_is_avoided() -> None:
    result = score(always(dict.fromkeys(range(7 * 48, 31 * 48), Outcome.THROTTLED)))
    assert result.recommendation == "avoid"
    assert result.grade == "F"
    assert {flag.code for flag in result.flags} >= {"refuses-probes", "down-now"}


def test_reason_states_that_an_endpoint_was_never_up() -> None:
    never = score(always(dict.fromkeys(range(31 * 48), Outcome.TIMEOUT)))
    seldom = score(always(dict.fromkeys(range(10, 31 * 48), Outcome.TIMEOUT)))
    assert (never.grade, never.stats.up) == ("F", 0)
    assert never.reason.endswith("because it was never up when it was checked.")
    assert seldom.stats.up > 0
    assert "never up" not in seldom.reason


def test_429_while_down_is_worth_no_more_than_failing() -> None:
    quarter = {slot for slot in range(31 * 48) if slot % 8 >= 2}
    refused = score(always(dict.fromkeys(quarter, Outcome.THROTTLED)))
    failed = score(always(dict.fromkeys(quarter, Outcome.SERVER_ERROR)))
    assert_not_better(refused, failed)
    assert refused.grade in ("D", "F")


def test_first_failure_is_caution_until_it_is_confirmed() -> None:
    past = always({31 * 48 - 1: Outcome.TIMEOUT})
    waiting, confirmed = score(past, unconfirmed=True), score(past)
    assert (waiting.grade, waiting.recommendation) == ("A", "caution")
    assert (confirmed.grade, confirmed.recommendation) == ("D", "avoid")
    assert waiting.reason.startswith("It could not be paid when it was last checked")


def test_endpoint_without_recent_probes_is_unverified() -> None:
    past = always()
    assert score(past._replace(as_of=past.as_of + 2 * HOUR_MS)).recommendation == "proceed"
    assert score(past._replace(as_of=past.as_of + 4 * HOUR_MS)).recommendation == "unverified"


def test_confirming_probe_counts_only_for_time() -> None:
    past = always()
    failure = unpaid_probe(past.as_of - 10 * MINUTE_MS, Outcome.TIMEOUT)
    again = replace(payable(past.as_of - 9 * MINUTE_MS), confirms=True)
    one, two = (
        score(past._replace(probes=(*past.probes, failure))),
        score(past._replace(probes=(*past.probes, failure, again))),
    )
    assert one.stats.probes == two.stats.probes
    assert one.recommendation == "avoid"
    assert two.recommendation == "proceed"


def test_late_local_probe_is_not_a_state() -> None:
    late = replace(
        unpaid_probe(START + DAY_MS, Outcome.TIMEOUT),
        attribution=Attribution.LOCAL,
        timings=Timings(total=10_000),
    )
    past = always(days=1)
    assert score(past._replace(probes=(*past.probes, late))).recommendation == "proceed"


@LIMITS
@given(pasts(), st.integers(0, 400), st.sampled_from([2, 6, 12, 18, 48]), st.integers(0, 40 * 48))
def test_dead_endpoint_with_rarer_probes_is_never_better(
    past: Past, failures: int, times: int, later: int
) -> None:
    """The same failures, each half hour or as a crowded host or a long death allows. Both end with
    the same probe: before the next one is due, one with a long interval was not probed for longer.
    """
    died = past.probes[-1].at + SLOT if past.probes else START
    probed = [unpaid_probe(died + number * SLOT) for number in range(failures // times * times + 1)]
    seldom = [unpaid_probe(probe.at, interval_ms=times * SLOT) for probe in probed[::times]]
    often, rare = (
        past._replace(probes=(*past.probes, *dead), as_of=probed[-1].at + later * SLOT)
        for dead in (probed, seldom)
    )
    assert_not_better(score(rare), score(often))
