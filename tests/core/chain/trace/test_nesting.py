"""Calls inside calls: every known wrapper as eth-abi writes it, and hostile call data."""

from __future__ import annotations

import time
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tollgauge.core.chain.trace.calldata import SELECTORS
from tollgauge.core.chain.trace.nesting import (
    _OPERATION_6,
    _OPERATION_7,
    _SIGNATURES,
    _WRAPPERS,
    ARRAYS,
    CALLS_MAX,
    PACKED,
    transfers_anywhere,
    transfers_in,
)

TOKEN = "0x" + "cc" * 20
OUTER = "0x" + "0e" * 20
WORD = bytes(32)
_TWA = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,{})"


def transfer(value: int, form: str = "bytes") -> bytes:
    values: tuple[Any, ...] = ("0x" + "aa" * 20, "0x" + "bb" * 20, value, 0, 9, value.to_bytes(32))
    if form == "bytes":
        return encode_call(_TWA.format("bytes"), *values, b"\7" * 65)
    return encode_call(_TWA.format("uint8,bytes32,bytes32"), *values, 27, b"\7" * 32, b"\7" * 32)


def encode_call(signature: str, *arguments: object) -> bytes:
    return function_signature_to_4byte_selector(signature) + encode(types(signature), arguments)


def types(signature: str) -> list[str]:
    parts, depth = [""], 0
    for char in signature[signature.index("(") + 1 : -1]:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


A, B = transfer(1), transfer(2, "vrs")
_BATCH = [(TOKEN, 0, A), (TOKEN, 0, B)]
_MODE_BATCH = b"\1" + bytes(31)


def operation_6(data: bytes) -> tuple[object, ...]:
    return (OUTER, 7, b"init", data, 1, 2, 3, 4, 5, b"pay", b"sign")


def operation_7(data: bytes) -> tuple[object, ...]:
    return (OUTER, 7, b"init", data, WORD, 2, WORD, b"pay", b"sign")


def pack(*calls: bytes) -> bytes:
    return b"".join(
        b"\0" + bytes.fromhex(TOKEN[2:]) + WORD + len(data).to_bytes(32) + data for data in calls
    )


def execute(data: bytes) -> bytes:
    return encode_call("execute(address,uint256,bytes)", TOKEN, 0, data)


SAFE = "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)"
CASES: dict[str, tuple[tuple[object, ...], int]] = {
    "aggregate((address,bytes)[])": (([(TOKEN, A), (TOKEN, B)],), 2),
    "blockAndAggregate((address,bytes)[])": (([(TOKEN, A), (TOKEN, B)],), 2),
    "tryAggregate(bool,(address,bytes)[])": ((True, [(TOKEN, A), (TOKEN, B)]), 2),
    "tryBlockAndAggregate(bool,(address,bytes)[])": ((True, [(TOKEN, A), (TOKEN, B)]), 2),
    "aggregate3((address,bool,bytes)[])": (([(TOKEN, True, A), (TOKEN, False, B)],), 2),
    "aggregate3Value((address,bool,uint256,bytes)[])": (
        ([(TOKEN, True, 0, A), (TOKEN, False, 5, B)],),
        2,
    ),
    "multicall(bytes[])": (([execute(A), execute(B)],), 2),
    "multicall(uint256,bytes[])": ((9, [execute(A), execute(B)]), 2),
    "multicall(bytes32,bytes[])": ((WORD, [execute(A), execute(B)]), 2),
    "executeWithoutChainIdValidation(bytes[])": (([execute(A), execute(B)],), 2),
    "execute(address,uint256,bytes)": ((TOKEN, 0, A), 1),
    "execute(address,uint256,bytes,uint8)": ((TOKEN, 0, A, 0), 1),
    "executeCall(address,uint256,bytes)": ((TOKEN, 0, A), 1),
    "executeBatch(address[],bytes[])": (([TOKEN, TOKEN], [A, B]), 2),
    "executeBatch(address[],uint256[],bytes[])": (([TOKEN, TOKEN], [0, 0], [A, B]), 2),
    "executeBatch((address,uint256,bytes)[])": ((_BATCH,), 2),
    "execute((address,uint256,bytes)[])": ((_BATCH,), 2),
    "execute(bytes32,bytes)": (
        (_MODE_BATCH, encode(["(address,uint256,bytes)[]"], [_BATCH])),
        2,
    ),
    "executeFromExecutor(bytes32,bytes)": ((WORD, bytes.fromhex(TOKEN[2:]) + WORD + A), 1),
    SAFE: ((TOKEN, 0, A, 0, 1, 2, 3, OUTER, OUTER, b"signatures"), 1),
    "execTransactionFromModule(address,uint256,bytes,uint8)": ((TOKEN, 0, A, 0), 1),
    "executeUserOp(address,uint256,bytes,uint8)": ((TOKEN, 0, A, 0), 1),
    "executeUserOpWithErrorString(address,uint256,bytes,uint8)": ((TOKEN, 0, A, 0), 1),
    "multiSend(bytes)": ((pack(A, B),), 2),
    f"handleOps({_OPERATION_6}[],address)": (
        ([operation_6(execute(A)), operation_6(execute(B))], OUTER),
        2,
    ),
    f"handleOps({_OPERATION_7}[],address)": (
        ([operation_7(execute(A)), operation_7(execute(B))], OUTER),
        2,
    ),
}


