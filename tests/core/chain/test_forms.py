"""Payments that contracts of x402 settle, from event logs."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from tests.support.escrows import ESCROW_10, ESCROW_11, INFO, escrow_contracts
from x402.mechanisms.evm import constants
from x402.mechanisms.evm.batch_settlement.abi import BATCH_SETTLEMENT_ABI
from x402.mechanisms.evm.batch_settlement.constants import BATCH_SETTLEMENT_ADDRESS

from tollgauge.core.chain.forms import (
    BATCH_ESCROW,
    BATCH_SETTLED,
    CAPTURED,
    CHARGED,
    CLAIMED,
    CONTRACTS,
    CUSTODIANS,
    EVENTS,
    REFUNDED,
    SETTLED,
    SETTLED_WITH_PERMIT,
    STORE_CREATED,
    FormReader,
    read_events,
)
from tollgauge.core.chain.settlement import LogError, Transfer, list_entries
from tollgauge.core.score.demand import measure_demand
from tollgauge.core.score.income import Flow

BLOCK, TX, OTHER_TX = b"\1" * 32, b"\2" * 32, b"\3" * 32
PAYER, SHOP, ESCROW = b"\4" * 20, b"\5" * 20, bytes.fromhex(BATCH_ESCROW[2:])
TOKEN = "0x" + "06" * 20
READER = FormReader(TOKEN, 8453)
EXACT, UPTO, *_ = CONTRACTS
NO_ARGUMENTS = "0x"


def hex_word(value: bytes | int) -> str:
    return "0x" + (value.to_bytes(32) if isinstance(value, int) else value.rjust(32, b"\0")).hex()


def log(
    index: int, *, address: str = EXACT, topic: str = SETTLED, **changes: Any
) -> dict[str, Any]:
    return {
        "address": address,
        "topics": [topic],
        "data": NO_ARGUMENTS,
        "blockHash": "0x" + BLOCK.hex(),
        "blockNumber": "0x10",
        "transactionHash": "0x" + TX.hex(),
        "logIndex": hex(index),
        "removed": False,
    } | changes


def batch_log(index: int, **changes: Any) -> dict[str, Any]:
    named: dict[str, Any] = {
        "receiver": SHOP,
        "token": bytes.fromhex(TOKEN[2:]),
        "amount": 5_000,
    } | changes
    topics = [
        BATCH_SETTLED,
        *(hex_word(named[name]) for name in ("receiver", "token")),
        "0x" + 64 * "0",
    ]
    return log(index, address=BATCH_ESCROW, topics=topics, data=hex_word(named["amount"]))


def capture_log(index: int, amount: int, fee: int, *, version: int = 1) -> dict[str, Any]:
    data = encode(["uint256", "uint256", "address"], [amount, fee, PAYER])
    address = (ESCROW_10, ESCROW_11)[version]
    topics = [CAPTURED[version], hex_word(7)]
    return log(index, address=address, topics=topics, data="0x" + data.hex())


def transfer(index: int, *, value: int = 5_000, nonce: bytes | None = None) -> Transfer:
    return Transfer(16, BLOCK, index, TX, PAYER, SHOP, value, nonce)


def match(transfers: list[Transfer], *logs: dict[str, Any]) -> list[Transfer]:
    return READER.match(transfers, read_events(logs))


def test_contracts_and_events_are_those_of_the_sdks() -> None:
    assert {
        constants.X402_EXACT_PERMIT2_PROXY_ADDRESS.lower(): "permit2",
        constants.X402_UPTO_PERMIT2_PROXY_ADDRESS.lower(): "upto",
        BATCH_SETTLEMENT_ADDRESS.lower(): "batch-settlement",
        ESCROW_10.lower(): "auth-capture",
        ESCROW_11.lower(): "auth-capture",
    } == CONTRACTS
    assert SETTLED[2:] == keccak(text="Settled()").hex()
    assert SETTLED_WITH_PERMIT[2:] == keccak(text="SettledWithPermit()").hex()
    (event,) = [entry for entry in BATCH_SETTLEMENT_ABI if entry["type"] == "event"]
    types = ",".join(field["type"] for field in event["inputs"])
    assert BATCH_SETTLED[2:] == keccak(text=f"{event['name']}({types})").hex()
    assert [field["indexed"] for field in event["inputs"]] == [True, True, True, False]


def test_stand_in_of_the_channel_escrow_has_the_interface_of_the_sdk() -> None:
    """Functions that move money or are signed; the others are not needed by the tests."""
    compiled = escrow_contracts()["BatchSettlementStandIn"]["abi"]
    functions = {_signature(entry) for entry in compiled if entry["type"] == "function"}
    published = {_signature(entry) for entry in BATCH_SETTLEMENT_ABI if entry["type"] == "function"}
    own = {"balances(bytes32)", "claimed(bytes32)", "owed(address,address)"}
    assert functions - own <= published
    assert {name.partition("(")[0] for name in functions} >= {
        "deposit",
        "claim",
        "settle",
        "refund",
    }
    emitted = {
        "0x" + keccak(text=_signature(entry)).hex()
        for contract in escrow_contracts().values()
        for entry in contract["abi"]
        if entry["type"] == "event"
    }
    assert {BATCH_SETTLED, CLAIMED, *CAPTURED, *CHARGED, REFUNDED, STORE_CREATED} <= emitted


def _signature(entry: dict[str, Any]) -> str:
    return f"{entry['name']}({','.join(map(_type, entry['inputs']))})"


def _type(field: dict[str, Any]) -> str:
    if not field["type"].startswith("tuple"):
        return str(field["type"])
    return f"({','.join(map(_type, field['components']))}){field['type'][5:]}"


@pytest.mark.parametrize(
    ("address", "topic", "form"),
    [
        (EXACT, SETTLED, "permit2"),
        (EXACT, SETTLED_WITH_PERMIT, "permit2"),
        (UPTO, SETTLED, "upto"),
        (UPTO.upper().replace("0X", "0x"), SETTLED_WITH_PERMIT, "upto"),
    ],
)
def test_transfer_before_a_proxys_event_is_a_payment(address: str, topic: str, form: str) -> None:
    (matched,) = match([transfer(5)], log(6, address=address, topic=topic))
    assert matched == transfer(5)._replace(form=form)
    (entry,) = list_entries([matched], {SHOP}, {BLOCK: 7})
    assert (entry.wallet, entry.other, entry.incoming, entry.value) == (SHOP, PAYER, True, 5_000)


def test_payment_from_an_escrow_is_from_the_escrow() -> None:
    from_store = transfer(5, value=4_900)
    charge = encode(
        [INFO, "uint256", "address", "uint256", "address"],
        [
            (*("0x" + PAYER.hex(),) * 2, "0x" + SHOP.hex(), TOKEN, 0, 0, 0, 0, 0, 0, TOKEN, 1),
            *(5_000, TOKEN, 100, TOKEN),
        ],
    )
    charged = log(1, address=ESCROW_11, topics=[CHARGED[1], hex_word(7)], data="0x" + charge.hex())
    events = {
        "capture": capture_log(4, 4_900, 0),
        "capture with a fee": capture_log(3, 5_000, 100),
        "capture with a fee in basis points": capture_log(3, 5_000, 200, version=0),
        "charge": charged,
        "channels": batch_log(6, amount=4_900),
    }
    for name, event in events.items():
        (matched,) = match([from_store], event)
        assert (matched.form is not None, matched.counterparty in CUSTODIANS) == (True, True), name
        (entry,) = list_entries([matched], {SHOP}, {BLOCK: 7})
        assert (entry.other, entry.incoming) == (matched.counterparty, True)


@pytest.mark.parametrize(
    "event",
    [
        log(6, address="0x" + "77" * 20),
        log(6, topic="0x" + "11" * 32),
        log(4),
        log(7),
        log(6, transactionHash="0x" + OTHER_TX.hex()),
        log(6, blockHash="0x" + "99" * 32),
        log(6, topics=[SETTLED, "0x" + "11" * 32]),
        log(6, topics=[]),
        batch_log(4),
        batch_log(6, receiver=PAYER),
        batch_log(6, token=PAYER),
        batch_log(6, amount=4_999),
        batch_log(6) | {"address": EXACT},
        log(6, address=BATCH_ESCROW),
        log(4, address=ESCROW_11),
        capture_log(4, 5_001, 0),
        capture_log(4, 5_001, 1),
        capture_log(3, 5_000, 0),
        capture_log(6, 5_000, 0),
        capture_log(4, 5_000, 0) | {"transactionHash": "0x" + OTHER_TX.hex()},
        capture_log(4, 5_000, 0) | {"address": BATCH_ESCROW},
        capture_log(4, 5_000, 0) | {"data": "0x"},
    ],
)
def test_plain_transfer_near_another_event_is_not_a_payment(event: dict[str, Any]) -> None:
    matched = match([transfer(5)], event)
    assert matched == [transfer(5)]
    assert list_entries(matched, {SHOP}, {BLOCK: 7}) == []


def test_event_settles_one_transfer() -> None:
    first, second = match([transfer(5), transfer(7)], log(6), log(6))
    assert (first.form, second.form) == ("permit2", None)


def test_dust_is_not_a_payment_and_an_authorization_stays_one() -> None:
    dust, authorized = match([transfer(5, value=99), transfer(7, nonce=TX)], log(6), log(8))
    assert list_entries([dust], {SHOP}, {BLOCK: 7}) == []
    assert (authorized.nonce, authorized.form) == (TX, None)


@pytest.mark.parametrize("data", [b"", bytes(400), bytes.fromhex(TOKEN[2:]).rjust(32, b"\0") * 40])
def test_call_data_without_the_channel_proves_no_payer(data: bytes) -> None:
    claims = [(hex_word(9), 5_000)]
    assert READER.find_payer("0x" + SHOP.hex(), 5_000, claims, data) is None
    refund = log(
        5, address=ESCROW_11, topics=[REFUNDED, hex_word(9)], data=hex_word(5_000) + 64 * "0"
    )
    events = read_events([refund])
    assert READER.add_refunds([], events, {TX: data}, {SHOP}) == []


def test_call_data_is_searched_once_for_all_refunds_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[bytes] = []

    def count_hash(primitive: bytes) -> bytes:
        hashed.append(primitive)
        return keccak(primitive)

    monkeypatch.setattr("tollgauge.core.chain.forms.keccak", count_hash)
    data = b"once" * 8 + bytes.fromhex(TOKEN[2:]).rjust(32, b"\0") * 100
    refunds = [
        log(at, address=ESCROW_11, topics=[REFUNDED, hex_word(at)], data=hex_word(5_000) + 64 * "0")
        for at in range(50)
    ]
    assert READER.add_refunds([], read_events(refunds), {TX: data}, {SHOP}) == []
    assert 0 < len(hashed) <= 2 * 100


def test_custodian_that_pays_an_anchor_is_not_a_proven_payer() -> None:
    anchor = b"\7" * 20
    paid = {PAYER: Flow(1, 50_000_000, 0), ESCROW: Flow(1, 50_000_000, 0)}
    measured = measure_demand(
        [(SHOP, paid), (anchor, paid)],
        sellers={SHOP: "shop.dev", anchor: "anchor.dev"},
        anchors={anchor: "anchor.dev"},
        at_anchors=[(anchor, paid)],
    )
    assert dict(measured.demands)[SHOP].proven_payers == 1


@pytest.mark.parametrize(
    "broken",
    [
        log(6, removed=True),
        log(6, logIndex="6"),
        log(6, blockHash="0x12"),
        log(6, transactionHash=None),
        log(6, data="0x12"),
        log(6, data="0x" + "zz" * 32),
        {"address": None, "topics": []},
        "junk",
    ],
)
def test_malformed_log_is_rejected(broken: Any) -> None:
    with pytest.raises(LogError):
        read_events([broken])


def test_two_events_with_one_index_are_rejected() -> None:
    assert len(read_events([log(6), log(6)])) == 1
    with pytest.raises(LogError):
        read_events([log(6), log(6, address=UPTO)])


def test_all_events_are_requested() -> None:
    assert len(set(EVENTS)) == len(EVENTS) == 10
