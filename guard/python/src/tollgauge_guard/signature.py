"""Signature: whether a bundle is what the holder of a pinned key signed.

The header `Tollgauge-Signature` is a detached JWS (RFC 7515 appendix F) with EdDSA (RFC 8037) and
without base64 (RFC 7797) over the 32 bytes of the body's SHA-256. Its protected header must say
`tollgauge-bundle`, so that nothing else that the service signs is taken for a bundle.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tollgauge_guard.errors import GuardError

TYPE: Final = "tollgauge-bundle"
HEADER_MAX: Final = 4_096
"""Longest signature header in characters."""
_FINGERPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_HINT: Final = "Give the operator's public JWK, or its fingerprint (RFC 7638) of 43 characters."


class SignatureError(GuardError):
    """A signature or a key that does not verify, or could not be read."""


@dataclass(frozen=True, slots=True)
class PinnedKey:
    """The one key that bundles are believed from: its fingerprint, and the key where given."""

    fingerprint: str
    public: Ed25519PublicKey | None = None

    @property
    def jwk(self) -> dict[str, str] | None:
        """The public key as a JWK, None where only the fingerprint is known."""
        return (
            None if self.public is None else _jwk(encode_base64url(self.public.public_bytes_raw()))
        )


def pin(key: str | Mapping[str, object]) -> PinnedKey:
    """The key of a public JWK (an object or its JSON), or of a fingerprint.

    Raises SignatureError for anything else.
    """
    if isinstance(key, str) and _FINGERPRINT.fullmatch(key):
        return PinnedKey(key)
    try:
        jwk = json.loads(key) if isinstance(key, str) else key
    except ValueError as error:
        raise SignatureError("The key is neither a JWK nor a fingerprint.", hint=_HINT) from error
    return read_jwk(jwk)


def read_jwk(jwk: object) -> PinnedKey:
    """The Ed25519 key of a public JWK (RFC 8037). Raises SignatureError for anything else."""
    fields = jwk if isinstance(jwk, Mapping) else {}
    if "d" in fields:
        raise SignatureError("The key is a private one.", hint="Keep it secret. " + _HINT)
    text = fields.get("x")
    if fields.get("kty") != "OKP" or fields.get("crv") != "Ed25519" or not isinstance(text, str):
        raise SignatureError("The key is no Ed25519 JWK.", hint=_HINT)
    try:
        public = Ed25519PublicKey.from_public_bytes(decode_base64url(text))
    except ValueError as error:
        raise SignatureError("The JWK holds no Ed25519 key.", hint=_HINT) from error
    canonical = json.dumps(_jwk(text), separators=(",", ":"))
    return PinnedKey(encode_base64url(hashlib.sha256(canonical.encode()).digest()), public)


def _jwk(x: str) -> dict[str, str]:
    """The members of which the thumbprint is made, in their order (RFC 7638 section 3.2)."""
    return {"crv": "Ed25519", "kty": "OKP", "x": x}


def from_jwks(document: object, fingerprint: str) -> PinnedKey:
    """The key with a fingerprint from a JWK set (RFC 7517). Raises SignatureError without one."""
    keys = document.get("keys") if isinstance(document, dict) else None
    for jwk in keys if isinstance(keys, list) else []:
        try:
            key = read_jwk(jwk)
        except SignatureError:
            continue  # keys of other kinds may stand beside it
        if key.fingerprint == fingerprint:
            return key
    raise SignatureError(
        "The service publishes no key with the pinned fingerprint.",
        hint="Ask its operator whether the key was changed, and pin the new one.",
    )


def verify(signature: str, body: bytes, key: PinnedKey) -> None:
    """Raises SignatureError unless the pinned key signed this body as a bundle."""
    if key.public is None:
        raise SignatureError(
            "Of the key only the fingerprint is known.",
            hint="A bundle in a file or of bytes needs the public JWK, which the service has at "
            "/.well-known/jwks.json.",
        )
    protected, _, sealed = signature.strip().partition("..")
    if len(signature) > HEADER_MAX or not protected or not sealed:
        raise SignatureError("The bundle's signature is no detached JWS.")
    try:
        header = json.loads(decode_base64url(protected))
        mark = decode_base64url(sealed)
    except (ValueError, RecursionError) as error:
        raise SignatureError("The bundle's signature cannot be read.") from error
    expected = {"alg": "EdDSA", "b64": False, "crit": ["b64"], "typ": TYPE, "kid": key.fingerprint}
    fields = header if isinstance(header, dict) else {}
    wrong = [name for name, value in expected.items() if fields.get(name) != value]
    if wrong or fields.get("b64") is not False:
        raise SignatureError(f"The bundle's signature has another {wrong[0] if wrong else 'b64'}.")
    try:
        key.public.verify(mark, protected.encode() + b"." + hashlib.sha256(body).digest())
    except InvalidSignature as error:
        raise SignatureError("The bundle was not signed by the pinned key.") from error


def encode_base64url(data: bytes) -> str:
    """RFC 4648 section 5, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """The bytes of a base64url text without padding. Raises ValueError for any other spelling."""
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not base64url") from error
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url")
    return data
