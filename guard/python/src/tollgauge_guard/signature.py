"""Signatures: verifies that the holder of an accepted key signed a bundle.

The header `Tollgauge-Signature` is a detached JWS (RFC 7515 appendix F) with EdDSA (RFC 8037) and
without base64 (RFC 7797) over the 32 bytes of the body's SHA-256. Its protected header must contain
`tollgauge-bundle`, so that other texts that the service signs are not accepted as bundles.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tollgauge_guard.errors import GuardError

TYPE: Final = "tollgauge-bundle"
SUCCESSION_TYPE: Final = "tollgauge-succession"
HEADER_MAX: Final = 4_096
"""Longest signature header in characters."""
_FINGERPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_HINT: Final = "Give the operator's public JWK, or its fingerprint (RFC 7638) of 43 characters."


class SignatureError(GuardError):
    """A signature or a key that does not verify, or could not be read."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that may sign bundles: its fingerprint, and the key and its `exp` if they are known."""

    fingerprint: str
    public: Ed25519PublicKey | None = None
    exp: int | None = None

    @property
    def jwk(self) -> dict[str, object]:
        """The public key as a JWK. Raises SignatureError if only the fingerprint is known."""
        if self.public is None:
            raise SignatureError("Only the fingerprint of the key is known.", hint=_HINT)
        expiry = {} if self.exp is None else {"exp": self.exp}
        return {**_jwk(encode_base64url(self.public.public_bytes_raw())), **expiry}


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys whose bundles are accepted: pinned by the owner, or their successors."""

    keys: tuple[PublicKey, ...]

    def find(self, fingerprint: object) -> PublicKey | None:
        """Return the accepted key with a fingerprint."""
        return next((key for key in self.keys if key.fingerprint == fingerprint), None)

    def follow(self, document: object, now: int, *, is_known: bool) -> Keyring:
        """Complete pinned fingerprints from a JWK set (RFC 7517) and add the successors.

        A succession is a compact JWS in the member `successions`, signed by an accepted key.

        Args:
            document: the JWK set.
            now: unix seconds.
            is_known: a bundle was accepted before. A new installation accepts current keys only,
                so an expired pinned key has no successor there.
        """
        listed = {key.fingerprint: key for key in _list_keys(document)}
        keys = {key.fingerprint: _complete(key, listed) for key in self.keys}
        statements = document.get("successions") if isinstance(document, dict) else None
        waiting = list(statements) if isinstance(statements, list) else []
        is_changed = True
        while is_changed:
            is_changed = False
            for statement in waiting:
                found = _read_succession(statement, keys, now, is_known=is_known)
                if found is not None and found.fingerprint not in keys:
                    keys[found.fingerprint] = _complete(found, listed)
                    is_changed = True
        return Keyring(tuple(keys.values()))


def pin_keys(keys: str | Mapping[str, object] | Sequence[str | Mapping[str, object]]) -> Keyring:
    """Return the keys of public JWKs (objects or their JSON) or fingerprints.

    Raises SignatureError for anything else.
    """
    listed = [keys] if isinstance(keys, (str, Mapping)) else list(keys)
    if not listed:
        raise SignatureError("No key was pinned.", hint=_HINT)
    return Keyring(tuple(_pin(key) for key in listed))


def read_jwk(jwk: object) -> PublicKey:
    """Return the Ed25519 key of a public JWK (RFC 8037). Raises SignatureError for others."""
    fields = jwk if isinstance(jwk, Mapping) else {}
    if "d" in fields:
        raise SignatureError("The key is a private one.", hint="Keep it secret. " + _HINT)
    text, exp = fields.get("x"), fields.get("exp")
    if fields.get("kty") != "OKP" or fields.get("crv") != "Ed25519" or not isinstance(text, str):
        raise SignatureError("The key is not an Ed25519 JWK.", hint=_HINT)
    try:
        public = Ed25519PublicKey.from_public_bytes(decode_base64url(text))
    except ValueError as error:
        raise SignatureError("The JWK contains no Ed25519 key.", hint=_HINT) from error
    canonical = json.dumps(_jwk(text), separators=(",", ":"))
    fingerprint = encode_base64url(hashlib.sha256(canonical.encode()).digest())
    return PublicKey(fingerprint, public, exp if type(exp) is int else None)


def verify(signature: str, body: bytes, keyring: Keyring, now: int) -> PublicKey:
    """Return the accepted key that signed this body as a bundle. Raises SignatureError."""
    protected, _, sealed = signature.strip().partition("..")
    if len(signature) > HEADER_MAX or not protected or not sealed:
        raise SignatureError("The bundle's signature is not a detached JWS.")
    try:
        header = json.loads(decode_base64url(protected))
        mark = decode_base64url(sealed)
    except (ValueError, RecursionError) as error:
        raise SignatureError("The bundle's signature cannot be read.") from error
    expected = {"alg": "EdDSA", "b64": False, "crit": ["b64"], "typ": TYPE}
    fields = header if isinstance(header, dict) else {}
    wrong = [name for name, value in expected.items() if fields.get(name) != value]
    if wrong or fields.get("b64") is not False:
        raise SignatureError(f"The bundle's signature has another {wrong[0] if wrong else 'b64'}.")
    key = keyring.find(fields.get("kid"))
    if key is None:
        raise SignatureError(
            "The bundle was signed by another key than the pinned ones.",
            hint="Ask the operator whether the key was changed, and pin the new one.",
        )
    if key.public is None:
        raise SignatureError(
            "Only the fingerprint of the key is known.",
            hint="A bundle in a file or of bytes needs the public JWK, which the service has at "
            "/.well-known/jwks.json.",
        )
    if key.exp is not None and now > key.exp:
        raise SignatureError("The key that signed the bundle is retired.", hint=_HINT)
    try:
        key.public.verify(mark, protected.encode() + b"." + hashlib.sha256(body).digest())
    except InvalidSignature as error:
        raise SignatureError("The bundle was not signed by the pinned key.") from error
    return key


def _pin(key: str | Mapping[str, object]) -> PublicKey:
    if isinstance(key, str) and _FINGERPRINT.fullmatch(key):
        return PublicKey(key)
    try:
        jwk = json.loads(key) if isinstance(key, str) else key
    except ValueError as error:
        raise SignatureError("The key is neither a JWK nor a fingerprint.", hint=_HINT) from error
    return read_jwk(jwk)


def _jwk(x: str) -> dict[str, object]:
    """Return the members that the thumbprint covers, in their order (RFC 7638 section 3.2)."""
    return {"crv": "Ed25519", "kty": "OKP", "x": x}


def _list_keys(document: object) -> Iterator[PublicKey]:
    listed = document.get("keys") if isinstance(document, dict) else None
    for jwk in listed if isinstance(listed, list) else []:
        try:
            yield read_jwk(jwk)
        except SignatureError:
            continue  # a set may contain keys of other kinds


def _complete(key: PublicKey, listed: Mapping[str, PublicKey]) -> PublicKey:
    """Add the service's data about a key: the key itself, and the time when it was retired."""
    found = listed.get(key.fingerprint)
    if found is None:
        return key
    return PublicKey(key.fingerprint, key.public or found.public, found.exp or key.exp)


def _read_succession(
    statement: object, keys: Mapping[str, PublicKey], now: int, *, is_known: bool
) -> PublicKey | None:
    """Return the successor that an accepted key names, None if the statement is not valid."""
    try:
        protected, payload, sealed = str(statement).split(".")
        header, body = (json.loads(decode_base64url(part)) for part in (protected, payload))
        key, issued = keys.get(header["kid"]), body["iat"]
        if header.get("alg") != "EdDSA" or header.get("typ") != SUCCESSION_TYPE:
            return None
        if key is None or key.public is None or type(issued) is not int:
            return None
        is_retired = key.exp is not None and now > key.exp
        if is_retired and (not is_known or issued > (key.exp or 0)):
            return None
        key.public.verify(decode_base64url(sealed), f"{protected}.{payload}".encode())
        return read_jwk(body["successor"])
    except (ValueError, KeyError, TypeError, RecursionError, InvalidSignature, SignatureError):
        return None


def encode_base64url(data: bytes) -> str:
    """Encode in base64url without padding (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Decode canonical base64url without padding. Raises ValueError."""
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not base64url") from error
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url")
    return data
