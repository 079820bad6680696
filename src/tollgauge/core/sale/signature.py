"""Ed25519 signatures of responses.

Rules (docs/signatures.md):
- a signature is a detached JWS, `protected..signature` (RFC 7515 appendix F), with an unencoded
  payload (RFC 7797). `alg` is EdDSA (RFC 8037); no other algorithm is accepted;
- the payload of a JSON response is its canonical form (RFC 8785), so whitespace, the order of
  members and content encoding do not matter; that of a bundle is the 32-byte SHA-256 of its bytes,
  so that clients need not hold a bundle in memory twice;
- `typ` is the kind of document, so a signed snapshot cannot pass for a report; `kid` is the key's
  thumbprint (RFC 7638), `iat` the time of signing; other members bind the response to its sale;
- a retired key has `nbf` and `exp`: it is valid for signatures made between them. It can name its
  successor in a compact JWS, which guards that pin the old key follow.
joserfc does not support payloads that are not text or exceed 128,000 bytes; for others the tests
compare the two implementations.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import rfc8785
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tollgauge.core.base import strictjson
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import SECOND_MS

SIGNATURE_HEADER: Final = "Tollgauge-Signature"
"""The HTTP response header with the signature."""
JWKS_PATH: Final = "/.well-known/jwks.json"
"""Path of a service's public keys."""
_FILES: Final = frozenset({"tollgauge-bundle", "tollgauge-guard"})
"""Signatures over the SHA-256 of a file."""
Typ = Literal["tollgauge-report", "tollgauge-snapshot", "tollgauge-bundle", "tollgauge-guard"]
"""The kinds of signed documents."""
_SUCCESSION: Final = "tollgauge-succession"
_KEY_BYTES: Final = 32
_ALGORITHM: Final = {"alg": "EdDSA", "b64": False, "crit": ["b64"]}
_CURVE: Final = {"kty": "OKP", "crv": "Ed25519"}


class KeyFormatError(TollgaugeError, ValueError):
    """An unusable key. The message does not contain its text."""


