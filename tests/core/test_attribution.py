"""Failures that unrelated hosts share are ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.attribution import (
    COMMON_MODE,
    NO_CONNECTIVITY,
    NO_REFERENCE,
    SITES_MIN,
    common_mode,
    network_failure,
    site,
    unproven,
)
from tollgauge.core.exchange import Answer, Exchange, Fault, FaultKind
from tollgauge.core.finding import Lint
from tollgauge.core.probe import Attribution, ProbeResult, judge

NOTHING = Lint(payable=False, compliant=False, version=None)


def seen(result: Answer | Fault) -> ProbeResult:
    return judge(Exchange(url="https://a.b/c", method="GET", at=0, result=result), NOTHING)


def timeout() -> ProbeResult:
    return seen(Fault(kind=FaultKind.TIMEOUT))


def paid() -> ProbeResult:
    return seen(Answer(status=402))


def hosts(count: int) -> list[str]:
    return [f"api.seller{number}.com" for number in range(count)]


RESULTS = st.one_of(
    st.builds(Answer, status=st.sampled_from([200, 402, 404, 429, 500])),
    st.builds(Fault, kind=st.sampled_from(FaultKind)),
).map(seen)
WAVES = st.lists(st.tuples(st.sampled_from(hosts(9)), RESULTS), max_size=30)


def test_five_unrelated_hosts_that_time_out_together_are_not_to_blame() -> None:
    wave = [(host, timeout()) for host in hosts(SITES_MIN)]
    for _, result in common_mode(wave, connected=None):
        assert (result.attribution, result.reason) == (Attribution.OURS, COMMON_MODE)


def test_four_are_too_few_to_tell() -> None:
    wave = [(host, timeout()) for host in hosts(SITES_MIN - 1)]
    assert common_mode(wave, connected=True) == tuple(wave)


def test_hosts_of_one_domain_are_one_site() -> None:
    wave = [(f"api{number}.seller.com", timeout()) for number in range(50)]
    assert common_mode(wave, connected=True) == tuple(wave)


@pytest.mark.parametrize(("answering", "ours"), [(4, True), (5, False), (6, False)])
def test_more_than_half_of_the_sites_have_to_fail(answering: int, ours: bool) -> None:
    names = hosts(5 + answering)
    wave = [(host, timeout()) for host in names[:5]] + [(host, paid()) for host in names[5:]]
    judged = common_mode(wave, connected=True)
    assert (judged[0][1].attribution is Attribution.OURS) == ours


def test_without_connectivity_every_network_failure_is_ours() -> None:
    (only,) = common_mode([("a.com", timeout())], connected=False)
    assert (only[1].attribution, only[1].reason) == (Attribution.OURS, NO_CONNECTIVITY)


def test_a_site_that_answered_once_has_not_failed() -> None:
    names = hosts(SITES_MIN)
    wave = [(host, timeout()) for host in names] + [(f"www.{names[0][4:]}", paid())]
    assert common_mode(wave, connected=None) == tuple(wave)


def test_our_own_local_failures_say_nothing_of_the_others() -> None:
    local = seen(Fault(kind=FaultKind.LOCAL))
    names = hosts(20)
    wave = [(host, timeout()) for host in names[:5]] + [(host, local) for host in names[5:]]
    assert common_mode(wave, connected=None)[0][1].attribution is Attribution.OURS


@given(WAVES, st.sampled_from([None, True, False]))
def test_an_answer_and_broken_http_stay_with_the_target(
    wave: list[tuple[str, ProbeResult]], connected: bool | None
) -> None:
    judged = common_mode(wave, connected=connected)
    assert [host for host, _ in judged] == [host for host, _ in wave]
    for (_, before), (_, after) in zip(wave, judged, strict=True):
        if not network_failure(before):
            assert after == before


@given(WAVES, st.sampled_from([None, True, False]))
def test_all_network_failures_of_a_wave_are_judged_alike(
    wave: list[tuple[str, ProbeResult]], connected: bool | None
) -> None:
    judged = common_mode(wave, connected=connected)
    failures = [index for index, (_, result) in enumerate(wave) if network_failure(result)]
    assert len({judged[index][1] != wave[index][1] for index in failures}) <= 1
    assert common_mode(judged, connected=connected) == judged


@given(WAVES.flatmap(lambda wave: st.tuples(st.just(wave), st.permutations(wave))))
def test_the_order_of_a_wave_does_not_matter(
    waves: tuple[list[tuple[str, ProbeResult]], list[tuple[str, ProbeResult]]],
) -> None:
    one, other = (common_mode(wave, connected=None) for wave in waves)
    assert sorted(map(str, one)) == sorted(map(str, other))


def test_a_site_is_the_last_two_labels_in_lower_case() -> None:
    assert site("A.B.Example.COM.") == "example.com"
    assert site("localhost") == "localhost"


# TLS, certificates and empty replies


SHAREABLE = [FaultKind.TLS, FaultKind.TLS_INVALID, FaultKind.EMPTY]


def failed(kind: FaultKind, *, at: int = 0, reason: str | None = None) -> ProbeResult:
    """A result of one fault; `reason` as the store has it where the fault was found to be ours."""
    result = replace(seen(Fault(kind=kind)), at=at)
    if reason is None:
        return result
    return replace(result, attribution=Attribution.OURS, reason=reason)


@pytest.mark.parametrize("kind", SHAREABLE)
def test_unrelated_hosts_that_fail_on_tls_together_are_not_to_blame(kind: FaultKind) -> None:
    wave = [(host, failed(kind)) for host in hosts(40)]
    for _, result in common_mode(wave, connected=None):
        assert (result.attribution, result.reason) == (Attribution.OURS, COMMON_MODE)


@pytest.mark.parametrize("kind", SHAREABLE)
def test_what_fails_while_no_reference_answers_is_ours(kind: FaultKind) -> None:
    (only,) = common_mode([("a.com", failed(kind))], connected=False)
    assert (only[1].attribution, only[1].reason) == (Attribution.OURS, NO_CONNECTIVITY)


@pytest.mark.parametrize("kind", SHAREABLE)
@pytest.mark.parametrize("connected", [True, None])
def test_one_bad_certificate_among_others_that_work_is_its_owner_s(
    kind: FaultKind, connected: bool | None
) -> None:
    wave = [(host, paid()) for host in hosts(6)] + [("bad.com", failed(kind))]
    assert common_mode(wave, connected=connected) == tuple(wave)


@pytest.mark.parametrize("kind", [FaultKind.MALFORMED, FaultKind.OVERSIZE])
def test_broken_http_came_from_the_target_and_stays_its_own(kind: FaultKind) -> None:
    wave = [(host, failed(kind)) for host in hosts(40)]
    assert common_mode(wave, connected=False) == tuple(wave)


def minute(count: int, *, of: int, at: int) -> list[tuple[str, ProbeResult]]:
    """What a minute brought: so many failures found to be shared, of so many sites."""
    shared = [(host, failed(FaultKind.TLS, at=at, reason=COMMON_MODE)) for host in hosts(of)]
    answered = [(host, replace(paid(), at=at)) for host in hosts(of)]
    return shared[:count] + answered[count:]


@pytest.mark.parametrize(
    ("count", "of", "ago", "ours"),
    [
        (5, 5, 1_000, True),
        (5, 9, 1_000, True),
        (4, 4, 1_000, False),
        (5, 10, 1_000, False),
        (40, 40, 60_000, False),
    ],
)
def test_one_failure_in_a_minute_of_shared_failures_is_ours(
    count: int, of: int, ago: int, ours: bool
) -> None:
    now = 1_000_000
    alone = [("alone.com", failed(FaultKind.TIMEOUT, at=now))]
    recent = minute(count, of=of, at=now - ago)
    ((_, result),) = common_mode(alone, connected=True, recent=recent)
    assert (result.attribution is Attribution.OURS) == ours


# Nobody to ask


@pytest.mark.parametrize("kind", [FaultKind.DNS_NOT_FOUND, FaultKind.NOT_PUBLIC])
@pytest.mark.parametrize("count", [1, 3])
def test_without_a_reference_what_a_resolver_says_proves_nothing(
    kind: FaultKind, count: int
) -> None:
    for _, result in unproven([(host, failed(kind)) for host in hosts(count)]):
        assert (result.attribution, result.reason) == (Attribution.UNKNOWN, NO_REFERENCE)


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.CONNECT, FaultKind.TLS_INVALID])
def test_without_a_reference_one_other_failure_is_the_target_s(kind: FaultKind) -> None:
    wave = [("a.com", failed(kind))]
    assert unproven(wave) == tuple(wave)


def test_without_a_reference_two_unrelated_bad_certificates_may_be_our_clock() -> None:
    wave = [(host, failed(FaultKind.TLS_INVALID)) for host in hosts(2)]
    assert {result.attribution for _, result in unproven(wave)} == {Attribution.UNKNOWN}
    related = [(f"{n}.seller.com", failed(FaultKind.TLS_INVALID)) for n in range(2)]
    assert unproven(related) == tuple(related)


@pytest.mark.parametrize(("answered_at", "doubt"), [(None, True), (50, True), (150, False)])
def test_an_answer_since_the_other_bad_certificate_speaks_for_our_clock(
    answered_at: int | None, doubt: bool
) -> None:
    recent = [("other.com", failed(FaultKind.TLS_INVALID, at=100))]
    if answered_at is not None:
        recent.append(("good.com", replace(paid(), at=answered_at)))
    wave = [("a.com", failed(FaultKind.TLS_INVALID, at=200))]
    ((_, result),) = unproven(wave, recent=recent)
    assert (result.attribution is Attribution.UNKNOWN) == doubt
