"""The invariants of the score, on evidence that grows out of single probes and payments."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tollgauge.core.evidence import (
    ChainEvidence,
    Evidence,
    LastProbe,
    PayerVolume,
    TermChange,
    from_json,
    to_json,
)
from tollgauge.core.exchange import Timings
from tollgauge.core.latency import bucket_of, percentile
from tollgauge.core.policy import POLICY_1, Table, interpolate
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import rollup, totals
from tollgauge.core.score import Score, score_from_json, score_to_json
from tollgauge.core.scoring import score as score_under
from tollgauge.core.terms import Quote
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.wilson import bounds, root


def score(evidence: Evidence) -> Score:
    """The score under policy 1."""
    return score_under(evidence, POLICY_1)


AS_OF = 1_780_000_000_000
SELLER = "0x" + "5" * 40
SLOT = 30 * MINUTE_MS
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
LIMITS = settings(max_examples=examples(120), deadline=None)


def answer(
    back: int, *, ms: int = 240, compliance: int = 100, accepts: int | None = 1
) -> ProbeResult:
    """A 402 `back` slots ago."""
    return ProbeResult(
        at=AS_OF - back * SLOT,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.THEIRS,
        up=True,
        timings=Timings(total=ms),
        compliance=compliance if accepts else 0,
        compliant=bool(accepts) and compliance > 50,
        payable=bool(accepts) and compliance >= 50,
        accepts=accepts,
    )


def failure(back: int, attribution: Attribution = Attribution.THEIRS) -> ProbeResult:
    """A time-out `back` slots ago."""
    return ProbeResult(
        at=AS_OF - back * SLOT,
        outcome=Outcome.TIMEOUT,
        attribution=attribution,
        up=False,
        timings=Timings(total=10_000),
    )


def seen(probe: ProbeResult) -> LastProbe:
    return LastProbe(
        at=probe.at,
        outcome=probe.outcome,
        up=probe.up,
        payable=probe.payable,
        accepts=probe.accepts,
        tls_not_after=None,
    )


def observe(probes: list[ProbeResult], base: Evidence) -> Evidence:
    """The evidence of some probes, as a store would gather it."""
    by_day: dict[int, list[ProbeResult]] = {}
    for probe in probes:
        by_day.setdefault(day_of(probe.at), []).append(probe)
    scored = sorted((p for p in probes if p.scored), key=lambda p: p.at)
    with_terms = [p for p in scored if p.accepts is not None]
    recent = [p for p in scored if p.at > AS_OF - 3 * HOUR_MS]
    return replace(
        base,
        days=tuple(rollup(day, results) for day, results in by_day.items()),
        recent=(len(recent), sum(p.up for p in recent)),
        last=seen(scored[-1]) if scored else None,
        envelope=seen(with_terms[-1]) if with_terms else None,
    )


SLOTS = st.integers(0, 1_439)
PROBES = st.lists(
    st.one_of(
        st.builds(
            answer,
            SLOTS,
            ms=st.integers(1, 9_000),
            compliance=st.sampled_from([0, 50, 80, 96, 100]),
            accepts=st.sampled_from([None, 0, 1, 2]),
        ),
        st.builds(failure, SLOTS, st.sampled_from(Attribution)),
        st.builds(failure, st.integers(0, 5), st.just(Attribution.THEIRS)),
    ),
    max_size=40,
)
PAYERS = st.lists(
    st.builds(
        PayerVolume,
        payer=st.integers(1, 40).map(lambda number: f"0x{number:040x}"),
        transfers=st.integers(1, 50),
        paid=st.integers(0, 10**10),
        returned=st.sampled_from([0, 0, 1_000_000, 10**9]),
    ),
    max_size=12,
    unique_by=lambda row: row.payer,
).map(tuple)
CHAINS = st.none() | st.builds(
    ChainEvidence,
    network=st.just("eip155:8453"),
    pay_to=st.just(SELLER),
    indexed_ms=st.integers(0, WINDOW_MS),
    shared_hosts=st.integers(1, 4),
    payers=PAYERS,
)
PAID_CHAINS = st.builds(
    ChainEvidence,
    network=st.just("eip155:8453"),
    pay_to=st.just(SELLER),
    indexed_ms=st.integers(0, WINDOW_MS),
    shared_hosts=st.integers(1, 4),
    payers=st.builds(
        lambda paid, others: (PayerVolume(payer=f"0x{41:040x}", transfers=1, paid=paid), *others),
        st.integers(1, 10**10),
        PAYERS,
    ),
)
"""Of these at least one payer has organic volume."""
CHANGES = st.lists(
    st.builds(
        TermChange,
        at=st.integers(AS_OF - 32 * DAY_MS, AS_OF),
        kind=st.sampled_from(["price-changed", "payto-changed", "network-changed"]),
        source=st.sampled_from(["probe", "bazaar", "file"]),
        before=st.just("1"),
        after=st.just("2"),
    ),
    max_size=4,
).map(tuple)
BASES = st.builds(
    Evidence,
    format=st.just(1),
    resource=st.just("https://api.seller.dev/v1/quote"),
    as_of=st.just(AS_OF),
    first_seen=st.integers(AS_OF - 60 * DAY_MS, AS_OF),
    listed=st.booleans(),
    templated=st.booleans(),
    wildcard=st.booleans(),
    quote=st.none()
    | st.builds(
        Quote,
        network=st.just("eip155:8453"),
        asset=st.just(USDC),
        amount=st.sampled_from([5_000, 2_000_000, 10**10]),
        pay_to=st.just(SELLER),
    ),
    changes=CHANGES,
    chain=CHAINS,
)
NUMBERS = st.randoms(use_true_random=False)


def points(result: Score) -> int:
    """The score in tenths; no score counts as less than any."""
    return -1 if result.score_tenths is None else result.score_tenths


@LIMITS
@given(PROBES, BASES)
def test_the_range_holds_the_score(probes: list[ProbeResult], base: Evidence) -> None:
    result = score(observe(probes, base))
    if result.score_tenths is None:
        assert (result.low_tenths, result.high_tenths, result.grade) == (None, None, None)
    else:
        assert result.low_tenths is not None
        assert result.high_tenths is not None
        assert 0 <= result.low_tenths <= result.score_tenths <= result.high_tenths <= 1_000


@LIMITS
@given(PROBES, BASES, NUMBERS)
def test_the_order_of_evidence_is_irrelevant(
    probes: list[ProbeResult], base: Evidence, dice: random.Random
) -> None:
    one = observe(probes, base)
    chain = one.chain
    other = replace(
        one,
        days=tuple(dice.sample(one.days, len(one.days))),
        changes=tuple(dice.sample(one.changes, len(one.changes))),
        chain=chain and replace(chain, payers=tuple(dice.sample(chain.payers, len(chain.payers)))),
    )
    assert score(other) == score(one)
    mixed = dice.sample(probes, len(probes))
    assert score(replace(one, days=observe(mixed, base).days)) == score(one)


@LIMITS
@given(PROBES, BASES, SLOTS)
def test_one_more_of_their_failures_never_raises_a_score(
    probes: list[ProbeResult], base: Evidence, back: int
) -> None:
    before = score(observe(probes, base))
    assume(before.score_tenths is not None)
    assert points(score(observe([*probes, failure(back)], base))) <= points(before)


@LIMITS
@given(PROBES, BASES, st.lists(SLOTS, min_size=1, max_size=20))
def test_our_own_faults_never_move_it(
    probes: list[ProbeResult], base: Evidence, backs: list[int]
) -> None:
    faults = [failure(back, Attribution.OURS) for back in backs]
    before, after = (score(observe(mine, base)) for mine in (probes, [*probes, *faults]))
    stats = replace(after.stats, probes=before.stats.probes, excluded=before.stats.excluded)
    assert replace(after, stats=stats) == before
    assert after.stats.probes == before.stats.probes + len(faults)


@LIMITS
@given(PROBES, BASES, SLOTS, st.integers(1, 200) | st.integers(1, 9_000))
def test_removing_a_favourable_probe_never_raises_it(
    probes: list[ProbeResult], base: Evidence, back: int, ms: int
) -> None:
    good = answer(back, ms=ms)
    after = observe(probes, base)
    before = observe([*probes, good], base)
    median = percentile(totals(before.days).latency.pairs, 50)
    assume(median is not None)
    assume(len(probes) == 0 or bucket_of(ms) < bucket_of(median or 0) or ms <= 200)
    assert points(score(after)) <= points(score(before))


@LIMITS
@given(PROBES, BASES, st.integers(0, 30 * DAY_MS))
def test_having_been_known_for_less_time_never_raises_it(
    probes: list[ProbeResult], base: Evidence, later: int
) -> None:
    evidence = observe(probes, base)
    younger = replace(evidence, first_seen=evidence.first_seen + later)
    assert points(score(younger)) <= points(score(evidence))


@LIMITS
@given(PROBES, BASES, PAID_CHAINS)
def test_losing_the_smallest_payer_never_raises_it(
    probes: list[ProbeResult], base: Evidence, chain: ChainEvidence
) -> None:
    evidence = observe(probes, replace(base, chain=chain))
    organic = [row for row in chain.payers if row.paid > row.returned]
    least = min(organic, key=lambda row: row.paid - row.returned)
    without = replace(chain, payers=tuple(row for row in chain.payers if row != least))
    assert points(score(replace(evidence, chain=without))) <= points(score(evidence))


def wash(wallet: str, amounts: list[int], *, returned: int = 0) -> PayerVolume:
    """Many payments from one wallet."""
    return PayerVolume(payer=wallet, transfers=len(amounts), paid=sum(amounts), returned=returned)


QUIET = st.builds(
    ChainEvidence, network=st.just("eip155:8453"), pay_to=st.just(SELLER), indexed_ms=st.just(1)
)


@settings(max_examples=examples(40), deadline=None)
@given(PROBES, BASES, QUIET, NUMBERS, st.sampled_from([SELLER, "0x" + "a" * 40]))
def test_a_thousand_payments_from_one_wallet_move_a_score_by_at_most_one_point(
    probes: list[ProbeResult],
    base: Evidence,
    chain: ChainEvidence,
    dice: random.Random,
    wallet: str,
) -> None:
    amounts = [dice.randrange(1, 10 ** dice.randrange(1, 10)) for _ in range(1_000)]
    quiet = replace(observe(probes, base), chain=chain)
    washed = replace(quiet, chain=replace(chain, payers=(wash(wallet, amounts),)))
    assert abs(points(score(washed)) - points(score(quiet))) <= 10


@LIMITS
@given(PROBES, BASES, PAYERS, st.integers(1, 10**12))
def test_paying_oneself_moves_nothing(
    probes: list[ProbeResult], base: Evidence, payers: tuple[PayerVolume, ...], volume: int
) -> None:
    chain = ChainEvidence(network="eip155:8453", pay_to=SELLER, payers=payers)
    honest = replace(observe(probes, base), chain=chain)
    own = wash(SELLER.upper().replace("0X", "0x"), [volume] * 1_000)
    washed = replace(honest, chain=replace(chain, payers=(*payers, own)))
    assert points(score(washed)) == points(score(honest))


@LIMITS
@given(PROBES, BASES, PAYERS, st.integers(1, 10**12))
def test_money_that_comes_back_moves_nothing(
    probes: list[ProbeResult], base: Evidence, payers: tuple[PayerVolume, ...], volume: int
) -> None:
    chain = ChainEvidence(network="eip155:8453", pay_to=SELLER, payers=payers)
    honest = replace(observe(probes, base), chain=chain)
    trip = wash("0x" + "a" * 40, [volume] * 1_000, returned=1_000 * volume)
    washed = replace(honest, chain=replace(chain, payers=(*payers, trip)))
    assert points(score(washed)) == points(score(honest))


@LIMITS
@given(PROBES, BASES, PAYERS, st.integers(1, 10**12))
def test_one_wallet_among_others_is_at_most_one_effective_payer(
    probes: list[ProbeResult], base: Evidence, payers: tuple[PayerVolume, ...], volume: int
) -> None:
    """The steepest part of the payers' table is 12.5 a payer: 1.875 points of the score."""
    chain = ChainEvidence(network="eip155:8453", pay_to=SELLER, payers=payers)
    honest = score(replace(observe(probes, base), chain=chain))
    more = replace(chain, payers=(*payers, wash("0x" + "a" * 40, [volume])))
    washed = score(replace(observe(probes, base), chain=more))
    assert washed.settlement is not None
    assert honest.settlement is not None
    gained = washed.settlement.effective_hundredths - honest.settlement.effective_hundredths
    assert gained <= 101
    assert points(washed) - points(honest) <= 19


