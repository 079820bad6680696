"""Signed offers: their form, their terms and their signers."""

from __future__ import annotations

import copy
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from joserfc.jwk import ECKey, OctKey, OKPKey
from joserfc.jws import serialize_compact
from tests.support.extension_validators import ask_typescript
from tests.support.lint_envelopes import change_example, fired_rules

from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.rule import ANSWERS, RULE_ENTRIES, Example
from tollgauge.core.lint.signed_offer import HostKeys, read_host_keys


def read_offer(example: Example) -> Any:
    return example.envelope["extensions"]["offer-receipt"]["info"]["offers"][0]


OFFERS = "extensions.offer-receipt.info.offers"
WALLET_OFFER: dict[str, Any] = read_offer(ANSWERS["signed-offer"])
"""Signed by the payTo of its entry with npm @x402/extensions."""
JWS_OFFER: dict[str, Any] = read_offer(RULE_ENTRIES["signed-offer-unchecked"].wrong)
"""Signed by a key of the host, did:web:api.example.com#key-1, with npm @x402/extensions."""
DID = "did:web:api.example.com"
ED_KEY = {
    "kty": "OKP",
    "crv": "Ed25519",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
}
K1_KEY = {
    "kty": "EC",
    "crv": "secp256k1",
    "x": "jrfa8cZ1GGwA3m2IzEDCHilf8akE1W9WaDE1dCgHdp8",
    "y": "J_umXcx0wLv8vi4Vez-0ZXgGUH-hIEDi7D7DLO_pw_s",
}
K1_OFFER = {
    "format": "jws",
    "signature": (
        "eyJhbGciOiJFUzI1NksiLCJraWQiOiJkaWQ6d2ViOmFwaS5leGFtcGxlLmNvbSNrZXktMiJ9.eyJhbW91bnQ"
        "iOiIxMDAwMCIsImFzc2V0IjoiMHg4MzM1ODlmQ0Q2ZURiNkUwOGY0YzdDMzJENGY3MWI1NGJkQTAyOTEzIiw"
        "ibmV0d29yayI6ImVpcDE1NTo4NDUzIiwicGF5VG8iOiIweDE5RTdFMzc2RTdDMjEzQjdFN2U3ZTQ2Y2M3MEE"
        "1ZEQwODZEQWZmMkEiLCJyZXNvdXJjZVVybCI6Imh0dHBzOi8vYXBpLmV4YW1wbGUuY29tL3dlYXRoZXIiLCJ"
        "zY2hlbWUiOiJleGFjdCIsInZhbGlkVW50aWwiOjE3OTU0ODU2NjEsInZlcnNpb24iOjF9.dnr80feGhHyDS2"
        "6VI4nd5N4KTZJFhsZjgyYVvxBU0ju3ZvBrxcCZiN41Gjq7zlb3UF1Hj0Gmr9JbxljHw0xljA"
    ),
}
"""Signed by npm @x402/extensions with K1_KEY."""
TERMS: dict[str, Any] = copy.deepcopy(WALLET_OFFER["payload"])
OWNER = "0x" + "11" * 32
OTHER = "0x" + "22" * 32
FIELDS = [
    *({"name": "version", "type": "uint256"}, {"name": "resourceUrl", "type": "string"}),
    *({"name": name, "type": "string"} for name in ("scheme", "network", "asset", "payTo")),
    *({"name": "amount", "type": "string"}, {"name": "validUntil", "type": "uint256"}),
]


def sign_with_wallet(private_key: str, **changes: Any) -> dict[str, Any]:
    payload = TERMS | changes
    domain = {"name": "x402 offer", "version": "1", "chainId": 1}
    message = encode_typed_data(domain, {"Offer": FIELDS}, payload)
    signature = Account.sign_message(message, private_key).signature.hex()
    return {"format": "eip712", "payload": payload, "signature": "0x" + signature}


def signed_jws(key: Any, alg: str, kid: str = f"{DID}#key-1", **changes: Any) -> dict[str, Any]:
    header = {"alg": alg, "kid": kid}
    token = serialize_compact(header, json.dumps(TERMS | changes), key, algorithms=[alg])
    return {"format": "jws", "signature": token}


def with_offers(*offers: object) -> Example:
    return change_example(ANSWERS["signed-offer"], OFFERS, list(offers))


def find_rule(offer: object, keys: HostKeys | None = None) -> str:
    """The rule about signed offers that fires for an offer, empty if none does."""
    rules = fired_rules(lint(with_offers(offer).exchange(), keys))
    about = {rule.removeprefix("signed-offer-") for rule in rules if "signed-offer" in rule}
    assert len(about) <= 1
    return about.pop() if about else ""


def did_document(**methods: dict[str, Any]) -> dict[str, Any]:
    listed = [{"id": f"#{name.replace('_', '-')}", **method} for name, method in methods.items()]
    return {"id": DID, "verificationMethod": listed}


