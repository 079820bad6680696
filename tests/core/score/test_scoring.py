"""Scores, flags and advice at their thresholds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.support.evidences import AS_OF, QUOTE, SELLER, dead, payable, price_changed

from tollgauge.core.base.rounding import half_up
from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    TermChange,
)
from tollgauge.core.score.evidence_document import EvidenceError, digest, to_json
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.probe_flags import MISMATCH_RULE
from tollgauge.core.score.score import Score, ScoreError, score_from_json
from tollgauge.core.score.scoring import FLAG_RULES, recompute, score

TODAY = AS_OF // DAY_MS


def last(**more: Any) -> LastProbe:
    """The latest probe of the endpoint that is always payable."""
    probe = payable().last
    assert probe is not None
    return replace(probe, **{"tls_not_after": AS_OF + 90 * DAY_MS, **more})


ANCHORS = tuple(
    Anchor(owner=owner, since=0, addresses=(owner,)) for owner in ("a.example", "b.example")
)


def quote(amount: int) -> Quote:
    return replace(QUOTE, amount=amount)


def codes(evidence: Evidence) -> set[str]:
    return {flag.code for flag in score(evidence).flags}


def message(evidence: Evidence, code: str) -> str:
    return next(flag.message for flag in score(evidence).flags if flag.code == code)


def change(kind: str, ago: int, source: str = "probe") -> TermChange:
    if kind == "price-changed":
        return price_changed(ago, 5_000, 7_000, source=source)
    return TermChange(at=AS_OF - ago, kind=kind, source=source, before="1", after="2")


def make_demand(payers: int, *, weight: int = 0, **more: Any) -> ChainEvidence:
    """Payers who paid a dollar each, with a weight in millionths without any anchor."""
    return ChainEvidence(
        network=QUOTE.network,
        pay_to=SELLER,
        indexed_ms=WINDOW_MS,
        demand=DemandEvidence(
            transfers=payers,
            payers=payers,
            volume=payers * 10**6,
            proven_payers=min(payers, weight // 10**6),
            proven_volume=weight,
            weights=tuple((anchor.owner, weight) for anchor in ANCHORS) if weight else (),
        ),
        **more,
    )


ELSEWHERE = " from established sellers."


def components(result: Score) -> dict[str, int]:
    return {row.name: row.tenths for row in result.components}


def test_perfect_endpoint_without_settlements_is_an_a_of_85() -> None:
    result = score(payable())
    assert (result.score_tenths, result.grade, result.recommendation) == (850, "A", "proceed")
    assert codes(payable()) == {"no-settlements"}
    assert result.stats.verdict == "flawless"
    assert result.economic_hundredths == 100


def test_time_out_does_not_lift_the_cap_of_an_empty_accepts() -> None:
    older = last(accepts=0, payable=False, at=AS_OF - 2)
    timed_out = last(outcome="timeout", up=False, payable=False, accepts=None)
    assert score(payable(last=timed_out, envelope=older)).score_tenths == 490


def test_newer_envelope_with_terms_lifts_it() -> None:
    older = last(accepts=0, payable=False, at=AS_OF - 2)
    assert "not-payable" not in codes(payable(envelope=older))


def test_endpoint_without_probes_that_describe_it_is_unverified() -> None:
    ours = Rollup(day=TODAY, probes=3, excluded=(("dns-failed", 3),))
    result = score(payable(days=(ours,), last=None, state=None))
    assert (result.score_tenths, result.grade, result.components) == (None, None, ())
    assert result.recommendation == "unverified"
    assert result.stats.excluded == (("dns-failed", 3),)
    assert result.stats.uptime_tenths is None


def test_danger_is_flagged_even_of_an_endpoint_that_was_never_measured() -> None:
    unmeasured = payable(days=(), last=None, state=None, quote=quote(10**10))
    assert "decoy-price" in codes(unmeasured)


def test_days_outside_the_window_do_not_count() -> None:
    days = payable().days
    other = (structs.replace(days[0], day=TODAY - 31), structs.replace(days[0], day=TODAY + 1))
    assert score(payable(days=(*days, *other))).stats == score(payable()).stats


@pytest.mark.parametrize(("ago", "counted"), [(WINDOW_MS - 1, 1), (WINDOW_MS, 0)])
def test_changes_count_within_the_window(ago: int, counted: int) -> None:
    result = score(payable(changes=(change("price-changed", ago),)))
    assert result.stats.price_changes == counted


def test_change_that_two_sources_saw_is_one_change() -> None:
    seen = tuple(change("price-changed", DAY_MS, source) for source in ("probe", "bazaar"))
    assert score(payable(changes=seen)).stats.price_changes == 1


def test_repeated_changes_of_one_source_add_up_to_the_cap_of_their_cost() -> None:
    seen = tuple(price_changed(back * DAY_MS, 1, 9) for back in range(1, 9))
    result = score(payable(changes=seen))
    assert result.stats.price_changes == 8
    assert components(result)["stability"] == 400


@pytest.mark.parametrize(
    ("ago", "templated", "fires"),
    [(7 * DAY_MS, False, True), (7 * DAY_MS + 1, False, False), (DAY_MS, True, False)],
)
def test_payto_change_alarms_for_seven_days_unless_templated(
    ago: int, templated: bool, fires: bool
) -> None:
    evidence = payable(changes=(change("payto-changed", ago),), templated=templated)
    assert ("payto-changed-recently" in codes(evidence)) is fires
    assert ("payto-varies" in codes(evidence)) is templated
    assert ([cap.limit_tenths for cap in score(evidence).caps] == [490]) is fires


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (1_000_000, set()),
        (1_000_001, {"price-above-client-cap"}),
        (999_999_999, {"price-above-client-cap"}),
        (1_000_000_000, {"price-above-client-cap", "decoy-price"}),
    ],
)
def test_prices_are_judged_exactly(amount: int, expected: set[str]) -> None:
    assert codes(payable(quote=quote(amount))) - {"no-settlements"} == expected


def test_unknown_token_is_never_priced_in_dollars() -> None:
    assert "decoy-price" not in codes(payable(quote=replace(quote(10**30), asset="0x" + "7" * 40)))


@pytest.mark.parametrize(("margin", "fires"), [(-1, True), (0, False)])
def test_certificates_are_watched_for_14_days(margin: int, fires: bool) -> None:
    evidence = payable(last=last(tls_not_after=AS_OF + 14 * DAY_MS + margin))
    assert ("tls-expiring" in codes(evidence)) is fires


def test_template_that_was_never_payable_wants_parameters() -> None:
    result = score(replace(dead(hours=31 * 24), templated=True))
    assert (result.recommendation, result.grade) == ("parameterize", "F")


def test_template_on_a_dangerous_host_is_avoided() -> None:
    wildcard = replace(dead(hours=31 * 24), templated=True, wildcard=True)
    assert score(wildcard).recommendation == "avoid"


def test_payable_template_is_still_parameterize() -> None:
    result = score(payable(templated=True))
    assert result.recommendation == "parameterize"
    assert result.score_tenths == score(payable()).score_tenths


@pytest.mark.parametrize(("days", "confidence", "advice"), [(5, 17, True), (6, 20, False)])
def test_few_observations_lower_the_confidence(days: int, confidence: int, advice: bool) -> None:
    """A fifth is enough."""
    whole = sorted(payable().days, key=lambda sums: -sums.day)[1 : days + 1]
    evidence = payable(days=tuple(whole))
    assert score(evidence).confidence_hundredths == confidence
    assert ("low-confidence" in codes(evidence)) is advice


def test_first_probe_is_a_first_contact_however_long_it_was_listed() -> None:
    one = payable(days=(structs.replace(payable().days[-1], probes=1, scored=1, up=1, slots=1),))
    assert "hardly checked" in message(one, "first-contact")
    just_now = replace(one, first_seen=AS_OF - 1)
    assert "one live check" in message(just_now, "first-contact")
    young = payable(first_seen=AS_OF - DAY_MS + 1)
    assert "less than a day of checks" in message(young, "first-contact")
    assert "first-contact" not in codes(payable(first_seen=AS_OF - DAY_MS))


def test_lint_findings_become_flags_with_their_severity() -> None:
    rules = (
        ("cache-control", "warn", "Send no-store."),
        ("cache-control", "info", "Again."),
        ("envelope-mismatch", "warn", "Make them agree."),
    )
    evidence = payable(last=last(rules=rules))
    expected = {"lint:cache-control", "lint:envelope-mismatch", "envelope-mismatch"}
    assert expected <= codes(evidence)
    flags = score(evidence).flags
    assert [f.severity for f in flags if f.code == "lint:cache-control"] == ["warn"]


def test_mismatch_rule_is_a_lint_rule() -> None:
    assert MISMATCH_RULE in {rule.slug for rule in ALL_RULES}


@pytest.mark.parametrize(
    ("weight", "shares", "tenths"),
    [(0, 1, 850), (2_200_000, 1, 880), (8_800_000, 4, 880), (16_666_667, 1, 950)],
)
def test_activity_is_the_smallest_sum_of_weights_divided_by_sites(
    weight: int, shares: int, tenths: int
) -> None:
    chain = make_demand(40, weight=weight, shares=shares)
    result = score(payable(chain=chain, anchors=ANCHORS))
    assert result.score_tenths == tenths
    assert result.low_tenths == score(payable()).low_tenths


def test_activity_adds_up_the_networks_of_the_offers() -> None:
    half = make_demand(20, weight=1_100_000)
    polygon = replace(half, network="eip155:137")
    together = score(payable(chain=half, other_chains=(polygon,), anchors=ANCHORS))
    assert together.score_tenths == 880
    assert together.demand is not None
    assert (together.demand.payers, together.settled_volume) == (40, 40_000_000)
    assert together.settlement is not None
    assert [other.network for other in together.settlement.others] == ["eip155:137"]
    of_another_site = replace(polygon, owner="shop.example", demand=None)
    alone = score(payable(chain=half, other_chains=(of_another_site,), anchors=ANCHORS))
    assert alone.score_tenths == score(payable(chain=half, anchors=ANCHORS)).score_tenths


def test_demand_of_one_owner_of_anchors_is_not_measured() -> None:
    result = score(payable(chain=make_demand(40, weight=10**8), anchors=ANCHORS[:1]))
    assert result.score_tenths == 850
    assert result.demand is not None
    assert result.demand.text == (
        "40 wallets paid $40.00 in 30 days; whether they also buy from established sellers is not "
        "measured here."
    )


@pytest.mark.parametrize(
    ("payers", "weight", "text"),
    [
        (0, 0, "No wallet paid it in 30 days."),
        (1, 0, "1 wallet paid $1.00 in 30 days; it does not buy from established sellers."),
        (1, 10**6, "1 wallet paid $1.00 in 30 days; it also buys from established sellers."),
        (3, 0, "3 wallets paid $3.00 in 30 days; none of them also buy from established sellers."),
        (
            9,
            10**6,
            "9 wallets paid $9.00 in 30 days; 1 of them also buys from established sellers.",
        ),
    ],
)
def test_demand_is_one_sentence(payers: int, weight: int, text: str) -> None:
    demand = score(payable(chain=make_demand(payers, weight=weight), anchors=ANCHORS)).demand
    assert demand is not None
    assert demand.text == text


def test_address_of_another_site_adds_no_demand_and_is_reported() -> None:
    chain = replace(make_demand(0), owner="shop.example", demand=None)
    result = score(payable(chain=chain, anchors=ANCHORS))
    assert result.score_tenths == 850
    assert "shop.example" in message(payable(chain=chain, anchors=ANCHORS), "shared-payto")
    assert "no-settlements" not in codes(payable(chain=chain))


def test_settlements_that_are_not_indexed_are_not_called_absent() -> None:
    whole = payable().chain
    assert whole is not None
    said = {
        indexed: message(payable(chain=replace(whole, indexed_ms=indexed)), "no-settlements")
        for indexed in (3_600_000, WINDOW_MS // 2, WINDOW_MS)
    }
    not_indexed = payable(chain=replace(whole, indexed_ms=0))
    assert "Its payTo is unknown" in message(payable(chain=None), "settlements-not-measured")
    assert message(not_indexed, "settlements-not-measured") == (
        "Settlements are not measured for EIP-3009 on Base: the number of such payments is "
        "unknown. Activity counts as 0 until they are. Start with a small payment."
    )
    assert "no-settlements" not in codes(not_indexed)
    assert "less than 1% of the last 30 days is indexed" in said[3_600_000]
    assert "50% of the last 30 days" in said[WINDOW_MS // 2]
    assert [ms for ms, words in said.items() if "first buyers" in words] == [WINDOW_MS]


def test_flags_come_in_order_of_severity_then_code() -> None:
    flags = score(payable(wildcard=True, listed=False, injection=True)).flags
    order = ["error", "warn", "info"]
    keys = [(order.index(flag.severity), flag.code) for flag in flags]
    assert keys == sorted(keys)
    assert len(keys) >= 4


def test_every_flag_has_a_rule_in_words_and_one_slug() -> None:
    assert len({rule.code for rule in FLAG_RULES}) == len(FLAG_RULES)
    assert all(rule.words.endswith(".") for rule in FLAG_RULES)


def test_weights_add_up_to_100() -> None:
    assert sum(POLICY.weights.values()) == 100


@pytest.mark.parametrize(
    ("tenths", "grade"),
    [
        *((1_000, "A"), (810, "A"), (809, "B"), (650, "B"), (649, "C")),
        *((500, "C"), (499, "D"), (350, "D"), (349, "F"), (0, "F")),
    ],
)
def test_grades_change_at_their_thresholds(tenths: int, grade: str) -> None:
    assert POLICY.grade(tenths) == grade


def test_halves_round_up() -> None:
    assert [half_up((part, 6)) for part in (0, 2, 3, 9)] == [0, 0, 1, 2]


def test_recomputing_an_evidence_document_gives_the_same_score() -> None:
    assert recompute(to_json(payable())) == score(payable())


def report(**more: Any) -> bytes:
    named = {"policyVersion": POLICY.version, "digest": digest(payable())}
    body = {**named, "document": json.loads(to_json(payable())), **more}
    return json.dumps({"resource": "https://api.seller.dev/v1/quote", "evidence": body}).encode()


def test_recomputing_a_report_that_carries_its_evidence_gives_the_same_score() -> None:
    assert recompute(report()) == score(payable())


def test_claims_of_a_report_are_ignored_in_recomputation() -> None:
    other = payable(wildcard=True)
    assert recompute(report(document=json.loads(to_json(other)))) == score(other)


@pytest.mark.parametrize(
    "text", [b'{"evidence": {"digest": "00"}}', b'{"score": 99.9}', b'{"evidence": null}']
)
def test_report_without_its_evidence_is_refused(text: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"evidence\.document"):
        recompute(text)


@pytest.mark.parametrize("version", [1, 2, 0, "3", None, [3]])
def test_report_of_another_policy_is_rejected(version: object) -> None:
    with pytest.raises(ScoreError):
        recompute(report(policyVersion=version))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"stats": 1}', b"null"])
def test_text_that_is_not_a_stored_score_is_rejected(text: bytes) -> None:
    with pytest.raises(ScoreError):
        score_from_json(text)
