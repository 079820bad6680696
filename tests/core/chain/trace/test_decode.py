"""Payments decoded from a transaction, its receipt and its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.trace_capture import (
    _TRANSFER,
    _USED,
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
    word,
)

from tollgauge.core.chain.trace.decode import trace_files
from tollgauge.core.chain.trace.nesting import ARRAYS
from tollgauge.core.chain.trace.result import (
    DECODERS,
    Model,
    TraceResult,
    TraceStatus,
    named_model,
    named_network,
)
from tollgauge.core.chain.trace.transaction import TraceInputError
from tollgauge.web.wire.traces import trace_json

_CANCELED = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"


def wrap(data: str) -> str:
    """A call as `execute(address,uint256,bytes)` of a smart account."""
    values = (USDC, 0, bytes.fromhex(data[2:]))
    return "0xb61d27f6" + encode(["address", "uint256", "bytes"], values).hex()


def encoded_list() -> str:
    """One transfer of 7 that a batch contract takes as lists: it names no token."""
    columns = [[PAYER.address], [PAYEE], [7], [0], [2**255], [b"\1" * 32], [27]]
    types = "address[] address[] uint256[] uint256[] uint256[] bytes32[] uint8[]"
    rest = ([b"\2" * 32], [b"\3" * 32], 0)
    selector = function_signature_to_4byte_selector(ARRAYS).hex()
    kinds = [*types.split(), "bytes32[]", "bytes32[]", "uint256"]
    return f"0x{selector}{encode(kinds, (*columns, *rest)).hex()}"


def frame(data: str, to: str = USDC, **changes: Any) -> dict[str, Any]:
    return {"type": "CALL", "from": OTHER, "to": to, "input": data} | changes


def list_payments(result: TraceResult) -> list[tuple[object, ...]]:
    return [(payment.method, payment.amount, payment.token.address) for payment in result.payments]


TWA, RWA = "transferWithAuthorization", "receiveWithAuthorization"


def test_logs_give_the_payment_and_the_call_gives_the_method() -> None:
    result = trace_files(transaction_of(call()), receipt_with(used_log(), transfer_log()))
    assert list_payments(result) == [(TWA, 5, USDC)]
    assert (result.status, result.decoder, result.reason) == (
        TraceStatus.SUCCESS,
        Model.CALLDATA,
        None,
    )
    assert result.payments[0].log_index == 4
    assert result.payments[0].valid_before == 2**256 - 1


def test_logs_decoder_names_the_method_that_the_call_data_tells() -> None:
    logs = receipt_with(used_log(), transfer_log())
    result = trace_files(transaction_of(call()), logs, "receipt-logs")
    assert (list_payments(result), result.decoder) == ([(TWA, 5, USDC)], Model.RECEIPT_LOGS)
    assert result.payments[0].valid_before is None
    assert "reason" not in trace_json(result)
    hidden = trace_files(transaction_of("0x12345678"), logs, "receipt-logs")
    assert list_payments(hidden) == [(None, 5, USDC)]
    assert "show their methods" in trace_json(hidden)["reason"]


def test_amount_is_that_of_the_logs_where_the_token_keeps_a_part() -> None:
    result = trace_files(transaction_of(call(5)), receipt_with(used_log(), transfer_log(4)))
    assert list_payments(result) == [(TWA, 4, USDC)]


def test_call_of_another_authorization_does_not_match_a_pair() -> None:
    result = trace_files(transaction_of(call(nonce=2)), receipt_with(used_log(), transfer_log()))
    assert list_payments(result) == [(None, 5, USDC)]
    assert result.decoder is Model.RECEIPT_LOGS
    assert result.reason


def test_several_pairs_are_paired_by_log_order() -> None:
    logs = [
        used_log(1, index=1),
        transfer_log(1, index=2),
        used_log(2, index=7),
        transfer_log(2, index=9),
    ]
    result = trace_files(transaction_of("0x"), receipt_with(*logs))
    assert [
        (payment.amount, int(payment.nonce or "", 16), payment.log_index)
        for payment in result.payments
    ] == [
        (1, 1, 2),
        (2, 2, 9),
    ]


def test_logs_with_the_newest_first_are_paired_by_their_indices() -> None:
    logs = [transfer_log(index=4), used_log(index=3)]
    result = trace_files(transaction_of(call()), receipt_with(*logs))
    assert list_payments(result) == [(TWA, 5, USDC)]


@pytest.mark.parametrize(
    "logs",
    [
        [used_log()],
        [transfer_log(index=3), used_log(index=4)],
        [used_log(), transfer_log(token=OTHER)],
        [used_log(token=OTHER), transfer_log()],
        [
            used_log(),
            transfer_log() | {"topics": [_TRANSFER, word(PAYEE), word(PAYEE)]},
            transfer_log(),
        ],
        [
            used_log(),
            transfer_log()
            | {"topics": [*transfer_log()["topics"], "0x" + "01" * 32], "data": "0x"},
        ],
        [used_log() | {"topics": used_log()["topics"][:2]}, transfer_log()],
        [transfer_log()],
    ],
)
def test_unpaired_logs_are_not_a_payment(logs: list[dict[str, Any]]) -> None:
    result = trace_files(transaction_of(call()), receipt_with(*logs))
    assert result.payments == ()
    assert result.reason


def test_second_authorization_replaces_one_that_moved_nothing() -> None:
    result = trace_files(
        transaction_of("0x"), receipt_with(used_log(1), used_log(2), transfer_log())
    )
    assert [int(payment.nonce or "", 16) for payment in result.payments] == [2]


def test_reverted_transaction_has_no_payments() -> None:
    for logs in ([], [used_log(), transfer_log()]):
        result = trace_files(transaction_of(call()), receipt_with(*logs, status="0x0"))
        assert (result.status, result.payments) == (TraceStatus.REVERTED, ())
        assert "requests transferWithAuthorization of 5" in str(result.reason)


def test_successful_call_without_logs_is_not_a_payment() -> None:
    result = trace_files(transaction_of(call()), receipt_with())
    assert result.payments == ()
    assert "No money moved" in str(result.reason)


def test_cancelled_authorization_is_not_a_payment() -> None:
    log = used_log() | {"topics": [_CANCELED, *used_log()["topics"][1:]]}
    result = trace_files(transaction_of("0x5a049a70"), receipt_with(log))
    assert result.payments == ()
    assert "cancels" in str(result.reason)


def test_receipt_without_logs_only_shows_the_status() -> None:
    receipt = receipt_with()
    del receipt["logs"]
    result = trace_files(transaction_of(call()), receipt)
    assert (result.status, list_payments(result)) == (TraceStatus.SUCCESS, [(TWA, 5, USDC)])
    with pytest.raises(TraceInputError, match="needs a receipt"):
        trace_files(transaction_of(call()), receipt, "receipt-logs")


def test_transfer_without_authorization_has_an_unknown_outcome() -> None:
    trace = trace_files(transaction_of(call()), receipt_with(transfer_log()))
    assert trace.payments == ()
    assert "No money moved" not in str(trace.reason)
    assert "A transfer is logged, but none of the given logs is AuthorizationUsed" in str(
        trace.reason
    )
    assert "is unknown" in str(trace.reason)
    assert "no authorization was used" not in str(trace.reason)


@pytest.mark.parametrize("calldata", [call(), "0x"])
def test_filtered_list_of_logs_does_not_prove_that_no_authorization_was_used(calldata: str) -> None:
    trace = trace_files(transaction_of(calldata), receipt_with(transfer_log())["logs"])
    assert "none of the given logs is authorizationused" in str(trace.reason).lower()
    assert "no authorization was used" not in str(trace.reason)


def test_receipt_without_status_succeeded_if_it_has_logs() -> None:
    receipt = receipt_with(used_log(), transfer_log())
    del receipt["status"]
    assert trace_files(transaction_of(call()), receipt).status is TraceStatus.SUCCESS


def test_without_a_receipt_it_is_not_known_whether_it_moved() -> None:
    unnamed = transaction_of(encoded_list(), to=OTHER)
    for tx in (
        transaction_of(call()),
        transaction_of("0xa9059cbb" + "00" * 64),
        transaction_of("0x12345678"),
        unnamed,
    ):
        shown = trace_json(trace_files(tx))
        assert shown["status"] == "unknown"
        assert "unknown whether money moved" in shown["reason"]
        assert "No money moved" not in shown["reason"]
    assert list_payments(trace_files(transaction_of(call()))) == [(TWA, 5, USDC)]
    assert "requests transferWithAuthorization of 7" in str(trace_files(unnamed).reason)


def test_receipt_without_logs_or_status_leaves_it_unknown() -> None:
    held = trace_files(transaction_of(call()), {"transactionHash": TX, "status": "0x1"})
    assert (held.status, held.proven) == (TraceStatus.SUCCESS, False)
    assert "has no logs, so it is unknown whether money moved" in str(held.reason)
    nothing = trace_files(transaction_of(call()), {"transactionHash": TX})
    assert nothing.status is TraceStatus.UNKNOWN


def test_call_trace_without_receipt_does_not_prove_success() -> None:
    result = trace_files(transaction_of(call()), None, calls=frame(call()))
    assert (result.status, list_payments(result)) == (TraceStatus.UNKNOWN, [(TWA, 5, USDC)])
    assert "unknown whether money moved" in str(result.reason)


@pytest.mark.parametrize("to_logs", [None, "some"])
@pytest.mark.parametrize("kind", ["bytes", "odd", "marked", "selector", "wrapper", "list"])
def test_call_data_that_was_cut_is_incomplete(kind: str, to_logs: str | None) -> None:
    data = {
        "bytes": call()[:300],
        "odd": call()[:301],
        "marked": call()[:100] + "...",
        "selector": "0xcf09",
        "wrapper": wrap(call())[:-130],
        "list": encoded_list()[:-200],
    }[kind]
    result = trace_files(
        transaction_of(data), receipt_with(used_log(), transfer_log()) if to_logs else None
    )
    assert "is incomplete" in str(result.reason)
    assert result.status is (TraceStatus.SUCCESS if to_logs else TraceStatus.UNKNOWN)
    assert [payment.method for payment in result.payments] == ([None] if to_logs else [])
    assert "holds no" not in str(result.reason)
    assert "is incomplete" in str(
        trace_files(transaction_of(data), receipt_with(status="0x0")).reason
    )


def test_call_data_that_is_whole_is_not_called_incomplete() -> None:
    for data in ("0x", call(), wrap(call()), encoded_list(), "0x12345678", call() + "a161"):
        for receipt in (
            None,
            receipt_with(used_log(), transfer_log()),
            receipt_with(),
            receipt_with(status="0x0"),
        ):
            assert "incomplete" not in str(trace_files(transaction_of(data), receipt).reason)


def test_pending_transaction_has_moved_nothing_yet() -> None:
    pending = transaction_of(call(), blockNumber=None, blockHash=None)
    for model in (None, "receipt-logs", "calldata", "call-trace"):
        result = trace_files(pending, None, model)
        assert result.status is TraceStatus.PENDING
        assert "no money had moved" in str(result.reason)


def test_null_transaction_is_not_known() -> None:
    for value in (None, {"jsonrpc": "2.0", "id": 1, "result": None}):
        result = trace_files(value)
        assert (result.status, result.payments) == (TraceStatus.NOT_FOUND, ())


def test_signature_names_the_token_behind_an_unknown_proxy() -> None:
    assert list_payments(trace_files(transaction_of(call(), to=OTHER))) == [(TWA, 5, USDC)]
    assert list_payments(trace_files(transaction_of(call(receive=True), to=OTHER))) == [
        (RWA, 5, USDC)
    ]
    # With another function's selector the signature proves nothing: the called contract stands.
    forged = "0x88b7ab63" + call()[10:]
    assert list_payments(trace_files(transaction_of(forged, to=OTHER))) == [(RWA, 5, OTHER)]


def test_hidden_bytes_count_without_a_receipt_only_where_the_payer_signed_them() -> None:
    good, bad = call(7, 9)[2:], ("0x88b7ab63" + call(7, 9)[10:])[2:]
    assert list_payments(trace_files(transaction_of("0x12345678ff" + good))) == [(TWA, 7, USDC)]
    assert list_payments(trace_files(transaction_of("0x12345678ff" + bad))) == []


def test_hidden_bytes_count_with_a_receipt_where_the_logs_prove_them() -> None:
    data = "0x12345678ff" + call()[2:] + call(9, 9)[2:]
    result = trace_files(transaction_of(data, to=OTHER), receipt_with(used_log(), transfer_log()))
    assert list_payments(result) == [(TWA, 5, USDC)]


def test_bytes_that_contradict_each_other_are_settled_by_the_signature() -> None:
    """Two hidden calls with the payment's nonce, one of them with a forged function."""
    forged = "88b7ab63" + call()[10:]
    for data in (forged + call()[2:], call()[2:] + forged):
        result = trace_files(
            transaction_of("0x12345678" + data, to=OTHER), receipt_with(used_log(), transfer_log())
        )
        assert list_payments(result) == [(TWA, 5, USDC)]


