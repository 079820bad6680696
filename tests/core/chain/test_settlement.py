"""Transfers and their authorizations, paired by their positions in event logs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.core.chain.settlement import (
    AUTHORIZATION_CANCELED,
    AUTHORIZATION_USED,
    TRANSFER,
    LogError,
    Transfer,
    Used,
    list_entries,
    match_by_receipts,
    match_transfers,
    pair_transfers,
    read_logs,
)

TOKEN = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
ANN, BEN, SHOP, OTHER = (bytes([number]) * 20 for number in (1, 2, 3, 4))
REAL = FOLDER / "onchain"


def topic(address: bytes) -> str:
    return "0x" + encode(["address"], ["0x" + address.hex()]).hex()


def log(*topics: str, data: str = "0x", index: int = 0, tx: int = 1, **changes: Any) -> Any:
    return {
        "address": TOKEN,
        "topics": list(topics),
        "data": data,
        "blockHash": "0x" + "ab" * 32,
        "blockNumber": "0x10",
        "transactionHash": f"0x{tx:064x}",
        "logIndex": hex(index),
        "removed": False,
    } | changes


def make_transfer(sender: bytes, receiver: bytes, value: int, **rest: Any) -> Any:
    return log(
        TRANSFER,
        topic(sender),
        topic(receiver),
        data="0x" + encode(["uint256"], [value]).hex(),
        **rest,
    )


def make_use(payer: bytes, nonce: int, **rest: Any) -> Any:
    return log(AUTHORIZATION_USED, topic(payer), f"0x{nonce:064x}", **rest)


def nonce(number: int) -> bytes:
    return number.to_bytes(32)


def test_topics_are_the_hashes_of_the_signatures() -> None:
    assert keccak(b"Transfer(address,address,uint256)").hex() == TRANSFER[2:]
    assert keccak(b"AuthorizationUsed(address,bytes32)").hex() == AUTHORIZATION_USED[2:]
    assert keccak(b"AuthorizationCanceled(address,bytes32)").hex() == AUTHORIZATION_CANCELED[2:]


def test_payment_is_a_transfer_right_after_its_authorization() -> None:
    logged = read_logs(
        [make_use(ANN, 7, index=4), make_transfer(ANN, SHOP, 5_000, index=5)], token=TOKEN
    )
    known = match_transfers(logged.transfers, logged.used)
    assert known.unclear == []
    (payment,) = known.transfers
    assert payment == Transfer(16, bytes([0xAB]) * 32, 5, nonce(1), ANN, SHOP, 5_000, nonce(7))


def test_several_payments_in_one_transaction_keep_their_own_nonces() -> None:
    logs = [
        make_use(ANN, 1, index=0),
        make_transfer(ANN, SHOP, 10, index=1),
        make_use(BEN, 2, index=2),
        make_transfer(BEN, SHOP, 20, index=3),
        make_use(ANN, 3, index=4),
        make_transfer(ANN, OTHER, 30, index=5),
    ]
    logged = read_logs(reversed(logs), token=TOKEN)
    known = match_transfers(logged.transfers, logged.used)
    assert known.unclear == []
    assert {move.value: move.nonce for move in known.transfers} == {
        10: nonce(1),
        20: nonce(2),
        30: nonce(3),
    }


def test_plain_transfer_has_no_authorization() -> None:
    logged = read_logs([make_transfer(ANN, SHOP, 5, index=5)], token=TOKEN)
    assert match_transfers(logged.transfers, logged.used).transfers[0].nonce is None


def test_authorization_of_another_payer_authorizes_no_other_transfer() -> None:
    logged = read_logs(
        [make_use(BEN, 1, index=4), make_transfer(ANN, SHOP, 5, index=5)], token=TOKEN
    )
    assert match_transfers(logged.transfers, logged.used).transfers[0].nonce is None


def test_later_authorization_authorizes_no_earlier_transfer() -> None:
    logged = read_logs(
        [make_transfer(ANN, SHOP, 5, index=5), make_use(ANN, 1, index=6)], token=TOKEN
    )
    known = match_transfers(logged.transfers, logged.used)
    assert (known.unclear, known.transfers[0].nonce) == ([], None)


def test_same_place_of_another_block_is_another_place() -> None:
    other = {"blockHash": "0x" + "cd" * 32, "blockNumber": "0x11"}
    logged = read_logs(
        [make_use(ANN, 1, index=4), make_transfer(ANN, SHOP, 5, index=5, tx=2, **other)],
        token=TOKEN,
    )
    assert match_transfers(logged.transfers, logged.used).transfers[0].nonce is None


def test_receipt_decides_a_gap_in_the_observed_logs() -> None:
    """ANN's authorization paid OTHER, which is not watched; then ANN sent SHOP a plain transfer."""
    hidden = make_transfer(ANN, OTHER, 9, index=1)
    seen = [make_use(ANN, 1, index=0), make_transfer(ANN, SHOP, 10, index=2)]
    logged = read_logs(seen, token=TOKEN)
    known = match_transfers(logged.transfers, logged.used)
    assert known.transfers == []
    receipt: Any = {"logs": [seen[0], hidden, seen[1]]}
    (decided,) = match_by_receipts(known.unclear, [receipt], token=TOKEN)
    assert decided.nonce is None
    # The same gap, filled by another contract's log: then the authorization was SHOP's.
    foreign = log("0x" + "77" * 32, index=1, address="0x" + "55" * 20)
    (decided,) = match_by_receipts(
        known.unclear, [{"logs": [seen[0], foreign, seen[1]]}], token=TOKEN
    )
    assert decided.nonce == nonce(1)


