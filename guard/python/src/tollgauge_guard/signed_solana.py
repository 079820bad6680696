"""Solana payments: one token transfer, signed by the payer, paid for by a facilitator."""

from __future__ import annotations

import base64
import json
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

from tollgauge_guard.offer import SOLANA
from tollgauge_guard.signed import Authorization, Payload, SignedError, common_fields

_TOKEN_PROGRAMS: Final = (TOKEN_PROGRAM_ADDRESS, TOKEN_2022_PROGRAM_ADDRESS)
_OTHERS: Final = (COMPUTE_BUDGET_PROGRAM_ADDRESS, MEMO_PROGRAM_ADDRESS)
_TRANSFER_CHECKED: Final = 12
_TRANSFER_LENGTH: Final = 10


def read_transaction(payload: Payload) -> Authorization:
    """Return what a Solana transaction authorizes.

    Raises SignedError unless it is exactly one TransferChecked of the payer next to compute budget
    and memo instructions, signed by the payer.
    """
    inner = payload.payload
    if set(inner) != {"transaction"} or not isinstance(inner["transaction"], str):
        raise SignedError("The payment is not exactly one Solana transaction.")
    try:
        raw = base64.b64decode(inner["transaction"], validate=True)
        transaction = VersionedTransaction.from_bytes(raw)
        return _read(payload, transaction)
    except SignedError:
        raise
    except Exception as error:  # solders raises errors of several kinds, some not of ValueError
        raise SignedError("The Solana transaction cannot be read.") from error


def _read(payload: Payload, transaction: VersionedTransaction) -> Authorization:
    message, keys = transaction.message, list(transaction.message.account_keys)
    if getattr(message, "address_table_lookups", None):
        raise SignedError("The transaction looks accounts up elsewhere.")
    transfer: Any = None
    for instruction in message.instructions:
        program = str(keys[instruction.program_id_index])
        if program in _TOKEN_PROGRAMS and transfer is None:
            transfer = instruction
        elif program not in _OTHERS:
            raise SignedError("The transaction contains another instruction than a transfer.")
    if transfer is None or len(transfer.accounts) != 4:
        raise SignedError("The transaction contains no transfer by its owner alone.")
    data = bytes(transfer.data)
    if len(data) != _TRANSFER_LENGTH or data[0] != _TRANSFER_CHECKED:
        raise SignedError("The transaction contains another token instruction than a transfer.")
    source, mint, target, owner = (keys[index] for index in bytes(transfer.accounts))
    common = common_fields(payload)
    accepted = getattr(payload, "accepted", None)
    pay_to = "" if accepted is None else str(accepted.pay_to)
    program_id = str(keys[transfer.program_id_index])
    if str(target) != derive_ata(pay_to, str(mint), program_id):
        raise SignedError("The transfer is not to the token account of the payTo.")
    if str(source) != derive_ata(str(owner), str(mint), program_id):
        raise SignedError("The transfer is not from the token account of the payer.")
    place = keys.index(owner)
    signature = transaction.signatures[place]
    if not _is_signed(message, signature, owner) or str(keys[0]) == str(owner):
        raise SignedError("The payer did not sign the transaction, or pays its fee.")
    if common["asset"] not in (None, str(mint)):
        raise SignedError("The transfer is of another token.")
    return Authorization(
        **common,
        method=SOLANA,
        payer=str(owner),
        pay_to=pay_to,
        value=int.from_bytes(data[1:9], "little"),
        valid_after=0,
        valid_before=0,
        nonce=str(signature),
        signature=bytes(signature),
        evidence=json.dumps({"account": str(source), "signature": str(signature)}),
    )


def _is_signed(message: Any, signature: Any, owner: Pubkey) -> bool:
    return bool(signature.verify(owner, bytes([0x80]) + bytes(message)))
