"""An endpoint whose offers no installed official client signs has no grade, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support import timed_evidence
from tests.support.lint_envelopes import PAYEE, V2, change_envelope, encode_envelope

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Timings
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.score.advice import summary
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score

AS_OF = 20_600 * DAY_MS + 12 * HOUR_MS
TIMES = range(AS_OF - 10 * DAY_MS, AS_OF, 30 * MINUTE_MS)
EVM: dict[str, Any] = V2["accepts"][0]
STELLAR = {
    **EVM,
    "network": "stellar:pubnet",
    "asset": "CCW67TSZV3SSS2HXMBQ5JFGCKJNXKZM7UQUWUZPUTHXSTZLEO7SJMI75",
    "payTo": "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN",
    "extra": {},
}
SUBSCRIPTION = {**EVM, "scheme": "subscription"}
DELEGATED = {**EVM, "extra": {"assetTransferMethod": "erc7710"}}
BROKEN = {**EVM, "payTo": "0xYOUR_WALLET"}


def judge_probes(*accepts: object, times: Sequence[int] = TIMES) -> list[ProbeResult]:
    """The results of probes of a seller that offers this."""
    return judge_envelopes(change_envelope(V2, "accepts", [*accepts]), times)


def judge_envelopes(envelope: dict[str, Any], times: Sequence[int]) -> list[ProbeResult]:
    headers = (("payment-required", encode_envelope(envelope)),)
    exchange = Exchange(
        url="https://api.example.com/weather",
        method="GET",
        at=AS_OF,
        result=Answer(status=402, headers=headers, body=b""),
        timings=Timings(total=100),
    )
    findings = lint(exchange)
    return [judge(replace(exchange, at=at), findings) for at in times]


def score_probes(probes: list[ProbeResult]) -> Score:
    return score(timed_evidence.observe(probes, timed_evidence.unprobed_evidence(as_of=AS_OF)))


@pytest.mark.parametrize("entry", [STELLAR, SUBSCRIPTION, DELEGATED])
def test_offer_that_no_installed_client_signs_has_no_grade(entry: object) -> None:
    result = score_probes(judge_probes(entry))
    assert (result.score_tenths, result.grade, result.components) == (None, None, ())
    assert result.recommendation == "unverified"
    assert "no installed official client signs" in result.reason
    assert summary(result) == f"{result.reason} Unverified."
    assert "not-evaluated" in {flag.code for flag in result.flags}


def test_uptime_forecast_and_down_of_an_ungraded_endpoint_are_kept() -> None:
    result = score_probes(judge_probes(STELLAR))
    assert (result.stats.uptime_tenths, result.is_payable) == (1_000, True)
    assert (result.payable_24h_permille or 0) > 900


def test_ungraded_endpoint_is_avoided_while_it_is_down() -> None:
    probes = judge_probes(STELLAR)
    probes[-3:] = [timed_evidence.unpaid_probe(probe.at) for probe in probes[-3:]]
    result = score_probes(probes)
    assert (result.grade, result.recommendation, result.is_payable) == (None, "avoid", False)


def test_endpoint_that_could_be_evaluated_in_the_window_keeps_its_grade() -> None:
    half = len(TIMES) // 2
    probes = judge_probes(EVM, times=TIMES[:half])
    good = score_probes(judge_probes(EVM))
    result = score_probes(probes + judge_probes(STELLAR, times=TIMES[half:]))
    compliance = {one.name: one.tenths for one in result.components}["compliance"]
    assert result.grade is not None
    assert 0 < compliance < 600
    assert (result.score_tenths or 0) < (good.score_tenths or 0)


def test_one_offer_that_can_be_evaluated_is_enough_for_a_grade() -> None:
    assert score_probes(judge_probes(STELLAR, EVM)).grade is not None
    result = score_probes(judge_probes(STELLAR, BROKEN))
    assert (result.grade, result.recommendation) == ("F", "avoid")


def test_envelope_that_is_broken_on_any_network_is_graded() -> None:
    document = change_envelope(V2, "accepts", [{**STELLAR, "payTo": PAYEE}])
    results = judge_envelopes({**document, "x402Version": "2"}, TIMES)
    assert score_probes(results).grade == "F"
