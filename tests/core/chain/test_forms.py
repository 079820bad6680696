"""Payments that contracts settle, from event logs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak
from tests.support.paying_clients import node
from x402.mechanisms.evm import constants
from x402.mechanisms.evm.batch_settlement.abi import BATCH_SETTLEMENT_ABI
from x402.mechanisms.evm.batch_settlement.constants import BATCH_SETTLEMENT_ADDRESS

from tollgauge.core.chain import forms
from tollgauge.core.chain.forms import (
    BATCH_ESCROW,
    BATCH_SETTLED,
    CAPTURE_ESCROWS,
    CAPTURED,
    CHARGED,
    COLLECTORS,
    PROXIES,
    SETTLED,
    SETTLED_WITH_PERMIT,
    Settled,
    SettledEvent,
    match_settled,
)
from tollgauge.core.chain.settlement import LogError, Transfer, entries

BLOCK, TX, OTHER_TX = b"\1" * 32, b"\2" * 32, b"\3" * 32
PAYER, SHOP = b"\4" * 20, b"\5" * 20
EXACT, UPTO = PROXIES
USDC, OTHER_TOKEN = "0x" + "aa" * 20, "0x" + "bb" * 20
ESCROW = CAPTURE_ESCROWS[0]
ROOT = Path(__file__).parents[3]


def read_settled(logs: list[Any]) -> list[Settled]:
    return forms.read_settled(logs, token=USDC)


def words(*values: str | int | bytes) -> str:
    """ABI-encode addresses and numbers."""
    numbers = (int(one, 16) if isinstance(one, str) else one for one in values)
    return "0x" + "".join(
        f"{int.from_bytes(n) if isinstance(n, bytes) else n:064x}" for n in numbers
    )


def log(
    index: int, *, address: str = EXACT, topic: str = SETTLED, **changes: Any
) -> dict[str, Any]:
    return {
        "address": address,
        "topics": [topic],
        "data": "0x",
        "blockHash": "0x" + BLOCK.hex(),
        "blockNumber": "0x10",
        "transactionHash": "0x" + TX.hex(),
        "logIndex": hex(index),
        "removed": False,
    } | changes


def transfer(index: int, *, value: int = 5_000, nonce: bytes | None = None) -> Transfer:
    return Transfer(16, BLOCK, index, TX, PAYER, SHOP, value, nonce)


def test_contracts_and_events_are_those_of_the_sdk() -> None:
    assert {
        constants.X402_EXACT_PERMIT2_PROXY_ADDRESS.lower(): "permit2",
        constants.X402_UPTO_PERMIT2_PROXY_ADDRESS.lower(): "upto",
    } == PROXIES
    assert SETTLED[2:] == keccak(text="Settled()").hex()
    assert SETTLED_WITH_PERMIT[2:] == keccak(text="SettledWithPermit()").hex()


def test_escrows_are_those_of_the_sdks() -> None:
    assert BATCH_SETTLEMENT_ADDRESS.lower() == BATCH_ESCROW
    (event,) = [one for one in BATCH_SETTLEMENT_ABI if one["type"] == "event"]
    signature = f"{event['name']}({','.join(one['type'] for one in event['inputs'])})"
    assert BATCH_SETTLED[2:] == keccak(text=signature).hex()
    assert [one["indexed"] for one in event["inputs"]] == [True, True, True, False]
    script = (
        "import { resolveAuthCaptureDeployment as find } from '@x402/evm';"
        f"console.log(JSON.stringify({list(CAPTURE_ESCROWS)}.map(find)))"
    )
    printed = subprocess.run(
        [node(), "--input-type=module", "-e", script], cwd=ROOT, capture_output=True, check=True
    )
    deployments = json.loads(printed.stdout)
    assert [one["escrow"].lower() for one in deployments] == list(CAPTURE_ESCROWS)
    kinds = ("eip3009Collector", "permit2Collector")
    assert {one[kind].lower() for one in deployments for kind in kinds} == COLLECTORS


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
    settled = read_settled([log(6, address=address, topic=topic)])
    (matched,) = match_settled([transfer(5)], settled)
    assert matched == transfer(5)._replace(form=form)
    (entry,) = entries([matched], {SHOP}, {BLOCK: 7})
    assert (entry.wallet, entry.other, entry.incoming, entry.value) == (SHOP, PAYER, True, 5_000)


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
    ],
)
def test_plain_transfer_near_another_event_is_not_a_payment(event: dict[str, Any]) -> None:
    matched = match_settled([transfer(5)], read_settled([event]))
    assert matched == [transfer(5)]
    assert entries(matched, {SHOP}, {BLOCK: 7}) == []


def test_dust_is_not_a_payment_and_an_authorization_stays_one() -> None:
    settled = read_settled([log(6), log(8)])
    dust, authorized = match_settled([transfer(5, value=99), transfer(7, nonce=TX)], settled)
    assert entries([dust], {SHOP}, {BLOCK: 7}) == []
    assert (authorized.nonce, authorized.form) == (TX, None)


@pytest.mark.parametrize(
    "broken",
    [
        log(6, removed=True),
        log(6, logIndex="6"),
        log(6, blockHash="0x12"),
        log(6, transactionHash=None),
        {"address": None, "topics": []},
        "junk",
    ],
)
def test_malformed_log_is_rejected(broken: Any) -> None:
    with pytest.raises(LogError):
        read_settled([broken])


def test_two_events_with_one_index_are_rejected() -> None:
    event = SettledEvent("permit2", -1)
    assert read_settled([log(6), log(6)]) == [Settled(16, BLOCK, 6, TX, event)]
    with pytest.raises(LogError):
        read_settled([log(6), log(6, address=UPTO)])


def batch_log(index: int, amount: int, *, token: str = USDC, address: str = BATCH_ESCROW) -> Any:
    named = (words(SHOP), words(token), words(PAYER))
    return log(index, address=address, topics=[BATCH_SETTLED, *named], data=words(amount))


def from_escrow(index: int, value: int, *, sender: str = BATCH_ESCROW) -> Transfer:
    return transfer(index, value=value)._replace(sender=bytes.fromhex(sender[2:]))


def test_batch_settlement_is_found_before_and_after_its_event_and_has_no_payer() -> None:
    for index in (3, 8):
        (matched,) = match_settled([from_escrow(index, 700)], read_settled([batch_log(5, 700)]))
        assert (matched.form, matched.sender.hex()) == ("batch-settlement", BATCH_ESCROW[2:])


@pytest.mark.parametrize(
    ("paid", "event"),
    [
        (from_escrow(6, 700), batch_log(5, 701)),
        (from_escrow(6, 700), batch_log(5, 700, token=OTHER_TOKEN)),
        (from_escrow(6, 700), batch_log(5, 700, address=ESCROW)),
        (transfer(6, value=700), batch_log(5, 700)),
        (from_escrow(6, 700)._replace(receiver=PAYER), batch_log(5, 700)),
        (from_escrow(6, 700)._replace(transaction=OTHER_TX), batch_log(5, 700)),
    ],
)
def test_transfer_that_differs_from_a_batch_settlement_is_not_a_payment(
    paid: Transfer, event: Any
) -> None:
    assert match_settled([paid], read_settled([event])) == [paid]


def test_one_event_is_one_payment() -> None:
    paid = [from_escrow(6, 700), from_escrow(7, 700)]
    matched = match_settled(paid, read_settled([batch_log(5, 700)]))
    assert [one.form for one in matched] == ["batch-settlement", None]


def charge_log(index: int, amount: int, fee: int, collector: str, *, token: str = USDC) -> Any:
    parties = (ESCROW, PAYER, SHOP, token)
    data = words(*parties, 10**9, 1, 2, 3, 0, 10_000, ESCROW, 5, amount, collector, fee, ESCROW)
    return log(index, address=ESCROW, topics=[CHARGED, "0x" + 64 * "1"], data=data)


def capture_log(index: int, amount: int, fee: int) -> Any:
    data = words(amount, fee, ESCROW)
    return log(index, address=ESCROW, topics=[CAPTURED, "0x" + 64 * "1"], data=data)


@pytest.mark.parametrize(
    ("fee", "index", "net"), [(0, 6, 999), (250, 7, 975), (1, 6, 999), (9_999, 7, 1)]
)
def test_capture_is_the_transfer_after_the_fee(fee: int, index: int, net: int) -> None:
    settled = read_settled([capture_log(5, 999, fee)])
    paid = [from_escrow(place, net, sender="0x" + 40 * "9") for place in (4, 5, 6, 7, 8)]
    assert [one.log_index for one in match_settled(paid, settled) if one.form] == [index]


def test_capture_whose_fee_is_the_whole_amount_pays_nothing() -> None:
    assert read_settled([capture_log(5, 999, 10_000)]) == []


@pytest.mark.parametrize(
    ("collector", "payer"), [(min(COLLECTORS), PAYER.hex()), ("0x" + 40 * "9", ESCROW[2:])]
)
def test_charge_names_its_payer_only_through_a_known_collector(collector: str, payer: str) -> None:
    settled = read_settled([charge_log(5, 1_000, 100, collector)])
    (matched,) = match_settled([from_escrow(12, 990, sender="0x" + 40 * "9")], settled)
    assert (matched.form, matched.sender.hex()) == ("auth-capture", payer)


@pytest.mark.parametrize("topic", [BATCH_SETTLED, CHARGED, CAPTURED])
@pytest.mark.parametrize("data", ["0x", "0x12", "", "0x" + 64 * "f", words(1, 2, 3, 4), "0xzz"])
def test_malformed_event_of_an_escrow_is_rejected(topic: str, data: str) -> None:
    address = BATCH_ESCROW if topic == BATCH_SETTLED else ESCROW
    with pytest.raises(LogError):
        read_settled([log(6, address=address, topics=[topic, "0x" + 64 * "1"], data=data)])