def test_receipt_without_the_observed_transfer_is_rejected() -> None:
    logged = read_logs(
        [make_use(ANN, 1, index=0), make_transfer(ANN, SHOP, 10, index=2)], token=TOKEN
    )
    unclear = match_transfers(logged.transfers, logged.used).unclear
    receipts: list[Any] = [
        {"logs": []},
        {"logs": [make_transfer(ANN, SHOP, 11, index=2)]},
        {},
        None,
    ]
    for receipt in receipts:
        with pytest.raises(LogError):
            match_by_receipts(unclear, [receipt], token=TOKEN)
    with pytest.raises(LogError):
        match_by_receipts(unclear, [], token=TOKEN)


def test_only_the_next_transfer_of_the_token_is_made_by_an_authorization() -> None:
    logs = [
        make_use(ANN, 1, index=0),
        make_use(BEN, 2, index=1),
        make_transfer(BEN, SHOP, 1, index=2),
        make_transfer(ANN, SHOP, 2, index=3),
    ]
    logged = read_logs(logs, token=TOKEN)
    assert [move.nonce for move in pair_transfers(logged.transfers, logged.used)] == [
        nonce(2),
        None,
    ]


def test_duplicates_are_one_and_contradictions_none() -> None:
    one = make_transfer(ANN, SHOP, 5)
    assert len(read_logs([one, one, dict(one)], token=TOKEN).transfers) == 1
    for other in (
        make_transfer(ANN, SHOP, 6),
        make_transfer(BEN, SHOP, 5),
        make_use(ANN, 1),
        make_transfer(ANN, SHOP, 5, tx=2),
    ):
        with pytest.raises(LogError):
            read_logs([one, other], token=TOKEN)


def test_other_contracts_and_other_events_are_left_out() -> None:
    logs = [
        make_transfer(ANN, SHOP, 5, address="0x" + "55" * 20),
        log("0x" + "77" * 32, index=1),
        log(AUTHORIZATION_CANCELED, topic(ANN), f"0x{1:064x}", index=2),
        log(index=3),
    ]
    logged = read_logs(logs, token=TOKEN)
    assert (logged.transfers, logged.used) == ([], [])
    checksummed = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    assert (
        len(read_logs([make_transfer(ANN, SHOP, 5, address=checksummed)], token=TOKEN).transfers)
        == 1
    )


@pytest.mark.parametrize(
    "change",
    [
        {"removed": True},
        {"blockHash": None},
        {"blockHash": "0x12"},
        {"blockNumber": "10"},
        {"blockNumber": "0x" + "f" * 16},
        {"logIndex": None},
        {"logIndex": "0x"},
        {"logIndex": 5},
        {"transactionHash": "0x" + "zz" * 32},
        {"transactionHash": "0x" + "a " * 32},
        {"data": "0x"},
        {"data": "0x" + "0" * 62},
        {"data": "0x" + "0" * 66},
        {"data": None},
        {"topics": [TRANSFER]},
        {"topics": [TRANSFER, topic(ANN)]},
        {"topics": [TRANSFER, topic(ANN), topic(SHOP), topic(SHOP)]},
        {"topics": [TRANSFER, "0x" + "f" * 64, topic(SHOP)]},
        {"topics": [TRANSFER, topic(ANN), topic(SHOP)[:-2]]},
        {"topics": None},
        {"address": None},
        {"blockTimestamp": "soon"},
    ],
)
def test_log_that_the_abi_does_not_allow_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LogError):
        read_logs([make_transfer(ANN, SHOP, 5) | change], token=TOKEN)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from((TRANSFER, TOKEN)),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(("topics", "address", "data", "blockHash", "logIndex")), inner
            )
        ),
        max_leaves=12,
    )
)
def test_no_junk_raises_anything_but_a_log_error(junk: Any) -> None:
    for logs in (
        [junk],
        [make_transfer(ANN, SHOP, 5) | junk] if isinstance(junk, dict) else [junk, junk],
    ):
        try:
            read_logs(logs, token=TOKEN)
        except LogError:
            continue


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("pay", "plain", "cancel", "noise")),
            st.sampled_from((ANN, BEN)),
            st.sampled_from((SHOP, OTHER, ANN)),
            st.integers(0, 2**256 - 1),
            st.integers(0, 3),
        ),
        max_size=30,
    ),
    st.randoms(use_true_random=False),
)
def test_filtered_view_with_receipts_agrees_with_the_whole(plan: list[Any], dice: Any) -> None:
    """However logs are filtered by payee and shuffled, each payment keeps its own authorization."""
    logs, truth, index = [], {}, 0
    for step, (kind, payer, payee, value, tx) in enumerate(sorted(plan, key=lambda one: one[4])):
        if kind == "pay":
            logs.append(make_use(payer, step, index=index, tx=tx))
            index += 1
        if kind == "noise":
            logs.append(log("0x" + "77" * 32, index=index, tx=tx, address="0x" + "55" * 20))
        elif kind == "cancel":
            logs.append(
                log(AUTHORIZATION_CANCELED, topic(payer), "0x" + "0" * 64, index=index, tx=tx)
            )
        else:
            logs.append(make_transfer(payer, payee, value, index=index, tx=tx))
            if payee != OTHER:
                truth[index] = nonce(step) if kind == "pay" else None
        index += 1
    seen = [raw for raw in logs if not _to(raw, OTHER)]
    dice.shuffle(seen)
    logged = read_logs(seen, token=TOKEN)
    known = match_transfers(logged.transfers, logged.used)
    receipts = [
        {"logs": [raw for raw in logs if raw["transactionHash"] == f"0x{tx:064x}"]}
        for tx in range(4)
    ]
    whole = known.transfers + match_by_receipts(known.unclear, receipts, token=TOKEN)
    assert {move.log_index: move.nonce for move in whole} == truth


