"""The circuit breaker for a peer that stopped answering."""

from __future__ import annotations

from tollgauge.clients.facilitator import SILENT, TRIAL_S, Breaker


def open_breaker(at_s: float) -> Breaker:
    breaker = Breaker()
    for _ in range(SILENT):
        breaker.record_silence(at_s)
    return breaker


def test_breaker_opens_only_after_consecutive_silence() -> None:
    breaker = Breaker()
    for _ in range(3 * SILENT):
        breaker.record_silence(1.0)
        breaker.record_response()
    assert breaker.passes(1.0)
    for _ in range(SILENT - 1):
        breaker.record_silence(1.0)
    assert breaker.passes(1.0)
    breaker.record_silence(1.0)
    assert not breaker.passes(1.0)


def test_open_breaker_periodically_admits_one_trial_call() -> None:
    breaker = open_breaker(10.0)
    assert not breaker.passes(10.0 + TRIAL_S - 0.1)
    assert breaker.passes(10.0 + TRIAL_S)
    assert not breaker.passes(10.0 + TRIAL_S + 0.1)
    assert breaker.passes(10.0 + 2 * TRIAL_S)


def test_silent_trial_keeps_it_open_and_answered_trial_closes_it() -> None:
    breaker = open_breaker(10.0)
    assert breaker.passes(12.0)
    breaker.record_silence(12.5)
    assert not breaker.passes(13.0)
    assert breaker.passes(14.0)
    breaker.record_response()
    assert [breaker.passes(14.1) for _ in range(3)] == [True, True, True]