def test_bytes_that_contradict_each_other_unsigned_prove_nothing() -> None:
    unsigned = call()[2:330] + "00" * 200
    forged = "88b7ab63" + unsigned[8:]
    result = trace_files(
        transaction_of("0x12345678" + unsigned + forged, to=OTHER),
        receipt_with(used_log(), transfer_log()),
    )
    assert list_payments(result) == [(None, 5, USDC)]


def test_suffix_is_not_read_as_the_preceding_call() -> None:
    forged = "88b7ab63" + call()[10:]
    result = trace_files(transaction_of(call() + forged), receipt_with(used_log(), transfer_log()))
    assert list_payments(result) == [(TWA, 5, USDC)]


def test_call_trace_shows_what_call_data_hides() -> None:
    calls = frame("0x12345678", OTHER, calls=[frame(call(receive=True))])
    result = trace_files(
        transaction_of("0x12345678", to=OTHER),
        receipt_with(used_log(), transfer_log()),
        calls=calls,
    )
    assert list_payments(result) == [(RWA, 5, USDC)]
    assert result.decoder is Model.CALL_TRACE
    assert list_payments(trace_files(transaction_of("0x"), None, calls=calls)) == [(RWA, 5, USDC)]


def test_frames_that_failed_or_only_delegate_are_not_counted() -> None:
    inner = frame(call())
    delegated = inner | {"type": "DELEGATECALL", "to": OTHER}
    calls = frame(
        "0x12345678",
        OTHER,
        calls=[
            inner | {"error": "execution reverted"},
            frame("0x", OTHER, error="out of gas", calls=[inner]),
            inner | {"type": "STATICCALL"},
            inner | {"calls": [delegated]},
        ],
    )
    assert list_payments(trace_files(transaction_of("0x"), None, calls=calls)) == [(TWA, 5, USDC)]


