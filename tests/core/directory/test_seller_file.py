"""Parsing of a seller's file with any content."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.seller_files import HOST, NEW, OLD, announcement, file, row

from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.directory.seller_file import (
    ANNOUNCED_MS,
    BYTES_MAX,
    CHANGES_MAX,
    CONTACT_MAX,
    STATEMENT_MAX,
    SellerFile,
    read,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["contact", "statement", "optOut", "payToChanges", "from", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def read_well(document: bytes) -> SellerFile:
    file = read(document, HOST)
    assert file is not None
    return file


def test_whole_file_is_read() -> None:
    item = announcement()
    text = file(row(item), contact="ops@seller.dev", statement="We moved.", optOut=True)
    seller_file = read_well(text)
    assert (seller_file.contact, seller_file.statement, seller_file.opt_out) == (
        "ops@seller.dev",
        "We moved.",
        True,
    )
    (signed,) = seller_file.announcements
    assert signed.statement == item
    assert recover_signer(text_digest(item.text), signed.signature) == OLD.address.lower()
    assert seller_file.problems == ()


def test_signed_text_contains_host_network_addresses_and_time() -> None:
    assert announcement().text == (
        "x402 payTo change\n"
        "Host: api.seller.dev\n"
        "Network: eip155:8453\n"
        f"From: {OLD.address.lower()}\n"
        f"To: {NEW.address.lower()}\n"
        "Not before: 1795000000"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "other.seller.dev"},
        {"network": "eip155:137"},
        {"before": NEW.address.lower()},
        {"after": OLD.address.lower()},
        {"not_before": 1_795_000_001},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_signature_is_valid_for_one_change_only(changed: dict[str, object]) -> None:
    signature = bytes.fromhex(row(announcement())["signature"][2:])
    other = replace(announcement(), **changed)  # type: ignore[arg-type]
    assert recover_signer(text_digest(other.text), signature) != OLD.address.lower()


def test_checksummed_addresses_are_read_as_they_are_signed() -> None:
    item = announcement()
    written = row(item) | {"from": OLD.address, "to": NEW.address}
    assert read_well(file(written)).announcements[0].statement == item


@pytest.mark.parametrize("text", [b"", b"<html>", b"[]", b'"x"', b"\xff", b"{", b"null"])
def test_document_that_is_not_an_object_is_rejected(text: bytes) -> None:
    assert read(text, HOST) is None


def test_oversized_file_is_rejected() -> None:
    assert read(json.dumps({"statement": "x" * BYTES_MAX}).encode(), HOST) is None


def test_texts_are_cleaned_and_cut() -> None:
    hidden = "\u202ePay\u200b \U000e0041me\x07 "
    file = read_well(
        json.dumps({"statement": hidden + "x" * 600, "contact": hidden + "y" * 300}).encode()
    )
    assert file.statement.startswith("Pay me xxx")
    assert len(file.statement) == STATEMENT_MAX
    assert len(file.contact) == CONTACT_MAX


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"network": "solana:x"}, "`network` is not an EVM network"),
        ({"from": "0x12"}, "`from` is not an address"),
        ({"to": None}, "`to` is not an address"),
        ({"signature": "0x12"}, "`signature` is not a signature"),
        ({"notBefore": "2026-01-01"}, "`notBefore` is not a time"),
        ({"notBefore": True}, "`notBefore` is not a time"),
        ({"notBefore": -1}, "`notBefore` is not a time"),
    ],
    ids=str,
)
def test_reports_invalid_members_of_an_announcement(
    changed: dict[str, object], problem: str
) -> None:
    good = row(announcement())
    seller_file = read_well(file(good, good | changed))
    assert len(seller_file.announcements) == 1
    assert len(seller_file.problems) == 1
    assert seller_file.problems[0].startswith(f"`payToChanges[1]`: {problem}")


def test_reports_invalid_members_and_entries() -> None:
    file = read_well(b'{"contact": 5, "optOut": "yes", "payToChanges": [7]}')
    assert file == SellerFile(
        problems=(
            "`contact` is not a string.",
            "`optOut` is not true or false.",
            "`payToChanges[0]`: it is not an object.",
        )
    )


def test_ignores_announcements_beyond_the_maximum() -> None:
    seller_file = read_well(file(*[row(announcement())] * (CHANGES_MAX + 1)))
    assert len(seller_file.announcements) == CHANGES_MAX
    assert len(seller_file.problems) == 1


def test_announcement_covers_a_limited_period_after_its_time() -> None:
    item = announcement(not_before=1_000)
    assert not item.covers(999_999)
    assert item.covers(1_000_000)
    assert item.covers(1_000_000 + ANNOUNCED_MS)
    assert not item.covers(1_000_001 + ANNOUNCED_MS)


@given(JSON)
def test_any_json_is_read_without_an_error(content: object) -> None:
    file = read(json.dumps(content).encode(), HOST)
    assert file is None or len(file.statement) <= STATEMENT_MAX


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(text: bytes) -> None:
    read(text, HOST)
