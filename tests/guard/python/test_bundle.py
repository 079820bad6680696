"""The bundle: signed records are found, and nothing else is used."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from guard.cases import sample_bundle as sample
from hypothesis import given
from hypothesis import strategies as st
from tests.support.guard_seller import record_of
from tests.support.signing import KEY as SERVICE_KEY

from tollgauge.core.guard.bundle import BundleDraft, Variant
from tollgauge_guard import bundle as module
from tollgauge_guard.bundle import BundleError, read_bundle
from tollgauge_guard.lookup import look_up
from tollgauge_guard.record import Conduct, RecordError, read_record
from tollgauge_guard.resource import parse
from tollgauge_guard.signature import SignatureError, pin_keys, verify

CASES = Path("guard/cases")
FACTS: dict[str, Any] = json.loads((CASES / "bundle.json").read_text())
BODY = (CASES / "bundle.zst").read_bytes()
SIGNATURE = (CASES / "bundle.zst.jws").read_text()
KEY = pin_keys(FACTS["key"])
AS_OF_MS = FACTS["asOf"] * 1_000


def sign_lines(lines: str | bytes) -> tuple[bytes, str]:
    """Lines as a bundle that the tests' key signed."""
    text = lines if isinstance(lines, bytes) else lines.encode()
    body = zstandard.ZstdCompressor().compress(text)
    return body, sample.signature(body)


def header(count: int, **other: object) -> str:
    fields: dict[str, object] = {"format": 2, "policyVersion": 3, "asOf": 1, "count": count}
    return sample.compact(fields | {"variant": "all", "payTo": []} | other) + "\n"


def test_sample_bundle_matches_its_table() -> None:
    bundle = read_bundle(BODY, SIGNATURE, KEY)
    assert (bundle.as_of, bundle.policy_version) == (FACTS["asOf"], FACTS["policyVersion"])
    for url, row in FACTS["records"].items():
        assert bundle.record(parse(url)) == read_record(row, FACTS["payTo"])
    assert bundle.record(parse("https://api.example.com/v1/other")) is None


def test_guard_reads_the_bundle_that_the_service_signs() -> None:
    draft = BundleDraft(policy_version=3, as_of=AS_OF_MS)
    for url, row in FACTS["records"].items():
        draft.add(record_of(row, FACTS["payTo"], url))
    built = draft.build(Variant.ALL)
    signature = SERVICE_KEY.sign(built.body, typ="tollgauge-bundle", now=AS_OF_MS)
    bundle = read_bundle(built.body, signature, pin_keys(SERVICE_KEY.public.jwk))
    assert bundle.as_of == AS_OF_MS // 1_000
    assert bundle.count > len(FACTS["records"])
    for url, row in FACTS["records"].items():
        assert bundle.record(parse(url)) == read_record(row, FACTS["payTo"])
    assert bundle.conduct("host:api.example.com") == Conduct(endpoints=2, abusive=0, unavailable=0)


@pytest.mark.parametrize(
    ("url", "is_known"),
    [
        ("https://items.example.org/v1/7/price", True),
        ("https://items.example.org/v1/a%2Fb/price?x=1", True),
        ("http://items.example.org/v1/7/price", True),
        ("https://items.example.org/v1/7/8/price", False),
        ("https://items.example.org/v1//price", False),
        ("https://items.example.org/v1/7/prices", False),
        ("https://items.example.org:8443/v1/7/price", False),
        ("https://other.example.org/v1/7/price", False),
    ],
)
def test_template_is_the_record_of_the_urls_that_fill_it_in(url: str, is_known: bool) -> None:
    record = read_bundle(BODY, SIGNATURE, KEY).record(parse(url))
    assert (record is not None) == is_known


def test_resource_by_plain_http_is_looked_up_as_https() -> None:
    bundle = read_bundle(BODY, SIGNATURE, KEY)
    record = bundle.record(parse("http://bad.example.net/pay"))
    assert record is not None
    assert record.recommendation == "avoid"
    assert bundle.record(parse("http://bad.example.net:8080/pay")) is None


