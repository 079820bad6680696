"""Signed offers: whether a seller's own signature contradicts what its 402 asks for.

In the extension `offer-receipt` a seller signs its offers: as EIP-712 by an account, or as JWS by a
key of its host (did:web). Only a known signer counts: the payTo that it signed, or the host. The
rules are cases in guard/cases/signed_offers.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from eth_hash.auto import keccak

from tollgauge_guard.signature import decode_base64url
from tollgauge_guard.typed_data import hash_constant, recover_signer

Terms = tuple[str, ...]
EXTENSION: Final = "offer-receipt"
_MAX_OFFERS: Final = 32
_MAX_DOCUMENT_BYTES: Final = 65_536
_TIMEOUT_S: Final = 3.0
_TERMS: Final = ("scheme", "network", "asset", "payTo", "amount")
_TEXTS: Final = ("resourceUrl", *_TERMS)
_CURVES: Final = {"ES256": ec.SECP256R1(), "ES256K": ec.SECP256K1()}
_DOMAIN_TYPE: Final = b"EIP712Domain(string name,string version,uint256 chainId)"
_OFFER_TYPE: Final = (
    b"Offer(uint256 version,string resourceUrl,string scheme,string network,string asset,"
    b"string payTo,string amount,uint256 validUntil)"
)


def find_contradicted(
    extensions: object, accepts: Sequence[Mapping[str, object]], url: str, document: object = None
) -> frozenset[Terms]:
    """Return the terms of the entries of a 402 that a known signer contradicts. Never raises.

    Args:
        extensions: of the 402.
        accepts: its entries.
        url: that answered 402.
        document: the did.json of its host; None if it is not known.
    """
    sold = [read_terms(entry) for entry in accepts]
    found: set[Terms] = set()
    for offer in _list_offers(extensions):
        payload, is_known = _read_offer(offer, _did(url), document)
        is_same = payload is not None and read_terms(payload) in sold
        if is_known is None or (is_known and is_same):
            continue
        index = offer.get("acceptIndex")
        if type(index) is int and 0 <= index < len(sold):
            found.add(sold[index])
        else:
            found |= set(sold)
    return frozenset(found)


def needs_document(extensions: object, url: str) -> bool:
    """Whether a signed offer can be judged only with the did.json of the host."""
    did = _did(url)
    return any(_read_offer(offer, did, None)[1] is None for offer in _list_offers(extensions))


def fetch_document(url: str) -> object:
    """Return the did.json of the host of a URL; None if it cannot be read. Never raises."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as http:
            answer = http.get(f"{parts.scheme}://{parts.netloc}/.well-known/did.json")
        is_read = answer.is_success and len(answer.content) <= _MAX_DOCUMENT_BYTES
        return answer.json() if is_read else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return None


def read_terms(fields: Mapping[str, object]) -> Terms:
    """Return the terms of an offer in a comparable form."""
    values = (str(fields.get(name)) for name in _TERMS)
    return tuple(value.lower() if value.startswith("0x") else value for value in values)


def _list_offers(extensions: object) -> Iterator[dict[str, Any]]:
    value = extensions
    for name in (EXTENSION, "info", "offers"):
        value = value.get(name) if isinstance(value, dict) else None
    for offer in value[:_MAX_OFFERS] if isinstance(value, list) else []:
        if isinstance(offer, dict):
            yield offer


def _did(url: str) -> str:
    return f"did:web:{quote(urlsplit(url).netloc, safe='.-')}"


def _read_offer(
    offer: Mapping[str, Any], did: str, document: object
) -> tuple[dict[str, object] | None, bool | None]:
    """Return the signed offer, and whether a known signer signed it.

    None: the signer is unknown. False: it is not the signature of the key that it names.
    """
    signature = offer.get("signature")
    try:
        if offer.get("format") == "eip712":
            payload = offer["payload"]
            signer = recover_signer(_digest(payload), bytes.fromhex(str(signature)[2:]))
            known = {str(payload["payTo"]).lower(), *_list_accounts(document)}
            return payload, True if signer in known else None
        header, payload = (
            json.loads(decode_base64url(part)) for part in str(signature).split(".")[:2]
        )
        name = str(header["kid"])
        if offer.get("format") != "jws" or name.partition("#")[0] != did:
            return payload, None
        return payload, _verify(str(signature), str(header["alg"]), _find_jwk(document, did, name))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None, None


def _digest(payload: Mapping[str, object]) -> bytes:
    """Return the EIP-712 hash of an offer."""
    texts = b"".join(keccak(str(payload[name]).encode()) for name in _TEXTS)
    version, until = (
        int(str(value)) for value in (payload["version"], payload.get("validUntil", 0))
    )
    domain = b"".join(hash_constant(text) for text in (_DOMAIN_TYPE, b"x402 offer", b"1"))
    separator = hash_constant(domain + (1).to_bytes(32))
    struct = keccak(hash_constant(_OFFER_TYPE) + version.to_bytes(32) + texts + until.to_bytes(32))
    return keccak(b"\x19\x01" + separator + struct)


def _list_methods(document: object) -> list[dict[str, object]]:
    found = document.get("verificationMethod") if isinstance(document, dict) else None
    listed = found if isinstance(found, list) else []
    return [method for method in listed if isinstance(method, dict)]


def _list_accounts(document: object) -> Iterator[str]:
    for method in _list_methods(document):
        yield str(method.get("blockchainAccountId", "")).rpartition(":")[2].lower()


def _find_jwk(document: object, did: str, name: str) -> dict[str, object] | None:
    for method in _list_methods(document):
        id_, jwk = str(method.get("id")), method.get("publicKeyJwk")
        if isinstance(jwk, dict) and name in (id_, f"{did}{id_}"):
            return jwk
    return None


def _verify(token: str, algorithm: str, jwk: Mapping[str, object] | None) -> bool | None:
    """Return whether a key signed a compact JWS, None if that cannot be checked here."""
    signed, _, signature = token.rpartition(".")
    mark, message = decode_base64url(signature), signed.encode()
    if jwk is None:
        return None
    x = decode_base64url(str(jwk["x"]))
    try:
        if algorithm == "EdDSA" and jwk.get("crv") == "Ed25519":
            Ed25519PublicKey.from_public_bytes(x).verify(mark, message)
            return True
        curve = _CURVES.get(algorithm)
        if curve is None:
            return None
        y = decode_base64url(str(jwk["y"]))
        numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), curve)
        r, s = int.from_bytes(mark[:32]), int.from_bytes(mark[32:])
        numbers.public_key().verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True
