"""Signed offers: the terms that a seller signs in the extension `offer-receipt`.

Rules (x402 extension offer-and-receipt; npm @x402/extensions 2.27):
- an offer is a JWS, or an EIP-712 signature over its `payload`;
- its terms are those of an entry of `accepts`; `acceptIndex` is an unsigned hint;
- its signer is payTo, or a key that the seller's host publishes in did.json, a JWKS or the TXT
  records of `_list_controllers.HOST` (section 4.5.1).
clients/x402 fetches those documents. Nothing here raises, whatever an offer contains.
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eth_hash.auto import keccak

from tollgauge.core.base.signature import (
    hash_domain,
    hash_struct,
    recover_signer,
    typed_digest,
)
from tollgauge.core.base.units import base58_bytes
from tollgauge.core.lint.parsing import members

OFFERS_MAX: Final = 32  # offers of a response that are judged
KEYS_MAX: Final = 64  # keys of a document that are read
_SIGNATURE_MAX: Final = 16_384
_KEY_MAX: Final = 256  # characters of a key in multibase; decoding takes quadratic time
_TERMS: Final = ("scheme", "network", "asset", "payTo", "amount")
_TEXTS: Final = ("resourceUrl", *_TERMS)
_UINT256: Final = 2**256
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "ES256K", "EdDSA", "Ed25519", "Ed448"),
)
_ED25519_CODEC: Final = b"\xed\x01"
_ED25519_BYTES: Final = 34  # with its codec
_CURVE_CODECS: Final = {b"\xe7\x01": "secp256k1", b"\x80\x24": "P-256"}
_KEY_TYPES: Final = frozenset({"EC", "OKP", "RSA"})
_OFFER_TYPE: Final = (
    "Offer(uint256 version,string resourceUrl,string scheme,string network,string asset,"
    "string payTo,string amount,uint256 validUntil)"
)


class OfferStanding(StrEnum):
    """The verdict about a signed offer. `UNCHECKED`: its terms are right, but its signer is
    unknown.
    """

    GOOD = "good"
    MISMATCH = "mismatch"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """The keys that a host publishes: its `did`, JWKs with their IDs, and the addresses (lower-case
    hex) of wallets. `complete`: every document was read in full or is known not to exist.
    """

    did: str
    jwks: tuple[tuple[str, Mapping[str, object]], ...] = ()
    addresses: frozenset[str] = frozenset()
    complete: bool = False


def judge_offers(
    info: object, accepts: object, keys: HostKeys | None = None
) -> Iterator[tuple[str, OfferStanding]]:
    """Yield the path and the verdict of each signed offer in the `info` of the extension.

    Args:
        info: The extension's `info`.
        accepts: The envelope's `accepts`.
        keys: The keys of the seller's host; None if they were not fetched.
    """
    offers = members(info).get("offers")
    if offers is None:
        return
    if not isinstance(offers, list):
        yield "offers", OfferStanding.MISMATCH
        return
    entries = accepts if isinstance(accepts, list) else []
    sold = frozenset(_read_terms(entry) for entry in map(members, entries))
    for index, offer in enumerate(offers[:OFFERS_MAX]):
        yield f"offers[{index}]", _judge(members(offer), sold, keys)


def read_host_keys(
    did: str,
    did_document: object,
    jwks: object,
    *,
    controllers: Iterable[str] = (),
    complete: bool = True,
) -> HostKeys:
    """Return the keys in a host's did.json, JWKS and TXT records.

    Args:
        did: The host's DID.
        did_document: The content of did.json; None if it does not exist.
        jwks: The content of the JWKS; None if it does not exist.
        controllers: The TXT records of `_list_controllers` below the host.
        complete: False if a document or the records could not be fetched.
    """
    keys = [_read_method(did, method) for method in _list_methods(did_document)]
    keys += map(_read_did, _list_controllers(controllers))
    listed = members(jwks).get("keys")
    own = map(members, listed[:KEYS_MAX] if isinstance(listed, list) else ())
    keys += [_Key(id=str(jwk.get("kid", "")), jwk=jwk) for jwk in own if jwk]
    addresses = {address for key in keys if (address := key.account or _derive_address(key.jwk))}
    return HostKeys(
        did=did,
        jwks=tuple((key.id, key.jwk) for key in keys if key.jwk),
        addresses=frozenset(addresses),
        complete=complete and all(key.is_read for key in keys),
    )


def _judge(
    offer: Mapping[str, object], sold: frozenset[tuple[object, ...]], keys: HostKeys | None
) -> OfferStanding:
    form, signature = offer.get("format"), offer.get("signature")
    if not isinstance(signature, str) or len(signature) > _SIGNATURE_MAX:
        return OfferStanding.MISMATCH
    header: dict[str, object] = {}
    payload = members(offer.get("payload"))
    if form == "jws":
        header, payload = _read_jws(signature)
    if not _is_offer(payload) or _read_terms(payload) not in sold:
        return OfferStanding.MISMATCH
    if form == "eip712":
        return _judge_wallet(payload, signature, keys)
    if form == "jws" and header.get("alg") in _ALGORITHMS:
        return _judge_jws(header, signature, keys)
    return OfferStanding.MISMATCH


def _judge_wallet(
    payload: Mapping[str, object], signature: str, keys: HostKeys | None
) -> OfferStanding:
    try:
        signer = recover_signer(_hash_offer(payload), bytes.fromhex(signature.removeprefix("0x")))
    except ValueError:
        return OfferStanding.MISMATCH
    if signer is None:
        return OfferStanding.MISMATCH
    if signer == str(payload["payTo"]).lower() or (keys and signer in keys.addresses):
        return OfferStanding.GOOD
    return OfferStanding.MISMATCH if keys and keys.complete else OfferStanding.UNCHECKED


def _judge_jws(
    header: Mapping[str, object], signature: str, keys: HostKeys | None
) -> OfferStanding:
    if keys is None:
        return OfferStanding.UNCHECKED
    kid = header.get("kid")
    name = kid if isinstance(kid, str) else ""
    names = {name, *name.rsplit("#", 1)}  # the whole ID, the DID and its fragment
    named = [jwk for id_, jwk in keys.jwks if id_ and id_ in names]
    if any(_verifies(signature, jwk) for jwk in named or (jwk for _, jwk in keys.jwks)):
        return OfferStanding.GOOD
    if named:
        return OfferStanding.MISMATCH
    # A key of another identity: this module does not resolve whether it may sign for this host.
    foreign = name.startswith("did:") and name.partition("#")[0] != keys.did
    return OfferStanding.MISMATCH if keys.complete and not foreign else OfferStanding.UNCHECKED


def _is_offer(payload: Mapping[str, object]) -> bool:
    """Return whether a payload has the members of an offer with their types."""
    numbers = (payload.get("version"), payload.get("validUntil", 0))
    texts = all(isinstance(payload.get(name), str) for name in _TEXTS)
    return texts and None not in map(_encode, numbers)


def _encode(value: object) -> bytes | None:
    """Return a whole number as 32 bytes; None for any other value."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _UINT256:
        return None
    return value.to_bytes(32)


