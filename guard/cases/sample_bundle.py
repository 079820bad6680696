"""Writes the sample bundle for the tests of the guards: bundle.zst, bundle.zst.jws, bundle.json.

Its key is published here, so nothing but tests may trust it.
Run: python guard/cases/sample_bundle.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from operator import itemgetter
from pathlib import Path
from typing import Final

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HERE: Final = Path(__file__).parent
SECRET: Final = hashlib.sha256(b"tollgauge-guard: a key for tests").digest()
AS_OF: Final = 1_767_225_600
BASE: Final = "eip155:8453"
PAYEE: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
NEW_PAYEE: Final = "0x1c47e9c085c2b7458f5b6c16cce21bb1a1a1d0bb"
Row = list[object]

PAY_TO: Final = (PAYEE, NEW_PAYEE)
"""The table of addresses: offers name them by index."""

RECORDS: Final[dict[str, Row]] = {
    "https://api.example.com/v1/weather": [
        "proceed", "B", 84.2, [[BASE, "exact", 0, "5000"]], ["delivers"], [40, 120000, 12, 90000],
        None,
    ],
    "https://api.example.com/v1/moved": [
        "caution", "C", 62.0, [[BASE, "exact", 1, "5000"], [BASE, "exact", 0, "5000"]],
        ["payto-changed"], None, None,
    ],
    "https://bad.example.net/pay": [
        "avoid", "F", 12.5, [[BASE, "exact", 0, "990000"]], ["down-now"], None, None,
    ],
    "https://broken.example.net/": [
        "not-payable", None, None, [], ["not-payable"], None, None,
    ],
    "https://new.example.org/v1/first": [
        "unverified", None, None, [[BASE, "exact", 0, "10000"]], [], None, None,
    ],
    "https://items.example.org/v1/%7Bid%7D/price": [
        "proceed", "A", 91.0, [[BASE, "exact", 0, "7000"]], [], None, None,
    ],
    "https://xn--bcher-kva.example.com/a%2Fb": [
        "proceed", "A", 97.0, [[BASE, "exact", 0, "100"]], [], None, None,
    ],
}  # fmt: skip
CONDUCT: Final[dict[str, Row]] = {
    "host:api.example.com": [2, 0, 0],
    "host:bad.example.net": [1, 0, 1],
    "host:items.example.org": [1, 0, 0, ["https://items.example.org/v1/%7Bid%7D/price"]],
    f"payto:{PAYEE}": [5, 0, 1],
}


def base64url(data: bytes) -> str:
    """RFC 4648 section 5, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(document: object) -> str:
    """JSON in one line without spaces."""
    return json.dumps(document, separators=(",", ":"))


def key_of(resource: str) -> str:
    """Return the key of a resource, `host:…` or `payto:…`."""
    return base64url(hashlib.sha256(f"tollgauge:v2:{resource}".encode()).digest()[:16])


def body(records: dict[str, Row] = RECORDS, as_of: int = AS_OF, variant: str = "all") -> bytes:
    """Return the bundle: one zstd frame of lines of JSON."""
    rows = [[key_of(url), *record, as_of] for url, record in records.items()]
    rows += [[key_of(name), *counts] for name, counts in CONDUCT.items()]
    header: dict[str, object] = {"format": 2, "policyVersion": 3, "asOf": as_of, "count": len(rows)}
    header |= {"variant": variant, "payTo": PAY_TO}
    lines = "".join(compact(line) + "\n" for line in [header, *sorted(rows, key=itemgetter(0))])
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
    facts = {"key": public_key(), "fingerprint": fingerprint(), "asOf": AS_OF, "policyVersion": 3}
    facts["payTo"] = PAY_TO
    records = {url: [key_of(url), *record, AS_OF] for url, record in RECORDS.items()}
    (HERE / "bundle.zst").write_bytes(bundle)
    (HERE / "bundle.zst.jws").write_text(signature(bundle) + "\n")
    (HERE / "bundle.json").write_text(json.dumps(facts | {"records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
