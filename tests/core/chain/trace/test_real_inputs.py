"""The payment trace of real transactions of Base and Base Sepolia."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.core.chain.trace.decode import trace_files
from tollgauge.core.chain.trace.nesting import _SIGNATURES, _WRAPPERS
from tollgauge.core.chain.trace.result import Model, TraceResult, TraceStatus
from tollgauge.web.wire.traces import trace_json

ONCHAIN = FOLDER / "onchain"
pytestmark = needs_recorded_inputs
POSITIVE = (
    "base-twa-bytes-2cd6b482-raw",
    "base-twa-bytes-viaproxy-8eba8905",
    "base-twa-vrs-04a96e81",
    "base-twa-vrs-833e9ae8",
    "base-twa-vrs-cdpsuffix-569a7999",
    "basesepolia-twa-vrs-30ca1568-full",
)
USDC = {
    8453: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
    84532: "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
}
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ONCHAIN / f"{name}.json").read_text(encoding="utf-8"))
    return document


def transaction(saved: dict[str, Any]) -> dict[str, Any]:
    """The saved parts as the node sent them."""
    kept: dict[str, Any] = {key: saved[key] for key in ("hash", "to", "input") if key in saved}
    kept |= {"chainId": hex(saved["chainId"]), "from": saved.get("tx_from")}
    if "blockNumber" in saved:
        kept["blockNumber"] = hex(saved["blockNumber"])
    sent: dict[str, Any] = saved.get("raw_transaction", {})
    return sent | kept


def receipt(saved: dict[str, Any]) -> dict[str, Any] | None:
    """The saved receipt, whole or not."""
    flashblock = saved.get("receipt_from_flashblock_metadata", {}).get("Eip1559")
    result: dict[str, Any] | None = saved.get("receipt", saved.get("receipt_partial", flashblock))
    return result


def check_trace(saved: dict[str, Any], result: TraceResult) -> None:
    """A trace says exactly what the file's verification says."""
    said = saved["verification"]["decoded"]
    [payment] = result.payments
    assert result.chain_id == saved["chainId"]
    assert result.tx_hash == saved["hash"]
    assert payment.method == "transferWithAuthorization"
    assert (payment.payer, payment.payee) == (said["from_"], said["to"])
    assert (payment.amount, payment.nonce) == (said["value"], "0x" + said["nonce"])
    assert (payment.valid_after, payment.valid_before) == (said["va"], said["vb"])
    assert payment.token.address == USDC[saved["chainId"]]
    assert payment.suffix.hex() == said["extra"]
    shown = trace_json(result)
    assert shown["amount"] == str(said["value"])
    assert shown["payments"][0]["amountUsd"] == said["value"] / 10**6
    assert shown["token"] == {
        "address": USDC[saved["chainId"]],
        "symbol": "USDC",
        "decimals": 6,
    }
    json.dumps(shown)


@pytest.mark.parametrize("name", POSITIVE)
def test_real_payment_decodes_to_the_recorded_values(name: str) -> None:
    saved = load(name)
    check_trace(saved, trace_files(transaction(saved)))
    check_trace(saved, trace_files(transaction(saved), None, "calldata"))
    check_trace(saved, trace_files({"jsonrpc": "2.0", "id": 1, "result": transaction(saved)}))
    if (saved_receipt := receipt(saved)) is not None:
        result = trace_files(transaction(saved), saved_receipt)
        assert result.status is TraceStatus.SUCCESS
        check_trace(saved, result)


@pytest.mark.parametrize("name", POSITIVE)
def test_logs_of_a_real_payment_prove_it(name: str) -> None:
    """If the file lacks the logs, build them as the token would, from its values."""
    saved = load(name)
    said, token = saved["verification"]["decoded"], USDC[saved["chainId"]]
    saved_receipt = receipt(saved) or {"status": "0x1"}
    index = saved.get("expected", {}).get("Transfer_logIndex", 1)
    word = "0x" + "0" * 24
    payer = word + said["from_"][2:]
    saved_receipt.setdefault(
        "logs",
        [
            {
                "address": token,
                "topics": [_USED, payer, "0x" + said["nonce"]],
                "data": "0x",
                "logIndex": hex(index - 1),
            },
            {
                "address": token,
                "topics": [_TRANSFER, payer, word + said["to"][2:]],
                "data": f"0x{said['value']:064x}",
                "logIndex": hex(index),
            },
        ],
    )
    result = trace_files(transaction(saved), saved_receipt)
    check_trace(saved, result)
    assert (result.decoder, result.reason) == (Model.CALLDATA, None)
    logs = trace_files(transaction(saved), saved_receipt, "receipt-logs")
    [payment] = logs.payments
    assert (payment.method, payment.valid_after) == (result.payments[0].method, None)
    assert (payment.payer, payment.payee) == (said["from_"], said["to"])
    assert (payment.amount, payment.nonce) == (said["value"], "0x" + said["nonce"])


def test_whole_real_receipt_gives_block_and_log_index() -> None:
    saved = load("basesepolia-twa-vrs-30ca1568-full")
    shown = trace_json(trace_files(transaction(saved), saved["receipt"]))
    assert shown["payments"][0]["logIndex"] == 0x4D
    assert shown["block"]["number"] == 0x2DACF06
    assert shown["block"]["hash"] == saved["receipt"]["blockHash"]
    assert shown["submitter"] == saved["tx_from"]
    assert shown["network"] == "eip155:84532"


@pytest.mark.parametrize("name", ["base-plain-transfer-559524a9", "base-4337-transfer-3bdfe11a"])
def test_real_transfer_without_authorization_is_not_a_payment(name: str) -> None:
    saved = load(name)
    shown = trace_json(trace_files(transaction(saved), receipt(saved)))
    assert shown["payments"] == []
    assert shown["payer"] is None
    assert shown["reason"]


def test_permit2_settlement_is_not_a_payment_by_authorization() -> None:
    saved = load("synthetic-permit2-exact-settle-calldata")
    result = trace_files({"input": saved["calldata"], "to": "0x" + "40" * 20})
    assert result.payments == ()
    assert "Permit2" in str(result.reason)


def test_of_a_real_blocks_receipts_only_the_payment_is_a_payment() -> None:
    """The flashblock: its receipts have dozens of logs, one pair of which is a payment."""
    flashblock = load("base-flashblock-37646058-idx10")
    paid = {}
    for tx_hash, saved_receipt in flashblock["metadata"]["receipts"].items():
        result = trace_files({"hash": tx_hash}, next(iter(saved_receipt.values())))
        if result.payments:
            paid[tx_hash] = result
    [(tx_hash, result)] = paid.items()
    assert tx_hash == load("base-twa-bytes-2cd6b482-raw")["hash"]
    assert [payment.amount for payment in result.payments] == [1000]


def test_selectors_are_those_of_the_reference() -> None:
    reference = json.loads((ONCHAIN / "reference" / "selectors-topics.json").read_text())
    functions = reference["functions"]
    for text, selector in functions.items():
        if text in _SIGNATURES:
            assert bytes.fromhex(selector[2:]) in _WRAPPERS
    denied = json.loads((ONCHAIN / "reference" / "contamination-denylist.json").read_text())
    named = {row["what"]: bytes.fromhex(row["selector"][2:]) for row in denied["rows"]}
    assert named["ERC-4337 EntryPoint v0.6"] in _WRAPPERS
    assert named["ERC-4337 EntryPoint v0.7"] in _WRAPPERS
    assert named["Multicall3"] in _WRAPPERS
