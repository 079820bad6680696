"""Settlements on Solana. The transactions ran in litesvm with the real token programs, except those
that say otherwise.
"""

from __future__ import annotations

import base64
import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from solders.transaction import VersionedTransaction
from x402.mechanisms.svm.exact.client import ExactSvmScheme
from x402.mechanisms.svm.signers import KeypairSigner
from x402.schemas import PaymentRequirements

from tollgauge.core.base.units import (
    address_bytes,
    address_text,
    base58_bytes,
    base58_text,
    chain_name,
    chain_number,
    is_address,
    network_of,
)
from tollgauge.core.chain.settlement import LogError
from tollgauge.core.chain.solana import TokenTransfer, classify, read_transaction
from tollgauge.demo.solana_ledger import DEVNET, SolanaLedger, token_account, transfer_checked

AT = 1_790_000_400_000
MINT = str(SolanaLedger().mint)


def key(number: int) -> Keypair:
    return Keypair.from_seed(bytes([number]) * 32)


FACILITATOR, PAYER, OTHER, SELLER, NEIGHBOUR = map(key, range(1, 6))
WALLETS = {str(one.pubkey()): bytes(one.pubkey()) for one in (SELLER, NEIGHBOUR)}
KNOWN = {str(FACILITATOR.pubkey())}


@pytest.fixture
def ledger() -> SolanaLedger:
    ledger = SolanaLedger()
    for owner in (FACILITATOR, PAYER, OTHER, SELLER, NEIGHBOUR):
        ledger.fund(owner.pubkey(), 1_000_000)
    return ledger


def decode(ledger: SolanaLedger, signature: str) -> Any:
    return read_transaction(ledger.by_signature[signature], mint=str(ledger.mint))


def move(ledger: SolanaLedger, sender: Keypair, receiver: Keypair, amount: int) -> Any:
    accounts = [token_account(one.pubkey(), ledger.mint) for one in (sender, receiver)]
    return transfer_checked(accounts[0], ledger.mint, accounts[1], sender.pubkey(), amount)


def count_payments(ledger: SolanaLedger, signature: str) -> list[tuple[Any, ...]]:
    found = classify(decode(ledger, signature), WALLETS, KNOWN, at=AT)
    return [(one.wallet, one.other, one.incoming, one.value) for one in found.entries]


def test_payment_of_the_official_client_is_read(ledger: SolanaLedger) -> None:
    class Node:
        def get_account_info(self, mint: Pubkey, **_: Any) -> Any:
            return type("Reply", (), {"value": ledger.svm.get_account(mint)})

        def get_latest_blockhash(self, *_: Any, **__: Any) -> Any:
            value = type("Value", (), {"blockhash": ledger.svm.latest_blockhash()})
            return type("Reply", (), {"value": value})

    client = ExactSvmScheme(KeypairSigner(PAYER))
    client._get_client = lambda _network: Node()  # type: ignore[assignment, method-assign, return-value]
    offer = PaymentRequirements(
        scheme="exact",
        network=DEVNET,
        asset=str(ledger.mint),
        amount="7000",
        pay_to=str(SELLER.pubkey()),
        max_timeout_seconds=60,
        extra={"feePayer": str(FACILITATOR.pubkey())},
    )
    encoded = client.create_payment_payload(offer)["transaction"]
    unsigned = VersionedTransaction.from_bytes(base64.b64decode(encoded))
    ledger.svm.airdrop(FACILITATOR.pubkey(), 10**9)
    message = unsigned.message
    before = ledger._balances(message)  # type: ignore[arg-type]
    signed = VersionedTransaction(message, [FACILITATOR, PAYER])
    assert signed.signatures[1] == unsigned.signatures[1]
    result = ledger.svm.send_transaction(signed)
    signature = ledger._record(signed, message, before, result)  # type: ignore[arg-type]
    assert count_payments(ledger, signature) == [
        (bytes(SELLER.pubkey()), bytes(PAYER.pubkey()), True, 7_000)
    ]
    (entry,) = classify(decode(ledger, signature), WALLETS, KNOWN, at=AT).entries
    assert base58_text(entry.transaction) == signature
    assert entry.submitter == bytes(FACILITATOR.pubkey())
    assert entry.nonce is None


