"""Payment: a signed x402 payment, and the check that it pays an offer.

Rules (docs/payments.md):
- a payment is keyed by the bytes of (network, asset, payer, nonce), never by its header's text;
- the *signed* values are compared (to, value, validAfter, validBefore), never `accepted`;
- the key binds a request digest: the same payment pays one request.

core/sale/payment_state has the states; clients/facilitator calls the facilitator, and
store/ledger/payments stores the rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tollgauge.core.base import strictjson
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import (
    EVM_ADDRESS_PATTERN,
    EVM_SIGNATURE_PATTERN,
    EVM_WORD_PATTERN,
    parse_amount,
)

X402_VERSION: Final = 2
REPORT_PATH: Final = "/v1/x402-trust"
WATCH_PATH: Final = "/v1/watch-endpoint-30d"
SCHEME: Final = "exact"
"""The only scheme that is sold."""
EXTENSION: Final = "tollgauge"
"""The extension of the 402 with the ticket (x402 v2, extensions)."""
HEADER_MAX: Final = 16_384  # maximum length of a payment header
SETTLE_MARGIN_S: Final = 6
"""Minimum remaining validity of a payment; otherwise facilitators cannot settle it (x402 exact
EVM).
"""
CLOCK_SKEW_S: Final = 5
"""Maximum time that `validAfter` may be in the future: a client's clock may run fast."""
VALIDITY_SLACK_S: Final = 60
"""Time that a payment may stay valid beyond the offer's timeout, for the same reason."""
EXPIRED: Final = "expired"
"""The refusal of a payment that can no longer be settled in time."""
SETTLED_UNKNOWN: Final = "payment-settled-unknown"
"""The problem code for a payment that is settled on chain and unknown to the ledger."""
_CURVE_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""The order of secp256k1 (SEC 2). With s and with order - s, a signature recovers the same
signer.
"""


class PaymentHeaderError(TollgaugeError):
    """A payment header that is not strict base64 of one object with the right members: status
    400.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The terms of a paid route: `amount` atomic units of `asset` on `network` to `pay_to`.

    `resource` is the route's public URL, `timeout_seconds` the maximum validity of a payment.
    """

    route: str
    resource: str
    network: str
    asset: str
    amount: int
    pay_to: str
    domain_name: str
    domain_version: str
    timeout_seconds: int = 300

    @property
    def requirements(self) -> dict[str, object]:
        """The offer as an entry of `accepts` (x402 v2, PaymentRequirements)."""
        return {
            "scheme": SCHEME,
            "network": self.network,
            "asset": self.asset,
            "amount": str(self.amount),
            "payTo": self.pay_to,
            "maxTimeoutSeconds": self.timeout_seconds,
            "extra": {"name": self.domain_name, "version": self.domain_version},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A decoded `PAYMENT-SIGNATURE`. Hex is lower case; times are Unix seconds.

    Attributes:
        network, asset, scheme: From `accepted`, the offer that the client claims to pay.
        ticket: The random text that the client repeats from the 402 (extension EXTENSION), or
        empty.
        document: The decoded object with `accepted`, as sent to the facilitator.
        header: Base64 of `document`.
    """

    network: str
    asset: str
    scheme: str
    payer: str
    to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str
    signature: str
    ticket: str = ""
    header: str = field(repr=False, compare=False)
    document: dict[str, object] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The payment's public ID: 32 hex digits over the key's bytes."""
        return _hash_key("|".join((self.network, self.asset, self.payer, self.nonce)))

    @property
    def signer_mark(self) -> str:
        """A value that is equal for every encoding of one signature: r and the lower of s and order
        - s.

        Signatures of contracts (EIP-1271) are used unchanged. A settled signature is public too, in
        the call data of its transaction, so a stored response is only given to a client that also
        has the ticket.
        """
        if len(self.signature) != 2 + 2 * 65:
            return self.signature
        r, s = self.signature[2:66], int(self.signature[66:130], 16)
        return f"{r}{min(s, _CURVE_ORDER - s):064x}"


@lru_cache(maxsize=1_024)  # admission reads it for every payment in progress
def _hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def decode(header: str, offers: tuple[Offer, ...] = ()) -> Payment:
    """Return the payment in a `PAYMENT-SIGNATURE` header.

    Some published clients omit `accepted` and send only `scheme` and `network`: the entry of
    `offers` with both replaces it.

    Raises:
        PaymentHeaderError: The header is not strict base64 (RFC 4648 section 4, padded, no spaces)
            of one JSON object with the fields of an x402 v2 `exact` EIP-3009 payment.
    """
    try:
        raw = base64.b64decode(header.encode("ascii"), validate=True)
    except ValueError as error:
        raise PaymentHeaderError("PAYMENT-SIGNATURE is not standard base64.") from error
    if base64.b64encode(raw).decode() != header:
        raise PaymentHeaderError("PAYMENT-SIGNATURE is not canonical base64.")
    try:
        root = _require_object(strictjson.loads(raw), "the payment")
    except strictjson.StrictJsonError as error:
        raise PaymentHeaderError(f"PAYMENT-SIGNATURE: {error}") from error
    if root.get("accepted") is None:
        root = _complete(root, offers)
        header = base64.b64encode(json.dumps(root).encode()).decode()
    return _read(root, header)


def _complete(root: dict[str, object], offers: tuple[Offer, ...]) -> dict[str, object]:
    """Return a payment without `accepted`, with the offer of its scheme and network."""
    scheme, network = root.get("scheme"), root.get("network")
    named = [offer for offer in offers if (SCHEME, offer.network) == (scheme, network)]
    if len(named) != 1:
        raise PaymentHeaderError(
            "PAYMENT-SIGNATURE has no accepted object, and its scheme and network name "
            f"{len(named)} offers of this route instead of one. Send the entry of accepts that "
            "was signed as accepted."
        )
    others = {key: root[key] for key in root if key not in ("scheme", "network", "accepted")}
    return others | {"accepted": named[0].requirements}


def _read(root: dict[str, object], header: str) -> Payment:
    """Return the payment in a decoded header with an `accepted` object."""
    version = root.get("x402Version")
    if type(version) is not int or version != X402_VERSION:
        raise PaymentHeaderError(
            "x402Version must be 2.", hint="This service accepts x402 version 2."
        )
    accepted = _require_object(root.get("accepted"), "accepted")
    payload = _require_object(root.get("payload"), "payload")
    signed = _require_object(payload.get("authorization"), "payload.authorization")
    return Payment(
        network=_read_text(accepted, "network", 64),
        asset=_read_hex(accepted, "asset", EVM_ADDRESS_PATTERN),
        scheme=_read_text(accepted, "scheme", 32),
        payer=_read_hex(signed, "from", EVM_ADDRESS_PATTERN),
        to=_read_hex(signed, "to", EVM_ADDRESS_PATTERN),
        value=_read_amount(signed, "value"),
        valid_after=_read_amount(signed, "validAfter"),
        valid_before=_read_amount(signed, "validBefore"),
        nonce=_read_hex(signed, "nonce", EVM_WORD_PATTERN),
        signature=_read_hex(payload, "signature", EVM_SIGNATURE_PATTERN),
        ticket=_read_ticket(root),
        header=header,
        document=root,
    )


def _read_ticket(root: dict[str, object]) -> str:
    """Return the ticket that a client repeats from the 402; "" without one, because it is
    optional.
    """
    value: object = root
    for key in ("extensions", EXTENSION, "info", "ticket"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def find_refusal(payment: Payment, offer: Offer, *, now_s: int) -> str | None:
    """Return why a payment does not pay an offer, as a slug for the 402's `error`; None if it does.

    Only the signed fields and the validity period are compared; the facilitator verifies the
    signature and the balance.
    """
    checks = (
        (payment.scheme == SCHEME, "unsupported_scheme"),
        (payment.network == offer.network, "network_mismatch"),
        (payment.asset == offer.asset.lower(), "asset_mismatch"),
        (payment.to == offer.pay_to.lower(), "recipient_mismatch"),
        (payment.value == offer.amount, "amount_mismatch"),
        (payment.valid_after <= now_s + CLOCK_SKEW_S, "not_yet_valid"),
        (payment.valid_before >= now_s + SETTLE_MARGIN_S, EXPIRED),
        (
            payment.valid_before <= now_s + offer.timeout_seconds + VALIDITY_SLACK_S,
            "valid_too_long",
        ),
    )
    return next((reason for passed, reason in checks if not passed), None)


def may_have_paid(payment: Payment, offer: Offer) -> bool:
    """Return whether a refused payment signs a transfer of the offer's asset to its payTo.

    The chain may show such a payment as settled: an expired one, or one for an earlier price.
    """
    return (payment.scheme, payment.network, payment.asset, payment.to) == (
        SCHEME,
        offer.network,
        offer.asset.lower(),
        offer.pay_to.lower(),
    )


def reports_used_nonce(reason: str) -> bool:
    """Return whether a facilitator's reason states that the authorization was used before, such as
    `nonce_used` or `invalid_exact_evm_nonce_already_used`.
    """
    return "nonce" in reason and "used" in reason


def signed_transfer(payment: Payment, offer: Offer, *, now_s: int) -> Authorization:
    """Return the transfer that a payment signs, for a query to the chain.

    An authorization can only be used while it is valid, which starts at most the offer's timeout
    before `validBefore`.
    """
    ended_s = min(payment.valid_before, now_s)
    return Authorization(
        network=payment.network,
        asset=payment.asset,
        payer=payment.payer,
        nonce=payment.nonce,
        to=payment.to,
        value=payment.value,
        since_s=ended_s - offer.timeout_seconds - VALIDITY_SLACK_S,
    )


def request_digest(method: str, path: str, body: bytes) -> str:
    """Return the digest that a payment is bound to: SHA-256 over method, canonical path and
    canonical body.
    """
    parts = (method.upper().encode(), path.encode(), body)
    return hashlib.sha256(b"\n".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def canonical_body(document: object) -> bytes:
    """Return a request body with sorted keys and without spaces, so that re-encodings are one
    request.
    """
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8", "surrogatepass")


def _require_object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise PaymentHeaderError(f"PAYMENT-SIGNATURE: {where} must be an object.")
    return value


def _read_text(holder: dict[str, object], key: str, limit: int) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not value or len(value) > limit:
        raise PaymentHeaderError(f"PAYMENT-SIGNATURE: {key} must be a short string.")
    return value


def _read_hex(holder: dict[str, object], key: str, pattern: re.Pattern[str]) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PaymentHeaderError(f"PAYMENT-SIGNATURE: {key} is not the expected hex.")
    return value.lower()


def _read_amount(holder: dict[str, object], key: str) -> int:
    value = parse_amount(holder.get(key))
    if value is None:
        raise PaymentHeaderError(f"PAYMENT-SIGNATURE: {key} must be a decimal string.")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """A signed transfer, for a query to the chain. Hex is lower case.

    Logs before `since_s` (Unix seconds) are not searched.
    """

    network: str
    asset: str
    payer: str
    nonce: str
    to: str
    value: int
    since_s: int
