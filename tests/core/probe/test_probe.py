"""Judging a probe: statuses and faults to outcome, attribution, up and compliance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.endpoint.terms import Terms
from tollgauge.core.probe.exchange import (
    Answer,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    Lint,
    Severity,
    Timings,
)
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import LATE_HERE, LATE_MS, ProbeResult, judge

NOTHING = Lint(payable=False, compliant=False, version=None)


def probe(result: Answer | Fault, lint: Lint = NOTHING) -> ProbeResult:
    exchange = Exchange(
        url="https://a.example.com/x",
        method="POST",
        at=1_000,
        result=result,
        timings=Timings(total=42),
        tls_not_after=7,
    )
    return judge(exchange, lint)


def findings(errors: int, warnings: int) -> tuple[Finding, ...]:
    severities = [Severity.ERROR] * errors + [Severity.WARN] * warnings + [Severity.INFO]
    return tuple(Finding(rule="r", severity=severity, message="m") for severity in severities)


@pytest.mark.parametrize("status", [402, 200, 204, 299, 400, 422])
def test_target_that_answers_the_protocol_is_up_by_its_own_doing(status: int) -> None:
    result = probe(Answer(status=status))
    assert (result.up, result.attribution, result.scored) == (True, Attribution.TARGET, True)
    assert result.latency_ms == 42


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (401, Outcome.FORBIDDEN),
        (403, Outcome.FORBIDDEN),
        (429, Outcome.THROTTLED),
        (511, Outcome.NETWORK_LOGIN),
        (404, Outcome.NOT_FOUND),
        (405, Outcome.METHOD_REFUSED),
        (410, Outcome.NOT_FOUND),
        (418, Outcome.CLIENT_ERROR),
        (301, Outcome.REDIRECT),
        (308, Outcome.REDIRECT),
        (500, Outcome.SERVER_ERROR),
        (503, Outcome.SERVER_ERROR),
        (199, Outcome.BROKEN),
        (999, Outcome.BROKEN),
    ],
)
def test_every_other_answer_is_down_and_scored(status: int, outcome: Outcome) -> None:
    result = probe(Answer(status=status))
    assert (result.up, result.outcome, result.scored) == (False, outcome, True)
    assert result.latency_ms is None


@pytest.mark.parametrize("kind", sorted(set(FaultKind) - {FaultKind.DNS_FAILED, FaultKind.LOCAL}))
def test_fault_of_the_target_is_down_and_scored(kind: FaultKind) -> None:
    result = probe(Fault(kind=kind))
    assert (result.up, result.attribution, result.reason) == (False, Attribution.TARGET, kind.value)


def test_resolver_failure_is_unknown_and_local_failure_is_local() -> None:
    assert probe(Fault(kind=FaultKind.DNS_FAILED)).attribution is Attribution.UNKNOWN
    assert probe(Fault(kind=FaultKind.LOCAL)).attribution is Attribution.LOCAL
    assert not probe(Fault(kind=FaultKind.DNS_FAILED)).scored


@pytest.mark.parametrize(
    ("errors", "warnings", "payable", "points"),
    [
        (0, 0, True, 100),
        (0, 1, True, 96),
        (0, 5, True, 80),
        (0, 50, True, 80),
        (1, 0, True, 50),
        (3, 9, True, 50),
        (1, 0, False, 0),
        (0, 0, False, 0),
    ],
)
def test_compliance_falls_by_warnings_then_by_errors(
    errors: int, warnings: int, payable: bool, points: int
) -> None:
    lint = Lint(
        payable=payable,
        compliant=errors == 0,
        version=2,
        findings=findings(errors, warnings),
    )
    assert probe(Answer(status=402), lint).compliance == points


def test_compliance_is_nothing_while_the_target_is_down() -> None:
    lint = Lint(payable=True, compliant=True, version=2)
    assert probe(Answer(status=500), lint).compliance == 0
    assert probe(Fault(kind=FaultKind.TIMEOUT), lint).compliance == 0


def test_quote_and_the_count_of_options_come_from_the_envelope() -> None:
    terms = Terms(
        version=2, scheme="exact", network="eip155:8453", asset="0xAB", amount=5, pay_to="0xCD"
    )
    lint = Lint(payable=True, compliant=True, version=2, accepts=1, terms=(terms,))
    result = probe(Answer(status=402), lint)
    assert result.quote == terms.quote()
    assert (result.accepts, result.version, result.method, result.tls_not_after) == (
        1,
        2,
        "POST",
        7,
    )
    assert probe(Answer(status=402)).accepts is None


@given(
    st.one_of(
        st.builds(Answer, status=st.integers(0, 1_000)),
        st.builds(Fault, kind=st.sampled_from(FaultKind)),
    ),
    st.booleans(),
)
def test_only_an_answer_can_be_up_and_compliance_stays_in_its_range(
    seen: Answer | Fault, payable: bool
) -> None:
    result = probe(seen, Lint(payable=payable, compliant=False, version=None))
    assert 0 <= result.compliance <= 100
    assert not result.up or isinstance(seen, Answer)


# Our own lateness


def judge_fault(kind: FaultKind, timings: Timings) -> ProbeResult:
    fault = Fault(kind=kind)
    exchange = Exchange(url="https://a.com/x", method="GET", at=0, result=fault, timings=timings)
    return judge(exchange, NOTHING)


def whose(result: ProbeResult) -> tuple[Attribution, str]:
    return result.attribution, result.reason


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.CONNECT_TIMEOUT])
def test_timeout_is_the_targets_unless_this_machine_was_late(kind: FaultKind) -> None:
    punctual = judge_fault(kind, Timings(total=10_004, delay=LATE_MS, overrun=4))
    assert whose(punctual) == (Attribution.TARGET, kind.value)
    late = judge_fault(kind, Timings(total=10_004, delay=LATE_MS + 1, overrun=4))
    assert whose(late) == (Attribution.LOCAL, LATE_HERE)
    assert late.outcome is Outcome.TIMEOUT


def test_dns_timeout_while_this_machine_is_late_is_local() -> None:
    timings = Timings(total=6_000, delay=LATE_MS)
    assert judge_fault(FaultKind.DNS_FAILED, timings).attribution is Attribution.UNKNOWN
    late = judge_fault(FaultKind.DNS_FAILED, replace(timings, delay=LATE_MS + 1))
    assert whose(late) == (Attribution.LOCAL, LATE_HERE)


@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.EMPTY, FaultKind.TLS])
def test_reset_while_this_machine_is_late_is_local(kind: FaultKind) -> None:
    assert whose(judge_fault(kind, Timings(total=9_000, delay=8_000))) == (
        Attribution.LOCAL,
        LATE_HERE,
    )


@pytest.mark.parametrize(
    "kind", [FaultKind.DNS_NOT_FOUND, FaultKind.CONNECT, FaultKind.TLS_INVALID, FaultKind.MALFORMED]
)
def test_failures_that_local_delay_cannot_cause_stay_with_the_target(kind: FaultKind) -> None:
    result = judge_fault(kind, Timings(total=900, delay=800))
    assert whose(result) == (Attribution.TARGET, kind.value)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_fault_long_after_the_deadline_is_local(kind: FaultKind) -> None:
    result = judge_fault(kind, Timings(total=14_344, overrun=4_344))
    assert whose(result) == (Attribution.LOCAL, LATE_HERE)


def judge_answer(timings: Timings) -> ProbeResult:
    answer = Answer(status=402)
    exchange = Exchange(url="https://a.com/x", method="GET", at=0, result=answer, timings=timings)
    return judge(exchange, NOTHING)


def test_answer_while_this_machine_is_late_is_local_and_keeps_its_latency() -> None:
    """Less the delay it would make a slow target look fast."""
    late = judge_answer(Timings(ttfb=8_990, total=9_000, delay=LATE_MS + 1))
    assert whose(late) == (Attribution.LOCAL, LATE_HERE)
    assert (late.scored, late.timings.total) == (False, 9_000)
    punctual = judge_answer(Timings(ttfb=8_990, total=9_000, delay=LATE_MS))
    assert whose(punctual) == (Attribution.TARGET, "")
    assert punctual.latency_ms == 9_000
    past = judge_answer(Timings(total=14_000, delay=13_000, overrun=4_000))
    assert whose(past) == (Attribution.LOCAL, LATE_HERE)
