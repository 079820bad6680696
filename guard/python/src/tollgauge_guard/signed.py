"""Signed: what a payment payload authorizes, and whether that is what was allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentPayloadV1

from tollgauge_guard.address import parse_address
from tollgauge_guard.errors import GuardError
from tollgauge_guard.offer import SCHEME, Terms
from tollgauge_guard.units import V1_NETWORKS, parse_amount

CLOCK_SLACK_S: Final = 5
"""How much longer than the offer's timeout an authorization may be valid."""
_NONCE: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)


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
    valid_before: int
    nonce: str


def read_signed(payload: PaymentPayload | PaymentPayloadV1) -> Authorization:
    """What a payload authorizes. Raises SignedError for anything but one EIP-3009 transfer."""
    fields = payload.payload.get("authorization")
    if not isinstance(fields, Mapping) or set(payload.payload) - {"authorization", "signature"}:
        raise SignedError("The payment is no EIP-3009 authorization alone.")
    payer, pay_to = parse_address(fields.get("from")), parse_address(fields.get("to"))
    value, valid_before = parse_amount(fields.get("value")), parse_amount(fields.get("validBefore"))
    nonce = fields.get("nonce")
    if payer is None or pay_to is None or value is None or valid_before is None:
        raise SignedError("The authorization has a field of another form.")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise SignedError("The authorization has no nonce of 32 bytes.")
    is_v1 = isinstance(payload, PaymentPayloadV1)
    network = payload.get_network()
    return Authorization(
        scheme=payload.get_scheme(),
        network=V1_NETWORKS.get(network) if is_v1 else network,
        asset=None if isinstance(payload, PaymentPayloadV1) else payload.accepted.asset.lower(),
        payer=payer,
        pay_to=pay_to,
        value=value,
        valid_before=valid_before,
        nonce=nonce.lower(),
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
