"""EIP-3009 call data against eth-abi, and against bytes that are not a call."""

from __future__ import annotations

import pytest
from eth_abi.abi import encode
from eth_utils.abi import function_abi_to_4byte_selector, function_signature_to_4byte_selector
from hypothesis import given
from hypothesis import strategies as st
from x402.mechanisms.evm import constants

from tollgauge.core.chain.trace.calldata import PROXY_SELECTORS, SELECTORS, Method, read_call

TERMS = "address,address,uint256,uint256,uint256,bytes32"
FORMS = {"vrs": "uint8,bytes32,bytes32", "bytes": "bytes"}
addresses = st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())
numbers = st.integers(0, 2**256 - 1)
words = st.binary(min_size=32, max_size=32)
terms = st.tuples(addresses, addresses, numbers, numbers, numbers, words)


METHODS = (Method.TRANSFER, Method.RECEIVE)
"""The functions of EIP-3009."""


def call(method: Method, form: str, values: tuple[object, ...]) -> bytes:
    types = f"{TERMS},{FORMS[form]}"
    selector = function_signature_to_4byte_selector(f"{method}({types})")
    return selector + encode(types.split(","), values)


def test_selectors_are_those_of_the_four_functions() -> None:
    wanted = {
        function_signature_to_4byte_selector(f"{method}({TERMS},{form})")
        for method in METHODS
        for form in FORMS.values()
    }
    assert set(SELECTORS) == wanted


def test_selectors_of_the_proxies_are_those_of_the_sdk() -> None:
    abis = [
        *constants.X402_EXACT_PERMIT2_PROXY_ABI,
        *constants.X402_EXACT_PERMIT2_PROXY_SETTLE_WITH_PERMIT_ABI,
        *constants.X402_UPTO_PERMIT2_PROXY_ABI,
        *constants.X402_UPTO_PERMIT2_PROXY_SETTLE_WITH_PERMIT_ABI,
    ]
    wanted = {function_abi_to_4byte_selector(abi) for abi in abis}  # type: ignore[arg-type]
    assert wanted == PROXY_SELECTORS


@given(
    method=st.sampled_from(METHODS),
    values=terms,
    v=st.integers(0, 255),
    r=words,
    s=words,
    suffix=st.binary(max_size=80),
)
def test_call_with_v_r_s_reads_as_it_was_written(
    method: Method, values: tuple[object, ...], v: int, r: bytes, s: bytes, suffix: bytes
) -> None:
    transfer = read_call(call(method, "vrs", (*values, v, r, s)) + suffix, "0xtoken")
    assert transfer is not None
    assert transfer.method is method
    assert as_tuple(transfer) == (*values[:5], "0x" + values[5].hex())  # type: ignore[attr-defined]
    assert transfer.signature == r + s + bytes([v])
    assert (transfer.target, transfer.suffix) == ("0xtoken", suffix)


@given(
    method=st.sampled_from(METHODS),
    values=terms,
    signature=st.binary(max_size=300),
    suffix=st.binary(max_size=80),
)
def test_call_with_bytes_reads_as_it_was_written(
    method: Method, values: tuple[object, ...], signature: bytes, suffix: bytes
) -> None:
    transfer = read_call(call(method, "bytes", (*values, signature)) + suffix)
    assert transfer is not None
    assert transfer.method is method
    assert as_tuple(transfer) == (*values[:5], "0x" + values[5].hex())  # type: ignore[attr-defined]
    assert (transfer.signature, transfer.suffix) == (signature, suffix)


def as_tuple(transfer: object) -> tuple[object, ...]:
    fields = ("payer", "payee", "value", "valid_after", "valid_before", "nonce")
    return tuple(getattr(transfer, name) for name in fields)


VALUES = ("0x" + "aa" * 20, "0x" + "bb" * 20, 1, 2, 3, b"\4" * 32)


@pytest.mark.parametrize("form", ["vrs", "bytes"])
def test_truncated_data_is_not_a_call(form: str) -> None:
    rest = (27, b"\5" * 32, b"\6" * 32) if form == "vrs" else (b"\7" * 65,)
    whole = call(Method.TRANSFER, form, (*VALUES, *rest))
    needed = len(whole) - (31 if form == "bytes" else 0)  # the padding of 65 bytes may be missing
    for length in range(needed):
        assert read_call(whole[:length]) is None
    assert read_call(whole[:needed]) is not None


@pytest.mark.parametrize("offset", [2**256 - 1, 2**64, 2**255, 10_000, 0xE1 + 97])
def test_signature_outside_the_data_is_not_a_call(offset: int) -> None:
    whole = call(Method.TRANSFER, "bytes", (*VALUES, b"\7" * 65))
    assert read_call(whole[: 4 + 192] + offset.to_bytes(32) + whole[4 + 224 :]) is None


@pytest.mark.parametrize("length", [2**256 - 1, 2**64, 97])
def test_signature_longer_than_the_data_is_not_a_call(length: int) -> None:
    whole = call(Method.RECEIVE, "bytes", (*VALUES, b"\7" * 65))
    assert read_call(whole[: 4 + 224] + length.to_bytes(32) + whole[4 + 256 :]) is None


def test_signature_may_overlap_the_other_arguments() -> None:
    """Solidity allows it: offset 64 reads the value (1) as the length, and one byte after it."""
    whole = call(Method.TRANSFER, "bytes", (*VALUES, b""))
    transfer = read_call(whole[: 4 + 192] + (64).to_bytes(32) + whole[4 + 224 :])
    assert transfer is not None
    assert transfer.signature == b"\0"


def test_dirty_upper_bytes_of_an_address_are_masked_but_fail_a_scan() -> None:
    whole = bytearray(call(Method.TRANSFER, "vrs", (*VALUES, 27, b"\5" * 32, b"\6" * 32)))
    whole[4] = 0xFF
    transfer = read_call(bytes(whole))
    assert transfer is not None
    assert transfer.payer == "0x" + "aa" * 20
    assert read_call(bytes(whole), strict=True) is None


@given(
    selector=st.sampled_from(sorted(SELECTORS)),
    data=st.binary(max_size=400),
    start=st.integers(0, 500),
    strict=st.booleans(),
)
def test_no_bytes_raise(selector: bytes, data: bytes, start: int, strict: bool) -> None:
    read_call(data, start=start, strict=strict)
    read_call(selector + data, strict=strict)
    read_call(data + selector + data, start=len(data), strict=strict)
