"""Transactions and receipts as the clients and explorers of the world write them.

The forms are written here from their libraries' and explorers' own types; each tells the same
payment, and must be read as the same.
"""

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

from tollgauge.core.chain.trace.decode import trace_files
from tollgauge.core.chain.trace.result import TraceResult, TraceStatus
from tollgauge.core.chain.trace.transaction import TraceInputError
from tollgauge.web.wire.traces import trace_json

SENDER = OTHER
NUMBER = 37_646_058
AT = 1_762_081_463
ISO = "2025-11-02T11:04:23.000000Z"
LOGS = [used_log(index=71), transfer_log(index=72)]


def bare(text: str) -> str:
    """Hex as `HexBytes.hex()` of web3.py writes it since hexbytes 1.0."""
    return text.removeprefix("0x")


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


def viem(big: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    place = {"blockNumber": big(NUMBER), "blockHash": BLOCK, "transactionIndex": 10}
    tx = {"type": "eip1559", "typeHex": "0x2", "hash": TX, "chainId": 8453, "value": big(0)}
    receipt = {"type": "eip1559", "transactionHash": TX, "gasUsed": big(86_298), "from": SENDER}
    logs = [
        log | place | {"logIndex": int(log["logIndex"], 16), "transactionHash": TX} for log in LOGS
    ]
    return (
        tx | place | {"from": SENDER, "to": USDC, "input": call(), "gas": big(104_860)},
        receipt | place | {"status": "success", "logs": logs, "contractAddress": None},
        {"status": "reverted"},
    )


def ethers6() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    place = {"blockNumber": NUMBER, "blockHash": BLOCK}
    tx = {"_type": "TransactionResponse", "hash": TX, "chainId": "8453", "index": 10, "type": 2}
    receipt = {"_type": "TransactionReceipt", "hash": TX, "index": 10, "type": 2, "root": None}
    logs = [
        {key: value for key, value in log.items() if key != "logIndex"}
        | place
        | {"_type": "log", "index": int(log["logIndex"], 16), "transactionHash": TX}
        | {"transactionIndex": 10, "removed": False}
        for log in LOGS
    ]
    return (
        tx | place | {"from": SENDER, "to": USDC, "data": call(), "gasLimit": "104860"},
        receipt | place | {"status": 1, "logs": logs, "from": SENDER, "gasUsed": "86298"},
        {"status": 0},
    )


def ethers5() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    big = {"type": "BigNumber", "hex": "0x01511a"}
    place = {"blockNumber": NUMBER, "blockHash": BLOCK, "transactionIndex": 10}
    tx = {"hash": TX, "type": 2, "confirmations": 3, "chainId": 8453, "gasLimit": big}
    receipt = {"transactionHash": TX, "confirmations": 3, "gasUsed": big, "byzantium": True}
    logs = [
        log | place | {"logIndex": int(log["logIndex"], 16), "transactionHash": TX} for log in LOGS
    ]
    return (
        tx | place | {"from": SENDER, "to": USDC, "data": call(), "timestamp": AT},
        receipt | place | {"status": 1, "logs": logs, "from": SENDER, "type": 2},
        {"status": 0},
    )


def web3py(written: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    place = {"blockNumber": NUMBER, "blockHash": written(BLOCK), "transactionIndex": 10}
    tx = {"hash": written(TX), "chainId": 8453, "type": 2, "from": SENDER, "to": USDC} | place
    receipt = {"transactionHash": written(TX), "type": 2, "from": SENDER, "gasUsed": 86_298} | place
    logs = [
        log
        | place
        | {
            "logIndex": int(log["logIndex"], 16),
            "transactionHash": written(TX),
            "topics": [written(topic) for topic in log["topics"]],
            "data": written(log["data"]),
            "removed": False,
        }
        for log in LOGS
    ]
    return tx | {"input": written(call())}, receipt | {"status": 1, "logs": logs}, {"status": 0}


def web3js() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    tx, receipt, _ = web3py(str)
    return tx | {"data": call()}, receipt | {"status": True}, {"status": False}


def blockscout_log(log: dict[str, Any]) -> dict[str, Any]:
    topics = [*log["topics"], None, None, None][:4]
    return {
        "address": {"hash": USDC, "is_contract": True, "name": "FiatTokenProxy", "ens": None},
        "block_hash": BLOCK,
        "block_number": NUMBER,
        "data": log["data"],
        "decoded": None,
        "index": int(log["logIndex"], 16),
        "smart_contract": {"hash": USDC},
        "topics": topics,
        "transaction_hash": TX,
    }


def blockscout() -> dict[str, Any]:
    """A transaction that contains its own outcome."""
    return {
        "timestamp": ISO,
        "block_number": NUMBER,
        "status": "ok",
        "result": "success",
        "method": "transferWithAuthorization",
        "confirmations": 12,
        "type": 2,
        "from": {"hash": SENDER, "is_contract": False, "name": None},
        "to": {"hash": USDC, "is_contract": True, "name": "FiatTokenProxy"},
        "hash": TX,
        "raw_input": call(),
        "value": "0",
        "token_transfers": [{"total": {"decimals": "6", "value": "5"}}],
        "decoded_input": {"method_id": "cf092995", "parameters": []},
        "revert_reason": None,
        "created_contract": None,
    }


def blockscout_logs(**changes: Any) -> dict[str, Any]:
    newest_first = [blockscout_log(log) for log in reversed(LOGS)]
    return {"items": newest_first, "next_page_params": None} | changes


def blockscout_pair() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return blockscout(), blockscout_logs(), {}


def gettxinfo() -> dict[str, Any]:
    """Blockscout's API in the form of Etherscan, `module=transaction&action=gettxinfo`."""
    logs = [
        {
            "address": USDC,
            "data": log["data"],
            "index": str(int(log["logIndex"], 16)),
            "topics": [*log["topics"], None, None, None][:4],
        }
        for log in LOGS
    ]
    result = {
        "blockNumber": str(NUMBER),
        "from": SENDER,
        "gasUsed": "86298",
        "hash": TX,
        "input": call(),
        "logs": logs,
        "next_page_params": None,
        "revertReason": "",
        "success": True,
        "timeStamp": str(AT),
        "to": USDC,
        "value": "0",
    }
    return {"message": "OK", "result": result, "status": "1"}


def etherscan() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A row of `txlist`, and what `getLogs` answers for its block."""
    tx, _, _ = rpc()
    row = tx | {"blockNumber": str(NUMBER), "timeStamp": str(AT), "chainId": None}
    row |= {"isError": "0", "txreceipt_status": "1"}
    logs = [
        log | {"blockNumber": hex(NUMBER), "transactionHash": TX, "timeStamp": hex(AT)}
        for log in (used_log(index=0) | {"logIndex": "0x"}, transfer_log(index=72))
    ]
    return row, {"status": "1", "message": "OK", "result": logs}, {}


FORMS = {
    "JSON-RPC": rpc(),
    "cast": cast(),
    "viem, BigInt as a string": viem(str),
    "viem, BigInt as a number": viem(int),
    "viem, BigInt as printed": viem(lambda value: f"{value}n"),
    "wagmi": viem(lambda value: {"__type": "bigint", "value": str(value)}),
    "ethers 6": ethers6(),
    "ethers 5": ethers5(),
    "web3.py to_json": web3py(str),
    "web3.py .hex()": web3py(bare),
    "web3.py repr": web3py(lambda text: f"HexBytes('{text}')"),
    "web3.js": web3js(),
    "Blockscout": blockscout_pair(),
    "Etherscan": etherscan(),
}


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
def test_payment_is_the_same_in_every_format(form: str) -> None:
    tx, receipt, _ = FORMS[form]
    shown = check_trace(trace_files(tx, receipt))
    more = "The logs are incomplete" in str(shown.get("reason"))
    assert more is (form == "Etherscan"), "a bare list of logs may be a part of them"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("envelope", [{"jsonrpc": "2.0", "id": 1}, {"id": 1}, {}])
def test_envelope_of_a_reply_may_stay(form: str, envelope: dict[str, Any]) -> None:
    tx, receipt, _ = FORMS[form]
    receipt = receipt if form == "Etherscan" else envelope | {"result": receipt}
    check_trace(trace_files(envelope | {"result": tx}, receipt))


@pytest.mark.parametrize("form", [name for name, parts in FORMS.items() if parts[2]])
def test_receipt_in_every_format_shows_a_revert(form: str) -> None:
    tx, receipt, failed = FORMS[form]
    shown = trace_json(trace_files(tx, receipt | failed | {"logs": []}))
    assert (shown["status"], shown["payments"]) == ("reverted", [])
    assert "no money moved" in shown["reason"]


@pytest.mark.parametrize("form", FORMS)
def test_transaction_without_receipt_leaves_the_outcome_unknown(form: str) -> None:
    result = trace_files(FORMS[form][0])
    told_itself = form in ("Blockscout", "Etherscan")
    assert result.status is (TraceStatus.SUCCESS if told_itself else TraceStatus.UNKNOWN)
    assert "unknown whether money moved" in str(result.reason)
    assert not result.proven


def test_blockscout_transaction_contains_its_status() -> None:
    failed = trace_files(blockscout() | {"status": "error", "result": "execution reverted"})
    assert (failed.status, failed.payments) == (TraceStatus.REVERTED, ())
    waits = blockscout() | {"status": None, "result": "pending", "block_number": None}
    waits["timestamp"] = None
    assert trace_files(waits).status is TraceStatus.PENDING
    older = blockscout()
    older["block"] = older.pop("block_number")
    assert trace_json(trace_files(older))["block"]["timestamp"] == "2025-11-02T11:04:23Z"


def test_transaction_of_blockscout_may_stand_for_its_receipt() -> None:
    result = trace_files({"hash": TX, "input": call(), "to": USDC}, blockscout())
    assert (result.status, len(result.payments), result.proven) == (TraceStatus.SUCCESS, 1, False)


def test_one_object_may_hold_the_transaction_and_its_receipt() -> None:
    check_trace(trace_files(gettxinfo()))
    tx, receipt, _ = rpc()
    check_trace(trace_files(tx | receipt))
    failed = gettxinfo()
    failed["result"] |= {"success": False, "logs": []}
    assert trace_files(failed).status is TraceStatus.REVERTED


def test_receipt_without_transaction_proves_payments_by_its_logs() -> None:
    result = trace_files(rpc()[1])
    assert (result.status, result.payments[0].amount, result.proven) == (
        TraceStatus.SUCCESS,
        5,
        True,
    )
    assert result.payments[0].method is None


def test_page_of_logs_may_be_followed_by_others() -> None:
    more = {"next_page_params": {"index": 73, "block_number": NUMBER}}
    some = trace_files(blockscout(), blockscout_logs(**more))
    assert some.proven
    assert "there may be more payments" in str(some.reason)
    none = trace_files(blockscout(), blockscout_logs(**more) | {"items": []})
    assert (none.status, none.proven) == (TraceStatus.SUCCESS, False)
    assert "logs are incomplete, so it is unknown whether money moved" in str(none.reason)
    whole = trace_files(blockscout(), blockscout_logs() | {"items": []})
    assert "No money moved" in str(whole.reason)


def test_logs_without_receipt_prove_success() -> None:
    tx, receipt, _ = rpc()
    check_trace(trace_files(tx, receipt["logs"]))
    check_trace(trace_files(tx, blockscout_logs()))


@pytest.mark.parametrize(
    ("receipt", "message"),
    [
        ({"error": {"code": -32000, "message": "busy"}, "jsonrpc": "2.0", "id": 1}, "an error"),
        ({"status": "0", "message": "NOTOK", "result": "Max rate limit reached"}, "an error"),
        ({"type": "CALL", "to": USDC}, "not a receipt"),
        (rpc()[1] | {"status": "maybe"}, "status"),
        (
            rpc()[1] | {"logs": [transfer_log() | {"transactionHash": "0x" + "99" * 32}]},
            "to another transaction",
        ),
        (rpc()[1] | {"logs": [transfer_log() | {"removed": True}]}, "removed"),
        (blockscout() | {"hash": "0x" + "99" * 32}, "another transaction"),
        (blockscout() | {"timestamp": "12-2"}, "timestamp is malformed"),
        (blockscout() | {"timestamp": "0001-01-01T00:00:00+14:00"}, "timestamp is not a number"),
        ([], "not a JSON object"),
    ],
)
def test_rejects_invalid_receipts(receipt: object, message: str) -> None:
    with pytest.raises(TraceInputError, match=message):
        trace_files(rpc()[0], receipt)


def test_receipt_that_contradicts_its_transaction_is_refused() -> None:
    with pytest.raises(TraceInputError, match="different outcomes"):
        trace_files(blockscout(), rpc()[1] | {"status": "0x0", "logs": []})


def test_saved_error_is_not_an_unknown_transaction() -> None:
    with pytest.raises(TraceInputError, match="an error"):
        trace_files({"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "limit"}})


def test_reason_states_the_assumed_network() -> None:
    assumed = trace_files(blockscout(), blockscout_logs())
    assert assumed.reason == "The transaction names no chain: base-mainnet is assumed."
    named = trace_files(blockscout(), blockscout_logs(), network="base-mainnet")
    assert named.reason is None
    assert trace_files(*rpc()[:2]).reason is None


def test_log_is_not_a_transaction() -> None:
    with pytest.raises(TraceInputError, match="not a transaction"):
        trace_files(rpc()[1]["logs"][0])
