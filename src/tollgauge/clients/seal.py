"""Seals: secrets of others at rest, under a key that comes from the environment.

AES-256-GCM (NIST SP 800-38D) with a random nonce; the context, such as the row that a secret
belongs to, is authenticated with it, so that a sealed text opens in its own place only. Several
keys, separated by commas, let an operator change the key: the first seals, each opens.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tollgauge.core.base.errors import TollgaugeError

KEY_MIN: Final = 32
_FORM: Final = b"\x01"
_MARK: Final = 4
_NONCE: Final = 12


class SealError(TollgaugeError):
    """A secret that cannot be sealed or opened with the keys at hand."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Set TOLLGAUGE_WATCH_KEY to the key that sealed it.")


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals and opens with keys from a text, the newest first; without any, neither."""

    keys: tuple[bytes, ...]

    @classmethod
    def of(cls, text: str) -> Sealer:
        """The sealer of a setting: texts of at least 32 characters, separated by commas.

        Raises ValueError for a shorter one.
        """
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if any(len(part) < KEY_MIN for part in parts):
            raise ValueError(f"a key must have at least {KEY_MIN} characters")
        return cls(tuple(hashlib.sha256(b"tollgauge seal 1:" + p.encode()).digest() for p in parts))

    @property
    def ready(self) -> bool:
        """Whether there is a key."""
        return bool(self.keys)

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """A secret that opens with the same context only. Raises SealError without a key."""
        if not self.keys:
            raise SealError("No key is configured.")
        nonce = secrets.token_bytes(_NONCE)
        sealed = AESGCM(self.keys[0]).encrypt(nonce, secret, context.encode())
        return _FORM + _mark(self.keys[0]) + nonce + sealed

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """The inverse of `seal`. Raises SealError where no key opens it."""
        mark, nonce = sealed[1 : 1 + _MARK], sealed[1 + _MARK : 1 + _MARK + _NONCE]
        for key in self.keys:
            if sealed[:1] == _FORM and _mark(key) == mark:
                try:
                    body = sealed[1 + _MARK + _NONCE :]
                    return AESGCM(key).decrypt(nonce, body, context.encode())
                except InvalidTag:
                    break
        raise SealError("A stored secret does not open with the configured key.")


def destination_context(destination_id: str) -> str:
    """What a destination's URL is sealed for."""
    return f"destination:{destination_id}"


def watch_context(watch_id: str) -> str:
    """What a watch's signing key is sealed for."""
    return f"watch:{watch_id}"


def _mark(key: bytes) -> bytes:
    """Which key sealed a secret, without saying anything of it."""
    return hashlib.sha256(b"mark:" + key).digest()[:_MARK]