@LIMITS
@given(PROBES, BASES)
def test_a_score_survives_its_json_form(probes: list[ProbeResult], base: Evidence) -> None:
    result = score(observe(probes, base))
    assert score_from_json(score_to_json(result)) == result


@LIMITS
@given(PROBES, BASES)
def test_a_score_survives_the_json_form_of_its_evidence(
    probes: list[ProbeResult], base: Evidence
) -> None:
    evidence = observe(probes, base)
    assert score(from_json(to_json(evidence))) == score(evidence)


def ends_of(share: Fraction, n: int) -> tuple[Fraction, Fraction]:
    """The Wilson bounds of a share of so many probes."""
    low, high = bounds(share.as_integer_ratio(), (n, 3), z=POLICY_1.z)
    return Fraction(*low), Fraction(*high)


@given(st.fractions(0, 1), st.integers(1, 20_000))
def test_wilson_bounds_hold_the_share(share: Fraction, n: int) -> None:
    low, high = ends_of(share, n)
    assert 0 <= low <= share <= high <= 1


@given(st.fractions(0, 1), st.integers(1, 20_000))
def test_wilson_bounds_solve_their_equation(share: Fraction, n: int) -> None:
    """|p - x| = z * sqrt(x(1 - x) / n_eff) at both bounds, within the cut of the root."""
    for bound in ends_of(share, n):
        left = (share - bound) ** 2
        right = POLICY_1.z**2 * bound * (1 - bound) * 3 / n
        assert abs(left - right) < Fraction(1, 10**4)


@given(st.fractions(0, 4))
def test_a_root_is_cut_to_a_millionth(x: Fraction) -> None:
    cut = Fraction(root(x.numerator, x.denominator), 10**6)
    assert cut**2 <= x < (cut + Fraction(1, 10**6)) ** 2


def read(table: Table, x: Fraction) -> Fraction:
    return Fraction(*interpolate(table, x.as_integer_ratio()))


@given(st.fractions(-5, 20_000))
def test_tables_are_flat_outside_and_ascend_or_descend(x: Fraction) -> None:
    for table in (POLICY_1.latency, POLICY_1.payers, POLICY_1.volume):
        values = [y for _, y in table]
        assert min(values) <= read(table, x) <= max(values)
        rising = values[0] < values[-1]
        step = read(table, x + 1) - read(table, x)
        assert step >= 0 if rising else step <= 0


def test_tables_hold_their_own_points() -> None:
    for table in (POLICY_1.latency, POLICY_1.payers, POLICY_1.volume):
        assert [read(table, Fraction(x)) for x, _ in table] == [y for _, y in table]
