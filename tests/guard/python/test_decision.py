"""The decision: every shared case, and what holds for any offer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from guard.cases.sample_bundle import AS_OF, PAYEE
from hypothesis import given
from hypothesis import strategies as st
from tests.support.decision_cases import DEFAULTS, TABLE, decide_case

from tollgauge_guard.codes import Code
from tollgauge_guard.decision import (
    Allow,
    Ask,
    Asked,
    Decision,
    Known,
    Refuse,
    Spent,
    decide,
)
from tollgauge_guard.errors import GuardError
from tollgauge_guard.offer import Offer, read_offer
from tollgauge_guard.policy import Policy, Trust, Unknown
from tollgauge_guard.record import KnownOffer, Record
from tollgauge_guard.units import Asset

URL: str = DEFAULTS["requestUrl"]
NOW: int = DEFAULTS["now"]
LATER_THAN_OFFERS = {
    *(Code.PAY_AGAIN, Code.SDK_REFUSED, Code.PAID_ALREADY),
    *(Code.SIGNED_DIFFERS, Code.PAYMENT_UNRESOLVED),
}
"""Codes that depend on earlier payments or on the signature."""


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_decision_of_the_shared_table(case: dict[str, Any]) -> None:
    decision = decide_case(case)
    code = None if isinstance(decision, Allow) else decision.code
    warning = decision.warning if isinstance(decision, Allow) else None
    assert (type(decision).__name__.lower(), code) == (case["decision"], case["code"])
    assert warning == case.get("warning")


def test_every_rule_has_a_case() -> None:
    codes = {case["code"] for case in TABLE["cases"]} - {None}
    assert codes == set(Code) - LATER_THAN_OFFERS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted([*DEFAULTS["offer"], "maxAmountRequired", "resource"]))


@given(st.dictionaries(FIELDS, JSON, max_size=9), JSON, JSON)
def test_no_offer_makes_decision_raise_and_only_good_ones_are_allowed(
    changes: dict[str, Any], resource_url: object, request_url: object
) -> None:
    changed = read_offer(DEFAULTS["offer"] | changes, resource_url)
    known = Known(as_of=NOW)
    for offer, url in ((changed, request_url), (replace(changed, resource_url=URL), URL)):
        decision = decide(known, offer, Asked(url=url), Policy(), NOW, Spent())
        if not isinstance(decision, Refuse):
            assert decision.terms.exposure == int(str(offer.amount)) <= Policy().max_call
            assert decision.terms.pay_to == str(offer.pay_to).lower()


def offer_of(amount: int) -> Offer:
    return read_offer(DEFAULTS["offer"] | {"amount": str(amount)}, URL)


OFFERS = st.lists(
    st.builds(
        KnownOffer,
        network=st.sampled_from(["eip155:8453", "eip155:137"]),
        scheme=st.sampled_from(["exact", "upto"]),
        pay_to=st.just(PAYEE),
        amount=st.none() | st.integers(1, 10**6),
    ),
    max_size=3,
).map(tuple)
RECORDS = st.none() | st.builds(
    Record,
    recommendation=st.sampled_from(["proceed", "caution", "unverified", "parameterize", "avoid"]),
    grade=st.none() | st.sampled_from("ABCDF"),
    score=st.none(),
    flags=st.just(()),
    as_of=st.just(AS_OF),
    offers=OFFERS,
)
TRUST = st.builds(
    Trust,
    pay_to=st.sampled_from([(), (PAYEE,)]),
    max=st.none() | st.integers(0, 10**6),
)
POLICIES = st.builds(
    Policy,
    max_call=st.integers(0, 10**6),
    max_host_day=st.integers(0, 10**6),
    max_day=st.integers(0, 10**6),
    max_session=st.none() | st.integers(0, 10**6),
    max_lifetime=st.none() | st.integers(0, 10**6),
    unknown=st.sampled_from(Unknown),
    unknown_max=st.integers(0, 10**5),
    price_factor=st.integers(0, 5),
    fail_open=st.booleans(),
    trust=st.just({}) | TRUST.map(lambda trust: {"api.example.com": trust}),
)
SPENT = st.builds(
    Spent,
    host=st.integers(0, 10**6),
    day=st.integers(0, 10**6),
    session=st.integers(0, 10**6),
    lifetime=st.integers(0, 10**6),
)
AGES = st.none() | st.integers(-(10**6), 10**6)


def strictness(decision: Decision) -> int:
    return {Allow: 0, Ask: 1, Refuse: 2}[type(decision)]


@given(RECORDS, POLICIES, SPENT, AGES, st.integers(1, 10**6), st.integers(1, 10**6))
def test_higher_price_is_never_judged_more_kindly_and_no_limit_is_exceeded(
    record: Record | None, policy: Policy, spent: Spent, age: int | None, one: int, other: int
) -> None:
    known = Known(record=record, as_of=None if age is None else NOW - age)
    cheap, dear = (
        decide(known, offer_of(amount), Asked(url=URL), policy, NOW, spent)
        for amount in sorted((one, other))
    )
    assert strictness(cheap) <= strictness(dear)
    if not isinstance(dear, Refuse):
        amount = max(one, other)
        assert amount <= policy.max_call
        assert spent.host + amount <= policy.max_host_day
        assert spent.day + amount <= policy.max_day
        assert spent.session + amount <= (policy.max_session or 10**9)
        assert spent.lifetime + amount <= (policy.max_lifetime or 10**9)


@given(RECORDS, POLICIES, SPENT, AGES, st.integers(1, 10**6), st.none() | st.integers(0, 10**6))
def test_values_of_a_call_only_tighten(
    record: Record | None,
    policy: Policy,
    spent: Spent,
    age: int | None,
    amount: int,
    limit: int | None,
) -> None:
    known = Known(record=record, as_of=None if age is None else NOW - age)
    plain, tight = (
        decide(known, offer_of(amount), asked, policy, NOW, spent)
        for asked in (Asked(url=URL), Asked(url=URL, max_amount=limit, expect_pay_to=PAYEE))
    )
    assert strictness(plain) <= strictness(tight)


@given(POLICIES, SPENT, st.integers(1, 10**6))
def test_failing_open_allows_nothing_that_a_fresh_bundle_without_the_endpoint_refuses(
    policy: Policy, spent: Spent, amount: int
) -> None:
    def at(as_of: int | None) -> Decision:
        known = Known(as_of=as_of)
        return decide(known, offer_of(amount), Asked(url=URL), policy, NOW, spent)

    assert strictness(at(NOW)) <= strictness(at(None))


@pytest.mark.parametrize(
    "options",
    [
        {"max_call": -1},
        {"max_day": 1.5},
        {"max_session": True},
        {"min_grade": "E"},
        *({"fail_open": 1}, {"fail_open": "false"}, {"is_contract_wallet": "no"}),
        *({"assets": None}, {"assets": ("USDC",)}, {"assets": (Asset("base", PAYEE),)}),
        {"assets": (Asset("eip155:8453", PAYEE, -1),)},
        {"assets": (Asset("eip155:8453", PAYEE, 6.0),)},  # type: ignore[arg-type]
        {"assets": [Asset("eip155:1", PAYEE)]},
        {"assets": (Asset("eip155:1", "0x12"),)},
        {"trust": {"api.example.com": 5}},
        {"trust": {"api.example.com": Trust(pay_to=("0x12",))}},
        {"trust": {"api.example.com": Trust(max=-1)}},
        *({"deny": "example.com"}, {"deny": (1,)}, {"allow_extensions": "x"}),
    ],
    ids=str,
)
def test_invalid_policy_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(GuardError):
        Policy(**options)


def test_unknown_word_of_a_policy_is_rejected() -> None:
    with pytest.raises(ValueError, match="pay"):
        Policy(unknown="pay")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="always"):
        Policy(pay_again="always")  # type: ignore[arg-type]
