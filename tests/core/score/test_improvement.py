"""What would raise a score: no change lowers it, and the promised score is reached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.golden.reference import VECTORS as VECTOR_FILES
from tests.support.evidences import AS_OF, QUOTE, dead, payable, price_changed
from tests.support.examples import examples
from tests.support.timed_evidence import observe, unpaid_probe, unprobed_evidence
from tests.support.timed_evidence import payable as paid

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, WINDOW_MS
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    TermChange,
)
from tollgauge.core.score.evidence_document import from_json
from tollgauge.core.score.improvement import (
    SHOWN,
    Improvement,
    fix_flags,
    improve_components,
    improvements,
)
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import score

VECTORS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))["evidence"]
    for file in sorted(VECTOR_FILES.glob("*.json"))
}
LIMITS = settings(max_examples=examples(100), deadline=None)
HALF_HOUR = 30 * MINUTE_MS
OUTCOMES = st.sampled_from(
    [Outcome.SERVER_ERROR, Outcome.TIMEOUT, Outcome.FORBIDDEN, Outcome.VALIDATES, Outcome.THROTTLED]
)
CHANGES = st.lists(
    st.one_of(
        st.builds(
            price_changed,
            st.integers(0, WINDOW_MS - 1),
            st.sampled_from([5_000, 9_000]),
            st.sampled_from([7_000, 40_000]),
            usual=st.sampled_from([None, 5_000]),
        ),
        st.builds(
            TermChange,
            at=st.integers(AS_OF - WINDOW_MS + 1, AS_OF),
            kind=st.just("payto-changed"),
            source=st.sampled_from(["probe", "cdp"]),
            before=st.just("0x" + "1" * 40),
            after=st.sampled_from(["0x" + "2" * 40, "0x" + "3" * 40]),
        ),
    ),
    max_size=3,
).map(tuple)


@st.composite
def probes(draw: st.DrawFn) -> list[ProbeResult]:
    """Half-hourly probes up to now; some stretches fail, some answers have findings."""
    count = draw(st.integers(1, 400))
    instants = [AS_OF - place * HALF_HOUR for place in range(count)]
    good: list[ProbeResult] = []
    compliance = draw(st.sampled_from([50, 84, 96, 100]))
    failing = draw(st.lists(st.tuples(st.integers(0, count), st.integers(1, 90), OUTCOMES)))
    for place, at in enumerate(instants):
        outcome = next((out for a, n, out in failing if a <= place < a + n), None)
        good.append(
            paid(at, compliance=compliance) if outcome is None else unpaid_probe(at, outcome)
        )
    return good


ANCHORS = tuple(
    Anchor(owner=owner, since=0, addresses=(owner,)) for owner in ("a.example", "b.example")
)


def demand(*weights: int) -> DemandEvidence:
    """Payers with these sums of weights without each anchor, in millionths."""
    rows = tuple(zip((anchor.owner for anchor in ANCHORS), weights, strict=True))
    return DemandEvidence(transfers=9, payers=9, volume=9 * 10**6, proven_payers=5, weights=rows)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    weights = [draw(st.integers(0, 120 * 10**6)) for _ in ANCHORS]
    chain = ChainEvidence(
        network=QUOTE.network,
        pay_to=QUOTE.pay_to,
        indexed_ms=WINDOW_MS,
        shares=draw(st.integers(1, 3)),
        demand=draw(st.sampled_from([None, DemandEvidence(), demand(*weights)])),
    )
    known = replace(
        unprobed_evidence(as_of=AS_OF, known_days=draw(st.integers(0, 60))),
        quote=replace(QUOTE, amount=draw(st.sampled_from([5_000, 10**9, 10**11]))),
        chain=draw(st.sampled_from([None, chain])),
        anchors=draw(st.sampled_from([(), ANCHORS[:1], ANCHORS])),
        changes=draw(CHANGES),
        wildcard=draw(st.booleans()),
        paid_not_delivered=draw(st.booleans()),
        site_median_tenths=draw(st.sampled_from([None, None, 420])),
    )
    return observe(draw(probes()), known, unconfirmed=draw(st.booleans()))


def compute_improvements(evidence: Evidence) -> dict[str, Improvement]:
    return {row.code: row for row in improvements(evidence)}


def tenths(evidence: Evidence) -> int:
    points = score(evidence).score_tenths
    assert points is not None
    return points


@LIMITS
@given(evidences())
def test_named_improvement_raises_the_score_by_its_points(evidence: Evidence) -> None:
    now = score(evidence)
    rows = improvements(evidence)
    assert len(rows) <= SHOWN
    assert list(rows) == sorted(rows, key=lambda row: -row.points_tenths)
    for row in rows:
        assert now.score_tenths is not None
        assert row.points_tenths > 0
        assert row.score_tenths == now.score_tenths + row.points_tenths
        assert row.grade == POLICY.grade(row.score_tenths)
        assert row.in_days >= 0
        assert row.fix


@LIMITS
@given(evidences())
def test_improvement_never_lowers_a_score(evidence: Evidence) -> None:
    now = score(evidence)
    assume(now.score_tenths is not None)
    changes = (*fix_flags(evidence, now), *improve_components(evidence, now))
    for row in changes:
        # A forecast counts repairs, which an endpoint that never failed does not show.
        if row.code != "compliance":
            assert tenths(row.evidence) >= (now.score_tenths or 0), row.code


@LIMITS
@given(probes(), st.sampled_from([100, 240, 900]))
def test_good_answer_to_the_next_probe_gives_the_promised_score(
    seen: Sequence[ProbeResult], ms: int
) -> None:
    usual = [replace(probe, timings=replace(probe.timings, total=ms)) for probe in seen]
    usual = [probe for probe in usual if probe.at < AS_OF]
    base = unprobed_evidence(as_of=AS_OF)
    rows = compute_improvements(observe(usual, base))
    really = tenths(observe([*usual, paid(AS_OF, ms=ms)], base))
    for code in ("down-now", "never-compliant", "validates-before-402", "refuses-probes"):
        if code in rows and any(probe.latency_ms is not None for probe in usual):
            assert rows[code].score_tenths == really
        elif code in rows:  # how fast it answers is not known before it does
            assert rows[code].score_tenths <= really


@LIMITS
@given(probes())
def test_window_without_outages_gives_the_promised_score(seen: Sequence[ProbeResult]) -> None:
    kept = [probe for probe in seen if probe.payable or (probe.scored and not probe.up)]
    base = unprobed_evidence(as_of=AS_OF)
    rows = compute_improvements(observe(kept, base))
    compliance = max((probe.compliance for probe in kept), default=0)
    never_failed = [probe if probe.payable else paid(probe.at) for probe in kept]
    if "uptime" in rows and compliance == 100:
        assert rows["uptime"].score_tenths == tenths(observe(never_failed, base))


@LIMITS
@given(probes())
def test_window_without_findings_gives_the_promised_score(seen: Sequence[ProbeResult]) -> None:
    kept = [probe for probe in seen if probe.payable]
    base = unprobed_evidence(as_of=AS_OF)
    rows = compute_improvements(observe(kept, base))
    if "compliance" in rows:
        clean = [paid(probe.at) for probe in kept]
        assert rows["compliance"].score_tenths == tenths(observe(clean, base))


def test_dead_endpoint_improves_by_a_good_answer_to_the_next_probe() -> None:
    evidence = dead(hours=10)
    row = compute_improvements(evidence)["down-now"]
    assert row.in_days == 0
    assert row.fix.startswith("Bring the endpoint back")
    assert row.score_tenths > tenths(evidence) + 100


def test_single_broken_lint_rule_is_named() -> None:
    healthy = payable()
    assert healthy.last is not None
    assert healthy.state is not None
    rules = (("asset-known", "error", "Name a token that clients know."), ("z", "warn", "Small."))
    broken = replace(
        healthy,
        last=replace(healthy.last, payable=False, rules=rules),
        state=replace(healthy.state, payable=False),
    )
    row = improvements(broken)[0]
    assert row.code == "lint:asset-known"
    assert row.fix == "Name a token that clients know."
    worse = replace(healthy.last, payable=False, rules=(*rules, ("b", "error", "Mend b.")))
    two = replace(broken, last=worse)
    assert improvements(two)[0].code == "down-now"


def test_changes_below_a_lower_cap_are_not_named() -> None:
    rows = compute_improvements(payable(wildcard=True))
    assert list(rows) == ["wildcard-402"]
    assert rows["wildcard-402"].score_tenths == tenths(payable())


def test_two_caps_of_one_height_are_both_in_the_way() -> None:
    assert improvements(payable(wildcard=True, paid_not_delivered=True)) == ()


def make_change(kind: str, days: int, before: str, after: str) -> TermChange:
    at = AS_OF - days * DAY_MS
    return TermChange(at=at, kind=kind, source="probe", before=before, after=after)


def test_changed_payto_stops_limiting_after_a_week() -> None:
    change = make_change("payto-changed", 2, "0x1", "0x2")
    rows = compute_improvements(payable(changes=(change,)))
    assert rows["payto-changed-recently"].in_days == 6  # it must be more than 7 days old
    later = payable(changes=(replace(change, at=AS_OF - 8 * DAY_MS),))
    assert rows["payto-changed-recently"].score_tenths == tenths(later)
    assert rows["stability"].in_days == 28


def test_price_that_jumped_stops_limiting_after_a_week() -> None:
    change = price_changed(6 * DAY_MS, 1_000, 9_000)
    rows = compute_improvements(payable(changes=(change,)))
    later = payable(changes=(replace(change, at=AS_OF - 8 * DAY_MS),))
    if "price-jumped" in rows:
        assert rows["price-jumped"].score_tenths == tenths(later)
    assert rows["stability"].score_tenths == tenths(payable())


def test_age_says_by_when() -> None:
    rows = compute_improvements(payable(first_seen=AS_OF - 9 * DAY_MS))
    assert rows["age"].in_days == 21
    assert rows["age"].score_tenths == tenths(payable())


@pytest.mark.parametrize(("known", "step"), [(0, 1), (999_999, 1), (10**6, 3), (29 * 10**6, 30)])
def test_next_step_of_proven_customers_gives_the_promised_score(known: int, step: int) -> None:
    chain = payable().chain
    assert chain is not None
    sold = payable(chain=replace(chain, demand=demand(known, known + 7)), anchors=ANCHORS)
    row = compute_improvements(sold)["activity"]
    assert row.fix == "More customers who also buy from other sellers."
    reached = demand(step * 10**6, step * 10**6)
    assert row.score_tenths == tenths(replace(sold, chain=replace(chain, demand=reached)))


def test_demand_is_not_promised_where_it_is_not_measured() -> None:
    assert "activity" not in compute_improvements(payable())
    assert "activity" not in compute_improvements(payable(anchors=ANCHORS[:1]))


def test_decoy_price_is_fixed_by_a_price_that_clients_pay() -> None:
    decoy = payable(quote=replace(QUOTE, amount=10**10))
    row = improvements(decoy)[0]
    assert row.code == "decoy-price"
    assert row.score_tenths == tenths(payable())


def test_nothing_is_named_before_anything_was_measured() -> None:
    assert improvements(unprobed_evidence(as_of=AS_OF)) == ()


def test_nothing_is_left_to_improve_for_the_best() -> None:
    chain = payable().chain
    assert chain is not None
    whole = replace(chain, demand=demand(10**8, 10**8))
    best = payable(chain=whole, anchors=ANCHORS)
    assert tenths(best) == 1_000
    assert improvements(best) == ()


@pytest.mark.parametrize("name", VECTORS)
def test_improvement_equals_the_score_of_the_changed_evidence(name: str) -> None:
    evidence = from_json(VECTORS[name])
    now = score(evidence)
    changes = (*fix_flags(evidence, now), *improve_components(evidence, now))
    then = {one.code: score(one.evidence).score_tenths for one in changes}
    rows = improvements(evidence)
    assert {row.code: row.score_tenths for row in rows}.items() <= then.items()
    better = [tenths for tenths in then.values() if (tenths or 0) > (now.score_tenths or 0)]
    assert len(rows) == (0 if now.score_tenths is None else min(len(better), 5))
    assert improvements(evidence, now=now) == rows


def test_age_is_an_improvement_of_a_young_endpoint() -> None:
    evidence = payable(first_seen=AS_OF - 9 * DAY_MS, changes=(make_change("x", 1, "1", "2"),))
    assert "age" in {row.code for row in improvements(evidence)}
