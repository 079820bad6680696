"""The public keys that clients check signatures with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from joserfc.jwk import KeySet
from tests.support import http_service
from tests.support.signing import KEY, OTHER_KEY, OTHER_PEM, PRIVATE_JWK, verify

from tollgauge.core.sale.signature import SignatureError, read_keys
from tollgauge.core.sale.web_bot_auth import DIRECTORY, DIRECTORY_TYPE
from tollgauge.web.free.keys import build_did
from tollgauge.web.signing import RetiredKey, SigningSettings
from tollgauge_guard.signature import SignatureError as GuardSignatureError
from tollgauge_guard.signature import pin_keys
from tollgauge_guard.signature import verify as guard_verify

NOW = 1_750_000_000
JWKS, DID = "/.well-known/jwks.json", "/.well-known/did.json"
RETIRED = RetiredKey(
    kty="OKP", crv="Ed25519", x=str(OTHER_KEY.public.jwk["x"]), nbf=1_700_000_000, exp=1_800_000_000
)


async def answers(signing: SigningSettings, *paths: str) -> list[Any]:
    config = replace(http_service.configuration(), signing=signing)
    async with http_service.open_service(config) as running:
        return [await running.get(path) for path in paths]


async def test_key_set_contains_current_and_retired_keys() -> None:
    signing = SigningSettings(key=PRIVATE_JWK, retired=(RETIRED,))
    (answer,) = await answers(signing, JWKS)

    assert answer.status_code == 200
    assert answer.json() == {
        "keys": [
            KEY.public.jwk,
            OTHER_KEY.public.jwk | {"nbf": 1_700_000_000, "exp": 1_800_000_000},
        ]
    }
    keys = KeySet.import_key_set(answer.json()).keys
    assert [key.thumbprint() for key in keys] == [KEY.fingerprint, OTHER_KEY.fingerprint]


async def test_guard_that_pins_a_retired_key_follows_its_succession() -> None:
    statement = OTHER_KEY.name_successor(KEY.public, NOW * 1_000)
    retired = replace(RETIRED, succession=statement)
    (answer,) = await answers(SigningSettings(key=PRIVATE_JWK, retired=(retired,)), JWKS)

    assert answer.json()["successions"] == [statement]
    signature = KEY.sign(b"bundle", "tollgauge-bundle", NOW * 1_000)
    pinned = pin_keys(OTHER_KEY.fingerprint)
    followed = pinned.follow(answer.json(), NOW, is_known=False)
    assert guard_verify(signature, b"bundle", followed, NOW).fingerprint == KEY.fingerprint
    without = pinned.follow({"keys": answer.json()["keys"]}, NOW, is_known=False)
    with pytest.raises(GuardSignatureError):
        guard_verify(signature, b"bundle", without, NOW)


@pytest.mark.parametrize("statement", ["a.b.c", KEY.name_successor(OTHER_KEY.public, 0), "x"])
def test_statement_of_another_key_is_not_a_succession(statement: str) -> None:
    with pytest.raises(ValueError, match="not a succession of this key"):
        replace(RETIRED, succession=statement)


async def test_did_document_asserts_only_with_the_current_key() -> None:
    signing = SigningSettings(key=PRIVATE_JWK, retired=(RETIRED,))
    (answer,) = await answers(signing, DID)

    document = answer.json()
    assert document["@context"][0] == "https://www.w3.org/ns/did/v1"
    assert document["id"] == "did:web:trust.test"
    methods = {row["id"]: row["publicKeyJwk"] for row in document["verificationMethod"]}
    assert document["assertionMethod"] == [f"did:web:trust.test#{KEY.fingerprint}"]
    assert methods[f"did:web:trust.test#{KEY.fingerprint}"] == KEY.public.jwk
    assert methods[f"did:web:trust.test#{OTHER_KEY.fingerprint}"]["exp"] == 1_800_000_000
    assert {row["controller"] for row in document["verificationMethod"]} == {"did:web:trust.test"}


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("https://trust.example.com", "did:web:trust.example.com"),
        ("https://Trust.Example.com:8443", "did:web:trust.example.com%3A8443"),
        ("https://trust.example.com/x402", "did:web:trust.example.com"),
        ("http://127.0.0.1:8402", "did:web:127.0.0.1%3A8402"),
    ],
)
def test_did_contains_host_and_port(base_url: str, expected: str) -> None:
    assert build_did(base_url, (KEY.public,), (KEY.public,)).id == expected


async def test_key_set_is_empty_and_did_is_404_without_a_key() -> None:
    jwks, did_document, ready = await answers(SigningSettings(), JWKS, DID, "/readyz")

    assert (jwks.status_code, jwks.json()) == (200, {"keys": []})
    assert did_document.status_code == 404
    assert did_document.json()["code"] == "nothing-signed"
    assert "not set a signing key" in did_document.json()["detail"]
    assert ready.status_code == 200
    assert ready.json()["detail"].startswith("Nothing is signed")


async def test_retired_keys_remain_published_without_a_current_key() -> None:
    jwks, did_document = await answers(SigningSettings(retired=(RETIRED,)), JWKS, DID)

    assert [key["kid"] for key in jwks.json()["keys"]] == [OTHER_KEY.fingerprint]
    assert len(did_document.json()["verificationMethod"]) == 1
    assert did_document.json()["assertionMethod"] == []


async def test_key_files_are_cached_with_an_etag() -> None:
    config = http_service.configuration()
    async with http_service.open_service(config) as running:
        first = await running.get(JWKS)
        again = await running.get(JWKS, headers={"If-None-Match": first.headers["ETag"]})

    assert first.headers["Cache-Control"] == "public, max-age=60"
    assert (again.status_code, again.content) == (304, b"")


async def test_old_signature_is_verified_after_a_key_change() -> None:
    before = KEY.sign(b"{}", "tollgauge-report", 1_500_000_000_000)
    stolen = KEY.sign(b"{}", "tollgauge-report", 1_500_000_001_000)
    x = str(KEY.public.jwk["x"])
    retired = RetiredKey(kty="OKP", crv="Ed25519", x=x, nbf=0, exp=1_500_000_000)
    (answer,) = await answers(SigningSettings(key=OTHER_PEM, retired=(retired,)), JWKS)

    keys = read_keys(answer.content)

    verify(before, b"{}", "tollgauge-report", keys)
    with pytest.raises(SignatureError, match="did not count"):
        verify(stolen, b"{}", "tollgauge-report", keys)


async def test_directory_contains_the_current_key_and_is_signed_for_the_public_host() -> None:
    signing = SigningSettings(key=PRIVATE_JWK, retired=(RETIRED,))
    first, second = await answers(signing, DIRECTORY, DIRECTORY)

    assert first.headers["content-type"] == DIRECTORY_TYPE
    assert first.json() == {"keys": [KEY.public.jwk]}
    assert f'keyid="{KEY.fingerprint}"' in first.headers["signature-input"]
    assert first.headers["signature"] != second.headers["signature"]


async def test_directory_does_not_exist_without_a_key() -> None:
    (answer,) = await answers(SigningSettings(), DIRECTORY)
    assert (answer.status_code, answer.json()["code"]) == (404, "nothing-signed")
