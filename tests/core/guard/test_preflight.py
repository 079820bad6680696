"""The rules of the preflight are those of the guards, as far as they need no client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.guard_seller import CASES_FOLDER, record_of

from tollgauge.core.base.units import BASE
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.guard.preflight import Code, Decision, PreflightOffer, decide

_OF_A_CLIENT = {
    *("policy", "spent", "bundleAsOf", "requestUrl", "resourceUrl", "without", "now", "inherited"),
    *("hostRecord", "payToRecord", "call", "stopped", "extensions", "contradicted", "hops"),
}
"""Members of a case that need a client, its limits or its copy of the bundle."""
_OF_A_TOKEN = {"asset-unknown", "over-call-cap"}
_OFFERED = ("payTo", "amount", "network")
PAID_TO = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
KNOWN = TrustRecord(
    resource="https://api.example.com/weather",
    recommendation="proceed",
    grade="B",
    score_tenths=842,
    offers=(KnownOffer(BASE, "exact", PAID_TO, 5_000),),
    flags=(),
    as_of=0,
)


DOCUMENT = json.loads((CASES_FOLDER / "decide.json").read_text())
ADDRESSES: list[str] = DOCUMENT["defaults"]["payTo"]


def cases() -> Iterator[Any]:
    """The guards' cases about an offer whose payTo, amount and network are texts."""
    defaults = DOCUMENT["defaults"]
    for case in DOCUMENT["cases"]:
        changed, code = case.get("offer", {}), case["code"]
        if _OF_A_CLIENT & case.keys() or changed.keys() - set(_OFFERED) or code in _OF_A_TOKEN:
            continue
        offer = {name: (defaults["offer"] | changed)[name] for name in _OFFERED}
        if all(isinstance(value, str) for value in offer.values()):
            row = case.get("record", defaults["record"])
            yield pytest.param(row, offer, case["decision"], code, id=case["name"])


CASES = tuple(cases())


def test_most_kinds_of_cases_need_no_client() -> None:
    codes = {case.values[3] for case in CASES}
    assert codes - {None} == set(Code)
    assert len(CASES) > 50


@pytest.mark.parametrize(("row", "offer", "decision", "code"), CASES)
def test_offer_is_judged_as_a_guard_judges_it(
    row: list[Any] | None, offer: dict[str, str], decision: str, code: str | None
) -> None:
    record = None if row is None else record_of(row, ADDRESSES)
    verdict = decide(
        record,
        PreflightOffer(pay_to=offer["payTo"], amount=offer["amount"], network=offer["network"]),
    )
    vouched = record is not None and record.recommendation in ("proceed", "caution")
    if decision == "allow" and not (vouched and record is not None and record.offers):
        # A guard pays small amounts to unknown sellers; preflight has no such limit.
        decision, code = "ask", Code.UNKNOWN_RESOURCE
    assert (verdict.decision, verdict.code) == (decision, code)
    assert verdict.reason.endswith(".")


def test_omitted_parts_of_an_offer_are_not_checked() -> None:
    assert decide(KNOWN, PreflightOffer()).decision is Decision.ALLOW
    caution = replace(KNOWN, recommendation="caution", grade="C")
    assert decide(caution, PreflightOffer()).code is Code.CAUTION
    assert decide(None, PreflightOffer()).code is Code.UNKNOWN_RESOURCE
    assert decide(KNOWN, PreflightOffer(amount="10001")).code is Code.PRICE_JUMP
    assert decide(KNOWN, PreflightOffer(network="eip155:1")).code is Code.NETWORK_UNKNOWN


def test_refusal_precedes_a_question() -> None:
    record = replace(KNOWN, recommendation="caution", grade="D")
    assert decide(record, PreflightOffer(pay_to="0x" + "12" * 20)).code is Code.PAYTO_UNKNOWN
    assert decide(None, PreflightOffer(amount="0")).code is Code.AMOUNT_INVALID


@pytest.mark.parametrize(
    ("pay_to", "network", "is_account"),
    [
        (PAID_TO, None, True),
        ("0x" + "00" * 20, None, False),
        ("0x12", None, False),
        ("EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "solana:mainnet", True),
        (PAID_TO, "solana:mainnet", False),
        ("EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", BASE, False),
        ("GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ", "stellar:pubnet", True),
        (PAID_TO, "stellar:pubnet", False),
        ("anything", None, True),
        (" ", None, False),
    ],
)
def test_address_is_one_of_its_network(pay_to: str, network: str | None, is_account: bool) -> None:
    verdict = decide(None, PreflightOffer(pay_to=pay_to, network=network))
    assert (verdict.code is not Code.PAYTO_MALFORMED) == is_account


def test_unknown_payto_of_a_varying_seller_needs_confirmation() -> None:
    varies = replace(KNOWN, flags=("payto-varies",))
    verdict = decide(varies, PreflightOffer(pay_to="0x8ba1f109551bd432803012645ac136ddd64dba72"))
    assert (verdict.decision, verdict.code) == (Decision.ASK, Code.PAYTO_VARIES)
    assert decide(varies, PreflightOffer(pay_to=PAID_TO)).decision is Decision.ALLOW
    refused = decide(KNOWN, PreflightOffer(pay_to="0x8ba1f109551bd432803012645ac136ddd64dba72"))
    assert (refused.decision, refused.code) == (Decision.REFUSE, Code.PAYTO_UNKNOWN)
