"""Failures that unrelated hosts share are ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.attribution import (
    COMMON_MODE,
    NO_CONNECTIVITY,
    SITES_MIN,
    common_mode,
    network_failure,
    site,
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
def test_an_answer_and_a_broken_certificate_stay_with_the_target(
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
