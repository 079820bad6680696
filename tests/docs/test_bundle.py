"""The programs and tables of the page about the bundle."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from tests.support.http_service import WEATHER, configuration, open_service
from tests.support.signing import KEY, PRIVATE_JWK, verify

from tollgauge.core.base.units import DAY_MS, HOUR_MS, SECOND_MS
from tollgauge.core.guard.bundle import (
    ADDRESSES_MS,
    LISTED_MS,
    SALT_BYTES,
    PaidAddress,
    TrustRecord,
    Variant,
    build_bundle,
    line_of,
)
from tollgauge.core.guard.preflight import MIN_GRADE, PRICE_FACTOR, Code, Decision
from tollgauge.core.score.advice import RECOMMENDATIONS
from tollgauge.demo.serving import serve
from tollgauge.jobs.bundle import BundleSettings
from tollgauge.web.free.bundle_download import CHECK_MS
from tollgauge.web.free.preflight import PreflightResponse
from tollgauge.web.signing import SigningSettings
from tollgauge_guard.decision import STALE_S

PAGE = (Path(__file__).parents[2] / "docs/bundle.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8402"


@pytest.fixture
async def address(tmp_path: Path, market_database: Callable[[Path], str]) -> AsyncIterator[str]:
    """Start a service that signs the bundle of a market; yield its URL."""
    config = configuration(store_url=market_database(tmp_path / "service.db"))
    config = replace(config, signing=SigningSettings(key=PRIVATE_JWK))
    async with open_service(config) as running:
        await running.service.round("bundle")
        async with serve(running.app) as port:
            yield f"http://127.0.0.1:{port}"


async def run_block(block: tuple[str, str], address: str, folder: Path) -> str:
    """Run a block of the page; return its output."""
    kind, text = block
    command = [sys.executable, "-c"] if kind == "python" else ["sh", "-euc"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, text.replace(ADDRESS, address)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return str(done.stdout)


async def test_programs_of_the_page_work(address: str, tmp_path: Path) -> None:
    record, mirror, preflight = BLOCK.findall(PAGE)
    assert (await run_block(record, address, tmp_path)).startswith("['")
    await run_block(mirror, address, tmp_path)
    body = (tmp_path / "bundle.zst").read_bytes()
    signature = (tmp_path / "bundle.zst.jws").read_text()
    verify(signature.strip(), body, "tollgauge-bundle", [KEY.public])
    verdict = json.loads(await run_block(preflight, address, tmp_path))
    assert (verdict["resource"], verdict["decision"]) == (WEATHER, "allow")


RECORD = TrustRecord(
    resource=WEATHER,
    recommendation="proceed",
    grade="B",
    score_tenths=772,
    addresses=(
        PaidAddress(pay_to="0x5ba2ec79ecd49ee6f7ecc90f4fb710730bd5361a", since=1_794_740_800_000),
    ),
    network="eip155:8453",
    amount=2000,
    flags=("no-settlements",),
    as_of=1_795_000_000_000,
)


def test_example_header_and_record_are_current() -> None:
    header, shown = map(json.loads, re.findall(r"^```json\n(.*?)\n```$", PAGE, re.MULTILINE))
    salt = base64.urlsafe_b64decode(header["salt"] + "==")
    assert len(salt) == SALT_BYTES
    built = build_bundle(
        [line_of(RECORD, salt)] * header["count"],
        variant=Variant.ALL,
        salt=salt,
        policy_version=header["policyVersion"],
        as_of=header["asOf"] * 1_000,
        scored=1,
    )
    first, record, *_ = zstandard.ZstdDecompressor().decompress(built.body).splitlines()
    assert json.loads(first) == header
    assert list(json.loads(first)) == list(header)
    assert json.loads(record)[1:] == shown[1:]
    assert len(json.loads(record)[0]) == len(shown[0])


def test_tables_list_every_member_and_index_in_order() -> None:
    header, shown = map(json.loads, re.findall(r"^```json\n(.*?)\n```$", PAGE, re.MULTILINE))
    members = PAGE.split("| member | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", members, re.MULTILINE) == list(header)
    places = PAGE.split("| index | value |")[1].split("\n\n")[0]
    numbers = re.findall(r"^\| (\d+) \|", places, re.MULTILINE)
    assert numbers == [str(place) for place in range(len(shown))]
    (recommendations,) = re.findall(r"^\| 1 \| .*$", places, re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", recommendations) == [*RECOMMENDATIONS]


def test_times_on_the_page_match_the_code() -> None:
    words = " ".join(PAGE.split())
    days = LISTED_MS // DAY_MS
    assert f"a directory listed in the last {days} days" in words
    assert f"payTo addresses of the last {ADDRESSES_MS // DAY_MS} days, newest first" in words
    assert f"checks for newer ones every {CHECK_MS // SECOND_MS} seconds" in words
    assert BundleSettings().every_ms == HOUR_MS
    assert "A bundle is built once per hour" in words
    assert f"guards stop trusting a bundle after {STALE_S // 3_600} hours" in words


def test_page_lists_every_preflight_code_with_its_decision() -> None:
    table = PAGE.split("| code | decision | condition |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \| (\w+) \|", table, re.MULTILINE)
    listed = [
        (code, decision) for codes, decision in rows for code in re.findall(r"`(.*?)`", codes)
    ]
    assert [code for code, _ in listed] == [*Code]
    asked = {Code.CAUTION, Code.GRADE_LOW, Code.UNKNOWN_RESOURCE, Code.PAYTO_VARIES}
    assert {code for code, decision in listed if decision == Decision.ASK} == asked
    assert {decision for code, decision in listed if code not in asked} == {Decision.REFUSE}
    assert f"more than {'twice' if PRICE_FACTOR == 2 else PRICE_FACTOR} the known one" in table
    assert f"the grade is below {MIN_GRADE}" in table


def test_members_of_the_preflight_response_match_the_route() -> None:
    section = PAGE.split("## The preflight")[1]
    members = section.split("| member | meaning |")[1].split("\n\n")[0]
    heads = re.findall(r"^\| (`.*?) \|", members, re.MULTILINE)
    named = [name for head in heads for name in re.findall(r"`(\w+)`", head)]
    shape = PreflightResponse.model_json_schema(by_alias=True)
    assert sorted(named) == sorted(shape["properties"])