@pytest.mark.parametrize("size", [0, 1, 2, 3, 64])
def test_every_record_is_found_in_a_bundle_of_any_size(size: int) -> None:
    record = sample.RECORDS["https://api.example.com/v1/weather"]
    urls = [f"https://api.example.com/{number}" for number in range(size)]
    body = sample.body(dict.fromkeys(urls, record))
    bundle = read_bundle(body, sample.signature(body), KEY)
    assert all(bundle.record(parse(url)) is not None for url in urls)
    others = [f"https://other.example.com/{number}" for number in range(20)]
    assert all(bundle.record(parse(url)) is None for url in others)


@given(st.integers(0, len(BODY) - 1), st.integers(0, 7))
def test_flipped_bit_is_detected(position: int, bit: int) -> None:
    forged = bytearray(BODY)
    forged[position] ^= 1 << bit
    with pytest.raises(SignatureError):
        read_bundle(bytes(forged), SIGNATURE, KEY)


@given(st.integers(0, len(SIGNATURE.strip()) - 1), st.characters(codec="ascii"))
def test_changed_signature_does_not_verify(at: int, letter: str) -> None:
    text = SIGNATURE.strip()
    changed = text[:at] + letter + text[at + 1 :]
    if changed.strip() == text:
        return
    with pytest.raises(SignatureError):
        verify(changed, BODY, KEY, FACTS["asOf"])


@pytest.mark.parametrize(
    "other",
    [
        *({"alg": "none"}, {"alg": "HS256"}, {"b64": True}, {"b64": 0}, {"crit": []}),
        *({"typ": "tollgauge-report"}, {"typ": None}, {"kid": "x" * 43}, {"crit": ["b64", "exp"]}),
    ],
    ids=str,
)
def test_signature_of_another_document_does_not_verify(other: dict[str, object]) -> None:
    with pytest.raises(SignatureError):
        verify(sample.signature(BODY, **other), BODY, KEY, FACTS["asOf"])


@pytest.mark.parametrize("text", ["", ".", "..", "a..b", "e30..", "e30..AA", "x" * 5_000, "é..é"])
def test_malformed_signature_does_not_verify(text: str) -> None:
    with pytest.raises(SignatureError):
        verify(text, BODY, KEY, FACTS["asOf"])


def test_signature_of_the_body_itself_does_not_verify() -> None:
    protected, _, _ = SIGNATURE.strip().partition("..")
    key = Ed25519PrivateKey.from_private_bytes(sample.SECRET)
    mark = sample.base64url(key.sign(protected.encode() + b"." + BODY))
    with pytest.raises(SignatureError):
        verify(f"{protected}..{mark}", BODY, KEY, FACTS["asOf"])


def test_another_key_does_not_verify_it() -> None:
    other = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"other").digest())
    x = sample.base64url(other.public_key().public_bytes_raw())
    with pytest.raises(SignatureError):
        read_bundle(BODY, SIGNATURE, pin_keys({"kty": "OKP", "crv": "Ed25519", "x": x}))


def test_key_is_pinned_as_jwk_as_json_and_by_its_fingerprint() -> None:
    (key,), (by_json,) = KEY.keys, pin_keys(json.dumps(FACTS["key"])).keys
    assert key.fingerprint == FACTS["fingerprint"] == by_json.fingerprint
    by_fingerprint = pin_keys(FACTS["fingerprint"])
    with pytest.raises(SignatureError):
        verify(SIGNATURE, BODY, by_fingerprint, FACTS["asOf"])
    jwks = {"keys": [{"kty": "EC"}, "x", FACTS["key"]]}
    followed = by_fingerprint.follow(jwks, FACTS["asOf"], is_known=False)
    assert verify(SIGNATURE, BODY, followed, FACTS["asOf"]).fingerprint == FACTS["fingerprint"]
    for document in (
        {},
        None,
        {"keys": 1},
        {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]},
        {"keys": [], "successions": ["x", 1, "a.b.c"]},
    ):
        unknown = by_fingerprint.follow(document, FACTS["asOf"], is_known=False)
        with pytest.raises(SignatureError):
            verify(SIGNATURE, BODY, unknown, FACTS["asOf"])


