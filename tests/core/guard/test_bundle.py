"""The format of a bundle, as clients read it."""

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
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import (
    MAX_PATTERNS,
    Bundle,
    BundleDraft,
    TrustRecord,
    Variant,
    key_of,
    variants_of,
)
from tollgauge.core.score.score import ShownDemand

NOW = 1_795_000_000 * SECOND_MS + 999
NEW = KnownOffer(BASE, "exact", "0xnew", 10_000)
OLD = KnownOffer(BASE, "exact", "0xold", 5_000, NOW - 5 * SECOND_MS)
RECORD = TrustRecord(
    resource="https://api.example.com/weather",
    recommendation="proceed",
    grade="A",
    score_tenths=914,
    offers=(NEW, OLD),
    flags=("price-changed",),
    demand=ShownDemand(payers=43, volume=140_000, proven_payers=12, proven_volume=90_000),
    as_of=NOW - SECOND_MS,
)
UNKNOWN = TrustRecord(
    resource="https://api.example.com/new",
    recommendation="unverified",
    grade=None,
    score_tenths=None,
    offers=(),
    flags=(),
    as_of=NOW - SECOND_MS,
)


def build(*records: TrustRecord, variant: Variant = Variant.ALL) -> Bundle:
    draft = BundleDraft(policy_version=3, as_of=NOW)
    for record in records:
        draft.add(record)
    return draft.build(variant)


def lines(bundle: Bundle) -> list[Any]:
    text = zstandard.ZstdDecompressor().decompress(bundle.body).decode()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def row(bundle: Bundle, name: str) -> list[Any]:
    """Return the values after the key of a resource, a host or a payTo."""
    (found,) = (values for key, *values in lines(bundle)[1:] if key == key_of(name))
    return list(found)


def test_key_is_half_of_the_prefixed_hash_of_the_resource() -> None:
    digest = hashlib.sha256(b"tollgauge:v2:https://api.example.com/weather").digest()
    key = base64.urlsafe_b64encode(digest[:16]).decode()
    assert key_of("https://api.example.com/weather") == key.removesuffix("==")


def test_header_contains_the_table_of_addresses() -> None:
    assert lines(build(RECORD, UNKNOWN))[0] == {
        "format": 2,
        "policyVersion": 3,
        "asOf": 1_795_000_000,
        "count": 4,
        "variant": "all",
        "payTo": ["0xnew", "0xold"],
    }


def test_record_contains_score_offers_flags_and_demand() -> None:
    bundle = build(RECORD, UNKNOWN)
    offers = [[BASE, "exact", 0, "10000"], [BASE, "exact", 1, "5000"]]
    demand = [43, 140_000, 12, 90_000]
    assert row(bundle, RECORD.resource) == [
        *("proceed", "A", 91.4, offers, ["price-changed"], demand, None),
        1_794_999_999,
    ]
    assert row(bundle, UNKNOWN.resource) == [
        *("unverified", None, None, [], [], None, None),
        1_794_999_999,
    ]


def test_offers_that_differ_only_in_their_end_are_one() -> None:
    ended = KnownOffer(BASE, "exact", "0xnew", 10_000, NOW)
    bundle = build(replace(RECORD, offers=(NEW, ended)))
    assert row(bundle, RECORD.resource)[3] == [[BASE, "exact", 0, "10000"]]


def test_hosts_and_addresses_count_their_endpoints() -> None:
    abusive = replace(
        RECORD,
        resource="https://api.example.com/b",
        recommendation="avoid",
        flags=("payto-changed-recently",),
    )
    down = replace(RECORD, resource="https://api.example.com/c", is_down=True)
    broken = replace(RECORD, resource="https://api.example.com/d", recommendation="not-payable")
    bundle = build(RECORD, abusive, down, broken)
    assert row(bundle, "host:api.example.com") == [4, 1, 2]
    assert row(bundle, "payto:0xnew") == [4, 1, 2]


def test_address_that_is_no_longer_offered_is_not_counted() -> None:
    bundle = build(RECORD)
    assert key_of("payto:0xold") not in {key for key, *_ in lines(bundle)[1:]}


def test_outage_is_not_abuse() -> None:
    down = replace(RECORD, recommendation="avoid", is_down=True, flags=("down-now",))
    assert row(build(down), "host:api.example.com") == [1, 0, 1]


def test_host_lists_its_templates() -> None:
    templates = [
        replace(RECORD, resource=f"https://api.example.com/{n:02}/%7Bid%7D", is_templated=True)
        for n in range(MAX_PATTERNS + 1)
    ]
    *_, patterns = row(build(RECORD, *templates), "host:api.example.com")
    assert patterns == [record.resource for record in templates[:MAX_PATTERNS]]


def test_lines_are_compact_and_in_the_order_of_their_keys() -> None:
    records = [replace(RECORD, resource=f"https://api.example.com/{n}") for n in range(300)]
    random.Random(1).shuffle(records)
    bundle = build(*records)
    text = zstandard.ZstdDecompressor().decompress(bundle.body)
    assert b", " not in text
    assert b": " not in text
    keys = [row[0] for row in lines(bundle)[1:]]
    assert keys == sorted(keys)
    assert {key_of(record.resource) for record in records} < set(keys)


def test_body_is_one_frame_with_its_content_size() -> None:
    body = build(RECORD, UNKNOWN).body
    frame = zstandard.ZstdDecompressor().decompressobj()
    text = frame.decompress(body)
    assert frame.eof
    assert not frame.unused_data
    assert zstandard.get_frame_parameters(body).content_size == len(text)


def test_digest_is_that_of_the_bytes() -> None:
    bundle = build(RECORD)
    assert bundle.digest == hashlib.sha256(bundle.body).hexdigest()


def test_second_bundle_contains_only_what_must_not_be_paid() -> None:
    recommended = {
        recommendation: variants_of(replace(RECORD, recommendation=recommendation))
        for recommendation in ("proceed", "caution", "unverified", "avoid", "not-payable")
    }
    assert [name for name, of in recommended.items() if Variant.AVOID in of] == [
        "avoid",
        "not-payable",
    ]
    assert all(Variant.ALL in of for of in recommended.values())


def test_second_bundle_contains_hosts_with_abusive_endpoints() -> None:
    flags = ("paid-not-delivered",)
    bad = replace(RECORD, resource="https://bad.com/", recommendation="avoid", flags=flags)
    keys = {key for key, *_ in lines(build(RECORD, bad, variant=Variant.AVOID))[1:]}
    assert keys == {key_of(name) for name in (bad.resource, "host:bad.com", "payto:0xnew")}


def test_sample_of_the_guards_has_this_format() -> None:
    facts = json.loads((CASES_FOLDER / "bundle.json").read_text())
    records = facts["records"].items()
    draft = build(*(record_of(row, facts["payTo"], resource) for resource, row in records))
    addresses = lines(draft)[0]["payTo"]
    for resource, (key, *values) in records:
        assert key == key_of(resource)
        built, shown = row(draft, resource), list(values)
        # The order of the table of addresses is not part of the format.
        for offers, table in ((built[3], addresses), (shown[3], facts["payTo"])):
            offers[:] = [[*offer[:2], table[offer[2]], offer[3]] for offer in offers]
        assert built == shown


def test_bundle_without_endpoints_is_only_a_header() -> None:
    (header,) = lines(build())
    assert header["count"] == 0
