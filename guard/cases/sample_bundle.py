"""Writes the sample bundle for the tests of the guards: bundle.zst, bundle.zst.jws, bundle.json.

Its key is published here, so nothing but tests may trust it.
Run: python guard/cases/sample_bundle.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Final

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HERE: Final = Path(__file__).parent
SECRET: Final = hashlib.sha256(b"tollgauge-guard: a key for tests").digest()
SALT: Final = hashlib.sha256(b"tollgauge-guard: a salt for tests").digest()[:16]
AS_OF: Final = 1_767_225_600
DAY: Final = 86_400
BASE: Final = "eip155:8453"
PAYEE: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
NEW_PAYEE: Final = "0x1c47e9c085c2b7458f5b6c16cce21bb1a1a1d0bb"
Row = list[object]

RECORDS: Final[dict[str, Row]] = {
    "https://api.example.com/v1/weather": [
        "proceed", "B", 84.2, [[PAYEE, AS_OF - 90 * DAY]], BASE, "5000", ["delivers"],
    ],
    "https://api.example.com/v1/moved": [
        "caution", "C", 62.0, [[NEW_PAYEE, AS_OF - DAY], [PAYEE, AS_OF - 90 * DAY]], BASE, "5000",
        ["payto-changed"],
    ],
    "https://bad.example.net/pay": [
        "avoid", "F", 12.5, [[PAYEE, AS_OF - 9 * DAY]], BASE, "990000", ["down-now"],
    ],
    "https://broken.example.net/": ["not-payable", None, None, [], None, None, ["not-payable"]],
    "https://new.example.org/v1/first": [
        "unverified", None, None, [[PAYEE, AS_OF - 600]], BASE, "10000", [],
    ],
    "https://xn--bcher-kva.example.com/a%2Fb": [
        "proceed", "A", 97.0, [[PAYEE, AS_OF - 30 * DAY]], BASE, "100", [],
    ],
}  # fmt: skip


def base64url(data: bytes) -> str:
    """RFC 4648 section 5, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(document: object) -> str:
    """JSON in one line without spaces."""
    return json.dumps(document, separators=(",", ":"))


def key_of(resource: str) -> str:
    """How the bundle names a resource."""
    return base64url(hashlib.sha256(SALT + resource.encode()).digest()[:16])


def body(records: dict[str, Row] = RECORDS, as_of: int = AS_OF, variant: str = "all") -> bytes:
    """The bundle: one zstd frame of lines of JSON."""
    rows = sorted([key_of(url), *record, as_of] for url, record in records.items())
    header: dict[str, object] = {"format": 1, "policyVersion": 2, "asOf": as_of, "count": len(rows)}
    header |= {"salt": base64url(SALT), "variant": variant}
    lines = "".join(compact(line) + "\n" for line in [header, *rows])
    return zstandard.ZstdCompressor(level=19).compress(lines.encode())


def public_key() -> dict[str, str]:
    """The public key as a JWK (RFC 8037)."""
    raw = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()
    return {"crv": "Ed25519", "kty": "OKP", "x": base64url(raw)}


def signature(of: bytes, **other: object) -> str:
    """A detached JWS over the SHA-256 of a body (RFC 7797). `other` members of its header are
    for tests of what must not verify.
    """
    header = {"alg": "EdDSA", "b64": False, "crit": ["b64"], "kid": fingerprint()}
    header |= {"typ": "tollgauge-bundle", "iat": AS_OF} | other
    protected = base64url(compact(header).encode())
    digest = hashlib.sha256(of).digest()
    key = Ed25519PrivateKey.from_private_bytes(SECRET)
    return f"{protected}..{base64url(key.sign(protected.encode() + b'.' + digest))}"


def fingerprint() -> str:
    """The key's thumbprint (RFC 7638)."""
    return base64url(hashlib.sha256(compact(public_key()).encode()).digest())


def main() -> None:
    """Write the three files."""
    bundle = body()
    facts = {"key": public_key(), "fingerprint": fingerprint(), "asOf": AS_OF, "policyVersion": 2}
    records = {url: [key_of(url), *record, AS_OF] for url, record in RECORDS.items()}
    (HERE / "bundle.zst").write_bytes(bundle)
    (HERE / "bundle.zst.jws").write_text(signature(bundle) + "\n")
    (HERE / "bundle.json").write_text(json.dumps(facts | {"records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