OLD_KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"old").digest())
OLD_JWK = {
    "crv": "Ed25519",
    "kty": "OKP",
    "x": sample.base64url(OLD_KEY.public_key().public_bytes_raw()),
}
NOW = FACTS["asOf"]


def succession(**other: Any) -> str:
    """A statement by the old key that the tests' key succeeds it."""
    old = pin_keys(OLD_JWK).keys[0].fingerprint
    header = {"alg": "EdDSA", "typ": "tollgauge-succession", "kid": old} | other
    payload = {"successor": FACTS["key"], "iat": header.pop("iat", NOW - 100)}
    text = ".".join(sample.base64url(sample.compact(part).encode()) for part in (header, payload))
    return f"{text}.{sample.base64url(OLD_KEY.sign(text.encode()))}"


def is_followed(statement: str, *, now: int = NOW, is_known: bool = False, **old: Any) -> bool:
    """Whether a guard that pins the old key accepts the bundle of its successor."""
    jwks = {"keys": [OLD_JWK | old, FACTS["key"]], "successions": [statement]}
    keys = pin_keys(pin_keys(OLD_JWK).keys[0].fingerprint).follow(jwks, now, is_known=is_known)
    try:
        verify(SIGNATURE, BODY, keys, now)
    except SignatureError:
        return False
    return True


def test_successor_that_the_pinned_key_names_is_accepted() -> None:
    assert is_followed(succession())
    assert is_followed(succession(), exp=NOW)
    assert not is_followed("")
    assert not is_followed(succession(typ="tollgauge-bundle"))
    assert not is_followed(succession(alg="none"))
    assert not is_followed(succession(kid=FACTS["fingerprint"]))
    forged = succession()[:-4] + "AAAA"
    assert not is_followed(forged)


def test_new_installation_does_not_accept_the_successor_of_a_retired_key() -> None:
    assert not is_followed(succession(), exp=NOW - 1)
    assert is_followed(succession(), exp=NOW - 1, is_known=True)
    assert not is_followed(succession(iat=NOW), exp=NOW - 1, is_known=True)


def test_retired_key_signs_no_bundle_any_more() -> None:
    keys = pin_keys(FACTS["key"] | {"exp": NOW})
    assert verify(SIGNATURE, BODY, keys, NOW).exp == NOW
    with pytest.raises(SignatureError, match="retired"):
        verify(SIGNATURE, BODY, keys, NOW + 1)


def test_one_of_several_pinned_keys_suffices() -> None:
    verify(SIGNATURE, BODY, pin_keys(["A" * 43, FACTS["key"]]), NOW)
    with pytest.raises(SignatureError, match="No key was pinned"):
        pin_keys([])


def test_unknown_header_members_and_trailing_places_are_ignored() -> None:
    row: list[Any] = ["A" * 22, "avoid", None, None, [], [], None, None, 1, {"later": 1}, 7]
    lines = header(1, later={"a": [1]}) + sample.compact(row) + "\n"
    bundle = read_bundle(*sign_lines(lines), KEY)
    assert bundle.count == 1
    assert read_record(row, ()).recommendation == "avoid"


def test_records_of_hosts_and_payees_are_found() -> None:
    row = sample.compact([sample.key_of("host:shop.example.com"), 9, 2, 1, "later"])
    bundle = read_bundle(*sign_lines(header(1) + row + "\n"), KEY)
    assert bundle.conduct("host:shop.example.com") == Conduct(endpoints=9, abusive=2, unavailable=1)
    assert bundle.conduct("payto:0x12") is None


def test_worst_record_of_all_hops_counts() -> None:
    key = sample.key_of
    rows = sorted(
        [
            [key("host:good.example.com"), 9, 0, 0],
            [key("host:mixed.example.com"), 9, 5, 0],
            [key("host:bad.example.com"), 3, 3, 0],
        ]
    )
    lines = header(3) + "".join(f"{sample.compact(row)}\n" for row in rows)
    bundle = read_bundle(*sign_lines(lines), KEY)
    good = parse("https://good.example.com/a")
    for hops, abusive in (
        ((), 0),
        (("https://mixed.example.com/",), 5),
        (("https://mixed.example.com/", "https://bad.example.com/", "nonsense"), 3),
    ):
        found = look_up(bundle, good, hops, "0x12").host
        assert found is not None
        assert found.abusive == abusive


