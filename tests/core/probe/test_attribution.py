"""Failures that surprise at unrelated sites together are ours, unless our network works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.probe.attribution import (
    BASE_RATE,
    CHANCE,
    COMMON_MODE,
    NO_CONNECTIVITY,
    NO_REFERENCE,
    SITES_MIN,
    SURPRISE_MS,
    LastUp,
    NetworkProbe,
    Wave,
    attribute_dns_failures,
    attribute_network_login,
    attribute_to_this_machine,
    exclude_unproven,
    find_cause,
    is_network_failure,
    is_suspicious,
    min_suspicious_failures,
    sign_of_result,
)
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Lint, Timings
from tollgauge.core.probe.outcome import Attribution, Sign
from tollgauge.core.probe.probe import LATE_HERE, ProbeResult, judge

NOW = 1_795_000_000_000
NOTHING = Lint(payable=False, compliant=False, version=None)
WAS_UP = LastUp(up_at=NOW - HOUR_MS)
DEAD = LastUp(up_at=NOW - 50 * HOUR_MS, down_since=NOW - 40 * HOUR_MS)
NEVER_SEEN = LastUp()
BROKEN_HTTP = [FaultKind.MALFORMED, FaultKind.OVERSIZE]


def make_probe(result: Answer | Fault, *, at: int = NOW, delay: int = 0) -> ProbeResult:
    timings = Timings(total=90, delay=delay)
    return judge(
        Exchange(url="https://a.b/c", method="GET", at=at, result=result, timings=timings), NOTHING
    )


def failure(kind: FaultKind = FaultKind.TIMEOUT, *, at: int = NOW) -> ProbeResult:
    return make_probe(Fault(kind=kind), at=at)


def make_payable_result(*, at: int = NOW) -> ProbeResult:
    return make_probe(Answer(status=402), at=at)


def make_network_probe(host: str, result: ProbeResult, last_up: LastUp = WAS_UP) -> NetworkProbe:
    return NetworkProbe(host=host, at=result.at, sign=sign_of_result(result), last_up=last_up)


def sites(count: int, *, first: int = 0) -> list[str]:
    return [f"api.seller{number}.com" for number in range(first, first + count)]


def make_failures(count: int, last_up: LastUp = WAS_UP, *, at: int = NOW) -> list[NetworkProbe]:
    return [make_network_probe(host, failure(at=at), last_up) for host in sites(count)]


def make_answers(count: int, *, at: int = NOW) -> list[NetworkProbe]:
    return [
        make_network_probe(host, make_payable_result(at=at)) for host in sites(count, first=1_000)
    ]


def why(minute: Sequence[NetworkProbe], *references: bool) -> str | None:
    return find_cause(
        minute, answered=any(one.sign is Sign.ANSWERED for one in minute), references=references
    )


# Surprise


def test_five_unrelated_sites_that_fail_together_are_not_to_blame() -> None:
    assert why(make_failures(SITES_MIN)) == COMMON_MODE
    assert why(make_failures(SITES_MIN - 1)) is None, "four are too few to tell"


def test_hosts_of_one_site_count_once() -> None:
    hosts = [f"api{number}.seller.co.uk" for number in range(50)]
    assert why([make_network_probe(host, failure()) for host in hosts]) is None
    shops = [f"shop{number}.vercel.app" for number in range(50)]
    assert why([make_network_probe(host, failure()) for host in shops]) == COMMON_MODE


@pytest.mark.parametrize(
    ("last_up", "surprising"),
    [
        (LastUp(up_at=NOW - SURPRISE_MS + 1), True),
        (LastUp(up_at=NOW - SURPRISE_MS), False),
        (LastUp(up_at=NOW - HOUR_MS, down_since=NOW - 30 * MINUTE_MS), False),
        (LastUp(up_at=NOW - HOUR_MS, down_since=NOW - 30 * SECOND_MS), True),
        (LastUp(up_at=NOW - HOUR_MS, down_since=NOW), True),
        (DEAD, False),
        (NEVER_SEEN, False),
    ],
)
def test_only_failures_of_recently_up_endpoints_are_surprising(
    last_up: LastUp, surprising: bool
) -> None:
    assert all(one.surprising == surprising for one in make_failures(9, last_up))
    assert is_suspicious(make_failures(9, last_up)) == surprising


def test_site_that_answered_last_has_not_failed() -> None:
    minute = make_failures(SITES_MIN)
    answer = make_network_probe("www.seller0.com", make_payable_result())
    assert why([*minute, answer]) is None
    before = replace(answer, at=NOW - 30 * SECOND_MS)
    assert why([*minute, before]) == COMMON_MODE


@pytest.mark.parametrize("count", [0, 1, 5, 17, 128, 400])
def test_more_than_chance_is_the_exact_tail_of_the_binomial(count: int) -> None:
    def tail(least: int) -> Fraction:
        terms = (
            comb(count, k) * BASE_RATE**k * (1 - BASE_RATE) ** (count - k)
            for k in range(least, count + 1)
        )
        return sum(terms, Fraction(0))

    number = min_suspicious_failures(count)
    assert number >= SITES_MIN
    assert tail(number) < CHANCE
    assert number == SITES_MIN or tail(number - 1) >= CHANCE


def test_failures_explained_by_chance_grow_with_the_number_of_sites() -> None:
    numbers = [min_suspicious_failures(count) for count in range(1_000)]
    assert all(one <= other for one, other in pairwise(numbers))
    assert numbers[-1] == 22
    assert min_suspicious_failures(10_000) == 133


# Unless our network is seen to work


def test_nine_of_seventeen_that_go_down_in_one_wave_are_blamed() -> None:
    minute = make_failures(9) + make_answers(8)
    assert is_suspicious(minute)
    assert why(minute) is None
    assert why(minute, True, True) is None


@pytest.mark.parametrize("references", [(False,), (True, False)])
def test_while_a_reference_is_out_of_reach_they_are_not(references: tuple[bool, ...]) -> None:
    assert why(make_failures(9) + make_answers(8), *references) == COMMON_MODE


def test_answers_before_and_after_a_silence_do_not_vouch_for_it() -> None:
    silence = make_failures(9, at=NOW - 20 * SECOND_MS)
    around = make_answers(30, at=NOW - 30 * SECOND_MS) + make_answers(40, at=NOW - 10 * SECOND_MS)
    assert why(silence + around, True) == COMMON_MODE


def test_answers_in_between_prove_that_the_local_network_works() -> None:
    """One of three a second is down, for a minute."""
    instants = [NOW - number * SECOND_MS for number in range(60)]
    failed = [
        make_network_probe(host, failure(at=at))
        for host, at in zip(sites(20), instants[::3], strict=True)
    ]
    answered = [
        make_network_probe(host, make_payable_result(at=at))
        for host, at in zip(sites(40, first=90), instants[1::3] + instants[2::3], strict=True)
    ]
    assert is_suspicious(failed)
    assert why(failed + answered) is None


def test_last_failures_of_a_local_outage_are_local_despite_answers() -> None:
    """Attempts that began just before its end: some came through with their second packet."""
    edge = [*make_failures(4), *make_answers(6)]
    before = [
        replace(one, host=f"www.before{number}.com", at=NOW - (20 + number) * SECOND_MS)
        for number, one in enumerate(make_failures(9))
    ]
    assert why(edge) is None
    assert why(edge + before, True) == COMMON_MODE


def test_without_any_answer_all_network_failures_are_local() -> None:
    for last_up in (WAS_UP, DEAD, NEVER_SEEN):
        (one,) = make_failures(1, last_up)
        assert why([one], False, False) == NO_CONNECTIVITY
        ((result),) = attribute_to_this_machine([(one, failure())], NO_CONNECTIVITY)
        assert (result.attribution, result.reason) == (Attribution.LOCAL, NO_CONNECTIVITY)


def test_local_failure_excludes_all_but_dead_endpoints() -> None:
    wave: Wave = [
        (one, failure())
        for one in (*make_failures(1), *make_failures(1, DEAD), *make_failures(1, NEVER_SEEN))
    ]
    up, dead, new = attribute_to_this_machine(wave, COMMON_MODE)
    assert (up.attribution, new.attribution) == (Attribution.LOCAL, Attribution.LOCAL)
    assert dead == failure()
    assert attribute_to_this_machine(wave, COMMON_MODE, even_dead=True) == (up, up, new)


def test_timeouts_by_local_overload_are_local_and_not_evidence() -> None:
    """19 of 128, in a second in which our loop was held up."""
    late = [make_probe(Fault(kind=FaultKind.TIMEOUT), delay=SECOND_MS) for _ in range(19)]
    assert {(r.attribution, r.reason) for r in late} == {(Attribution.LOCAL, LATE_HERE)}
    assert {sign_of_result(result) for result in late} == {None}
    wave = [make_network_probe(host, result) for host, result in zip(sites(19), late, strict=True)]
    assert not is_suspicious(wave + make_answers(109))


# What counts as a failure of the network


SHAREABLE = [
    FaultKind.DNS_NOT_FOUND,
    FaultKind.CONNECT,
    FaultKind.RESET,
    FaultKind.TIMEOUT,
    FaultKind.TLS,
    FaultKind.TLS_INVALID,
    FaultKind.EMPTY,
]


@pytest.mark.parametrize("kind", SHAREABLE)
def test_unrelated_sites_that_fail_so_together_are_not_to_blame(kind: FaultKind) -> None:
    wave = [(make_network_probe(host, failure(kind)), failure(kind)) for host in sites(40)]
    assert why([one for one, _ in wave]) == COMMON_MODE
    for result in attribute_to_this_machine(wave, COMMON_MODE):
        assert (result.attribution, result.reason) == (Attribution.LOCAL, COMMON_MODE)


@pytest.mark.parametrize("kind", BROKEN_HTTP)
def test_broken_http_came_from_the_target_and_stays_its_own(kind: FaultKind) -> None:
    wave = [(make_network_probe(host, failure(kind)), failure(kind)) for host in sites(40)]
    assert why([one for one, _ in wave]) is None
    assert attribute_to_this_machine(wave, NO_CONNECTIVITY) == (failure(kind),) * 40
    assert exclude_unproven(wave) == (failure(kind),) * 40


def test_excluded_failures_are_still_evidence_about_the_network() -> None:
    for reason in (COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE):
        for attribution in (Attribution.LOCAL, Attribution.UNKNOWN):
            result = replace(failure(FaultKind.EMPTY), attribution=attribution, reason=reason)
            assert sign_of_result(result) is Sign.FAILED
    assert sign_of_result(make_probe(Fault(kind=FaultKind.LOCAL))) is None
    assert sign_of_result(make_probe(Answer(status=429))) is Sign.ANSWERED


# For any minute


RESULTS = st.one_of(
    st.builds(Answer, status=st.sampled_from([200, 402, 404, 429, 500])),
    st.builds(Fault, kind=st.sampled_from(FaultKind)),
)
INSTANTS = st.integers(min_value=NOW - MINUTE_MS + 1, max_value=NOW)
LAST_UPS = st.sampled_from([WAS_UP, WAS_UP, WAS_UP, DEAD, NEVER_SEEN])
MEMBERS = st.tuples(
    st.sampled_from(sites(14)),
    st.builds(lambda result, at: make_probe(result, at=at), RESULTS, INSTANTS),
    LAST_UPS,
).map(lambda member: (make_network_probe(*member), member[1]))
WAVES = st.lists(MEMBERS, max_size=30)
REFERENCES = st.lists(st.booleans(), max_size=3)


def of(wave: Wave) -> list[NetworkProbe]:
    return [one for one, _ in wave]


@given(WAVES, REFERENCES, st.sampled_from([COMMON_MODE, NO_CONNECTIVITY]))
def test_answer_and_broken_http_stay_with_the_target(
    wave: Wave, references: list[bool], reason: str
) -> None:
    for judged in (attribute_to_this_machine(wave, reason, even_dead=True), exclude_unproven(wave)):
        for (_, before), after in zip(wave, judged, strict=True):
            if not is_network_failure(before):
                assert after == before


@given(WAVES.flatmap(lambda wave: st.tuples(st.just(wave), st.permutations(wave))), REFERENCES)
def test_order_of_a_minute_does_not_matter(
    waves: tuple[Wave, Wave], references: list[bool]
) -> None:
    one, other = waves
    assert why(of(one), *references) == why(of(other), *references)
    assert sorted(map(str, exclude_unproven(one))) == sorted(map(str, exclude_unproven(other)))


@given(WAVES, st.lists(st.tuples(st.sampled_from(sites(40)), INSTANTS)), REFERENCES)
def test_dead_endpoints_do_not_change_the_verdict_on_others(
    wave: Wave, dead: list[tuple[str, int]], references: list[bool]
) -> None:
    more: Wave = [
        (make_network_probe(host, failure(at=at), DEAD), failure(at=at)) for host, at in dead
    ]
    assert is_suspicious([*of(wave), *of(more)]) == is_suspicious(of(wave))
    assert why([*of(wave), *of(more)], *references) == why(of(wave), *references)
    assert exclude_unproven([*wave, *more])[: len(wave)] == exclude_unproven(wave)


@given(WAVES, INSTANTS)
def test_additional_answer_never_makes_failures_local(wave: Wave, at: int) -> None:
    if why(of(wave)) is None:
        assert (
            why([*of(wave), make_network_probe("another.com", make_payable_result(at=at))]) is None
        )


@given(WAVES, st.sampled_from([COMMON_MODE, NO_CONNECTIVITY]), LAST_UPS)
def test_excluded_results_change_neither_score_nor_last_up(
    wave: Wave, reason: str, last_up: LastUp
) -> None:
    for judged in (attribute_to_this_machine(wave, reason), exclude_unproven(wave)):
        for (_, before), after in zip(wave, judged, strict=True):
            if after != before:
                assert not after.scored
                assert last_up.after(after) == last_up


def test_standing_follows_the_scored_probes() -> None:
    stands = LastUp().after(failure(at=1)).after(failure(at=2))
    assert stands == LastUp(down_since=1)
    stands = stands.after(make_payable_result(at=3))
    assert stands == LastUp(up_at=3)
    stands = stands.after(make_probe(Answer(status=429), at=4)).after(
        make_probe(Answer(status=500), at=5)
    )
    assert stands == LastUp(up_at=3, down_since=4)


@pytest.mark.parametrize("works", [True, False])
def test_network_login_is_local_only_if_no_reference_answers(works: bool) -> None:
    login, other = make_probe(Answer(status=511)), make_probe(Answer(status=503))
    assert attribute_network_login(login, works=works).scored is works
    assert attribute_network_login(other, works=works) == other


# Without references


def nobodys(wave: Wave, *, recent: Sequence[NetworkProbe] = ()) -> list[bool]:
    """Return which results are excluded; the others must be unchanged."""
    judged = exclude_unproven(wave, recent=recent)
    changed = [after != before for (_, before), after in zip(wave, judged, strict=True)]
    for after, is_changed in zip(judged, changed, strict=True):
        if is_changed:
            assert (after.attribution, after.reason) == (Attribution.UNKNOWN, NO_REFERENCE)
    return changed


OURS_OR_THEIRS = (
    *(FaultKind.DNS_NOT_FOUND, FaultKind.NOT_PUBLIC),
    *(FaultKind.TLS, FaultKind.TLS_INVALID),
)
"""Failures that a local resolver, trust anchors or clock could cause."""


def alone(kind: FaultKind, count: int = 1, last_up: LastUp = NEVER_SEEN) -> Wave:
    return [
        (make_network_probe(host, failure(kind), last_up), failure(kind)) for host in sites(count)
    ]


@pytest.mark.parametrize("kind", OURS_OR_THEIRS)
@pytest.mark.parametrize("count", [1, 3])
def test_without_reference_failures_with_a_local_cause_are_excluded(
    kind: FaultKind, count: int
) -> None:
    assert nobodys(alone(kind, count)) == [True] * count


@pytest.mark.parametrize("kind", OURS_OR_THEIRS)
@pytest.mark.parametrize(
    ("host", "ago", "doubt"),
    [
        ("other.com", 0, False),
        ("other.com", MINUTE_MS, True),  # our resolver may have failed since
        ("www.seller0.com", 0, True),  # the same site
    ],
)
def test_without_reference_another_answering_site_clears_this_machine(
    kind: FaultKind, host: str, ago: int, doubt: bool
) -> None:
    recent = [make_network_probe(host, make_payable_result(at=NOW - ago))]
    assert nobodys(alone(kind), recent=recent) == [doubt]


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.CONNECT])
def test_without_a_reference_one_other_failure_is_the_target_s(kind: FaultKind) -> None:
    assert nobodys(alone(kind)) == [False]


def test_without_a_reference_two_unrelated_bad_certificates_may_be_our_clock() -> None:
    """Even where another site answered a moment before."""
    recent = [make_network_probe("other.com", make_payable_result(at=NOW - SECOND_MS))]
    assert nobodys(alone(FaultKind.TLS_INVALID, 2), recent=recent) == [True, True]
    assert nobodys(alone(FaultKind.TLS_INVALID, 2, DEAD), recent=recent) == [False, False]
    failed = failure(FaultKind.TLS_INVALID)
    wave = [(make_network_probe(f"{n}.seller.com", failed), failed) for n in range(2)]
    assert nobodys(wave, recent=recent) == [False] * 2


@pytest.mark.parametrize(
    ("last_up", "count", "doubt"),
    [
        (NEVER_SEEN, SITES_MIN, True),
        (NEVER_SEEN, SITES_MIN - 1, False),
        (LastUp(up_at=NOW - 9 * HOUR_MS), SITES_MIN, True),
        (DEAD, 40, False),
    ],
)
def test_without_a_reference_five_that_are_not_known_to_be_dead_may_be_our_network(
    last_up: LastUp, count: int, doubt: bool
) -> None:
    """A local outage that lasts longer than SURPRISE_MS."""
    assert nobodys(alone(FaultKind.TIMEOUT, count, last_up)) == [doubt] * count


@pytest.mark.parametrize(("answered_at", "doubt"), [(None, True), (50, True), (150, False)])
def test_answer_after_another_bad_certificate_clears_the_local_clock(
    answered_at: int | None, doubt: bool
) -> None:
    start = NOW - 200
    recent = [make_network_probe("other.com", failure(FaultKind.TLS_INVALID, at=start + 100))]
    if answered_at is not None:
        recent.append(make_network_probe("good.com", make_payable_result(at=start + answered_at)))
    assert nobodys(alone(FaultKind.TLS_INVALID), recent=recent) == [doubt]


def test_unresponsive_name_servers_are_the_targets_if_the_local_resolver_works() -> None:
    lost = failure(FaultKind.DNS_FAILED)
    assert lost.attribution is Attribution.UNKNOWN
    wave = [
        (make_network_probe("api.lost.com", lost), lost),
        (make_network_probe("x.com", failure()), failure()),
    ]

    def whose(*answered: str, resolving: bool = False) -> Attribution:
        minute = [make_network_probe(host, make_payable_result()) for host in answered] + [
            one for one, _ in wave
        ]
        results = [result for _, result in wave]
        judged = attribute_dns_failures(wave, results, minute=minute, resolving=resolving)
        assert judged[1] == wave[1][1]
        return judged[0].attribution

    assert whose() is Attribution.UNKNOWN
    assert whose("www.lost.com") is Attribution.UNKNOWN
    assert whose("other.com") is Attribution.TARGET
    assert whose(resolving=True) is Attribution.TARGET
