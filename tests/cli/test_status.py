"""`tollgauge status`, which reads only the database."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.http_service import configuration, open_service

from tollgauge.service_status import loops


def test_status_of_service_that_never_ran_needs_attention(
    tollgauge: Command, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/t.sqlite"
    assert tollgauge("status", DATABASE_URL=database).code == 2
    tollgauge("migrate", DATABASE_URL=database)
    before = (tmp_path / "t.sqlite").read_bytes()
    done = tollgauge("status", "--json", DATABASE_URL=database)
    assert (done.code, done.json["good"]) == (1, False), done.err
    assert done.json["problems"][0].startswith(
        "Loops that never ran: schedule, lateness, probe, alert"
    )
    assert "No backup exists. Run `tollgauge backup`." in done.json["warnings"]
    assert any("no [[sources]]" in words for words in done.json["warnings"])
    assert (tmp_path / "t.sqlite").read_bytes() == before
    text = tollgauge("status", DATABASE_URL=database)
    assert text.code == 1
    assert "Loops that never ran" in text.out
    assert "0 of 0 due" in text.out
    assert tollgauge("backup", "copy.sqlite", DATABASE_URL=database).code == 0
    after = tollgauge("status", "--json", DATABASE_URL=database).json
    assert after["backupAt"] is not None


def test_database_of_another_version_exits_2(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "t.sqlite").write_bytes(b"")
    done = tollgauge("status", "--json", DATABASE_URL=f"sqlite:///{tmp_path}/t.sqlite")
    assert (done.code, done.out) == (2, "")
    assert "tollgauge migrate" in done.err


def test_bundle_is_listed_with_age_and_size(
    tollgauge: Command, tmp_path: Path, market_database: Callable[[Path], str]
) -> None:
    database = market_database(tmp_path / "t.sqlite")
    (line,) = [
        line
        for line in tollgauge("status", DATABASE_URL=database).out.splitlines()
        if line.startswith("bundle all")
    ]
    assert re.fullmatch(
        r"bundle all +2026-11-18T11:06:40Z, \d+ records, 0\.01 MB, built in 0\.0 s, signed",
        line,
    )


def test_watch_option_repeats_until_interrupted(
    tollgauge: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = f"sqlite:///{tmp_path}/t.sqlite"
    tollgauge("migrate", DATABASE_URL=database)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", wait)
    done = tollgauge("status", "--watch", DATABASE_URL=database)
    assert (done.code, len(waited)) == (130, 2)
    assert done.out.count("Loops that never ran") == 2


async def test_expected_loops_are_those_that_the_service_runs(tmp_path: Path) -> None:
    config = configuration(store_url=f"sqlite:///{tmp_path}/t.db")
    async with open_service(config) as running:
        assert set(loops(config)) == {job.name for job in running.service.jobs()}