def test_every_wrapper_has_a_case() -> None:
    assert {*CASES, ARRAYS, PACKED} == _SIGNATURES.keys()


@pytest.mark.parametrize("signature", CASES)
def test_wrapper_gives_the_calls_inside_it_in_order(signature: str) -> None:
    arguments, count = CASES[signature]
    data = encode_call(signature, *arguments)
    transfers = transfers_in(data, OUTER)
    assert [(call.value, call.target) for call in transfers] == [(1, TOKEN), (2, TOKEN)][:count]
    assert [call.signature for call in transfers] == [b"\7" * 65, b"\7" * 64 + b"\x1b"][:count]
    assert all(call.suffix == b"" for call in transfers)
    # A suffix behind the wrapper's own arguments changes nothing.
    assert transfers_in(data + b"suffix", OUTER) == transfers
    assert {call.key for call in transfers_anywhere(data)} >= {call.key for call in transfers}


def test_wrappers_nest() -> None:
    data = encode_call("multicall(bytes[])", [execute(A)])
    for _ in range(5):
        data = encode_call("aggregate3((address,bool,bytes)[])", [(OUTER, True, data)])
    assert [call.value for call in transfers_in(data, OUTER)] == [1]


ROWS = tuple(range(1, 4))


def list_transfers(data: bytes) -> list[tuple[object, ...]]:
    return [
        (call.payer, call.payee, call.value, call.valid_after, call.valid_before, call.target)
        for call in transfers_in(data, OUTER)
    ]


def listings() -> tuple[bytes, bytes]:
    """The same three authorizations in both kinds of lists."""
    arrays = encode_call(
        ARRAYS,
        ["0x" + "aa" * 20] * 3,
        ["0x" + "bb" * 20] * 3,
        list(ROWS),
        [7] * 3,
        [9] * 3,
        [row.to_bytes(32) for row in ROWS],
        [27, 28, 27],
        [b"\5" * 32] * 3,
        [b"\6" * 32] * 3,
        77,
    )
    terms = b"".join(
        b"\xaa" * 20
        + b"\xbb" * 20
        + encode(["uint256", "uint256", "uint256", "bytes32"], [row, 7, 9, row.to_bytes(32)])
        for row in ROWS
    )
    signatures = b"".join(bytes([v]) + b"\5" * 32 + b"\6" * 32 for v in (27, 28, 27))
    return arrays, encode_call(PACKED, terms, signatures, True)