def _to(raw: Any, payee: bytes) -> bool:
    return bool(raw["topics"][0] == TRANSFER and raw["topics"][2] == topic(payee))


def test_entry_contains_one_wallet_s_part_of_a_transfer() -> None:
    block = bytes(32)
    moves = [
        Transfer(1, block, 0, block, ANN, SHOP, 100, nonce(1)),
        Transfer(1, block, 1, block, ANN, SHOP, 600, None),
        Transfer(1, block, 2, block, SHOP, ANN, 7, None),
        Transfer(1, block, 3, block, SHOP, SHOP, 800, nonce(2)),
        Transfer(1, block, 4, block, SHOP, OTHER, 900, nonce(3)),
        Transfer(1, block, 5, block, ANN, BEN, 100, nonce(4)),
        Transfer(1, block, 6, block, ANN, SHOP, 99, nonce(5)),
        Transfer(1, block, 7, block, ANN, SHOP, 0, nonce(6)),
    ]
    rows = list_entries(moves, {SHOP, OTHER}, {block: 1_000})
    assert [(one.log_index, one.wallet, one.other, one.incoming) for one in rows] == [
        (0, SHOP, ANN, True),
        (2, SHOP, ANN, False),
        (3, SHOP, SHOP, True),
        (4, OTHER, SHOP, True),
        (4, SHOP, OTHER, False),
    ]
    assert {one.at for one in rows} == {1_000}


def test_used_authorization_keeps_its_place() -> None:
    logged = read_logs([make_use(ANN, 7, index=4)], token=TOKEN)
    assert logged.used == [Used(16, bytes([0xAB]) * 32, 4, nonce(1), ANN, nonce(7))]


def test_times_of_blocks_are_read_where_logs_carry_them() -> None:
    logged = read_logs([make_transfer(ANN, SHOP, 5, blockTimestamp="0x68f0a0c0")], token=TOKEN)
    assert logged.stamps == {bytes([0xAB]) * 32: 0x68F0A0C0 * 1_000}


def real_receipts() -> list[Any]:
    """Captured transactions whose receipt has logs."""
    cases = []
    for path in sorted(REAL.glob("*.json")):
        whole = json.loads(path.read_text())
        receipt = whole.get("receipt") if isinstance(whole, dict) else None
        if isinstance(receipt, dict) and receipt.get("logs"):
            cases.append(pytest.param(whole, id=path.stem))
    return cases


@needs_recorded_inputs
@pytest.mark.parametrize("whole", real_receipts())
def test_captured_settlements_pair_according_to_their_call_data(whole: dict[str, Any]) -> None:
    said = whole["verification"]["decoded"]
    logged = read_logs(whole["receipt"]["logs"], token=whole["to"].lower())
    known = match_transfers(logged.transfers, logged.used)
    assert known.unclear == []
    (payment,) = [move for move in known.transfers if move.nonce is not None]
    assert "0x" + payment.sender.hex() == said["from_"]
    assert "0x" + payment.receiver.hex() == said["to"]
    assert payment.value == said["value"]
    assert payment.nonce is not None
    assert payment.nonce.hex() == said["nonce"]
