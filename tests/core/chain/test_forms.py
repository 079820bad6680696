"""Payments through the Permit2 proxies, from event logs."""

from __future__ import annotations

from typing import Any

import pytest
from eth_utils.crypto import keccak
from x402.mechanisms.evm import constants

from tollgauge.core.chain.forms import (
    PROXIES,
    SETTLED,
    SETTLED_WITH_PERMIT,
    Settled,
    match_settled,
    read_settled,
)
from tollgauge.core.chain.settlement import LogError, Transfer, entries

BLOCK, TX, OTHER_TX = b"\1" * 32, b"\2" * 32, b"\3" * 32
PAYER, SHOP = b"\4" * 20, b"\5" * 20
EXACT, UPTO = PROXIES


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
    assert read_settled([log(6), log(6)]) == [Settled(16, BLOCK, 6, TX, "permit2")]
    with pytest.raises(LogError):
        read_settled([log(6), log(6, address=UPTO)])
