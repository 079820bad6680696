"""Settlements on Solana, read from finalized transactions (the JSON of `getTransaction`).

Rules:
- a transfer is the change of each owner's balance of one token over the whole transaction, so that
  inner instructions and versioned transactions need no decoding. The token instructions are read
  only if several owners pay several others;
- a payment is an increase in a transaction without error whose fee payer is a facilitator and not
  the payer. Any other increase is an other transfer: it does not count;
- a decrease of a watched wallet is a transfer from it, regardless of the fee payer: money returned
  to its payer is not income;
- transfers between accounts of one owner change no balance of an owner.

Transactions have the SDK's form (`TransferChecked` with a separate fee payer) or any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from tollgauge.core.base.units import SDK, base58_bytes
from tollgauge.core.chain.settlement import MIN_PAYMENT, Entry, LogError

_AMOUNT_DIGITS: Final = 20  # a u64
_DATA_MAX: Final = 64  # base58 characters of a transfer instruction
_TRANSFER: Final = 3  # instruction of the token programs: source, destination
_TRANSFER_CHECKED: Final = 12  # source, mint, destination
_AMOUNT: Final = slice(1, 9)


class TokenTransfer(NamedTuple):
    """The token's transfers from one owner to another in a transaction, in atomic units."""

    sender: str
    receiver: str
    value: int


class SolanaTransaction(NamedTuple):
    """A finalized transaction.

    Attributes:
        at: Its block's time in ms UTC; None if the node does not know it.
        transfers: Sorted, without those of owners whose change the instructions do not explain.
        unclear: Whether there are such owners.
    """

    signature: str
    slot: int
    at: int | None
    fee_payer: str
    transfers: tuple[TokenTransfer, ...]
    unclear: bool


class Classified(NamedTuple):
    """The entries of watched wallets, and the number of other transfers to them."""

    entries: list[Entry]
    others: int


def read_transaction(value: Any, *, mint: str) -> SolanaTransaction:
    """Return a transaction with its transfers of a token. Raises LogError if it is malformed."""
    try:
        message, meta = value["transaction"]["message"], value["meta"]
        signature, slot = value["transaction"]["signatures"][0], value["slot"]
        seconds, fee_payer = value["blockTime"], message["accountKeys"][0]
        is_read = isinstance(fee_payer, str) and isinstance(signature, str) and type(slot) is int
        if not is_read:
            raise LogError("A transaction is malformed.")
        is_failed = meta["err"] is not None
        transfers, unclear = ([], False) if is_failed else _find_transfers(message, meta, mint)
        return SolanaTransaction(
            signature=signature,
            slot=slot,
            at=None if seconds is None else 1_000 * _read_seconds(seconds),
            fee_payer=fee_payer,
            transfers=tuple(sorted(transfers)),
            unclear=unclear,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LogError("A transaction is malformed.") from error


def classify(
    transaction: SolanaTransaction,
    wallets: Mapping[str, bytes],
    facilitators: Collection[str],
    *,
    at: int,
) -> Classified:
    """Return a transaction's entries of `wallets`, which maps addresses to their bytes.

    `facilitators` are the fee payers that offers name, `at` is the block's time (ms UTC).

    Raises:
        LogError: An address is not base58.
    """
    entries, others = [], 0
    sponsored = transaction.fee_payer in facilitators
    for index, (sender, receiver, value) in enumerate(transaction.transfers):
        if sender not in wallets and receiver not in wallets:
            continue
        try:
            signature, submitter = map(base58_bytes, (transaction.signature, transaction.fee_payer))
            ends = [wallets.get(one) or base58_bytes(one) for one in (sender, receiver)]
        except ValueError as error:
            raise LogError("An address is not base58.") from error
        place, rest = (transaction.slot, signature, index), (value, None, signature, at, submitter)
        if receiver in wallets:
            if sponsored and sender != transaction.fee_payer and value >= MIN_PAYMENT:
                entries.append(Entry._make((*place, ends[1], ends[0], True, *rest)))
            else:
                others += 1
        if sender in wallets:
            entries.append(Entry._make((*place, ends[0], ends[1], False, *rest)))
    return Classified(entries, others)


def _find_transfers(
    message: Mapping[str, Any], meta: Mapping[str, Any], mint: str
) -> tuple[list[TokenTransfer], bool]:
    """Return the transfers between owners, and whether others are unclear."""
    before = _read_balances(meta["preTokenBalances"], mint)
    after = _read_balances(meta["postTokenBalances"], mint)
    if before == after:
        return [], False
    changes: Counter[str] = Counter()
    for balances, sign in ((before, -1), (after, 1)):
        for owner, amount in balances.values():
            changes[owner] += sign * amount
    paid = {owner: -change for owner, change in changes.items() if change < 0}
    received = {owner: change for owner, change in changes.items() if change > 0}
    if not paid or not received:  # minted, burned, or moved between accounts of one owner
        return [], False
    total = sum(received.values())
    if len(paid) == 1 and total <= sum(paid.values()):
        (sender,) = paid
        found = [TokenTransfer(sender, receiver, value) for receiver, value in received.items()]
        return found, False
    if len(received) == 1 and total == sum(paid.values()):
        (receiver,) = received
        return [TokenTransfer(sender, receiver, value) for sender, value in paid.items()], False
    owners = {index: owner for index, (owner, _) in (before | after).items()}
    moved = _read_instructions(message, meta, owners)
    balance: Counter[str] = Counter()
    for (sender, receiver), value in moved.items():
        balance[sender] -= value
        balance[receiver] += value
    explained = {owner for owner, change in changes.items() if balance[owner] == change}
    found = [
        TokenTransfer(*ends, value) for ends, value in moved.items() if explained.issuperset(ends)
    ]
    return found, len(explained) < len(changes)


def _read_balances(rows: Any, mint: str) -> dict[int, tuple[str, int]]:
    """Return owner and balance of each account of a token, by the account's index."""
    balances = {}
    for row in rows or ():
        if row["mint"] == mint:
            amount, owner = row["uiTokenAmount"]["amount"], row["owner"]
            if not isinstance(owner, str) or len(amount) > _AMOUNT_DIGITS or not amount.isdecimal():
                raise LogError("A token balance is malformed.")
            balances[row["accountIndex"]] = owner, int(amount)
    return balances


def _read_instructions(
    message: Mapping[str, Any], meta: Mapping[str, Any], owners: Mapping[int, str]
) -> Counter[tuple[str, str]]:
    """Return the amounts that the token instructions, inner ones included, move between owners."""
    loaded = meta.get("loadedAddresses") or {"writable": (), "readonly": ()}
    keys = [*message["accountKeys"], *loaded["writable"], *loaded["readonly"]]
    programs = {index for index, key in enumerate(keys) if key in SDK.token_programs}
    instructions = list(message["instructions"])
    for group in meta["innerInstructions"] or ():
        instructions += group["instructions"]
    moved: Counter[tuple[str, str]] = Counter()
    for one in instructions:
        if one["programIdIndex"] not in programs or len(one["data"]) > _DATA_MAX:
            continue
        data, accounts = base58_bytes(one["data"]), one["accounts"]
        if data[:1] not in (bytes([_TRANSFER]), bytes([_TRANSFER_CHECKED])):
            continue
        source, destination = accounts[0], accounts[1 if data[0] == _TRANSFER else 2]
        ends = owners.get(source), owners.get(destination)
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            moved[ends[0], ends[1]] += int.from_bytes(data[_AMOUNT], "little")
    return moved


def _read_seconds(value: Any) -> int:
    """Return a time in seconds. Raises LogError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise LogError("A block's time is malformed.")
    return value
