"""Signed: what a payment payload authorizes, and whether that is what was allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eth_hash.auto import keccak
from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentPayloadV1

from tollgauge_guard.address import parse_address
from tollgauge_guard.errors import GuardError
from tollgauge_guard.offer import SCHEME, Terms
from tollgauge_guard.units import V1_NETWORKS, parse_amount

CLOCK_SLACK_S: Final = 5
"""How much longer than the offer's timeout an authorization may be valid."""
_NONCE: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_SIGNATURE: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){1,4096}", re.ASCII)
_EOA_SIGNATURE: Final = 65
_TRANSFER: Final = keccak(
    b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,"
    b"uint256 validBefore,bytes32 nonce)"
)
"""The type of the message that is signed (EIP-3009)."""
_DOMAIN: Final = keccak(
    b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)


class SignedError(GuardError):
    """A payload in which no EIP-3009 authorization could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """An EIP-3009 authorization. Hex is lower case, instants are unix seconds.

    `asset` is None in x402 version 1, whose payload does not name it.
    """

    scheme: str
    network: str | None
    asset: str | None
    payer: str
    pay_to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str
    signature: bytes


def read_signed(payload: PaymentPayload | PaymentPayloadV1) -> Authorization:
    """What a payload authorizes. Raises SignedError for anything but one EIP-3009 transfer."""
    fields = payload.payload.get("authorization")
    if not isinstance(fields, Mapping) or set(payload.payload) - {"authorization", "signature"}:
        raise SignedError("The payment is no EIP-3009 authorization alone.")
    payer, pay_to = parse_address(fields.get("from")), parse_address(fields.get("to"))
    value, valid_before = parse_amount(fields.get("value")), parse_amount(fields.get("validBefore"))
    valid_after = 0 if fields.get("validAfter") == "0" else parse_amount(fields.get("validAfter"))
    nonce, signature = fields.get("nonce"), payload.payload.get("signature")
    if payer is None or pay_to is None or value is None:
        raise SignedError("The authorization has a field of another form.")
    if valid_after is None or valid_before is None:
        raise SignedError("The authorization does not say for how long it is valid.")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise SignedError("The authorization has no nonce of 32 bytes.")
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise SignedError("The authorization has no signature.")
    is_v1 = isinstance(payload, PaymentPayloadV1)
    network = payload.get_network()
    return Authorization(
        scheme=payload.get_scheme(),
        network=V1_NETWORKS.get(network) if is_v1 else network,
        asset=None if isinstance(payload, PaymentPayloadV1) else payload.accepted.asset.lower(),
        payer=payer,
        pay_to=pay_to,
        value=value,
        valid_after=valid_after,
        valid_before=valid_before,
        nonce=nonce.lower(),
        signature=bytes.fromhex(signature[2:]),
    )


def difference(signed: Authorization, terms: Terms, now: int) -> str | None:
    """In what an authorization differs from the terms that were allowed, None in nothing."""
    checks = (
        ("scheme", signed.scheme == SCHEME),
        ("network", signed.network == terms.network),
        ("asset", signed.asset in (None, terms.asset)),
        ("payTo", signed.pay_to == terms.pay_to),
        ("value", signed.value == terms.amount),
        ("validBefore", now < signed.valid_before <= now + terms.timeout + CLOCK_SLACK_S),
    )
    return next((name for name, is_same in checks if not is_same), None)


def signer(signed: Authorization, terms: Terms) -> str | None:
    """The account (lower-case hex) that signed an authorization for the token and the chain of the
    terms (EIP-712); None where that cannot be told.

    The authorization itself names neither token nor chain: whoever changes those before signing
    gets a signature of another account out of this.
    """
    from eth_keys.datatypes import Signature  # comes with every signer of the SDK for EVM chains
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    if len(signed.signature) != _EOA_SIGNATURE:
        return None
    r_s, v = signed.signature[:64], signed.signature[64]
    try:
        signature = Signature(r_s + bytes([v - 27 if v >= 27 else v]))
        return str(signature.recover_public_key_from_msg_hash(_digest(signed, terms)).to_address())
    except (BadSignature, ValidationError):
        return None


def _digest(signed: Authorization, terms: Terms) -> bytes:
    """What a wallet signs: the hash of domain and message (EIP-712)."""
    domain = keccak(
        _DOMAIN
        + keccak(terms.domain_name.encode())
        + keccak(terms.domain_version.encode())
        + _word(int(terms.network.removeprefix("eip155:")))
        + _word(int(terms.asset, 16))
    )
    message = keccak(
        _TRANSFER
        + _word(int(signed.payer, 16))
        + _word(int(signed.pay_to, 16))
        + _word(signed.value)
        + _word(signed.valid_after)
        + _word(signed.valid_before)
        + bytes.fromhex(signed.nonce[2:])
    )
    return keccak(b"\x19\x01" + domain + message)


def _word(value: int) -> bytes:
    return value.to_bytes(32)
