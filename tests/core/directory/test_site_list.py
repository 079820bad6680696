"""Lists of the sites that share a payTo: the parser accepts only complete, well-formed ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.seller_files import HOST, NEW, OLD, list_row, site_list

from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.directory.seller_file import LISTS_MAX, SITES_MAX, SellerFile, read


def read_lists(*rows: object) -> SellerFile:
    file = read(json.dumps({"payToSites": list(rows)}).encode(), HOST)
    assert file is not None
    return file


def test_well_formed_list_is_read() -> None:
    file = read_lists(list_row(site_list()))
    assert file.problems == ()
    assert [one.statement for one in file.site_lists] == [site_list()]


@pytest.mark.parametrize(
    "changed",
    [
        {"network": "eip155:137"},
        {"pay_to": NEW.address.lower()},
        {"sites": ("seller.dev", "thief.com")},
        {"sites": ("seller.dev",)},
        {"issued": 1_794_000_001},
        {"expires": 1_800_000_001},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_signature_is_valid_for_one_list_only(changed: dict[str, object]) -> None:
    signature = bytes.fromhex(list_row(site_list())["signature"][2:])
    other = replace(site_list(), **changed)  # type: ignore[arg-type]
    assert recover_signer(text_digest(other.text), signature) != OLD.address.lower()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"signature": None}, "`signature` is not a signature"),
        ({"signature": "0x" + "00" * 64}, "`signature` is not a signature"),
        ({"network": "solana:x"}, "`network` is not an EVM network"),
        ({"payTo": "0x12"}, "`payTo` is not an address"),
        ({"sites": []}, "`sites` is not an array of 1 to 20"),
        ({"sites": [f"s{n}.com" for n in range(SITES_MAX + 1)]}, "`sites` is not an array of 1"),
        ({"sites": ["other.com", "victim.net"]}, "`sites` does not contain `seller.dev`"),
        ({"sites": ["api.seller.dev", "seller.dev"]}, "not a registrable domain"),
        ({"sites": ["SELLER.dev", "seller.dev"]}, "not a registrable domain"),
        ({"sites": ["seller.dev", 7]}, "not a registrable domain"),
        ({"sites": ["seller.dev", "other.com"]}, "`sites` is not sorted"),
        ({"sites": ["seller.dev", "seller.dev"]}, "`sites` is not sorted"),
        ({"issued": "now"}, "`issued` is not a time"),
        ({"expires": True}, "`expires` is not a time"),
        ({"expires": 1_794_000_000}, "`expires` is not within 400 days"),
        ({"expires": 1_894_000_000}, "`expires` is not within 400 days"),
    ],
    ids=str,
)
def test_reports_invalid_lists(changed: dict[str, object], problem: str) -> None:
    file = read_lists(list_row(site_list()) | changed, list_row(site_list()))
    assert len(file.site_lists) == 1
    assert len(file.problems) == 1
    assert file.problems[0].startswith("`payToSites[0]`: ")
    assert problem in file.problems[0]


def test_lists_beyond_the_maximum_are_ignored() -> None:
    file = read_lists(*[list_row(site_list())] * (LISTS_MAX + 1))
    assert len(file.site_lists) == LISTS_MAX
    assert "more than 5 entries" in file.problems[0]


def test_list_is_valid_from_its_issue_until_its_expiry() -> None:
    item = site_list()
    times = (item.issued - 1, item.issued, item.expires - 1, item.expires)
    assert [item.is_valid(at * SECOND_MS) for at in times] == [False, True, True, False]
