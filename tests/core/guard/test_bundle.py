"""The form of a bundle, as clients read it."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from dataclasses import replace
from typing import Any

import zstandard
from tests.support.guard_seller import CASES_FOLDER, record_of

from tollgauge.core.base.units import BASE, SECOND_MS
from tollgauge.core.guard.bundle import (
    Bundle,
    PaidAddress,
    TrustRecord,
    Variant,
    build_bundle,
    key_of,
    line_of,
    variants_of,
)

SALT = bytes(range(16))
NOW = 1_795_000_000 * SECOND_MS + 999
RECORD = TrustRecord(
    resource="https://api.example.com/weather",
    recommendation="proceed",
    grade="A",
    score_tenths=914,
    addresses=(
        PaidAddress(pay_to="0xnew", since=NOW - 5 * SECOND_MS),
        PaidAddress(pay_to="0xold", since=0),
    ),
    network=BASE,
    amount=10_000,
    flags=("price-changed",),
    as_of=NOW - SECOND_MS,
)
UNKNOWN = replace(
    RECORD,
    resource="https://api.example.com/new",
    recommendation="unverified",
    grade=None,
    score_tenths=None,
    addresses=(),
    network=None,
    amount=None,
    flags=(),
)


def bundled(*records: TrustRecord) -> Bundle:
    return build_bundle(
        [line_of(record, SALT) for record in records],
        variant=Variant.ALL,
        salt=SALT,
        policy_version=2,
        as_of=NOW,
        scored=1,
    )


def lines(bundle: Bundle) -> list[Any]:
    text = zstandard.ZstdDecompressor().decompress(bundle.body).decode()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_key_is_half_of_the_salted_hash_of_the_resource() -> None:
    digest = hashlib.sha256(SALT + b"https://api.example.com/weather").digest()
    key = base64.urlsafe_b64encode(digest[:16]).decode()
    assert key_of("https://api.example.com/weather", SALT) == key.removesuffix("==")


def test_the_first_line_is_the_header_and_each_other_one_an_endpoint() -> None:
    header, *rest = lines(bundled(RECORD, UNKNOWN))
    assert header == {
        "format": 1,
        "policyVersion": 2,
        "asOf": 1_795_000_000,
        "count": 2,
        "salt": "AAECAwQFBgcICQoLDA0ODw",
        "variant": "all",
    }
    assert sorted(rest, key=lambda row: row[1]) == [
        [
            key_of(RECORD.resource, SALT),
            "proceed",
            "A",
            91.4,
            [["0xnew", 1_794_999_995], ["0xold", 0]],
            "eip155:8453",
            "10000",
            ["price-changed"],
            1_794_999_999,
        ],
        [
            key_of(UNKNOWN.resource, SALT),
            "unverified",
            None,
            None,
            [],
            None,
            None,
            [],
            1_794_999_999,
        ],
    ]


def test_lines_are_compact_and_in_the_order_of_their_keys() -> None:
    records = [replace(RECORD, resource=f"https://api.example.com/{n}") for n in range(300)]
    random.Random(1).shuffle(records)
    bundle = bundled(*records)
    text = zstandard.ZstdDecompressor().decompress(bundle.body)
    assert b", " not in text
    assert b": " not in text
    keys = [row[0] for row in lines(bundle)[1:]]
    assert keys == sorted(keys)
    assert set(keys) == {key_of(record.resource, SALT) for record in records}


def test_body_is_one_frame_with_its_content_size() -> None:
    body = bundled(RECORD, UNKNOWN).body
    frame = zstandard.ZstdDecompressor().decompressobj()
    text = frame.decompress(body)
    assert frame.eof
    assert not frame.unused_data
    assert zstandard.get_frame_parameters(body).content_size == len(text)


def test_the_digest_is_that_of_the_bytes() -> None:
    bundle = bundled(RECORD)
    assert bundle.digest == hashlib.sha256(bundle.body).hexdigest()


def test_only_what_must_not_be_paid_is_in_the_second_bundle() -> None:
    recommended = {
        recommendation: variants_of(replace(RECORD, recommendation=recommendation))
        for recommendation in ("proceed", "caution", "unverified", "avoid", "not-payable")
    }
    assert [name for name, of in recommended.items() if Variant.AVOID in of] == [
        "avoid",
        "not-payable",
    ]
    assert all(Variant.ALL in of for of in recommended.values())


def test_the_sample_that_guards_are_tested_with_is_of_this_form() -> None:
    sample = zstandard.ZstdDecompressor().decompress((CASES_FOLDER / "bundle.zst").read_bytes())
    facts = json.loads((CASES_FOLDER / "bundle.json").read_text())
    salt = base64.urlsafe_b64decode(json.loads(sample.splitlines()[0])["salt"] + "==")
    rows = facts["records"].items()
    same = build_bundle(
        [line_of(record_of(row, resource), salt) for resource, row in rows],
        variant=Variant.ALL,
        salt=salt,
        policy_version=facts["policyVersion"],
        as_of=facts["asOf"] * SECOND_MS,
        scored=0,
    )
    assert zstandard.ZstdDecompressor().decompress(same.body) == sample


def test_bundle_without_endpoints_is_only_a_header() -> None:
    (header,) = lines(bundled())
    assert header["count"] == 0
