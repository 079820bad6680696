"""`discover` with one file: loading and rejecting it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.http_service import NOW

from tollgauge.demo.directory import items_at


def test_discover_loads_a_file_into_the_database(tollgauge: Command, tmp_path: Path) -> None:
    items = [
        item
        for item in items_at(NOW, present=NOW)
        if not isinstance(item, dict) or ".example" not in str(item.get("resource"))
    ]
    public = [
        {"resource": f"https://api-{n}.example.com/paid", "type": "http", "x402Version": 2}
        | {"accepts": [], "lastUpdated": NOW // 1000}
        for n in range(3)
    ]
    path = tmp_path / "listing.json"
    path.write_text(json.dumps({"x402Version": 2, "items": [*public, *items]}))
    database = f"sqlite:///{tmp_path / 'new' / 'folder' / 'd.db'}"
    done = tollgauge("discover", str(path), "--json", "--name", "cdp", DATABASE_URL=database)
    assert done.code == 0, done.err
    assert done.json["source"] == "cdp"
    assert done.json["new"] == 3
    assert sum(done.json["skipped"].values()) == len(items)
    assert done.json["items"] == 3 + len(items)
    assert done.json["problem"] is None
    again = tollgauge("discover", str(path), "--json", "--name", "cdp", DATABASE_URL=database)
    assert (again.json["new"], again.json["seen"]) == (0, 3)
    assert (tmp_path / "new" / "folder" / "d.db").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing.json",), 2, "The file missing.json does not exist"),
        (("broken.json",), 2, "not JSON"),
        (("cut.json",), 2, "ends early at line 1."),
        (("cut.json.gz",), 2, "gzip"),
        (("http://example.com/list",), 2, "is not an https:// URL"),
        (("https://example.com/", "--kind", "pigeon"), 2, "'pigeon' is not one of"),
        (("https://127.0.0.1/list",), 1, "address-not-public"),
    ],
)
def test_discover_reports_unreadable_files(
    tollgauge: Command, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "broken.json").write_text("{x")
    (tmp_path / "cut.json").write_text("{")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"[]" * 500)[:20])
    done = tollgauge("discover", *words, DATABASE_URL="sqlite://")
    assert done.code == code
    assert message in done.err


def test_discover_exits_1_for_an_incomplete_listing(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text(
        json.dumps({"items": ["https://api.example.com/paid"], "pagination": {"total": 2}})
    )
    done = tollgauge("discover", "part.json", "--json", DATABASE_URL="sqlite://")
    assert (done.code, done.json["complete"], done.json["new"]) == (1, False, 1)
    done = tollgauge("discover", "part.json", DATABASE_URL="sqlite://")
    assert done.code == 1
    assert "complete   no" in done.out
    assert "states that it is incomplete" in done.err
