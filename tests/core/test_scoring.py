from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tollgauge.core.evidence import (
    ChainEvidence,
    Evidence,
    EvidenceError,
    LastProbe,
    PayerVolume,
    TermChange,
    digest,
    to_document,
    to_json,
)
from tollgauge.core.latency import bucket_of
from tollgauge.core.lint import ALL_RULES
from tollgauge.core.policy import POLICIES, POLICY_1
from tollgauge.core.rollup import Rollup
from tollgauge.core.rounding import half_up
from tollgauge.core.score import Score, ScoreError, score_from_json
from tollgauge.core.scoring import RULES, recompute
from tollgauge.core.scoring import score as score_under
from tollgauge.core.signals.envelope import MISMATCH_RULE
from tollgauge.core.terms import Quote
from tollgauge.core.units import DAY_MS, WINDOW_MS


def score(evidence: Evidence) -> Score:
    """The score under policy 1."""
    return score_under(evidence, POLICY_1)


AS_OF = 1_780_000_000_000
TODAY = AS_OF // DAY_MS
SELLER = "0x" + "5" * 40


def day(number: int, *, up: int = 48, payable: int | None = None) -> Rollup:
    good = up if payable is None else payable
    return Rollup(
        day=number,
        probes=48,
        scored=48,
        up=up,
        compliant=good,
        payable=good,
        compliance=100 * good,
        slots=2**48 - 1,
        latency_sum=150 * up,
        latency=((bucket_of(150), up),) if up else (),
    )


def probe(**more: Any) -> LastProbe:
    base = LastProbe(
        at=AS_OF - 1,
        outcome="payment-required",
        up=True,
        payable=True,
        accepts=1,
        tls_not_after=AS_OF + 90 * DAY_MS,
    )
    return replace(base, **more)


def quote(amount: int) -> Quote:
    usdc = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
    return Quote(network="eip155:8453", asset=usdc, amount=amount, pay_to=SELLER)


def perfect(**more: Any) -> Evidence:
    base = Evidence(
        format=1,
        resource="https://api.seller.dev/v1/quote",
        as_of=AS_OF,
        first_seen=AS_OF - 90 * DAY_MS,
        quote=quote(5_000),
        days=tuple(day(TODAY - back) for back in range(30)),
        recent=(6, 6),
        last=probe(),
        chain=ChainEvidence(network="eip155:8453", pay_to=SELLER, indexed_ms=WINDOW_MS),
    )
    return replace(base, **more)


def codes(result: Score) -> set[str]:
    return {flag.code for flag in result.flags}


def change(kind: str, ago: int, source: str = "probe") -> TermChange:
    return TermChange(at=AS_OF - ago, kind=kind, source=source, before="1", after="2")


def payments(*payers: tuple[str, int, int], hosts: int = 1) -> ChainEvidence:
    rows = tuple(PayerVolume(payer=p, transfers=20, paid=v, returned=r) for p, v, r in payers)
    return ChainEvidence(
        network="eip155:8453",
        pay_to=SELLER,
        indexed_ms=WINDOW_MS,
        shared_hosts=hosts,
        payers=rows,
    )


def test_a_perfect_endpoint_without_settlements_is_an_a_of_85() -> None:
    result = score(perfect())
    assert (result.score_tenths, result.grade, result.recommendation) == (850, "A", "proceed")
    assert codes(result) == {"no-settlements"}
    assert result.stats.verdict == "flawless"
    assert result.economic_hundredths == 100


def test_a_time_out_does_not_lift_the_cap_of_an_empty_accepts() -> None:
    older = probe(accepts=0, payable=False, at=AS_OF - 2)
    timed_out = probe(outcome="timeout", up=False, payable=False, accepts=None)
    result = score(perfect(last=timed_out, envelope=older))
    assert result.score_tenths == 490
    assert result.recommendation == "not-payable"


def test_a_newer_envelope_with_terms_lifts_it() -> None:
    older = probe(accepts=0, payable=False, at=AS_OF - 2)
    assert "not-payable" not in codes(score(perfect(envelope=older)))