def test_decoys_do_not_count(ledger: SolanaLedger) -> None:
    plain = ledger.send([move(ledger, PAYER, SELLER, 5_000)], [PAYER])
    own = ledger.send([move(ledger, SELLER, SELLER, 5_000)], [FACILITATOR, SELLER])
    second = Keypair.from_seed(b"\x09" * 32).pubkey()
    ledger.fund(SELLER.pubkey(), 0, at=second)
    usual = token_account(SELLER.pubkey(), ledger.mint)
    between = transfer_checked(usual, ledger.mint, second, SELLER.pubkey(), 10)
    between_own = ledger.send([between], [FACILITATOR, SELLER])
    failed = ledger.send([move(ledger, PAYER, SELLER, 2_000_000)], [FACILITATOR, PAYER])
    facilitators_own = ledger.send([move(ledger, FACILITATOR, SELLER, 900)], [FACILITATOR])
    dust = ledger.send([move(ledger, PAYER, SELLER, 99)], [FACILITATOR, PAYER])
    assert ledger.by_signature[failed]["meta"]["err"]
    for signature in (plain, own, between_own, failed, facilitators_own, dust):
        assert count_payments(ledger, signature) == []
    assert classify(decode(ledger, plain), WALLETS, KNOWN, at=AT).others == 1


def test_refund_is_a_transfer_from_the_wallet_whoever_pays_the_fee(ledger: SolanaLedger) -> None:
    for signers in ([SELLER], [FACILITATOR, SELLER], [OTHER, SELLER]):
        signature = ledger.send([move(ledger, SELLER, PAYER, 40)], signers)
        assert count_payments(ledger, signature) == [
            (bytes(SELLER.pubkey()), bytes(PAYER.pubkey()), False, 40)
        ]


def test_instructions_decide_who_paid_whom(ledger: SolanaLedger) -> None:
    moves = [move(ledger, PAYER, SELLER, 500), move(ledger, OTHER, NEIGHBOUR, 700)]
    signature = ledger.send(moves, [FACILITATOR, PAYER, OTHER])
    assert set(count_payments(ledger, signature)) == {
        (bytes(SELLER.pubkey()), bytes(PAYER.pubkey()), True, 500),
        (bytes(NEIGHBOUR.pubkey()), bytes(OTHER.pubkey()), True, 700),
    }


def test_unexplained_change_of_several_owners_is_unclear(ledger: SolanaLedger) -> None:
    moves = [move(ledger, PAYER, SELLER, 500), move(ledger, OTHER, NEIGHBOUR, 700)]
    recorded = copy.deepcopy(ledger.by_signature[ledger.send(moves, [FACILITATOR, PAYER, OTHER])])
    recorded["transaction"]["message"]["instructions"] = []
    read = read_transaction(recorded, mint=str(ledger.mint))
    assert (read.transfers, read.unclear) == ((), True)


def test_payment_next_to_newly_minted_money_counts(ledger: SolanaLedger) -> None:
    moves = [move(ledger, PAYER, SELLER, 500), move(ledger, OTHER, OTHER, 1)]
    recorded = copy.deepcopy(ledger.by_signature[ledger.send(moves, [FACILITATOR, PAYER, OTHER])])
    for row in recorded["meta"]["postTokenBalances"]:
        if row["owner"] == str(OTHER.pubkey()):  # a bridge mints to this account
            row["uiTokenAmount"]["amount"] = str(int(row["uiTokenAmount"]["amount"]) + 777)
    read = read_transaction(recorded, mint=str(ledger.mint))
    paid = TokenTransfer(str(PAYER.pubkey()), str(SELLER.pubkey()), 500)
    assert (read.transfers, read.unclear) == ((paid,), True)


