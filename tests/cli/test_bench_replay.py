"""`tollgauge bench replay`: input files, results and errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.forecasts import half_hours

from bench import replay_report
from bench.replay import Line


def text_of(site: str, lines: list[Line]) -> str:
    return "".join(
        json.dumps({"site": site, "instant": line.at, "up": line.up}) + "\n" for line in lines
    )


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Two sites for four days; one of them is down for three hours."""
    path = tmp_path / "series.jsonl"
    down = [True] * 100 + [False] * 6 + [True] * 86
    path.write_text(text_of("a", half_hours([True] * 192)) + text_of("b", half_hours(down)))
    return path


def test_figures_are_printed_next_to_baselines(tollgauge: Command, series: Path) -> None:
    done = tollgauge("bench", "replay", str(series))
    assert done.code == 0, done.err
    assert "policy 3: 384 lines of 2 sites, forecasts from 100.00% of them" in done.out
    assert "payableNow compared with the next line within 2 h: 382 forecasts" in done.out
    # Two of 382 next lines differ from their previous line.
    assert f"last-probe          {2 / 382:>10.6f}" in done.out
    for name in ("Brier", "AUC", "base-rate", "uptime-30d", "proceed", "not enough data"):
        assert name in done.out
    assert "next lines not payable, graded A or B: 16.67% of 6" in done.out


def test_json_contains_the_same_figures(tollgauge: Command, series: Path) -> None:
    report = tollgauge("bench", "replay", str(series), "--json").json
    assert (report["sites"], report["lines"], report["every"]) == (2, 384, 1)
    now = report["figures"]["payableNow"]
    assert now["count"] == 382
    assert sum(row["count"] for row in now["reliability"]) == 382
    assert {row["name"] for row in report["figures"]["recommendations"]} >= {"proceed", "caution"}
    assert report["figures"]["failuresGradedAOrB"] == {"count": 6, "share": pytest.approx(1 / 6)}


def test_reads_compressed_file_and_several_files(
    tollgauge: Command, series: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "more.jsonl.gz"
    packed.write_bytes(gzip.compress(text_of("c", half_hours([True, False])).encode()))
    report = tollgauge("bench", "replay", str(series), str(packed), "--json").json
    assert (report["sites"], report["lines"]) == (3, 386)


def test_invalid_line_is_rejected_with_its_number(tollgauge: Command, series: Path) -> None:
    series.write_text(series.read_text() + '{"site": "a", "instant": "soon", "up": true}\n')
    done = tollgauge("bench", "replay", str(series))
    assert (done.code, done.out) == (2, "")
    assert "line 385 has no `instant`" in " ".join(done.err.split())


def test_unreadable_file_and_invalid_option_exit_2(tollgauge: Command, series: Path) -> None:
    assert "cannot be read" in tollgauge("bench", "replay", "nowhere.jsonl").err
    packed = series.with_suffix(".gz")
    packed.write_bytes(b"no gzip")
    assert tollgauge("bench", "replay", str(packed)).code == 2


def test_empty_series_is_reported(tollgauge: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    done = tollgauge("bench", "replay", str(path))
    assert done.code == 0
    assert "0 forecasts" in done.out


def test_result_does_not_depend_on_number_of_processes(
    tollgauge: Command, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tollgauge("bench", "replay", str(series), "--json").json
    monkeypatch.setattr(replay_report, "SINGLE_PROCESS_MAX", 0)
    assert tollgauge("bench", "replay", str(series), "--json").json == alone
