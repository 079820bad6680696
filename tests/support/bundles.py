"""Bundles as the service publishes them, and their signatures; docs/bundle.md has the form."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.seller_world import SellerWorld
from tests.support.sellers import SELLERS, Record

SALT: Final = b"sixteen bytes ok"
NETWORK: Final = "eip155:8453"


@dataclass(frozen=True)
class Publisher:
    """Who signs bundles: an Ed25519 key of this run."""

    key: Ed25519PrivateKey

    @staticmethod
    def new() -> Publisher:
        return Publisher(Ed25519PrivateKey.generate())

    @cached_property
    def jwk(self) -> dict[str, str]:
        """The public key (RFC 8037)."""
        raw = self.key.public_key().public_bytes_raw()
        return {"crv": "Ed25519", "kty": "OKP", "x": text_of(raw)}

    @cached_property
    def fingerprint(self) -> str:
        """The key's thumbprint (RFC 7638)."""
        members = json.dumps(self.jwk, separators=(",", ":"), sort_keys=True)
        return text_of(hashlib.sha256(members.encode()).digest())

    def sign(self, body: bytes, **changes: object) -> str:
        """The value of `Tollgauge-Signature` for a body: a detached JWS (RFC 7797)."""
        header = {"alg": "EdDSA", "b64": False, "crit": ["b64"], "typ": "tollgauge-bundle"}
        protected = text_of(json.dumps(header | {"kid": self.fingerprint} | changes).encode())
        signed = protected.encode() + b"." + hashlib.sha256(body).digest()
        return f"{protected}..{text_of(self.key.sign(signed))}"

    @property
    def key_set(self) -> bytes:
        """The body of `/.well-known/jwks.json`."""
        return json.dumps({"keys": [self.jwk | {"kid": self.fingerprint}]}).encode()


def bundle_of(world: SellerWorld, *, as_of: int, variant: str = "all") -> bytes:
    """What is known of the sellers at `as_of` (unix seconds); `avoid` has the bad ones alone."""
    rows = [
        row_of(world.origin(seller.label) + seller.listed_path, seller.record, as_of)
        for seller in SELLERS
        if seller.record is not None
        and (variant == "all" or seller.record.recommendation in ("avoid", "not-payable"))
    ]
    return packed(rows, as_of, variant=variant)


def row_of(resource: str, record: Record, as_of: int) -> list[Any]:
    """A record in the form of a line."""
    digest = hashlib.sha256(SALT + resource.encode()).digest()[:16]
    payees = [[address.lower(), as_of - 86_400] for address in record.pay_to]
    about = [record.recommendation, record.grade, record.score, payees, NETWORK]
    return [text_of(digest), *about, str(record.amount), [], as_of]


def packed(rows: Iterable[list[Any]], as_of: int, **changes: object) -> bytes:
    """The body of a bundle; `changes` are other fields of its header."""
    lines = sorted(rows)
    header: Mapping[str, object] = {
        "format": 1,
        "policyVersion": 2,
        "asOf": as_of,
        "count": len(lines),
        "salt": text_of(SALT),
        "variant": "all",
    }
    texts = (json.dumps(line, separators=(",", ":")) for line in ({**header, **changes}, *lines))
    return zstandard.ZstdCompressor().compress("".join(f"{text}\n" for text in texts).encode())


def text_of(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
