"""The `signing` section of the configuration: the current signing key and the retired keys; and the
header of a signed response.

Signatures are computed in core/sale/signature. docs/signatures.md lists the signed responses
and explains how to retire a key.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import AfterValidator, NonNegativeInt
from pydantic.dataclasses import dataclass

from tollgauge.core.sale.signature import (
    SIGNATURE_HEADER,
    PublicKey,
    SignatureError,
    SigningKey,
    Typ,
    private_jwk,
    read_succession,
)
from tollgauge.observe import log


def new_key(*, pem: bool = False) -> str:
    """Create a private key, and return it as a one-line JWK or as PEM (PKCS #8)."""
    key = Ed25519PrivateKey.generate()
    if pem:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return orjson.dumps(private_jwk(key.private_bytes_raw())).decode() + "\n"


def signature_header(
    key: SigningKey | None, body: bytes, typ: Typ, now: int, **bound: str
) -> dict[str, str]:
    """Return the header with the signature of a response; empty without a key.

    `now` is the time of the signature (ms UTC), `bound` are further signed values such as the
    payer. A response that cannot be signed is sent unsigned, because it is worth more than its
    signature; the failure is logged.
    """
    if key is None:
        return {}
    try:
        return {SIGNATURE_HEADER: key.sign(body, typ, now, **bound)}
    except SignatureError as error:
        log().error("answer.unsigned", typ=typ, error=str(error))
        return {}


def _usable(text: str) -> str:
    if text.strip():
        SigningKey.of(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredKey:
    """An old key, as `tollgauge keys retire` prints it: a public JWK (RFC 8037) that is valid for
    signatures from `nbf` until `exp` (unix seconds).
    """

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str
    nbf: NonNegativeInt
    exp: NonNegativeInt
    succession: str = ""
    """The key's statement that names its successor; guards that pin this key follow it."""

    def __post_init__(self) -> None:
        if self.nbf > self.exp:
            raise ValueError("nbf must not be after exp")
        if self.succession:
            try:
                read_succession(self.succession, self.public)
            except SignatureError as error:
                raise ValueError(str(error)) from error
        _ = self.public

    @property
    def public(self) -> PublicKey:
        """The public key."""
        jwk = {"kty": self.kty, "crv": self.crv, "x": self.x, "nbf": self.nbf, "exp": self.exp}
        return PublicKey.of(jwk)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSettings:
    """The signatures of answers."""

    key: Annotated[str, AfterValidator(_usable)] = field(default="", repr=False)
    """Private Ed25519 key as PEM or JWK (tollgauge keys new) that signs reports and snapshots.
    Without it, responses are not signed.
    """
    retired: tuple[RetiredKey, ...] = ()
    """Earlier keys (tollgauge keys retire), as { kty, crv, x, nbf, exp, succession }."""

    def __post_init__(self) -> None:
        if self.signing_key and self.signing_key.fingerprint in self._retired_fingerprints:
            raise ValueError("key is one of the retired keys: make a new one")

    @property
    def signing_key(self) -> SigningKey | None:
        """The current key; None if responses are not signed."""
        return SigningKey.of(self.key) if self.key.strip() else None

    @property
    def public_keys(self) -> tuple[PublicKey, ...]:
        """The keys that verify signatures, the current one first."""
        current = (self.signing_key.public,) if self.signing_key else ()
        return (*current, *(key.public for key in self.retired))

    @property
    def successions(self) -> tuple[str, ...]:
        """The statements of retired keys that name their successors."""
        return tuple(key.succession for key in self.retired if key.succession)

    @property
    def _retired_fingerprints(self) -> frozenset[str]:
        return frozenset(key.public.fingerprint for key in self.retired)