@pytest.mark.parametrize(
    "key", ["", "x", "{}", "[]", '{"kty": "OKP"}', "x" * 44, json.dumps(FACTS["key"] | {"d": "s"})]
)
def test_invalid_key_is_refused_and_never_shown(key: str) -> None:
    with pytest.raises(SignatureError) as error:
        pin_keys(key)
    assert FACTS["key"]["x"] not in str(error.value)


def test_signature_is_verified_before_decompression() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    tracemalloc.start()
    with pytest.raises(SignatureError):
        read_bundle(bomb, SIGNATURE, KEY)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_too_large_bundle_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 1_000)
    with pytest.raises(BundleError, match="does not say its size, or more"):
        read_bundle(*sign_lines(bytes(1_001)), KEY)
    monkeypatch.setattr(module, "SIZE_MAX", 10)
    with pytest.raises(BundleError, match="larger"):
        read_bundle(BODY, SIGNATURE, KEY)


def test_frame_without_size_is_refused() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    body = compressor.compress(header(0).encode())
    with pytest.raises(BundleError):
        read_bundle(body, sample.signature(body), KEY)


def test_second_frame_is_refused() -> None:
    body = BODY + BODY
    with pytest.raises(BundleError):
        read_bundle(body, sample.signature(body), KEY)


ROW_A = sample.compact(["A" * 22, "avoid", None, None, [], [], None, None, 1]) + "\n"
ROW_B = sample.compact(["B" * 22, "avoid", None, None, [], [], None, None, 1]) + "\n"


@pytest.mark.parametrize(
    "lines",
    [
        *("", "\n", "{}\n", "[]\n", "nonsense\n", header(0, format=1), header(0, payTo=1)),
        *(header(0, asOf="x"), header(0)[:-1], "[" * 100_000 + "\n"),
        *(header(1), header(1) + ROW_A + ROW_B, header(2) + ROW_B + ROW_A),
        *(header(2) + ROW_A + ROW_A, header(1) + ROW_A[:-1], header(1) + ROW_A.replace("[", "{")),
    ],
    ids=lambda lines: lines[-40:],
)
def test_signed_lines_that_are_not_a_bundle_are_refused(lines: str) -> None:
    with pytest.raises(BundleError):
        read_bundle(*sign_lines(lines), KEY)


@pytest.mark.parametrize(
    "row",
    [
        *(None, {}, [], [1] * 9, ["k", "avoid", None, None, [], [], None, None]),
        ["k", "avoid", None, None, [["a"]], [], None, None, 1],
        ["k", "avoid", None, None, [["a", "exact", 0, "1e3"]], [], None, None, 1],
        ["k", "avoid", None, None, [["a", "exact", 1, "1"]], [], None, None, 1],
        ["k", "avoid", None, None, [["a", "exact", -1, "1"]], [], None, None, 1],
        ["k", "avoid", None, None, [["a", "exact", "0x1", "1"]], [], None, None, 1],
        ["k", "avoid", None, None, [], [], None, None, True],
    ],
    ids=str,
)
def test_invalid_record_is_refused(row: object) -> None:
    with pytest.raises(RecordError):
        read_record(row, ["0x12"])


def test_100000_records_take_less_than_60_megabytes() -> None:
    rows = "".join(
        f'["{number:022d}","proceed","B",84.2,[["{sample.BASE}","exact",{number % 30_000},'
        f'"{number}"]],["delivers"],[9,90000,3,9000],null,1767000000]\n'
        for number in range(100_000)
    )
    addresses = [f"0x{number:040x}" for number in range(30_000)]
    body, signature = sign_lines(header(100_000, payTo=addresses) + rows)
    del rows
    tracemalloc.start()
    bundle = read_bundle(body, signature, KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bundle.count == 100_000
    assert peak < 60 * 2**20