def test_no_scored_probe_is_unverified_and_has_no_grade() -> None:
    ours = Rollup(day=TODAY, probes=3, excluded=(("dns-failed", 3),))
    result = score(perfect(days=(ours,), recent=(0, 0), last=None))
    assert result.score_tenths is None
    assert result.grade is None
    assert result.components == ()
    assert result.recommendation == "unverified"
    assert result.stats.excluded == (("dns-failed", 3),)
    assert result.stats.uptime_tenths is None


def test_danger_is_said_even_of_an_endpoint_that_was_never_measured() -> None:
    result = score(perfect(days=(), last=None, recent=(0, 0), quote=quote(10**10)))
    assert result.recommendation == "avoid"


def test_probes_outside_the_window_do_not_count() -> None:
    days = (day(TODAY, up=48), day(TODAY - 31, up=0), day(TODAY + 1, up=0))
    assert score(perfect(days=days)).stats.scored == 48


def test_changes_at_the_edges_of_the_window() -> None:
    inside = score(perfect(changes=(change("price-changed", WINDOW_MS - 1),)))
    outside = score(perfect(changes=(change("price-changed", WINDOW_MS),)))
    assert inside.stats.price_changes == 1
    assert outside.stats.price_changes == 0


def test_a_change_that_two_sources_saw_is_one_change() -> None:
    seen = tuple(change("price-changed", DAY_MS, source) for source in ("probe", "bazaar"))
    assert score(perfect(changes=seen)).stats.price_changes == 1


def test_repeated_changes_of_one_source_add_up_to_the_cap_of_their_cost() -> None:
    seen = tuple(change("price-changed", back * DAY_MS) for back in range(1, 6))
    result = score(perfect(changes=seen))
    assert result.stats.price_changes == 5
    assert {row.name: row.tenths for row in result.components}["stability"] == 400


@pytest.mark.parametrize(
    ("ago", "templated", "fires"),
    [(7 * DAY_MS, False, True), (7 * DAY_MS + 1, False, False), (DAY_MS, True, False)],
)
def test_a_payto_change_alarms_for_seven_days_unless_templated(
    ago: int, templated: bool, fires: bool
) -> None:
    result = score(perfect(changes=(change("payto-changed", ago),), templated=templated))
    assert ("payto-changed-recently" in codes(result)) is fires
    assert ("payto-varies" in codes(result)) is templated
    assert ([cap.limit_tenths for cap in result.caps] == [640]) is fires


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
    assert codes(score(perfect(quote=quote(amount)))) - {"no-settlements"} == expected


def test_an_unknown_token_is_never_priced_in_dollars() -> None:
    token = replace(quote(10**30), asset="0x" + "7" * 40)
    assert "decoy-price" not in codes(score(perfect(quote=token)))


@pytest.mark.parametrize(("recent", "down"), [((6, 0), True), ((5, 0), False), ((6, 1), False)])
def test_down_now_needs_six_probes_and_no_answer(recent: tuple[int, int], down: bool) -> None:
    assert ("down-now" in codes(score(perfect(recent=recent)))) is down


def test_certificates_are_watched_for_14_days() -> None:
    margin = AS_OF + 14 * DAY_MS
    assert "tls-expiring" in codes(score(perfect(last=probe(tls_not_after=margin - 1))))
    assert "tls-expiring" not in codes(score(perfect(last=probe(tls_not_after=margin))))


def test_a_template_that_was_never_payable_wants_parameters() -> None:
    days = tuple(day(TODAY - back, up=0) for back in range(30))
    dead = probe(outcome="not-found", up=False, accepts=None, payable=False)
    result = score(perfect(templated=True, days=days, recent=(6, 0), last=dead))
    assert result.recommendation == "parameterize"
    assert result.grade == "F"


def test_a_template_on_a_dangerous_host_is_avoided() -> None:
    days = tuple(day(TODAY - back, up=0) for back in range(30))
    assert score(perfect(templated=True, wildcard=True, days=days)).recommendation == "avoid"


