"""Content and verification of signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OKPKey, RSAKey
from tests.support.signing import (
    KEY,
    OTHER_KEY,
    PRIVATE_JWK,
    THUMBPRINT,
    canonical,
    header_of,
    verify,
)

from tollgauge.core.sale.signature import (
    KeyFormatError,
    PublicKey,
    SignatureError,
    SigningKey,
    Typ,
    read,
    read_keys,
)

NOW = 1_700_000_000_999
BODY = b'{"score": 87.50, "grade": "B", "name": "caf\\u00e9"}'
BOUND = {"requestDigest": "ab" * 32, "payer": "0x" + "1" * 40, "nonce": "0x" + "2" * 64}
SIGNED = KEY.sign(BODY, "tollgauge-report", NOW, **BOUND)
RFC_7797 = (
    "eyJhbGciOiJIUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19.."
    "A5dxf2s96_n5FLueVuW1Z_vh161FwXZC4YLPff6dmDY"
)
"""A detached signature by HS256: section 4.2."""
RFC_8037 = (
    "eyJhbGciOiJFZERTQSJ9..hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7"
    "sVvpAr_MuM0KAg"
)
"""A signature by KEY of an encoded payload, detached: appendix A.4."""
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | NAMES
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


def encode_document(document: object) -> str:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def with_header(**changes: object) -> str:
    """The signature with another header, which its key did not sign."""
    header = json.loads(base64.urlsafe_b64decode(SIGNED.split(".")[0] + "=="))
    return f"{encode_document(header | changes)}..{SIGNED.rpartition('.')[2]}"


def test_key_has_the_thumbprint_that_rfc_8037_gives_it() -> None:
    assert KEY.fingerprint == KEY.public.jwk["kid"] == THUMBPRINT


@given(document=JSON, iat=st.integers(0, 2**40))
def test_second_implementation_verifies_the_signature_of_any_document(
    document: object, iat: int
) -> None:
    body = json.dumps(document).encode()
    signature = KEY.sign(body, "tollgauge-snapshot", iat * 1000)

    header = header_of(signature, canonical(body))

    assert header["typ"] == "tollgauge-snapshot"
    assert (header["kid"], header["iat"]) == (THUMBPRINT, iat)
    assert verify(signature, body, "tollgauge-snapshot", [KEY.public]).iat == iat


@given(body=st.binary(max_size=300))
def test_second_implementation_verifies_the_signature_of_any_bundle(body: bytes) -> None:
    signature = KEY.sign(body, "tollgauge-bundle", NOW)

    assert header_of(signature, hashlib.sha256(body).digest())["typ"] == "tollgauge-bundle"
    verify(signature, body, "tollgauge-bundle", [KEY.public])
    with pytest.raises(SignatureError, match="not that of this body"):
        verify(signature, body + b"\0", "tollgauge-bundle", [KEY.public])


def test_header_contains_the_members_that_bind_a_report_to_its_sale() -> None:
    signature = verify(SIGNED, BODY, "tollgauge-report", [KEY.public])

    assert signature.bound == BOUND
    assert signature.iat == NOW // 1000


def test_spaces_and_the_order_of_members_do_not_matter() -> None:
    reordered = b'{"name":"caf\xc3\xa9","grade":"B","score":87.5}'

    verify(SIGNED, reordered, "tollgauge-report", [KEY.public])


@given(bit=st.integers(0, 8 * len(SIGNED) - 1))
def test_signature_with_any_bit_changed_is_refused(bit: int) -> None:
    changed = bytearray(SIGNED.encode())
    changed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(SignatureError):
        verify(changed.decode("latin-1"), BODY, "tollgauge-report", [KEY.public])


@given(bit=st.integers(0, 8 * len(canonical(BODY)) - 1))
def test_body_with_any_bit_changed_is_refused(bit: int) -> None:
    changed = bytearray(canonical(BODY))
    changed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(SignatureError):
        verify(SIGNED, bytes(changed), "tollgauge-report", [KEY.public])


@pytest.mark.parametrize("typ", set(get_args(Typ)) - {"tollgauge-report"})
def test_signed_report_is_rejected_as_any_other_document(typ: Typ) -> None:
    with pytest.raises(SignatureError, match=f"a tollgauge-report, not a {typ}"):
        verify(SIGNED, BODY, typ, [KEY.public])
    with pytest.raises(SignatureError, match="not that of this body"):
        verify(with_header(typ=typ), BODY, typ, [KEY.public])


@pytest.mark.parametrize("alg", ["none", "HS256", "ES256", "eddsa", "Ed25519", None, 0])
def test_only_eddsa_is_accepted(alg: object) -> None:
    with pytest.raises(SignatureError, match="EdDSA"):
        verify(with_header(alg=alg), BODY, "tollgauge-report", [KEY.public])


def test_public_key_cannot_be_used_as_a_shared_secret() -> None:
    header = encode_document(
        {
            "alg": "HS256",
            "b64": False,
            "crit": ["b64"],
            "kid": THUMBPRINT,
            "typ": "tollgauge-report",
            "iat": 1,
        }
    )
    mac = hmac.digest(KEY.public.x, header.encode() + b"." + canonical(BODY), "sha256")

    with pytest.raises(SignatureError, match="EdDSA"):
        verify(f"{header}..{encode_document(mac)}", BODY, "tollgauge-report", [KEY.public])


@pytest.mark.parametrize(
    "change",
    [{"b64": True}, {"b64": 0}, {"crit": []}, {"crit": ["b64", "exp"]}, {"crit": "b64"}],
    ids=str,
)
def test_payload_in_another_form_is_rejected(change: dict[str, object]) -> None:
    with pytest.raises(SignatureError, match="b64"):
        verify(with_header(**change), BODY, "tollgauge-report", [KEY.public])


@pytest.mark.parametrize(
    "change", [{"iat": 1.5}, {"iat": True}, {"kid": 1}, {"typ": None}], ids=str
)
def test_rejects_header_without_valid_typ_kid_or_iat(change: dict[str, object]) -> None:
    with pytest.raises(SignatureError, match="lacks a valid typ, kid or iat"):
        verify(with_header(**change), BODY, "tollgauge-report", [KEY.public])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "a.b",
        "a.b.c",
        SIGNED.replace("..", ".e30."),
        SIGNED + "=",
        SIGNED[:-1],
        SIGNED + ".",
        f"{encode_document(b'[]')}..{SIGNED.rpartition('.')[2]}",
        f"{encode_document(b'{')}..{SIGNED.rpartition('.')[2]}",
        RFC_7797,
        RFC_8037,
    ],
)
def test_rejects_texts_that_are_not_valid_signatures(text: str) -> None:
    with pytest.raises(SignatureError):
        read(text)


def test_signature_of_a_key_that_is_not_known_is_refused() -> None:
    with pytest.raises(SignatureError, match="not known"):
        verify(SIGNED, BODY, "tollgauge-report", [OTHER_KEY.public])
    with pytest.raises(SignatureError, match="not known"):
        verify(SIGNED, BODY, "tollgauge-report", [])


def test_signature_that_names_a_key_which_did_not_make_it_is_refused() -> None:
    stolen_name = with_header(kid=OTHER_KEY.fingerprint)

    with pytest.raises(SignatureError, match="not that of this body"):
        verify(stolen_name, BODY, "tollgauge-report", [KEY.public, OTHER_KEY.public])


@pytest.mark.parametrize(
    ("nbf", "exp", "counts"),
    [
        (None, None, True),
        (NOW // 1000, NOW // 1000, True),
        (NOW // 1000 + 1, None, False),
        (None, NOW // 1000 - 1, False),
    ],
)
def test_retired_key_is_valid_for_signatures_of_its_period(
    nbf: int | None, exp: int | None, counts: bool
) -> None:
    retired = replace(KEY.public, nbf=nbf, exp=exp)
    assert PublicKey.of(retired.jwk) == retired

    if counts:
        verify(SIGNED, BODY, "tollgauge-report", [OTHER_KEY.public, retired])
    else:
        with pytest.raises(SignatureError, match="did not count"):
            verify(SIGNED, BODY, "tollgauge-report", [retired])


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"a":1,"a":2}', b"[NaN]", b"[9007199254740993]", b'["\\ud800"]', b"[" * 40],
)
def test_body_without_a_canonical_form_is_neither_signed_nor_verified(body: bytes) -> None:
    with pytest.raises(SignatureError, match="canonical"):
        KEY.sign(body, "tollgauge-report", NOW)
    with pytest.raises(SignatureError, match="canonical"):
        verify(SIGNED, body, "tollgauge-report", [KEY.public])


def test_key_is_the_same_from_pem_and_from_a_jwk() -> None:
    pem = OKPKey.import_key(json.loads(PRIVATE_JWK)).as_pem(private=True).decode()

    assert SigningKey.of(f"\n{pem}\n") == SigningKey.of(f" {PRIVATE_JWK}\n") == KEY
    assert SigningKey.of(pem).sign(BODY, "tollgauge-report", NOW, **BOUND) == SIGNED


def of_jwk(**changes: object) -> str:
    return json.dumps(json.loads(PRIVATE_JWK) | changes)


ED25519 = OKPKey.generate_key("Ed25519")
UNUSABLE = {
    "nothing": "",
    "no key": "correct horse battery staple",
    "an unknown letter": PRIVATE_JWK.replace("OKP", "ÖKP"),
    "half a JWK": PRIVATE_JWK[:-9],
    "a JWK without d": json.dumps(ED25519.as_dict(private=False)),
    "another curve": json.dumps(OKPKey.generate_key("Ed448").as_dict(private=True)),
    "a curve of another name": of_jwk(crv="Ed448"),
    "a key of another kind": json.dumps(ECKey.generate_key("P-256").as_dict(private=True)),
    "x of another key": of_jwk(x=ED25519.as_dict(private=False)["x"]),
    "no x": json.dumps({k: v for k, v in json.loads(PRIVATE_JWK).items() if k != "x"}),
    "d of 31 bytes": of_jwk(d=encode_document(b"1" * 31)),
    "a padded d": of_jwk(d=json.loads(PRIVATE_JWK)["d"] + "="),
    "a number as d": of_jwk(d=1),
    "a public PEM": ED25519.as_pem(private=False).decode(),
    "an encrypted PEM": ED25519.as_pem(private=True, password="password").decode(),
    "an RSA PEM": RSAKey.generate_key(2048).as_pem(private=True).decode(),
    "half a PEM": ED25519.as_pem(private=True).decode()[:-40],
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
def test_rejects_invalid_signing_keys_without_showing_them(text: str) -> None:
    with pytest.raises(KeyFormatError) as caught:
        SigningKey.of(text)

    error = caught.value
    assert error.hint
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    secrets = [text[at : at + 12] for at in range(0, len(text) - 12, 12)]
    assert not [part for part in secrets if part in f"{error} {error.hint}"]


@pytest.mark.parametrize(
    "jwk",
    [{}, {"kty": "OKP"}, KEY.public.jwk | {"x": "AA"}, KEY.public.jwk | {"nbf": "1"},
     KEY.public.jwk | {"exp": -1}, KEY.public.jwk | {"x": 5}, KEY.public.jwk | {"crv": "X25519"}],
    ids=str,
)  # fmt: skip
def test_rejects_jwk_that_is_not_a_public_key(jwk: dict[str, object]) -> None:
    with pytest.raises(KeyFormatError):
        PublicKey.of(jwk)


def test_keys_of_a_set_are_read_and_others_left_out() -> None:
    others = [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, "no object", {}]
    key_set = {"keys": [*others, KEY.public.jwk, OTHER_KEY.public.jwk]}

    assert read_keys(json.dumps(key_set).encode()) == (KEY.public, OTHER_KEY.public)
    assert read_keys(json.dumps(KEY.public.jwk).encode()) == (KEY.public,)
    assert read_keys(PRIVATE_JWK.encode()) == (KEY.public,)
    assert read_keys(b'{"keys": []}') == ()


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"kty":"OKP","kty":"OKP"}', b"\xff"]
)
def test_rejects_documents_without_keys(text: bytes) -> None:
    with pytest.raises(KeyFormatError):
        read_keys(text)


def test_key_that_was_retired_twice_counts_in_both_times() -> None:
    early, late = (replace(KEY.public, nbf=at, exp=at) for at in (1, NOW // 1000))

    verify(SIGNED, BODY, "tollgauge-report", [early, late])


def test_key_never_shows_its_private_half() -> None:
    private = json.loads(PRIVATE_JWK)["d"]
    shown = f"{KEY!r} {KEY.public.jwk} {KEY.public!r}"

    assert private not in shown
    assert base64.urlsafe_b64decode(private + "=").hex() not in shown
