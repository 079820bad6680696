"""Signed payments: reads the authorization in a payload and compares it with the allowed terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tollgauge_guard.address import parse_address
from tollgauge_guard.authorization import (
    Authorization,
    Payload,
    SignedError,
    common_fields,
    read_signature,
)
from tollgauge_guard.offer import EIP_3009, PERMIT2, UPTO, Terms
from tollgauge_guard.typed_data import hash_permit2, hash_transfer, recover_signer
from tollgauge_guard.units import parse_amount

CLOCK_SLACK_S: Final = 5  # an authorization may outlive the offer's timeout by this
PROXIES: Final = {
    "exact": "0x402085c248eea27d92e8b30b2c58ed07f9e20001",
    "upto": "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002",
}
"""The only contracts that may spend by Permit2: they pay the signed recipient."""
_NONCE: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)


def read_signed(payload: Payload) -> Authorization:
    """Return the authorization in a payload. Raises SignedError if any part cannot be read."""
    inner = payload.payload
    if payload.get_network().startswith("solana:"):
        from tollgauge_guard import signed_solana  # solders is an optional dependency

        return signed_solana.read_transaction(payload)
    if "voucher" in inner:
        from tollgauge_guard import signed_channel

        return signed_channel.read_channel(payload)
    if "permit2Authorization" in inner:
        return _read_permit2(payload)
    return _read_transfer(payload)


def find_difference(signed: Authorization, terms: Terms, now: int) -> str | None:
    """Return the name of the first field that differs from the allowed terms, None if all agree."""
    latest = now + terms.timeout + CLOCK_SLACK_S
    # A Solana transaction ends with its blockhash, a voucher without a deposit never.
    is_timed = signed.method in (EIP_3009, PERMIT2) or signed.valid_before > 0
    checks = (
        ("scheme", signed.scheme == terms.scheme),
        ("method", signed.method == terms.method),
        ("network", signed.network == terms.network),
        ("asset", signed.asset in (None, terms.asset)),
        ("payTo", signed.pay_to == terms.pay_to),
        ("value", signed.value == terms.amount),
        ("facilitator", terms.scheme != UPTO or signed.facilitator == terms.facilitator),
        ("validity", not is_timed or now < signed.valid_before <= latest),
        ("deposit", signed.exposed is None or signed.exposed <= terms.exposed),
    )
    return next((name for name, is_same in checks if not is_same), None)


def find_signer(signed: Authorization, terms: Terms) -> str | None:
    """Return the account that signed for the token and chain of the terms, None if unreadable.

    The authorization itself names neither token nor chain: a signature for others recovers to
    another account. Solana and channel payloads are verified when they are read.
    """
    chain = int(terms.network.removeprefix("eip155:")) if "eip155:" in terms.network else 0
    if signed.method == EIP_3009:
        digest = hash_transfer(
            (terms.domain_name, terms.domain_version, chain, terms.asset),
            payer=signed.payer,
            pay_to=signed.pay_to,
            value=signed.value,
            valid_after=signed.valid_after,
            valid_before=signed.valid_before,
            nonce=signed.nonce,
        )
        return recover_signer(digest, signed.signature)
    if signed.method == PERMIT2:
        digest = hash_permit2(
            chain,
            token=terms.asset,
            amount=signed.value,
            spender=PROXIES[signed.scheme],
            nonce=int(signed.nonce, 16),
            deadline=signed.valid_before,
            pay_to=signed.pay_to,
            valid_after=signed.valid_after,
            facilitator=signed.facilitator if signed.scheme == UPTO else None,
        )
        return recover_signer(digest, signed.signature)
    return signed.payer


def read_payment_id(payload: Payload) -> str | None:
    """Return the ID of the extension payment-identifier in a payload."""
    extension = (getattr(payload, "extensions", None) or {}).get("payment-identifier")
    info = extension.get("info") if isinstance(extension, dict) else None
    name = info.get("id") if isinstance(info, dict) else None
    return name if isinstance(name, str) else None


def _read_transfer(payload: Payload) -> Authorization:
    """Read one EIP-3009 transfer."""
    fields = payload.payload.get("authorization")
    if not isinstance(fields, Mapping) or set(payload.payload) - {"authorization", "signature"}:
        raise SignedError("The payment is not exactly one EIP-3009 authorization.")
    nonce = fields.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise SignedError("The authorization has no nonce of 32 bytes.")
    return Authorization(
        **common_fields(payload),
        method=EIP_3009,
        payer=_address(fields, "from"),
        pay_to=_address(fields, "to"),
        value=_number(fields, "value"),
        valid_after=_time(fields, "validAfter"),
        valid_before=_time(fields, "validBefore"),
        nonce=nonce.lower(),
        signature=read_signature(payload.payload.get("signature")),
    )


def _read_permit2(payload: Payload) -> Authorization:
    """Read one Permit2 transfer with witness, for the proxy of its scheme."""
    fields = payload.payload.get("permit2Authorization")
    extra = set(payload.payload) - {"permit2Authorization", "signature"}
    if not isinstance(fields, Mapping) or extra:
        raise SignedError("The payment is not exactly one Permit2 authorization.")
    permitted, witness = fields.get("permitted"), fields.get("witness")
    if not isinstance(permitted, Mapping) or not isinstance(witness, Mapping):
        raise SignedError("The Permit2 authorization has no token or no witness.")
    common = common_fields(payload)
    if _address(fields, "spender") != PROXIES.get(str(common["scheme"])):
        raise SignedError("The Permit2 authorization is for another contract than x402's.")
    if common["asset"] not in (None, _address(permitted, "token")):
        raise SignedError("The Permit2 authorization is for another token.")
    facilitator = parse_address(witness.get("facilitator"))
    return Authorization(
        **common,
        method=PERMIT2,
        payer=_address(fields, "from"),
        pay_to=_address(witness, "to"),
        value=_number(permitted, "amount"),
        valid_after=_time(witness, "validAfter"),
        valid_before=_time(fields, "deadline"),
        nonce=f"0x{_time(fields, 'nonce'):064x}",
        signature=read_signature(payload.payload.get("signature")),
        facilitator=facilitator,
    )


def _address(fields: Mapping[str, object], name: str) -> str:
    address = parse_address(fields.get(name))
    if address is None:
        raise SignedError(f"The authorization has no address `{name}`.")
    return address


def _number(fields: Mapping[str, object], name: str) -> int:
    number = parse_amount(fields.get(name))
    if number is None:
        raise SignedError(f"The authorization has no number `{name}`.")
    return number


def _time(fields: Mapping[str, object], name: str) -> int:
    return 0 if fields.get(name) == "0" else _number(fields, name)
