"""Solana payments: one token transfer (`exact`), or one deposit into a payment channel (`upto`),
signed by the payer and paid for by a facilitator.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from solders.pubkey import Pubkey
from solders.transaction import VersionedTransaction
from x402.mechanisms.svm.constants import (
    COMPUTE_BUDGET_PROGRAM_ADDRESS,
    MEMO_PROGRAM_ADDRESS,
    TOKEN_2022_PROGRAM_ADDRESS,
    TOKEN_PROGRAM_ADDRESS,
)
from x402.mechanisms.svm.utils import derive_ata

from tollgauge_guard.authorization import Authorization, Payload, SignedError, common_fields
from tollgauge_guard.offer import SOLANA, UPTO

_TOKEN_PROGRAMS: Final = (TOKEN_PROGRAM_ADDRESS, TOKEN_2022_PROGRAM_ADDRESS)
_CHANNEL_PROGRAM: Final = "CHNLxYvVA28MJP9PrFuDXccuoGXAx7jBacfLEkahyGsX"
_OTHER_PROGRAMS: Final = (COMPUTE_BUDGET_PROGRAM_ADDRESS, MEMO_PROGRAM_ADDRESS)
_UPTO_MEMBERS: Final = frozenset(
    {
        *("authorizedSigner", "channelId", "deposit", "expiresAt", "from", "maxAmount", "nonce"),
        *("openSlot", "openTransaction", "validAfter"),
    }
)
_TRANSFER_CHECKED: Final = 12
_TRANSFER_BYTES: Final = 10
_OPEN: Final = 1
_OPEN_DATA: Final = struct.Struct("<BQQIQI32sH")  # with one recipient
_OPEN_ACCOUNTS: Final = 14
_ALL_BPS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Taken:
    """The transfer of an instruction from the payer's token account.

    `facilitator` decides the amount that is settled (`upto`).
    """

    owner: Pubkey
    mint: str
    source: str
    value: int
    facilitator: str | None = None


def read_transaction(payload: Payload) -> Authorization:
    """Return the authorization in a Solana transaction.

    Raises SignedError unless it is exactly one transfer to the payTo, or one deposit that only the
    payTo can get, next to compute budget and memo instructions, and signed by the payer.
    """
    inner = payload.payload
    is_upto = payload.get_scheme() == UPTO
    name = "openTransaction" if is_upto else "transaction"
    if set(inner) - (_UPTO_MEMBERS if is_upto else {name}) or not isinstance(inner.get(name), str):
        raise SignedError("The payment is not exactly one Solana transaction.")
    try:
        raw = base64.b64decode(inner[name], validate=True)
        return _read(payload, VersionedTransaction.from_bytes(raw))
    except SignedError:
        raise
    except Exception as error:  # solders raises errors of several kinds, some not of ValueError
        raise SignedError("The Solana transaction cannot be read.") from error


def _read(payload: Payload, transaction: VersionedTransaction) -> Authorization:
    message, keys = transaction.message, list(transaction.message.account_keys)
    if getattr(message, "address_table_lookups", None):
        raise SignedError("The transaction looks accounts up elsewhere.")
    programs = [str(keys[one.program_id_index]) for one in message.instructions]
    used = [index for index, name in enumerate(programs) if name not in _OTHER_PROGRAMS]
    if len(used) != 1:
        raise SignedError("The transaction contains another instruction than one payment.")
    instruction = message.instructions[used[0]]
    accounts = [keys[index] for index in bytes(instruction.accounts)]
    data, program = bytes(instruction.data), programs[used[0]]
    common, accepted = common_fields(payload), getattr(payload, "accepted", None)
    pay_to = "" if accepted is None else str(accepted.pay_to)
    if common["scheme"] == UPTO:
        taken = _read_open(program, accounts, data, pay_to, payload.payload)
    else:
        taken = _read_transfer(program, accounts, data, pay_to)
    if taken.mint != common["asset"] or str(taken.value) != getattr(accepted, "amount", None):
        raise SignedError("The payment is of another token or amount than was accepted.")
    signature = transaction.signatures[keys.index(taken.owner)]
    if not _is_signed(message, signature, taken.owner) or keys[0] == taken.owner:
        raise SignedError("The payer did not sign the transaction, or pays its fee.")
    return Authorization(
        **common,
        method=SOLANA,
        payer=str(taken.owner),
        pay_to=pay_to,
        value=taken.value,
        valid_after=0,
        valid_before=0,
        nonce=str(signature),
        signature=bytes(signature),
        facilitator=taken.facilitator,
        evidence=json.dumps({"account": taken.source, "signature": str(signature)}),
    )


def _read_transfer(program: str, accounts: list[Pubkey], data: bytes, pay_to: str) -> _Taken:
    """Read one TransferChecked from the payer's token account to that of the payTo."""
    if program not in _TOKEN_PROGRAMS or len(accounts) != 4:
        raise SignedError("The transaction contains no transfer that only its owner signs.")
    if len(data) != _TRANSFER_BYTES or data[0] != _TRANSFER_CHECKED:
        raise SignedError("The transaction contains another token instruction than a transfer.")
    source, mint, target, owner = map(str, accounts)
    if target != derive_ata(pay_to, mint, program):
        raise SignedError("The transfer is not to the token account of the payTo.")
    if source != derive_ata(owner, mint, program):
        raise SignedError("The transfer is not from the token account of the payer.")
    return _Taken(accounts[3], mint, source, int.from_bytes(data[1:9], "little"))


def _read_open(
    program: str,
    accounts: list[Pubkey],
    data: bytes,
    pay_to: str,
    announced: Mapping[str, object],
) -> _Taken:
    """Read the opening of a channel whose whole deposit only the payTo or the payer can get."""
    is_open = program == _CHANNEL_PROGRAM and len(accounts) == _OPEN_ACCOUNTS
    if not is_open or len(data) != _OPEN_DATA.size or data[0] != _OPEN:
        raise SignedError("The transaction opens no payment channel with one recipient.")
    _, _, value, _, _, count, recipient, bps = _OPEN_DATA.unpack(data)
    if (count, str(Pubkey.from_bytes(recipient)), bps) != (1, pay_to, _ALL_BPS):
        raise SignedError("The payTo does not get the whole payment of the channel.")
    owner, _, _, mint, signer, channel, source, escrow, token = map(str, accounts[:9])
    names = {"from": owner, "authorizedSigner": signer, "channelId": channel}
    names |= {"deposit": str(value), "maxAmount": str(value)}
    if any(announced.get(name) != text for name, text in names.items()):
        raise SignedError("The transaction opens another channel than the payment states.")
    if token not in _TOKEN_PROGRAMS or source != derive_ata(owner, mint, token):
        raise SignedError("The deposit is not from the token account of the payer.")
    if escrow != derive_ata(channel, mint, token):
        raise SignedError("The deposit is not to the token account of the channel.")
    return _Taken(accounts[0], mint, source, value, signer)


def _is_signed(message: Any, signature: Any, owner: Pubkey) -> bool:
    return bool(signature.verify(owner, bytes([0x80]) + bytes(message)))
