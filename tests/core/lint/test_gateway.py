"""Circle Gateway: its own client signs these offers, the official clients sign something else."""

from __future__ import annotations

import base64
import json
from typing import Any

from eth_account import Account
from tests.support.lint_envelopes import (
    MISSING,
    URL,
    V2,
    change_envelope,
    encode_envelope,
    fired_rules,
    lint_answer,
)
from x402.mechanisms.evm.eip712 import hash_eip3009_authorization
from x402.mechanisms.evm.types import ExactEIP3009Authorization

from bench.oracle.clients import python_client
from tollgauge.core.lint.rule import ANSWERS
from tollgauge.core.probe.exchange import Severity

ENTRY = "accepts.0."
WALLET = "0x77777777Dcc4d5A8B6E418Fd04D8997ef11000eE"
OFFER: dict[str, Any] = change_envelope(
    change_envelope(V2, ENTRY + "extra", ANSWERS["gateway"].envelope["accepts"][0]["extra"]),
    ENTRY + "maxTimeoutSeconds",
    604_900,
)


def test_gateway_offer_is_payable_with_a_warning() -> None:
    result = lint_answer(OFFER)
    assert fired_rules(result) == {"gateway-only"}
    assert (result.payable, result.compliant) == (True, True)


def test_official_client_signs_a_gateway_offer_over_another_contract() -> None:
    sent, _ = python_client(["evm"]).handle_402_response(
        {"PAYMENT-REQUIRED": encode_envelope(OFFER)}, b"{}", URL
    )
    payload = json.loads(base64.b64decode(sent["PAYMENT-SIGNATURE"]))["payload"]
    said = payload["authorization"]
    authorization = ExactEIP3009Authorization(
        from_address=said["from"],
        to=said["to"],
        value=said["value"],
        valid_after=said["validAfter"],
        valid_before=said["validBefore"],
        nonce=said["nonce"],
    )
    digest = hash_eip3009_authorization(authorization, 8453, WALLET, "GatewayWalletBatched", "1")
    signer = Account._recover_hash(digest, signature=payload["signature"])
    assert signer != said["from"]


def test_stock_clients_stop_at_a_gateway_offer_before_a_good_one() -> None:
    good = V2["accepts"][0]
    first = lint_answer(change_envelope(OFFER, "accepts", [OFFER["accepts"][0], good]))
    assert fired_rules(first, at_least=Severity.WARN) == {"gateway-only", "order-evm"}
    assert first.payable
    second = lint_answer(change_envelope(OFFER, "accepts", [good, OFFER["accepts"][0]]))
    assert fired_rules(second) == {"gateway-only"}
    assert second.payable


def test_gateway_offer_without_its_contract_is_not_called_a_wrong_token() -> None:
    result = lint_answer(change_envelope(OFFER, ENTRY + "extra.verifyingContract", MISSING))
    assert fired_rules(result) == {"gateway-only", "gateway-terms"}
    assert not result.payable
