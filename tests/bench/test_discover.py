"""The crawl benchmark on a small directory."""

from __future__ import annotations

from pathlib import Path

from bench import directory, discover


async def test_second_crawl_of_file_detects_changes(tmp_path: Path) -> None:
    first, second = directory.write(tmp_path, 120, changed_every=10)
    assert len(first.lines.read_text().splitlines()) == 120
    measured = await discover.from_file(str(first.crawl), str(second.crawl))
    assert (measured["first"]["new"], measured["first"]["complete"]) == (120, True)
    assert (measured["second"]["new"], measured["second"]["seen"]) == (0, 120)
    assert measured["second"]["events"] == {"price-changed": 12}