def test_trace_whose_outermost_frame_failed_is_reverted() -> None:
    result = trace_files(
        transaction_of(call()), None, calls=frame(call(), error="execution reverted")
    )
    assert (result.status, result.payments) == (TraceStatus.REVERTED, ())


def test_very_deep_trace_is_read() -> None:
    deep = frame(call())
    for _ in range(5_000):
        deep = frame("0x", OTHER, calls=[deep])
    assert list_payments(trace_files(transaction_of("0x"), None, calls=deep)) == [(TWA, 5, USDC)]


def test_chain_is_the_transactions_own() -> None:
    assert trace_json(trace_files(transaction_of(call()), network="base-mainnet"))["network"] == (
        "base-mainnet"
    )
    with pytest.raises(TraceInputError, match="another chain"):
        trace_files(transaction_of(call()), network="polygon-mainnet")
    legacy = transaction_of(call())
    del legacy["chainId"]
    assert trace_files(legacy, network="polygon-mainnet").network == "eip155:137"
    # USDC of Base is not a known dollar token on Polygon.
    assert trace_json(trace_files(legacy, network="polygon-mainnet"))["token"]["symbol"] is None


@pytest.mark.parametrize(
    ("tx", "receipt", "message"),
    [
        ([], None, "not a JSON object"),
        ({}, None, "not a transaction"),
        (transaction_of(hash="0x12"), None, "hash"),
        (transaction_of() | {"to": 5}, None, "to"),
        (transaction_of(chainId="many"), None, "chainId"),
        (transaction_of(blockNumber=True), None, "blockNumber"),
        (transaction_of(blockNumber=-1), None, "blockNumber"),
        (transaction_of(), [], "not a JSON object"),
        (transaction_of(), receipt_with(status="0x2"), "neither 0 nor 1"),
        (transaction_of(), receipt_with() | {"logs": {}}, "not an array"),
        (transaction_of(), receipt_with({"address": USDC}), "topics"),
        (transaction_of(), receipt_with(used_log() | {"topics": ["0x12"]}), "topic"),
        (transaction_of(), receipt_with(used_log() | {"address": "0x12"}), "address"),
        (transaction_of(), receipt_with(used_log() | {"data": "zz"}), "data"),
        (transaction_of(), receipt_with(transactionHash="0x" + "11" * 32), "another transaction"),
    ],
)
def test_rejects_malformed_captures_with_a_reason(
    tx: object, receipt: object, message: str
) -> None:
    with pytest.raises(TraceInputError, match=message):
        trace_files(tx, receipt)