class SignatureError(TollgaugeError):
    """An invalid signature; the message states the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public half of a key: the 32 bytes `x`.

    It is valid for signatures made from `nbf` to `exp`, in Unix seconds; None is unlimited.
    """

    x: bytes
    nbf: int | None = None
    exp: int | None = None

    @classmethod
    def of(cls, jwk: Mapping[str, object]) -> PublicKey:
        """Return the key of a JWK (RFC 8037), ignoring its `kid`. Raises KeyFormatError."""
        if not _has_curve(jwk):
            raise KeyFormatError(
                "The key is not an Ed25519 key.", hint='Use a JWK with kty "OKP", crv "Ed25519".'
            )
        x = _decode(jwk.get("x"))
        if x is None or len(x) != _KEY_BYTES:
            raise KeyFormatError(
                "The key's x is not 32 bytes in base64url without padding.",
                hint="Use the whole JWK as `tollgauge keys new` prints it.",
            )
        return cls(x=x, nbf=_read_time(jwk, "nbf"), exp=_read_time(jwk, "exp"))

    @property
    def fingerprint(self) -> str:
        """The JWK's thumbprint (RFC 7638): SHA-256 in base64url, 43 characters."""
        members = json.dumps(
            _CURVE | {"x": base64url(self.x)}, sort_keys=True, separators=(",", ":")
        )
        return base64url(hashlib.sha256(members.encode()).digest())

    @property
    def jwk(self) -> dict[str, str | int]:
        """The key as a member of a JWK Set, with its limits if it has any."""
        limits = {"nbf": self.nbf, "exp": self.exp}
        return {
            **_CURVE,
            "x": base64url(self.x),
            "kid": self.fingerprint,
            "alg": "EdDSA",
            "use": "sig",
            **{name: limit for name, limit in limits.items() if limit is not None},
        }

    def counts_at(self, at: int) -> bool:
        """Return whether the key is valid for signatures made at a time (Unix seconds)."""
        return (self.nbf or 0) <= at and (self.exp is None or at <= self.exp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A parsed signature, not yet verified.

    Attributes:
        typ: The kind of document.
        kid: The signing key.
        iat: The time of signing, in Unix seconds.
        bound: Members that bind the response to its sale.
    """

    typ: str
    kid: str
    iat: int
    bound: Mapping[str, str]
    protected: str = field(repr=False)
    value: bytes = field(repr=False)

    def is_valid(self, body: bytes, key: PublicKey) -> bool:
        """Return whether a key signed this header with this body, at any time.

        Raises SignatureError for a body without a canonical form.
        """
        signed = self.protected.encode() + b"." + _build_payload(self.typ, body)
        try:
            Ed25519PublicKey.from_public_bytes(key.x).verify(self.value, signed)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that signs. Its private half is never displayed."""

    _private: Ed25519PrivateKey = field(repr=False, compare=False)
    public: PublicKey

    @classmethod
    def of(cls, text: str) -> SigningKey:
        """Return the key of a PEM (PKCS #8, without a password) or a JWK (RFC 8037, with `d`).

        Raises KeyFormatError, whose message does not contain the text.
        """
        text = text.strip()
        private = _read_jwk(text) if text.startswith("{") else _read_pem(text)
        return cls(private, PublicKey(x=private.public_key().public_bytes_raw()))

    @property
    def fingerprint(self) -> str:
        """The thumbprint of the public half, the `kid` of signatures."""
        return self.public.fingerprint

    def sign_text(self, text: str) -> bytes:
        """Return the Ed25519 signature of a text that has its own format."""
        return self._private.sign(text.encode())

    def name_successor(self, successor: PublicKey, now: int) -> str:
        """Name the key's successor in a compact JWS, signed as of `now` (milliseconds UTC)."""
        header = {"alg": "EdDSA", "typ": _SUCCESSION, "kid": self.fingerprint}
        jwk = {**_CURVE, "x": base64url(successor.x)}
        parts = (header, {"successor": jwk, "iat": now // SECOND_MS})
        text = ".".join(
            base64url(json.dumps(part, separators=(",", ":")).encode()) for part in parts
        )
        return f"{text}.{base64url(self.sign_text(text))}"

    def sign(self, body: bytes, typ: Typ, now: int, **bound: str) -> str:
        """Sign a JSON body, or the bytes of a bundle, as of `now` (milliseconds UTC).

        `bound` are additional members of the protected header. Raises SignatureError for a JSON
        body without a canonical form.
        """
        header = {
            **_ALGORITHM,
            "kid": self.fingerprint,
            "typ": typ,
            "iat": now // SECOND_MS,
            **bound,
        }
        protected = base64url(json.dumps(header, separators=(",", ":")).encode())
        value = self._private.sign(protected.encode() + b"." + _build_payload(typ, body))
        return f"{protected}..{base64url(value)}"


def read_succession(statement: str, key: PublicKey) -> PublicKey:
    """Return the successor that a key names in a statement. Raises SignatureError."""
    try:
        protected, payload, value = statement.split(".")
        header, document = (json.loads(_decode(part) or b"") for part in (protected, payload))
        Ed25519PublicKey.from_public_bytes(key.x).verify(
            _decode(value) or b"", f"{protected}.{payload}".encode()
        )
        if (header["alg"], header["typ"], header["kid"]) != (
            "EdDSA",
            _SUCCESSION,
            key.fingerprint,
        ):
            raise SignatureError("The statement is not a succession of this key.")
        return PublicKey.of(document["successor"])
    except (ValueError, KeyError, TypeError, InvalidSignature) as error:
        raise SignatureError("The statement is not a succession of this key.") from error


def private_jwk(seed: bytes) -> dict[str, str]:
    """Return the private JWK (RFC 8037) of a key's 32-byte seed."""
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return {**_CURVE, "x": base64url(public), "d": base64url(seed)}


def read(signature: str) -> Signature:
    """Parse a compact signature without verifying it. Raises SignatureError."""
    parts = signature.strip().split(".")
    if len(parts) != 3 or parts[1]:
        raise SignatureError("The signature is not a detached JWS: header..signature.")
    raw, value = _decode(parts[0]), _decode(parts[2])
    if raw is None or value is None:
        raise SignatureError("The signature is not base64url without padding.")
    try:
        header = strictjson.loads(raw)
    except strictjson.StrictJsonError as error:
        raise SignatureError(f"The signature's header cannot be read. {error}") from error
    if not isinstance(header, dict) or not _is_supported(header):
        raise SignatureError(
            "The signature's algorithm is not EdDSA with an unencoded payload (b64)."
        )
    texts = [text for pair in header.items() for text in pair if isinstance(text, str)]
    if not all(text.isascii() and text.isprintable() for text in texts):
        raise SignatureError(
            "The signature's header contains characters other than printable ASCII."
        )
    typ, kid, iat = (header.get(name) for name in ("typ", "kid", "iat"))
    if not isinstance(typ, str) or not isinstance(kid, str) or type(iat) is not int:
        raise SignatureError("The signature's header lacks a valid typ, kid or iat.")
    rest = header.keys() - _ALGORITHM.keys() - {"typ", "kid", "iat"}
    bound = {name: text for name in sorted(rest) if isinstance(text := header[name], str)}
    return Signature(typ=typ, kid=kid, iat=iat, bound=bound, protected=parts[0], value=value)


def read_keys(text: bytes) -> tuple[PublicKey, ...]:
    """Return the keys of a JWK, or of a JWK Set without keys of other kinds (RFC 7517 section 5).

    Raises KeyFormatError.
    """
    try:
        document = strictjson.loads(text)
    except strictjson.StrictJsonError as error:
        raise KeyFormatError(f"This is neither a JWK nor a JWK Set. {error}") from error
    if isinstance(document, dict) and isinstance(rows := document.get("keys"), list):
        usable = [row for row in rows if isinstance(row, dict) and _has_curve(row)]
        return tuple(PublicKey.of(row) for row in usable)
    if isinstance(document, dict):
        return (PublicKey.of(document),)
    raise KeyFormatError("This is neither a JWK nor a JWK Set: it is not an object.")


def _is_supported(header: Mapping[str, object]) -> bool:
    # `is`, because 0 == False in Python.
    return header.get("b64") is False and all(header.get(k) == v for k, v in _ALGORITHM.items())


def _build_payload(typ: str, body: bytes) -> bytes:
    if typ in _FILES:
        return hashlib.sha256(body).digest()
    try:
        return rfc8785.dumps(strictjson.loads(body))  # type: ignore[arg-type]  # it has JSON's types
    except (strictjson.StrictJsonError, rfc8785.CanonicalizationError) as error:
        raise SignatureError("The body is not JSON with a canonical form (RFC 8785).") from error


def _read_pem(text: str) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFormatError(
            "The signing key is not a private Ed25519 key: PEM (PKCS #8, no password) or JWK.",
            hint="Create one with `tollgauge keys new`.",
        ) from None
    return key


def _read_jwk(text: str) -> Ed25519PrivateKey:
    wrong = KeyFormatError(
        "The signing key is not a private Ed25519 JWK (RFC 8037): kty OKP, crv Ed25519, x and d.",
        hint="Create one with `tollgauge keys new --jwk`.",
    )
    try:
        jwk = strictjson.loads(text.encode())
    except (strictjson.StrictJsonError, UnicodeEncodeError):
        raise wrong from None
    seed = _decode(jwk.get("d")) if isinstance(jwk, dict) else None
    if not isinstance(jwk, dict) or seed is None or len(seed) != _KEY_BYTES:
        raise wrong
    key = Ed25519PrivateKey.from_private_bytes(seed)
    if PublicKey.of(jwk).x != key.public_key().public_bytes_raw():
        raise KeyFormatError(
            "The signing key's x is not the public half of its d.",
            hint="Create a key with `tollgauge keys new --jwk`.",
        )
    return key


def _has_curve(jwk: Mapping[str, object]) -> bool:
    return all(jwk.get(name) == value for name, value in _CURVE.items())


def _read_time(jwk: Mapping[str, object], name: str) -> int | None:
    time = jwk.get(name)
    if time is not None and (type(time) is not int or time < 0):
        raise KeyFormatError(
            f"The key's {name} is not a time in Unix seconds.", hint="Use a whole number."
        )
    return time


def base64url(data: bytes) -> str:
    """Encode as base64url without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: object) -> bytes | None:
    """Decode `base64url`; None for any other text, because each value has only one spelling."""
    if not isinstance(text, str) or not text.isascii():
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return data if base64url(data) == text else None