def test_a_template_that_asks_to_be_paid_as_it_stands_still_wants_parameters() -> None:
    result = score(perfect(templated=True))
    assert result.recommendation == "parameterize"
    assert result.score_tenths == score(perfect()).score_tenths


def test_few_observations_ask_for_caution() -> None:
    result = score(perfect(days=tuple(day(TODAY - back) for back in range(5))))
    assert result.confidence_hundredths == 17
    assert result.recommendation == "caution"
    assert "low-confidence" in codes(result)


def test_confidence_of_exactly_a_fifth_is_enough() -> None:
    result = score(perfect(days=tuple(day(TODAY - back) for back in range(6))))
    assert result.confidence_hundredths == 20
    assert result.recommendation == "proceed"


def test_the_first_probe_is_a_first_contact_however_long_it_was_listed() -> None:
    one = Rollup(day=TODAY, probes=1, scored=1, up=1, slots=1, latency=((150, 1),), latency_sum=150)
    assert "first-contact" in codes(score(perfect(days=(one,))))
    assert "first-contact" in codes(score(perfect(first_seen=AS_OF - DAY_MS + 1)))
    assert "first-contact" not in codes(score(perfect(first_seen=AS_OF - DAY_MS)))
    said = {
        words: next(flag.message for flag in score(seen).flags if flag.code == "first-contact")
        for words, seen in (
            ("just now", perfect(days=(one,), first_seen=AS_OF - 1)),
            ("less than a day of checks", perfect(first_seen=AS_OF - DAY_MS + 1)),
            ("hardly checked", perfect(days=(one,))),
        )
    }
    assert all(words in message for words, message in said.items())


def test_lint_findings_become_flags_of_their_own_severity() -> None:
    rules = (
        ("cache-control", "warn", "Send no-store."),
        ("cache-control", "info", "Again."),
        ("envelope-mismatch", "warn", "Make them agree."),
    )
    result = score(perfect(last=probe(rules=rules)))
    assert {"lint:cache-control", "lint:envelope-mismatch", "envelope-mismatch"} <= codes(result)
    assert [f.severity for f in result.flags if f.code == "lint:cache-control"] == ["warn"]


def test_the_rule_that_tells_of_a_mismatch_is_one_of_the_linters() -> None:
    assert MISMATCH_RULE in {rule.slug for rule in ALL_RULES}


def test_payers_compare_without_regard_to_the_case_of_hex() -> None:
    mixed = payments(("0x" + "A" * 40, 10**6, 0), ("0x" + "a" * 40, 10**6, 0))
    result = score(perfect(chain=mixed))
    assert result.settlement is not None
    assert result.settlement.distinct_payers == 1
    own = score(perfect(chain=payments(("0X" + "5" * 40, 10**9, 0))))
    assert own.settlement is not None
    assert own.settlement.organic == 0
    assert "self-paid" in codes(own)


def test_the_high_end_never_falls_below_the_score_when_raw_volume_is_more_concentrated() -> None:
    many = [(f"0x{i:040x}", 10**6, 0) for i in range(1, 31)]
    result = score(perfect(chain=payments((SELLER, 10**12, 0), *many)))
    assert result.score_tenths is not None
    assert result.high_tenths is not None
    assert result.high_tenths >= result.score_tenths > 850


def test_a_shared_payto_is_known_of_the_wallet_and_divided() -> None:
    many = [(f"0x{i:040x}", 10**7, 0) for i in range(1, 13)]
    alone, shared = (score(perfect(chain=payments(*many, hosts=k))) for k in (1, 4))
    assert alone.settlement is not None
    assert shared.settlement is not None
    assert (alone.settlement.level, shared.settlement.level) == ("endpoint", "wallet")
    assert shared.settlement.effective_hundredths == alone.settlement.effective_hundredths == 1_200
    activity = {row.name: row.tenths for row in shared.components}["activity"]
    assert activity == 300
    assert "shared-payto" in codes(shared)


