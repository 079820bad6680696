"""What operators are told is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from tollgauge.core import retention
from tollgauge.core.units import DAY_MS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
ROW = re.compile(r"^\| ([a-z ]+?) \| (\d+) days? \|", re.MULTILINE)


def test_the_table_of_retention_says_how_long_each_kind_of_row_is_kept() -> None:
    text = PAGE.read_text(encoding="utf-8").split("### Retention")[1].split("\n### ")[0]
    assert {what: int(days) * DAY_MS for what, days in ROW.findall(text)} == {
        "probes and day sums": retention.RAW_DAYS * DAY_MS,
        "changes of endpoints": retention.CHANGES_MS,
        "discovery events": retention.DISCOVERY_EVENTS_MS,
        "crawls": retention.CRAWLS_MS,
        "forecasts": retention.FORECASTS_MS,
        "evidence": retention.EVIDENCE_MS,
        "announced changes of payto": retention.ANNOUNCEMENTS_MS,
        "answers that were paid for": retention.ANSWERS_MS,
        "rejected payments": retention.REJECTED_MS,
        "deliveries": retention.DELIVERIES_MS,
        "watches": retention.WATCHES_MS,
        "endpoints that were never public": retention.UNLISTED_MS,
        "settlements": retention.SETTLEMENTS_MS,
    }