def test_lists_of_authorizations_are_read_row_by_row() -> None:
    for data in listings():
        assert list_transfers(data) == [
            ("0x" + "aa" * 20, "0x" + "bb" * 20, row, 7, 9, None) for row in ROWS
        ]
        transfers = transfers_in(data, OUTER)
        assert [int(call.nonce, 16) for call in transfers] == list(ROWS)
        assert transfers[1].signature == b"\5" * 32 + b"\6" * 32 + b"\x1c"
        nested = encode_call("aggregate3((address,bool,bytes)[])", [(OUTER, True, data)])
        assert transfers_in(nested, OUTER) == transfers


def test_list_that_ends_too_early_gives_at_most_its_whole_rows() -> None:
    for data in listings():
        for length in range(0, len(data), 7):
            assert len(transfers_in(data[:length], OUTER)) <= len(ROWS)


def test_scan_finds_calls_in_unknown_wrappers() -> None:
    data = encode_call("unknown(uint256,bytes)", 5, b"odd" + A) + b"tail" + B
    assert transfers_in(data, OUTER) == ()
    assert sorted(call.value for call in transfers_anywhere(data)) == [1, 2]


def within(seconds: float, data: bytes) -> None:
    begin = time.process_time()
    transfers_in(data, OUTER)
    transfers_anywhere(data)
    assert time.process_time() - begin < seconds


def share_call(inner: bytes, count: int) -> bytes:
    """A multicall whose elements all are the same bytes, written once."""
    selector = function_signature_to_4byte_selector("multicall(bytes[])")
    offsets = (32 * count).to_bytes(32) * count
    return (
        selector
        + (32).to_bytes(32)
        + count.to_bytes(32)
        + offsets
        + len(inner).to_bytes(32)
        + inner
    )


def test_shared_array_elements_are_read_for_each_reference() -> None:
    assert [call.value for call in transfers_in(share_call(share_call(A, 2), 3), OUTER)] == [1] * 6


@pytest.mark.parametrize("inner", [A, b"", encode_call("unknown()")])
def test_calls_that_multiply_at_every_level_are_bounded(inner: bytes) -> None:
    """256 to the power of 12 calls in 100 KB."""
    data = inner
    for _ in range(12):
        data = share_call(data, 256)
    within(2.0, data)
    assert len(transfers_in(data, OUTER)) <= CALLS_MAX


def test_many_selectors_cost_little() -> None:
    for selector in SELECTORS:
        within(2.0, selector * 64_000)
    within(2.0, (A + B) * 400)


def test_long_packed_list_costs_little() -> None:
    empty = pack(*[b""] * 1_500)
    within(2.0, encode_call("multiSend(bytes)", empty))


LISTS = [function_signature_to_4byte_selector(text) for text in (ARRAYS, PACKED)]
hostile_words = st.one_of(
    st.integers(0, 600),
    st.sampled_from([2**256 - 1, 2**255, 2**64, 2**63, 2**32]),
    st.binary(min_size=32, max_size=32).map(int.from_bytes),
).map(lambda number: number.to_bytes(32))


@settings(max_examples=examples(300))
@given(
    selector=st.sampled_from([*_WRAPPERS, *SELECTORS, *LISTS]),
    body=st.lists(st.one_of(hostile_words, st.just(A), st.binary(max_size=5)), max_size=40),
)
def test_no_bytes_raise(selector: bytes, body: list[bytes]) -> None:
    data = selector + b"".join(body)
    for call in transfers_in(data, OUTER):
        assert len(call.payer) == len(call.payee) == 42
        assert 0 <= call.value < 2**256
    transfers_anywhere(data)


@settings(max_examples=examples(200))
@given(
    case=st.sampled_from(sorted(CASES)),
    changes=st.lists(st.tuples(st.integers(0, 60), hostile_words), min_size=1, max_size=4),
)
def test_wrapper_with_bent_offsets_never_raises(
    case: str, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(encode_call(case, *CASES[case][0]))
    for place, word in changes:
        at = 4 + 32 * place
        data[at : at + 32] = word[: max(0, min(32, len(data) - at))]
    transfers_in(bytes(data), OUTER)
