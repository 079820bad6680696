"""Saved JSON-RPC responses: complete and partial ones, errors and contradictions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.trace_capture import (
    BLOCK,
    OTHER,
    PAYEE,
    PAYER,
    TX,
    USDC,
    call,
    transfer_log,
    used_log,
)

from tollgauge.core.chain.trace.result import TraceResult, TraceStatus
from tollgauge.core.chain.trace.saved_files import trace_files
from tollgauge.core.chain.trace.transaction import TraceInputError
from tollgauge.web.wire.traces import trace_json

SENDER = OTHER
NUMBER = 37_646_058
AT = 1_762_081_463
LOGS = [used_log(index=71), transfer_log(index=72)]


def rpc() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    place = {"blockNumber": hex(NUMBER), "blockHash": BLOCK, "transactionIndex": "0xa"}
    tx = {"type": "0x2", "hash": TX, "chainId": "0x2105", "from": SENDER, "to": USDC} | place
    receipt: dict[str, Any] = {"transactionHash": TX, "from": SENDER, "type": "0x2"} | place
    logs = [log | place | {"transactionHash": TX, "removed": False} for log in LOGS]
    receipt |= {"contractAddress": None, "logsBloom": "0x00", "gasUsed": "0x1511a"}
    return tx | {"input": call()}, receipt | {"status": "0x1", "logs": logs}, {"status": "0x0"}


def cast() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    tx, receipt, failed = rpc()
    at = {"blockTimestamp": hex(AT)}
    receipt = receipt | {
        "logs": [log | at for log in receipt["logs"]],
        "effectiveGasPrice": "0x66858c",
    }
    return tx | {"gasPrice": "0x66858c", "r": "0x1", "s": "0x2", "yParity": "0x1"}, receipt, failed


FORMS = {"JSON-RPC": rpc(), "cast": cast()}


def check_trace(result: TraceResult, *, index: int | None = 72) -> dict[str, Any]:
    """The payment of every form, proven by its logs."""
    shown = trace_json(result)
    assert shown["status"] == "success"
    assert (shown["txHash"], shown["submitter"]) == (TX, SENDER)
    assert (shown["block"]["number"], shown["network"]) == (NUMBER, "base-mainnet")
    assert (shown["payer"], shown["payee"]) == (PAYER.address.lower(), PAYEE)
    assert (shown["amount"], shown["token"]["symbol"]) == ("5", "USDC")
    assert shown["payments"][0]["method"] == "transferWithAuthorization"
    assert shown["payments"][0]["logIndex"] == index
    assert result.proven
    return shown


@pytest.mark.parametrize("form", FORMS)
def test_payment_is_the_same_in_both_formats(form: str) -> None:
    tx, receipt, _ = FORMS[form]
    assert check_trace(trace_files(tx, receipt)).get("reason") is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("envelope", [{"jsonrpc": "2.0", "id": 1}, {"id": 1}, {}])
def test_envelope_of_a_reply_may_stay(form: str, envelope: dict[str, Any]) -> None:
    tx, receipt, _ = FORMS[form]
    check_trace(trace_files(envelope | {"result": tx}, envelope | {"result": receipt}))


@pytest.mark.parametrize("form", FORMS)
def test_receipt_shows_a_revert(form: str) -> None:
    tx, receipt, failed = FORMS[form]
    shown = trace_json(trace_files(tx, receipt | failed | {"logs": []}))
    assert (shown["status"], shown["payments"]) == ("reverted", [])
    assert "no money moved" in shown["reason"]


@pytest.mark.parametrize("form", FORMS)
def test_transaction_without_receipt_leaves_the_outcome_unknown(form: str) -> None:
    result = trace_files(FORMS[form][0])
    assert result.status is TraceStatus.UNKNOWN
    assert "unknown whether money moved" in str(result.reason)
    assert not result.proven


def test_time_of_a_block_is_read_from_the_transaction() -> None:
    tx = rpc()[0] | {"blockTimestamp": hex(AT)}
    assert trace_json(trace_files(tx))["block"]["timestamp"] == "2025-11-02T11:04:23Z"


@pytest.mark.parametrize(
    ("receipt", "message"),
    [
        ({"error": {"code": -32000, "message": "busy"}, "jsonrpc": "2.0", "id": 1}, "an error"),
        ({"type": "CALL", "to": USDC}, "not a receipt"),
        (rpc()[1] | {"status": "maybe"}, "status"),
        (
            rpc()[1] | {"logs": [transfer_log() | {"transactionHash": "0x" + "99" * 32}]},
            "to another transaction",
        ),
        (rpc()[1] | {"logs": [transfer_log() | {"removed": True}]}, "removed"),
        (rpc()[1] | {"transactionHash": "0x" + "99" * 32}, "another transaction"),
        (rpc()[1] | {"blockTimestamp": "12-2"}, "blockTimestamp is not a number"),
        ([], "not a JSON object"),
    ],
)
def test_rejects_invalid_receipts(receipt: object, message: str) -> None:
    with pytest.raises(TraceInputError, match=message):
        trace_files(rpc()[0], receipt)


def test_saved_error_is_not_an_unknown_transaction() -> None:
    with pytest.raises(TraceInputError, match="an error"):
        trace_files({"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "limit"}})


def test_reason_states_the_assumed_network() -> None:
    tx, receipt, _ = rpc()
    del tx["chainId"]
    assumed = trace_files(tx, receipt)
    assert assumed.reason == "The transaction names no chain: base-mainnet is assumed."
    assert trace_files(tx, receipt, network="base-mainnet").reason is None
    assert trace_files(*rpc()[:2]).reason is None


def test_log_is_not_a_transaction() -> None:
    with pytest.raises(TraceInputError, match="not a transaction"):
        trace_files(rpc()[1]["logs"][0])