@pytest.mark.parametrize(
    "calls",
    [
        [],
        {},
        frame("0x", calls={}),
        frame("0x", calls=[1]),
        frame(call(), to="0x12"),
        frame(call()[:-1]),
    ],
)
def test_rejects_malformed_call_traces_with_a_reason(calls: object) -> None:
    with pytest.raises(TraceInputError):
        trace_files(transaction_of(call()), None, calls=calls)


def test_rejects_unknown_names_with_a_reason() -> None:
    with pytest.raises(TraceInputError) as caught:
        named_model("guess")
    assert "receipt-logs, calldata, call-trace" in caught.value.hint
    with pytest.raises(TraceInputError) as caught:
        named_network("base")
    assert "base-mainnet" in caught.value.hint
    assert [decoder.model for decoder in DECODERS] == list(Model)
    assert all(decoder.price_usd == 0 for decoder in DECODERS)


KEYS = (
    *("hash", "input", "to", "from", "logs", "topics", "address", "data", "status", "calls"),
    *("type", "error", "blockNumber", "chainId", "logIndex", "result", "jsonrpc"),
)
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([TX, USDC, "0x", call(), "0x1", _USED, _TRANSFER, word(PAYER.address)]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=examples(300))
@given(tx=junk, receipt=junk, calls=junk)
def test_nothing_but_a_capture_error_is_raised_for_any_json(
    tx: object, receipt: object, calls: object
) -> None:
    for model in (None, *Model):
        try:
            result = trace_files(tx, receipt, model, calls=calls)
        except TraceInputError:
            continue
        json.dumps(trace_json(result))


@settings(max_examples=examples(200))
@given(
    data=st.binary(max_size=700),
    at=st.integers(0, 400),
    selector=st.sampled_from(["e3ee160e", "cf092995", "ef55bec6", "88b7ab63", "82ad56cb", ""]),
)
def test_no_call_data_raises(data: bytes, at: int, selector: str) -> None:
    text = "0x" + selector + data[:at].hex() + call()[2:] + data[at:].hex()
    for receipt in (None, receipt_with(used_log(), transfer_log()), receipt_with()):
        json.dumps(trace_json(trace_files(transaction_of(text), receipt)))
