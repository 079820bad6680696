"""The measurement of the payment guards, with small sizes."""

from __future__ import annotations

from bench import guard


def test_both_languages_report_calls_commits_and_decisions() -> None:
    report = guard.run(records=300, calls=5, payments=40)
    names = [measurement.name for measurement in report.measurements]
    for language in ("python", "typescript"):
        assert f"{language}, decision, p50" in names
        assert f"{language}, decision and reservation, p99" in names
    peers = [measurement for measurement in report.measurements if measurement.peer is not None]
    assert [measurement.peer for measurement in peers] == 4 * ["4 commits of SQLite"]
    assert all(measurement.peer_figure for measurement in peers)