@pytest.mark.parametrize(
    "offer", [WALLET_OFFER, {**WALLET_OFFER, "acceptIndex": 7}, sign_with_wallet(OWNER)]
)
def test_offer_that_payto_signed_over_an_entry_has_no_finding(offer: object) -> None:
    assert find_rule(offer) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"payTo": Account.from_key(OTHER).address},
        {"amount": "1"},
        {"network": "eip155:1"},
        {"asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e"},
        {"scheme": "upto"},
    ],
)
def test_offer_over_other_terms_is_a_mismatch(changes: dict[str, Any]) -> None:
    assert find_rule(sign_with_wallet(OWNER, **changes)) == "mismatch"
    assert find_rule(signed_jws(OKPKey.generate_key("Ed25519"), "Ed25519", **changes)) == "mismatch"


@pytest.mark.parametrize(
    "offer",
    [
        None,
        "garbage",
        {},
        {"format": "eip712", "signature": "0x00"},
        {"format": "pgp", "signature": "x", "payload": TERMS},
        {"format": "jws", "signature": "a.b.c"},
        {"format": "jws", "signature": "e30.e30."},
        {"format": "jws", "signature": 7},
        {"format": "jws", "signature": "x" * 100_000},
        {**WALLET_OFFER, "signature": "0xnothex"},
        {**WALLET_OFFER, "signature": "0x" + "00" * 65},
        {**WALLET_OFFER, "payload": TERMS | {"version": "1"}},
        {**WALLET_OFFER, "payload": TERMS | {"validUntil": 2**256}},
        signed_jws(OctKey.generate_key(256), "HS256"),
    ],
)
def test_garbage_is_a_mismatch(offer: object) -> None:
    assert find_rule(offer) == "mismatch"


@pytest.mark.parametrize(
    ("info", "mismatch"),
    [({"offers": "x"}, True), ({"offers": {}}, True), ({"offers": []}, False), ({}, False)],
)
def test_offers_that_are_not_an_array_are_a_mismatch(info: object, mismatch: bool) -> None:
    example = change_example(with_offers(), "extensions.offer-receipt.info", info)
    assert ("signed-offer-mismatch" in fired_rules(lint(example.exchange()))) is mismatch


@pytest.mark.parametrize("offer", [JWS_OFFER, K1_OFFER, sign_with_wallet(OTHER)])
def test_signer_that_needs_a_fetch_is_a_note_and_not_an_error(offer: object) -> None:
    assert find_rule(offer) == "unchecked"
    unread = read_host_keys(DID, None, None, complete=False)
    assert find_rule(offer, unread) == "unchecked"


@pytest.mark.parametrize(
    ("offer", "did", "jwks"),
    [
        (JWS_OFFER, did_document(key_1={"publicKeyJwk": ED_KEY}), None),
        (JWS_OFFER, None, {"keys": [{**ED_KEY, "kid": "key-1"}]}),
        (JWS_OFFER, {"assertionMethod": [{"id": "x", "publicKeyJwk": ED_KEY}]}, None),
        (K1_OFFER, did_document(key_2={"publicKeyJwk": K1_KEY}), {"keys": [ED_KEY]}),
        (
            sign_with_wallet(OTHER),
            did_document(w={"blockchainAccountId": f"eip155:1:{Account.from_key(OTHER).address}"}),
            None,
        ),
    ],
)
def test_offer_that_a_key_of_the_host_signed_has_no_finding(
    offer: object, did: object, jwks: object
) -> None:
    assert find_rule(offer, read_host_keys(DID, did, jwks)) == ""


def test_wallet_key_may_be_published_as_a_jwk() -> None:
    key = ECKey.generate_key("secp256k1")
    private = urlsafe_b64decode(str(key.as_dict(private=True)["d"]) + "=").hex()
    keys = read_host_keys(DID, None, {"keys": [key.as_dict(private=False)]})
    assert find_rule(sign_with_wallet(private), keys) == ""


@pytest.mark.parametrize(
    ("offer", "did"),
    [
        (JWS_OFFER, None),
        (JWS_OFFER, did_document(key_1={"publicKeyJwk": K1_KEY})),
        (
            signed_jws(OKPKey.generate_key("Ed25519"), "Ed25519"),
            did_document(key_1={"publicKeyJwk": ED_KEY}),
        ),
        (JWS_OFFER, did_document(key_1={"publicKeyJwk": {"kty": "oct", "k": "AA"}})),
        (JWS_OFFER, did_document(key_1={"publicKeyJwk": {"kty": "OKP", "crv": 7, "x": []}})),
        (sign_with_wallet(OTHER), None),
        (sign_with_wallet(OTHER), did_document(key_1={"publicKeyJwk": ED_KEY})),
    ],
)
def test_offer_of_a_signer_that_the_host_does_not_publish_is_a_mismatch(
    offer: object, did: object
) -> None:
    assert find_rule(offer, read_host_keys(DID, did, None)) == "mismatch"


