"""The JSON of a trace."""

from __future__ import annotations

from tests.support.trace_capture import (
    BLOCK,
    OTHER,
    PAYEE,
    PAYER,
    TX,
    USDC,
    call,
    receipt_with,
    transaction_of,
    transfer_log,
    used_log,
)

from tollgauge.core.chain.trace.decode import trace_files
from tollgauge.web.wire.traces import HintResponse, LedgerResponse, PaymentTraceResponse


def test_json_has_the_fields_of_the_contract() -> None:
    traced = trace_files(
        transaction_of(call(12_345)),
        receipt_with(used_log(), transfer_log(12_345), blockTimestamp="0x65000000"),
    )
    hint = HintResponse(resource="https://a.example/", pay_to_matches=True, amount_matches=None)
    shown = PaymentTraceResponse.of(traced, ledger=LedgerResponse(match=False), hint=hint)
    token = {"address": USDC, "symbol": "USDC", "decimals": 6}
    payer = PAYER.address.lower()
    assert shown.model_dump(by_alias=True) == {
        "txHash": TX,
        "network": "base-mainnet",
        "chainId": 8453,
        "status": "success",
        "block": {
            "number": 16,
            "hash": BLOCK,
            "timestamp": "2023-09-12T06:06:56Z",
            "finality": None,
        },
        "submitter": OTHER,
        "decoder": "calldata",
        "payments": [
            {
                "form": "eip3009",
                "method": "transferWithAuthorization",
                "payer": payer,
                "payee": PAYEE,
                "amount": "12345",
                "amountUsd": 0.012345,
                "token": token,
                "authorization": {
                    "nonce": f"0x{1:064x}",
                    "validAfter": "0",
                    "validBefore": str(2**256 - 1),
                },
                "logIndex": 4,
            }
        ],
        "payer": payer,
        "payee": PAYEE,
        "amount": "12345",
        "token": token,
        "ledger": {"match": False},
        "hint": {"resource": "https://a.example/", "payToMatches": True, "amountMatches": None},
    }