def _read_terms(fields: Mapping[str, object]) -> tuple[object, ...]:
    """Return the terms of an offer or an entry in a comparable form: hexadecimal addresses in lower
    case.
    """
    values = (fields.get(name) for name in _TERMS)
    return tuple(
        value.lower() if isinstance(value, str) and value.startswith("0x") else repr(value)
        for value in values
    )


def _hash_offer(payload: Mapping[str, object]) -> bytes:
    """Return the EIP-712 hash that a wallet signs. Raises ValueError for text that is not
    Unicode.
    """
    version, until = (_encode(payload.get(name, 0)) or b"" for name in ("version", "validUntil"))
    texts = (str(payload[name]) for name in _TEXTS)
    message = hash_struct(_OFFER_TYPE, version, *texts, until)
    return typed_digest(hash_domain("x402 offer", "1", 1), message)


def _read_jws(token: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return the header and the payload of a compact JWS; empty for any other value."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        return {}, {}
    try:
        header, payload = (json.loads(_from_base64url(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        return {}, {}
    return members(header), members(payload)


def _from_base64url(text: str) -> bytes:
    """Decode base64url without padding. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _verifies(token: str, jwk: Mapping[str, object]) -> bool:
    """Return whether a key signed a JWS."""
    if jwk.get("kty") not in _KEY_TYPES:
        return False
    # Few offers are JWS, so the library is imported only when the first one arrives.
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import JWKRegistry
    from joserfc.jws import JWSRegistry, deserialize_compact

    registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
    public = {
        name: value for name, value in jwk.items() if name in ("kty", "crv", "x", "y", "n", "e")
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # EdDSA has a newer name
            key = JWKRegistry.import_key(public)  # type: ignore[arg-type]  # a foreign JSON object
            deserialize_compact(token, key, registry=registry)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A published key: its JWK, or the address of its account; neither if its form is not read."""

    id: str
    jwk: Mapping[str, object]
    account: str = ""

    @property
    def is_read(self) -> bool:
        return bool(self.jwk or self.account)


def _read_method(did: str, method: Mapping[str, object]) -> _Key:
    """Return the key of a verification method."""
    id_ = method.get("id")
    name = id_ if isinstance(id_, str) else ""
    jwk = members(method.get("publicKeyJwk"))
    jwk = jwk or _read_multibase(method.get("publicKeyMultibase"))
    account = method.get("blockchainAccountId", method.get("ethereumAddress"))
    return _Key(
        id=did + name if name.startswith("#") else name,
        jwk=jwk,
        account="" if jwk or not isinstance(account, str) else _read_account(account),
    )


def _read_did(did: str) -> _Key:
    """Return the key that a DID names. Only did:jwk, did:key and did:pkh (EVM) are resolved."""
    is_account = did.startswith("did:pkh:eip155:")
    return _Key(id=did, jwk=_read_did_key(did), account=_read_account(did) if is_account else "")


def _read_account(account: str) -> str:
    """Return the address of a CAIP-10 account or a did:pkh, in lower case."""
    return account.rpartition(":")[2].lower()


def _list_methods(document: object) -> list[dict[str, object]]:
    """Return the verification methods of a DID document, including those in a list for one use."""
    fields = members(document)
    methods: list[dict[str, object]] = []
    for name in ("verificationMethod", "assertionMethod", "authentication"):
        listed = fields.get(name)
        for method in listed if isinstance(listed, list) else ():
            if isinstance(method, dict) and len(methods) < KEYS_MAX:
                methods.append(method)
    return methods


def _list_controllers(texts: Iterable[str]) -> Iterator[str]:
    """Yield the DIDs in TXT records such as `v=1;controller=did:pkh:eip155:1:0x…`."""
    for text in texts:
        version, *parts = (part.strip() for part in text.split(";"))
        if version == "v=1":
            named = [part.partition("=") for part in parts][:KEYS_MAX]
            yield from (value for name, _, value in named if name == "controller")


def _read_did_key(did: str) -> dict[str, object]:
    """Return the key that a did:jwk or did:key contains; empty for any other DID."""
    if did.startswith("did:jwk:"):
        try:
            return members(json.loads(_from_base64url(did.removeprefix("did:jwk:"))))
        except (ValueError, RecursionError):
            return {}
    return _read_multibase(did.removeprefix("did:key:")) if did.startswith("did:key:") else {}


def _read_multibase(text: object) -> dict[str, object]:
    """Return a key in multibase (base58) with its multicodec; empty for a kind that is not read."""
    if not isinstance(text, str) or text[:1] != "z" or len(text) > _KEY_MAX:
        return {}
    try:
        key = base58_bytes(text[1:])
    except ValueError:
        return {}
    if key[:2] == _ED25519_CODEC and len(key) == _ED25519_BYTES:
        return {"kty": "OKP", "crv": "Ed25519", "x": _to_base64url(key[2:])}
    name = _CURVE_CODECS.get(key[:2])
    if name is None:
        return {}
    # Few offers need it, and the library is large.
    from cryptography.hazmat.primitives.asymmetric import ec

    curve = ec.SECP256R1() if name == "P-256" else ec.SECP256K1()
    try:
        point = ec.EllipticCurvePublicKey.from_encoded_point(curve, key[2:]).public_numbers()
    except ValueError:
        return {}
    x, y = (_to_base64url(number.to_bytes(32)) for number in (point.x, point.y))
    return {"kty": "EC", "crv": name, "x": x, "y": y}


def _to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _derive_address(jwk: Mapping[str, object]) -> str:
    """Return the address of a secp256k1 JWK; empty for any other kind of key."""
    x, y = jwk.get("x"), jwk.get("y")
    if jwk.get("crv") != "secp256k1" or not isinstance(x, str) or not isinstance(y, str):
        return ""
    try:
        point = _from_base64url(x) + _from_base64url(y)
    except ValueError:
        return ""
    return "0x" + keccak(point)[-20:].hex() if len(point) == 64 else ""
