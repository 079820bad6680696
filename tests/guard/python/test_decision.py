"""The decision: every shared case, and what holds for any offer."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from guard.cases.sample_bundle import AS_OF, PAYEE
from hypothesis import given
from hypothesis import strategies as st

from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse, Spent, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.offer import Offer, read_offer
from tollgauge_guard.policy import Pin, Policy, Unknown
from tollgauge_guard.record import Payee, Record, read_record
from tollgauge_guard.units import Asset

TABLE = json.loads(Path("guard/cases/decisions.json").read_text())
DEFAULTS: dict[str, Any] = TABLE["defaults"]
MERGED = ("offer", "policy", "spent")
URL: str = DEFAULTS["requestUrl"]
NOW: int = DEFAULTS["now"]


def complete(case: dict[str, Any]) -> dict[str, Any]:
    """A case with the defaults where it says nothing else."""
    full = DEFAULTS | case
    for name in MERGED:
        full[name] = DEFAULTS[name] | case.get(name, {})
    for name in case.get("without", ()):
        del full["offer"][name]
    return full


def snake(fields: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda part: f"_{part[0].lower()}", key): fields[key] for key in fields}


def policy_of(fields: dict[str, Any]) -> Policy:
    words = snake({key: value for key, value in fields.items() if key != "maxTimeoutSeconds"})
    if "maxTimeoutSeconds" in fields:
        words["max_timeout"] = fields["maxTimeoutSeconds"]
    words["assets"] = tuple(Asset(**asset) for asset in fields.get("assets", ()))
    words["pins"] = {host: Pin(**snake(pin)) for host, pin in fields.get("pins", {}).items()}
    return Policy(**words)


def decided(case: dict[str, Any]) -> Decision:
    full = complete(case)
    return decide(
        None if full["record"] is None else read_record(full["record"]),
        read_offer(full["offer"], full["resourceUrl"], full.get("x402Version", 2)),
        full["requestUrl"],
        policy_of(full["policy"]),
        full["now"],
        bundle_as_of=full["bundleAsOf"],
        spent=Spent(**snake(full["spent"])),
        inherited=[read_record(row) for row in full.get("inherited", ())],
    )


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_decision_is_that_of_the_shared_table(case: dict[str, Any]) -> None:
    decision = decided(case)
    code = None if isinstance(decision, Allow) else decision.code
    warning = decision.warning if isinstance(decision, Allow) else None
    assert (type(decision).__name__.lower(), code) == (case["decision"], case["code"])
    assert warning == case.get("warning")


def test_every_rule_has_a_case() -> None:
    codes = {case["code"] for case in TABLE["cases"]} - {None}
    assert codes == set(Code) - {Code.SIGNED_DIFFERS, Code.PAYMENT_UNRESOLVED}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted([*DEFAULTS["offer"], "maxAmountRequired", "resource"]))


@given(st.dictionaries(FIELDS, JSON, max_size=9), JSON, JSON)
def test_no_offer_makes_the_decision_raise_and_none_but_a_good_one_is_allowed(
    changes: dict[str, Any], resource_url: object, request_url: object
) -> None:
    changed = read_offer(DEFAULTS["offer"] | changes, resource_url)
    none_spent = Spent()
    for offer, url in ((changed, request_url), (replace(changed, resource_url=URL), URL)):
        decision = decide(None, offer, url, Policy(), NOW, bundle_as_of=NOW, spent=none_spent)
        if not isinstance(decision, Refuse):
            assert decision.terms.micro_usd == int(str(offer.amount)) <= Policy().max_call
            assert decision.terms.pay_to == str(offer.pay_to).lower()


def offer_of(amount: int) -> Offer:
    return read_offer(DEFAULTS["offer"] | {"amount": str(amount)}, URL)


RECORDS = st.none() | st.builds(
    Record,
    recommendation=st.sampled_from(["proceed", "caution", "unverified", "parameterize", "avoid"]),
    grade=st.none() | st.sampled_from("ABCDF"),
    score=st.none(),
    payees=st.sampled_from([(), (Payee(address=PAYEE, since=AS_OF),)]),
    network=st.sampled_from([None, "eip155:8453"]),
    amount=st.none() | st.integers(1, 10**6),
    flags=st.just(()),
    as_of=st.just(AS_OF),
)
POLICIES = st.builds(
    Policy,
    max_call=st.integers(0, 10**6),
    max_host_day=st.integers(0, 10**6),
    max_day=st.integers(0, 10**6),
    unknown=st.sampled_from(Unknown),
    unknown_max=st.integers(0, 10**5),
    price_factor=st.integers(0, 5),
    fail_open=st.booleans(),
)
SPENT = st.builds(
    Spent, host_day=st.integers(0, 10**6), day=st.integers(0, 10**6), repeats=st.integers(0, 4)
)
AGES = st.none() | st.integers(-(10**6), 10**6)


def strictness(decision: Decision) -> int:
    return {Allow: 0, Ask: 1, Refuse: 2}[type(decision)]


@given(RECORDS, POLICIES, SPENT, AGES, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_higher_price_is_never_judged_more_kindly_and_no_limit_is_exceeded(
    record: Record | None, policy: Policy, spent: Spent, age: int | None, one: int, other: int
) -> None:
    as_of = None if age is None else NOW - age
    cheap, dear = (
        decide(record, offer_of(amount), URL, policy, NOW, bundle_as_of=as_of, spent=spent)
        for amount in sorted((one, other))
    )
    assert strictness(cheap) <= strictness(dear)
    if not isinstance(dear, Refuse):
        amount = max(one, other)
        assert amount <= policy.max_call
        assert spent.host_day + amount <= policy.max_host_day
        assert spent.day + amount <= policy.max_day


@given(RECORDS, POLICIES, SPENT, st.integers(1, 10**6))
def test_failing_open_allows_nothing_that_a_fresh_bundle_without_the_endpoint_refuses(
    record: Record | None, policy: Policy, spent: Spent, amount: int
) -> None:
    def at(as_of: int | None) -> Decision:
        return decide(None, offer_of(amount), URL, policy, NOW, bundle_as_of=as_of, spent=spent)

    assert strictness(at(NOW)) <= strictness(at(None))


ADDRESS = "0x" + "1" * 40


@pytest.mark.parametrize(
    "wrong",
    [
        *({"fail_open": "false"}, {"fail_open": 0}, {"is_contract_wallet": "no"}),
        *({"assets": None}, {"assets": ("USDC",)}, {"assets": (Asset("base", ADDRESS),)}),
        {"assets": (Asset("eip155:8453", "0x1"),)},
        {"assets": (Asset("eip155:8453", ADDRESS, -1),)},
        # What a program without types may pass.
        {"assets": (Asset("eip155:8453", ADDRESS, 6.0),)},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_policy_with_a_value_of_another_kind_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(GuardError):
        Policy(**wrong)
