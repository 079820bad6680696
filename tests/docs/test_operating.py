"""The documents for operators describe the code."""

from __future__ import annotations

import re
from pathlib import Path

from tollgauge.cli.serve import work
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.config import Config
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch import watch_rules
from tollgauge.jobs.loop_settings import Source, SourceKind
from tollgauge.service_status import loops

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = DOCS / "operating"
CONFIG = Config(
    sources=(Source(name="a", kind=SourceKind.BAZAAR, location="https://a.example"),),
    chains=(ChainSettings(network="eip155:8453", nodes=("https://node.example",)),),
)
"""A configuration that enables every loop."""
LOOPS = {"index" if name == "index-8453" else name for name in loops(CONFIG)}
"""The loops, with one name for those of all chains."""
ROW = re.compile(r"^\| ([a-z ]+?) \| (\d+) days? \|", re.MULTILINE)


def test_retention_table_lists_every_kind_of_row() -> None:
    text = (PAGES / "database.md").read_text(encoding="utf-8").split("## Retention")[1]
    text = text.split("\n## ")[0]
    assert {what: int(days) * DAY_MS for what, days in ROW.findall(text)} == {
        "probes and day sums": watch_rules.RAW_DAYS * DAY_MS,
        "changes of endpoints": watch_rules.CHANGES_MS,
        "discovery events": watch_rules.DISCOVERY_EVENTS_MS,
        "crawls": watch_rules.CRAWLS_MS,
        "forecasts": watch_rules.FORECASTS_MS,
        "evidence": watch_rules.EVIDENCE_MS,
        "announced changes of payto": watch_rules.ANNOUNCEMENTS_MS,
        "answers that were paid for": watch_rules.ANSWERS_MS,
        "rejected payments": watch_rules.REJECTED_MS,
        "deliveries": watch_rules.DELIVERIES_MS,
        "watches": watch_rules.WATCHES_MS,
        "endpoints that were never public": watch_rules.UNLISTED_MS,
        "settlements": watch_rules.SETTLEMENTS_MS,
    }


def test_loop_table_lists_every_loop() -> None:
    page = (PAGES / "processes.md").read_text(encoding="utf-8")
    text = page.split("| loop | what it does | every |")[1]
    named = re.findall(r"^\| `([a-z-]+)` \|", text.split("\n\n")[0], re.MULTILINE)
    assert sorted(named) == sorted(LOOPS)


def test_example_of_several_machines_runs_every_loop() -> None:
    """An operator who copies the example must not miss a loop."""
    text = (DOCS / "scaling.md").read_text(encoding="utf-8")
    lists = re.findall(r"work --only ([a-z,-]+)", text)
    assert {name for names in lists for name in names.split(",")} == LOOPS


def test_help_of_work_lists_every_loop() -> None:
    words = re.findall(r"[a-z-]+", work.__doc__ or "")
    assert set(words) >= LOOPS


def test_documented_systemd_units_are_shipped() -> None:
    """Covers every document; `tollgauge@NAME` is an instance of the template."""
    units = {path.name for path in (DOCS.parent / "deploy/systemd").iterdir()}
    instances = {"run", "serve", "work"}
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for line in re.findall(r"^systemctl .*$", page.read_text(encoding="utf-8"), re.MULTILINE):
            for unit in re.findall(r"tollgauge\S*", line):
                name, _, instance = unit.removesuffix(".service").partition("@")
                shipped = f"{name}@.service" if instance else unit
                assert shipped in units, f"{page.name}: {line}"
                assert not instance or instance in instances
