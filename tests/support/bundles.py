"""Trust records, the bundles that contain them, and their content."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

import orjson
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection
from tests.support import probe_rows, score_rows
from tests.support.score_rows import NOW, row
from tests.support.seller_world import SellerWorld
from tests.support.sellers import SELLERS, Record

from tollgauge.core.base.units import BASE, DAY_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.core.guard.bundle import Bundle
from tollgauge.core.score.evidence import TermChange
from tollgauge.db.engine import Store
from tollgauge.monitor import terms
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.scores import scores

NETWORK: Final = "eip155:8453"


@dataclass(frozen=True)
class Publisher:
    """Signs bundles with an Ed25519 key that is generated per run."""

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
    """Return the records of the sellers at `as_of` (Unix seconds); with `avoid`, only those to
    avoid.
    """
    sellers = [
        seller
        for seller in SELLERS
        if seller.record is not None
        and (variant == "all" or seller.record.recommendation in ("avoid", "not-payable"))
    ]
    addresses = sorted({to.lower() for one in sellers if one.record for to in one.record.pay_to})
    rows = [
        row_of(world.origin(seller.label) + seller.listed_path, seller.record, as_of, addresses)
        for seller in sellers
        if seller.record is not None
    ]
    return encode_bundle(rows, as_of, variant=variant, payTo=addresses)


def row_of(resource: str, record: Record, as_of: int, addresses: Sequence[str]) -> list[Any]:
    """Return a record in the form of a line."""
    price = str(record.amount)
    offers = [[NETWORK, "exact", addresses.index(to.lower()), price] for to in record.pay_to]
    about = [record.recommendation, record.grade, record.score, offers, [], None, None]
    return [bundle_key(resource), *about, as_of]


def bundle_key(name: str) -> str:
    """Return the key of a resource, `host:…` or `payto:…`."""
    return text_of(hashlib.sha256(f"tollgauge:v2:{name}".encode()).digest()[:16])


def encode_bundle(rows: Iterable[list[Any]], as_of: int, **changes: object) -> bytes:
    """Return the body of a bundle; `changes` are other fields of its header."""
    lines = sorted(rows, key=itemgetter(0))
    header: Mapping[str, object] = {
        "format": 2,
        "policyVersion": 3,
        "asOf": as_of,
        "count": len(lines),
        "variant": "all",
        "payTo": [],
    }
    texts = (json.dumps(line, separators=(",", ":")) for line in ({**header, **changes}, *lines))
    return zstandard.ZstdCompressor().compress("".join(f"{text}\n" for text in texts).encode())


def text_of(raw: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0xa")


def priced_endpoint(path: str, **changes: Any) -> Endpoint:
    """Return a listed endpoint with a price."""
    known: dict[str, Any] = {"sources": ("cdp",), "quote": QUOTE, "quote_at": NOW - 90 * DAY_MS}
    return replace(score_rows.endpoint(path), **(known | changes))


async def add(store: Store, *added: Endpoint, adopted: bool = False) -> None:
    await store.writing(endpoints.insert, *added, adopted=adopted)


async def set_score(
    store: Store, path: str, tenths: int, *flags: str, recommendation: str = "proceed"
) -> None:
    """Give an endpoint its score, with these flags."""
    await store.writing(save_score, path, tenths, *flags, recommendation=recommendation)


async def observe_pay_to(store: Store, path: str, pay_to: str, *, at: int) -> None:
    """Record a probe in which an endpoint asks for payment to an address."""
    await store.writing(save_pay_to, path, pay_to, at=at)


def save_score(
    tx: Connection, path: str, tenths: int, *flags: str, recommendation: str = "proceed"
) -> None:
    result = {"stats": {"avg_latency_ms": 90}, "flags": [{"code": code} for code in flags]}
    scores.save(tx, row(path, tenths, recommendation=recommendation, result=orjson.dumps(result)))


def save_pay_to(tx: Connection, path: str, pay_to: str, *, at: int) -> None:
    quote = replace(QUOTE, pay_to=pay_to)
    offer = KnownOffer(BASE, "exact", pay_to, quote.micro_usd)
    result = replace(probe_rows.probe(0), at=at, quote=quote, offers=(offer,))
    id_ = score_rows.endpoint(path).id
    assert probe_rows.record_probe(tx, id_, result)
    terms.observe_quotes(tx, {id_: (quote, at)})


def list_pay_to(
    tx: Connection, path: str, before: str, after: str, *, source: str, at: int
) -> None:
    """Record a crawl in which a directory names another address."""
    event = TermChange(at=at, kind=PAYTO_CHANGED, source=source, before=before, after=after)
    listings.add_events(tx, [(score_rows.endpoint(path).id, event)])


def content(body: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
    """Return the header and the records of a bundle's bytes."""
    header, *records = zstandard.ZstdDecompressor().decompress(body).splitlines()
    return orjson.loads(header), [orjson.loads(record) for record in records]


def records_of(bundles: Sequence[Bundle]) -> list[list[Any]]:
    """Return the records of endpoints in the first of several bundles."""
    return [row for row in content(bundles[0].body)[1] if isinstance(row[1], str)]