@pytest.mark.parametrize(
    "kid", ["did:web:issuer.example#1", "did:key:z6MkabcD", "did:pkh:eip155:1:0x1"]
)
def test_key_of_another_identity_is_noted(kid: str) -> None:
    offer = signed_jws(OKPKey.generate_key("Ed25519"), "Ed25519", kid)
    assert find_rule(offer, read_host_keys(DID, None, None)) == "unchecked"


def test_key_in_a_form_that_is_not_read_leaves_the_signer_unchecked() -> None:
    did = did_document(key_9={"publicKeyMultibase": "z6MkabcD"})
    assert find_rule(JWS_OFFER, read_host_keys(DID, did, None)) == "unchecked"


def encode_multibase(key: Any) -> str:
    """The multibase form of a public key, with its multicodec."""
    jwk = key.as_dict(private=False)
    parts = [urlsafe_b64decode(jwk[name] + "=") for name in ("x", "y") if name in jwk]
    codec = {"Ed25519": b"\xed\x01", "secp256k1": b"\xe7\x01", "P-256": b"\x80\x24"}[jwk["crv"]]
    point = parts[0] if len(parts) == 1 else bytes([2 + parts[1][-1] % 2]) + parts[0]
    number, text = int.from_bytes(codec + point), ""
    while number:
        number, digit = divmod(number, 58)
        text = BASE58[digit] + text
    return "z" + text


BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
SIGNERS = [
    (OKPKey.generate_key("Ed25519"), "Ed25519"),
    (ECKey.generate_key("secp256k1"), "ES256K"),
    (ECKey.generate_key("P-256"), "ES256"),
]


@pytest.mark.parametrize(
    ("signer", "prefix"), list(zip(SIGNERS, ("z6Mk", "zQ3s", "zDna"), strict=True))
)
def test_key_in_multibase_is_read(signer: tuple[Any, str], prefix: str) -> None:
    multibase = encode_multibase(signer[0])
    assert multibase.startswith(prefix)  # did:key method, section 3
    keys = read_host_keys(DID, did_document(key_1={"publicKeyMultibase": multibase}), None)
    assert (find_rule(signed_jws(*signer), keys), keys.complete) == ("", True)
    assert find_rule(signed_jws(OKPKey.generate_key("Ed25519"), "Ed25519"), keys) == "mismatch"


def test_official_sdk_reads_the_same_key_from_multibase() -> None:
    key, alg = SIGNERS[0]
    offer = signed_jws(key, alg, f"did:key:{encode_multibase(key)}")
    other = signed_jws(key, alg, f"did:key:{encode_multibase(OKPKey.generate_key('Ed25519'))}")
    assert ask_typescript([("offer", offer), ("offer", other)]) == [True, False]


@pytest.mark.parametrize(("key", "alg"), SIGNERS)
def test_key_that_dns_names_as_controller_may_sign(key: Any, alg: str) -> None:
    did_key = f"did:key:{encode_multibase(key)}"
    public = json.dumps(key.as_dict(private=False)).encode()
    did_jwk = f"did:jwk:{urlsafe_b64encode(public).decode().rstrip('=')}"
    for did, kid in ((did_key, did_key), (did_jwk, f"{did_jwk}#0")):
        offer = signed_jws(key, alg, kid)
        keys = read_host_keys(DID, None, None, controllers=[f"v=1;controller={did}"])
        assert find_rule(offer, keys) == ""
        assert find_rule(offer, read_host_keys(DID, None, None)) == "unchecked"


def test_wallet_that_dns_names_as_controller_may_sign() -> None:
    offer = sign_with_wallet(OTHER)
    account = f"did:pkh:eip155:1:{Account.from_key(OTHER).address}"
    texts = ["unrelated", f"v=1; controller=did:key:z6Mkx ;controller={account}"]
    assert find_rule(offer, read_host_keys(DID, None, None, controllers=texts)) == ""
    assert find_rule(offer, read_host_keys(DID, None, None)) == "mismatch"


@pytest.mark.parametrize(
    "controller",
    ["did:web:keys.example", "did:jwk:e30", "did:jwk:!", "did:key:z", "did:key:z6Mk0OIl", "x"],
)
def test_controller_that_is_not_resolved_leaves_the_signer_unchecked(controller: str) -> None:
    keys = read_host_keys(DID, None, None, controllers=[f"v=1;controller={controller}"])
    assert find_rule(sign_with_wallet(OTHER), keys) == "unchecked"


@pytest.mark.parametrize("text", ["", "v=2;controller=did:web:x", "controller=did:web:x", "v=1;x"])
def test_record_of_another_form_names_no_controller(text: str) -> None:
    keys = read_host_keys(DID, None, None, controllers=[text])
    assert find_rule(sign_with_wallet(OTHER), keys) == "mismatch"


def test_mismatch_is_an_error_that_leaves_the_entry_payable() -> None:
    verdict = lint(with_offers("garbage").exchange())
    assert (verdict.payable, verdict.compliant, verdict.errors) == (True, False, 1)
    (finding,) = (one for one in verdict.findings if one.rule == "signed-offer-mismatch")
    assert finding.where == "extensions.offer-receipt.info.offers[0]"
