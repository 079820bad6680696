"""The programs and tables of the page about the bundle."""

from __future__ import annotations

import asyncio
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

from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS, SECOND_MS
from tollgauge.core.endpoint.terms import OFFERS_MS, KnownOffer
from tollgauge.core.guard.bundle import (
    LISTED_MS,
    MAX_PATTERNS,
    BundleDraft,
    TrustRecord,
    Variant,
    key_of,
)
from tollgauge.core.guard.preflight import MIN_GRADE, PRICE_FACTOR, Code, Decision
from tollgauge.core.score.advice import RECOMMENDATIONS
from tollgauge.core.score.score import ShownDemand
from tollgauge.demo.serving import serve
from tollgauge.jobs.loop_settings import BundleSettings
from tollgauge.web.free.downloads import CHECK_MS
from tollgauge.web.free.preflight import PreflightResponse
from tollgauge.web.signing import SigningSettings
from tollgauge_guard.decision import STALE_S

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "bundle.md").read_text(encoding="utf-8")
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
    offers=(KnownOffer(BASE, "exact", "0x5ba2ec79ecd49ee6f7ecc90f4fb710730bd5361a", 2_000),),
    flags=("delivers",),
    demand=ShownDemand(payers=43, volume=140_000, proven_payers=12, proven_volume=90_000),
    as_of=1_795_000_000_000,
)


EXAMPLES = [*map(json.loads, re.findall(r"^```json\n(.*?)\n```$", PAGE, re.MULTILINE))]


def test_examples_are_lines_of_a_bundle() -> None:
    draft = BundleDraft(policy_version=3, as_of=1_795_000_000_000)
    draft.add(RECORD)
    body = zstandard.ZstdDecompressor().decompress(draft.build(Variant.ALL).body)
    header, *lines = map(json.loads, body.splitlines())
    shown_header, record, host = EXAMPLES
    assert header == shown_header
    assert list(header) == list(shown_header)
    assert record in lines
    assert [key_of("host:weather.example"), *host[1:]] == host
    assert host in lines


def test_tables_list_every_member_and_index_in_order() -> None:
    header, shown, _ = EXAMPLES
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
    assert f"offers of the last {OFFERS_MS // DAY_MS} days, the latest first" in words
    assert f"their canonical resources, at most {MAX_PATTERNS}" in words
    operating = " ".join((DOCS / "operating/processes.md").read_text(encoding="utf-8").split())
    assert f"checks for newer ones every {CHECK_MS // SECOND_MS} seconds" in operating
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
    asked = {
        Code.PRICE_JUMP,
        Code.CAUTION,
        Code.GRADE_LOW,
        Code.UNKNOWN_RESOURCE,
        Code.PAYTO_VARIES,
    }
    assert {code for code, decision in listed if decision == Decision.ASK} == asked
    assert {decision for code, decision in listed if code not in asked} == {Decision.REFUSE}
    assert f"more than {'twice' if PRICE_FACTOR == 2 else PRICE_FACTOR} the known one" in table
    assert f"the grade is below {MIN_GRADE}" in table


def test_members_of_the_preflight_response_match_the_route() -> None:
    section = PAGE.split("## The preflight")[1]
    members = section.split("| member | meaning |")[1].split("\n\n")[0]
    heads = re.findall(r"^\| (`.*?) \|", members, re.MULTILINE)
    named = [name for head in heads for name in re.findall(r"`(\w+)`", head)]
    shape = PreflightResponse.model_json_schema(by_alias=True, mode="serialization")
    assert sorted(named) == sorted(shape["properties"])