def test_settlements_that_are_not_indexed_are_not_called_absent() -> None:
    whole = perfect().chain
    assert whole is not None
    messages = {
        "no payTo": score(perfect(chain=None)),
        "unknown": score(perfect(chain=replace(whole, indexed_ms=0))),
        "hour": score(perfect(chain=replace(whole, indexed_ms=3_600_000))),
        "half": score(perfect(chain=replace(whole, indexed_ms=WINDOW_MS // 2))),
        "none": score(perfect()),
        "own": score(perfect(chain=payments((SELLER, 10**9, 0)))),
    }
    said = {
        name: next(flag.message for flag in result.flags if flag.code == "no-settlements")
        for name, result in messages.items()
    }
    assert "never seen to name a payTo" in said["no payTo"]
    assert "whether there are any is not known" in said["unknown"]
    assert "less than 1 % of the last 30 days is all that is indexed" in said["hour"]
    assert "50 % of the last 30 days" in said["half"]
    assert all("first buyers" not in said[name] for name in ("no payTo", "unknown", "hour", "half"))
    assert "was found in the last 30 days. You may be among its first buyers" in said["none"]
    assert "independent payer" in said["own"]


def test_flags_come_in_order_of_severity_then_code() -> None:
    result = score(perfect(wildcard=True, listed=False, injection=True, recent=(6, 0)))
    order = ["error", "warn", "info"]
    keys = [(order.index(flag.severity), flag.code) for flag in result.flags]
    assert keys == sorted(keys)
    assert len(keys) >= 5


def test_every_flag_has_a_rule_in_words_and_one_slug() -> None:
    assert len({rule.code for rule in RULES[1].flags}) == len(RULES[1].flags) == 23
    assert all(rule.words.endswith(".") for rule in RULES[1].flags)


def test_the_weights_of_a_policy_add_up_to_a_hundred() -> None:
    assert all(sum(policy.weights.values()) == 100 for policy in POLICIES.values())
    assert {rule.code for rule in RULES[1].flags} >= {cap.code for cap in POLICY_1.caps}


@pytest.mark.parametrize(
    ("tenths", "grade"),
    [
        *((1_000, "A"), (810, "A"), (809, "B"), (650, "B"), (649, "C")),
        *((500, "C"), (499, "D"), (350, "D"), (349, "F"), (0, "F")),
    ],
)
def test_grades_change_at_their_thresholds(tenths: int, grade: str) -> None:
    assert POLICY_1.grade(tenths) == grade


def test_halves_round_up() -> None:
    assert [half_up((part, 6)) for part in (0, 2, 3, 9)] == [0, 0, 1, 2]
    result = score(perfect(days=(replace(day(TODAY), latency_sum=150 * 48 + 24),)))
    assert result.stats.avg_latency_ms == 151


def test_recomputing_an_evidence_document_gives_the_same_score() -> None:
    assert recompute(to_json(perfect())) == score(perfect())


def report(**more: Any) -> bytes:
    named = {"policyVersion": 1, "asOf": "2026-05-28T20:26:40Z", "digest": digest(perfect())}
    body = {**named, "document": to_document(perfect()), **more}
    return json.dumps({"resource": "https://api.seller.dev/v1/quote", "evidence": body}).encode()


def test_recomputing_a_report_that_carries_its_evidence_gives_the_same_score() -> None:
    assert recompute(report()) == score(perfect())


def test_what_a_report_claims_plays_no_part_in_its_score() -> None:
    other = perfect(wildcard=True)
    assert recompute(report(document=to_document(other))) == score(other)


@pytest.mark.parametrize(
    "text", [b'{"evidence": {"digest": "00"}}', b'{"score": 99.9}', b'{"evidence": null}']
)
def test_a_report_without_its_evidence_is_refused(text: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"evidence\.document"):
        recompute(text)


@pytest.mark.parametrize("version", [3, 0, "1", None, 1.0, True, [1]])
def test_a_policy_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(ScoreError):
        recompute(report(policyVersion=version))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"stats": 1}', b"null"])
def test_what_is_no_stored_score_is_refused(text: bytes) -> None:
    with pytest.raises(ScoreError):
        score_from_json(text)
