"""The page of statistics: every count as a number and as a bar."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.page_reader import BASE, HOSTILE, NOW, Reader, stats

from tollgauge.monitor import statistics
from tollgauge.monitor.statistics import HistogramBin, Statistics
from tollgauge.web.pages.overview_pages import statistics_html


def bins(edges: tuple[int, ...]) -> tuple[HistogramBin, ...]:
    limits = zip((0, *edges), (*edges, None), strict=True)
    return tuple(
        HistogramBin(least, below, 10 * number) for number, (least, below) in enumerate(limits)
    )


def counted(**changes: object) -> Statistics:
    base = Statistics(
        as_of=NOW,
        endpoints=1_240,
        scores=bins(statistics.SCORES),
        uptimes=bins(statistics.UPTIMES),
        latencies=bins(statistics.LATENCIES),
        no_latency=30,
        prices=bins(statistics.PRICES),
        other_tokens=4,
        no_price=6,
        recommendations=(("proceed", 900), ("avoid", 340)),
        networks=(("eip155:8453", 1_200), ("", 40)),
        sources=(("cdp", 1_000),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def page(shown: Statistics) -> Reader:
    return Reader(statistics_html(shown, stats(), base_url=BASE))


def test_endpoints_without_a_grade_are_named_and_not_only_counted() -> None:
    assert "73 unscored" in page(counted()).words


def test_every_figure_has_its_counts_and_shares() -> None:
    words = page(counted()).words
    for row in (
        "under 10 0 0.0%",
        "90 or more 90 20.0%",
        "0% 0 0.0% 0.1% to 50% 10 3.6%",
        "99.5% to 100% 60 21.4% 100% 70 25.0%",
        "under 100 ms 0 0.0% 100 ms to 250 ms 10",
        "never up in 30 days 30",
        "$0.001 to $0.005 10",
        "$10.00 or more 70",
        "not in dollars another token 4",
        "eip155:8453 base 1,200 96.8%",
        "others 40 3.2%",
        "proceed 900",
        "cdp 1,000 100.0%",
    ):
        assert row in words


def test_the_largest_count_of_a_table_fills_its_bar_and_none_draws_nothing() -> None:
    filled = [attrs["width"] for attrs in page(counted()).all("rect") if attrs["class"] == "fill"]
    assert {"300", "0"} <= set(filled)
    assert all(0 <= float(width or "") <= 300 for width in filled)


def test_without_endpoints_it_says_where_they_come_from() -> None:
    reader = page(counted(endpoints=0))
    assert "No scores yet" in reader.words
    assert not reader.all("table")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str) -> None:
    reader = page(counted(networks=((text, 1),), sources=((text, 1),)))
    assert "1337" not in reader.words
    assert "script" not in {tag for tag, _ in reader.elements}


def test_the_page_stays_small() -> None:
    names = tuple((f"eip155:{number}" * 4, 100) for number in range(13))
    shown = counted(networks=names, sources=names)
    assert len(statistics_html(shown, stats(), base_url=BASE)) < 60_000
