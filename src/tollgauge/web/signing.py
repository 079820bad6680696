"""The key that signs answers, and those that did: the `signing` section of the configuration; and
the header of a signed answer.

How an answer is signed is core/sale/answer_signature's; docs/signatures.md says what is signed, and
how a key is retired.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import AfterValidator, NonNegativeInt
from pydantic.dataclasses import dataclass

from tollgauge.core.sale.answer_signature import (
    HEADER,
    PublicKey,
    SignatureError,
    SigningKey,
    Typ,
    private_jwk,
)
from tollgauge.observe import log


def new_key(*, pem: bool = False) -> str:
    """The text of a new private key, a JWK of one line or a PEM (PKCS #8)."""
    key = Ed25519PrivateKey.generate()
    if pem:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return orjson.dumps(private_jwk(key.private_bytes_raw())).decode() + "\n"


def signature_header(
    key: SigningKey | None, body: bytes, typ: Typ, now: int, **bound: str
) -> dict[str, str]:
    """The header with the signature of an answer as of now (milliseconds UTC), nothing without a
    key. An answer that cannot be signed leaves without, because it is worth more than its
    signature; the log says so.
    """
    if key is None:
        return {}
    try:
        return {HEADER: key.sign_document(body, typ, now, **bound)}
    except SignatureError as error:
        log().error("answer.unsigned", typ=typ, error=str(error))
        return {}


def _usable(text: str) -> str:
    if text.strip():
        SigningKey.of(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredKey:
    """A key that signs no more, as `tollgauge keys retire` prints it: a public JWK (RFC 8037) that
    counts for what was signed from `nbf` until `exp` (unix seconds).
    """

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str
    nbf: NonNegativeInt
    exp: NonNegativeInt

    def __post_init__(self) -> None:
        if self.nbf > self.exp:
            raise ValueError("nbf must not be after exp")
        _ = self.public

    @property
    def public(self) -> PublicKey:
        """The key."""
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
    """Earlier keys (tollgauge keys retire), as { kty, crv, x, nbf, exp }."""

    def __post_init__(self) -> None:
        if self.signing_key and self.signing_key.fingerprint in self._retired_fingerprints:
            raise ValueError("key is one of the retired keys: make a new one")

    @property
    def signing_key(self) -> SigningKey | None:
        """The key that signs, None without one."""
        return SigningKey.of(self.key) if self.key.strip() else None

    @property
    def public_keys(self) -> tuple[PublicKey, ...]:
        """What clients check signatures with, the key that signs first."""
        current = (self.signing_key.public,) if self.signing_key else ()
        return (*current, *(key.public for key in self.retired))

    @property
    def _retired_fingerprints(self) -> frozenset[str]:
        return frozenset(key.public.fingerprint for key in self.retired)
