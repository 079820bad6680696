"""The authorization in a signed payment: what all schemes and networks have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentPayloadV1

from tollgauge_guard.errors import GuardError
from tollgauge_guard.units import V1_NETWORKS

Payload = PaymentPayload | PaymentPayloadV1
_SIGNATURE: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){1,4096}", re.ASCII)


class SignedError(GuardError):
    """A payload in which no authorization of a supported scheme could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """The authorization in a payload. EVM values are lower-case hex, times unix seconds.

    `asset` is None in x402 version 1, whose payload does not name it. `nonce` identifies the
    authorization among those of its payer. `evidence` is JSON for the reader of the chain.
    `exposed` is what may be taken, in atomic units, if that is less than the offer let expect.
    """

    scheme: str
    method: str
    network: str | None
    asset: str | None
    payer: str
    pay_to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str
    signature: bytes = b""
    facilitator: str | None = None
    evidence: str | None = None
    exposed: int | None = None


def common_fields(payload: Payload) -> dict[str, Any]:
    """Return scheme, network and asset of a payload."""
    is_v1 = isinstance(payload, PaymentPayloadV1)
    network = payload.get_network()
    asset = None if isinstance(payload, PaymentPayloadV1) else payload.accepted.asset
    is_evm = asset is not None and asset.startswith("0x")
    return {
        "scheme": payload.get_scheme(),
        "network": V1_NETWORKS.get(network) if is_v1 else network,
        "asset": asset.lower() if asset is not None and is_evm else asset,
    }


def read_signature(value: object) -> bytes:
    """Return the bytes of a signature in hex. Raises SignedError."""
    if not isinstance(value, str) or not _SIGNATURE.fullmatch(value):
        raise SignedError("The authorization has no signature.")
    return bytes.fromhex(value[2:])