def test_other_token_and_new_account_of_a_versioned_transaction() -> None:
    """A stand-in: written by hand in the form of Solana's documentation."""
    balance = {"accountIndex": 5, "mint": "M", "owner": "B", "uiTokenAmount": {"amount": "7"}}
    source = balance | {"accountIndex": 1, "owner": "A", "uiTokenAmount": {"amount": "9"}}
    value = {
        "slot": 7,
        "blockTime": None,
        "version": 0,
        "meta": {
            "err": None,
            "preTokenBalances": [source, balance | {"mint": "N", "accountIndex": 4}],
            "postTokenBalances": [source | {"uiTokenAmount": {"amount": "2"}}, balance],
            "loadedAddresses": {"writable": ["d"], "readonly": []},
            "innerInstructions": None,
        },
        "transaction": {
            "signatures": ["s"],
            "message": {"accountKeys": ["F", "a", "b", "c", "d"], "instructions": []},
        },
    }
    read = read_transaction(value, mint="M")
    assert read.transfers == (TokenTransfer("A", "B", 7),)
    assert (read.at, read.fee_payer) == (None, "F")


_PARTIES = (PAYER, OTHER, SELLER, NEIGHBOUR)
_MOVES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3_000)), min_size=1, max_size=5
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_MOVES, st.booleans()), min_size=1, max_size=4))
def test_classes_add_up_to_the_change_of_every_balance(
    transactions: list[tuple[list[tuple[int, int, int]], bool]],
) -> None:
    """The balances that the token program keeps are the independent check."""
    ledger = SolanaLedger()
    for owner in (FACILITATOR, *_PARTIES):
        ledger.fund(owner.pubkey(), 10_000)
    begin = _balances(ledger)
    moved: Counter[str] = Counter()
    for moves, sponsored in transactions:
        instructions = [move(ledger, _PARTIES[a], _PARTIES[b], value) for a, b, value in moves]
        senders = [_PARTIES[a] for a, _, _ in moves]
        signers = list(dict.fromkeys([FACILITATOR, *senders] if sponsored else senders))
        read = decode(ledger, ledger.send(instructions, signers))
        assert not read.unclear
        for sender, receiver, value in read.transfers:
            moved[sender] -= value
            moved[receiver] += value
        entries = classify(read, WALLETS, KNOWN, at=AT).entries
        assert sponsored or not any(entry.incoming for entry in entries)
    end = _balances(ledger)
    assert {one: end[one] - begin[one] for one in end} == {one: moved[one] for one in end}


def _balances(ledger: SolanaLedger) -> dict[str, int]:
    balances = {}
    for owner in _PARTIES:
        account = ledger.svm.get_account(token_account(owner.pubkey(), ledger.mint))
        assert account is not None
        balances[str(owner.pubkey())] = int.from_bytes(account.data[64:72], "little")
    return balances


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_RECORDED: list[dict[str, Any]] = []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_hostile_transaction_raises_only_log_errors(data: st.DataObject) -> None:
    if not _RECORDED:
        ledger = SolanaLedger()
        for owner in (PAYER, OTHER, SELLER, NEIGHBOUR):
            ledger.fund(owner.pubkey(), 10_000)
        moves = [move(ledger, PAYER, SELLER, 500), move(ledger, OTHER, NEIGHBOUR, 700)]
        _RECORDED.append(ledger.by_signature[ledger.send(moves, [FACILITATOR, PAYER, OTHER])])
    value = copy.deepcopy(_RECORDED[0])
    place: Any = value
    while True:
        names = list(place) if isinstance(place, dict) else list(range(len(place)))
        name = data.draw(st.sampled_from(names))
        inner = place[name]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            place = inner
            continue
        place[name] = data.draw(_JSON)
        break
    try:
        read = read_transaction(value, mint=MINT)
        classify(read, WALLETS, KNOWN, at=AT)
    except LogError:
        pass


@given(st.binary(max_size=80))
def test_base58_round_trip(value: bytes) -> None:
    assert base58_bytes(base58_text(value)) == value


@given(st.binary(min_size=32, max_size=32))
def test_base58_agrees_with_solders(value: bytes) -> None:
    assert base58_text(value) == str(Pubkey.from_bytes(value))
    assert address_bytes(address_text(value)) == value
    assert is_address(address_text(value), chain=-101)


def test_networks_have_numbers_and_names() -> None:
    assert {
        name: network_of(number) for number in (-101, -103, 8453) if (name := chain_name(number))
    } == {
        "solana": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
        "solana-devnet": DEVNET,
        "8453": "eip155:8453",
    }
    assert chain_number("solana:unknown") is None
    assert not is_address("0x" + "a" * 40, chain=-101)
    assert not is_address(str(SELLER.pubkey()), chain=8453)
