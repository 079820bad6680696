"""The page of statistics: every count as a number and as a bar."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.page_reader import BASE, HOSTILE, NOW, Reader, stats

from tollgauge.core.score.income import DaySum, PeriodFigures
from tollgauge.core.score.score import ShownDemand
from tollgauge.monitor import statistics
from tollgauge.monitor.statistics import HistogramBin, Statistics
from tollgauge.store.chain.periods import ChainPeriods, PeriodComparison
from tollgauge.store.endpoints.ranking import Share, WeekShares
from tollgauge.web.pages.overview_pages import statistics_html


def bins(edges: tuple[int, ...]) -> tuple[HistogramBin, ...]:
    limits = zip((0, *edges), (*edges, None), strict=True)
    return tuple(
        HistogramBin(least, below, 10 * number) for number, (least, below) in enumerate(limits)
    )


def make_statistics(**changes: object) -> Statistics:
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
        offers=800,
        schemes=(("exact", 790), ("upto", 20)),
        offered_networks=(("eip155:8453", 700), ("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", 200)),
        extensions=(("bazaar", 400),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def page(shown: Statistics) -> Reader:
    return Reader(statistics_html(shown, stats(), (), base_url=BASE))


def test_endpoints_without_a_grade_are_named_and_not_only_counted() -> None:
    assert "73 unscored" in page(make_statistics()).words


def test_every_figure_has_its_counts_and_shares() -> None:
    words = page(make_statistics()).words
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
        "exact 790 98.8% upto 20 2.5%",
        "solana 200 25.0%",
        "bazaar 400 50.0%",
    ):
        assert row in words


def test_largest_count_fills_its_bar_and_zero_draws_nothing() -> None:
    filled = [
        attrs["width"] for attrs in page(make_statistics()).all("rect") if attrs["class"] == "fill"
    ]
    assert {"300", "0"} <= set(filled)
    assert all(0 <= float(width or "") <= 300 for width in filled)


def figures(volume: int, proven: int = 0) -> PeriodFigures:
    return PeriodFigures(
        settlements=1_200,
        volume=volume * 1_000_000,
        buyers=80,
        sellers=12,
        proven_buyers=9,
        proven_volume=proven * 1_000_000,
    )


PERIODS = ChainPeriods(
    chain=8453,
    as_of=NOW,
    last_day=20_415,
    comparisons=(
        PeriodComparison(days=1, current=figures(45, 5), previous=figures(40, 4)),
        PeriodComparison(days=7, current=figures(90, 30), previous=figures(120, 30)),
        PeriodComparison(days=30, current=figures(2_000, 700), previous=None),
    ),
    by_day=tuple(DaySum(20_386 + n, 40, n * 1_000_000, n * 500_000) for n in range(30)),
)


def read_settlements(*, measured: bool = True) -> Reader:
    demand = ShownDemand(payers=1, volume=1, proven_payers=1, proven_volume=1, measured=measured)
    ecosystem = replace(stats(), demand=demand, periods=(PERIODS,))
    return Reader(statistics_html(make_statistics(), ecosystem, (), base_url=BASE))


def test_settlements_are_compared_with_the_previous_period() -> None:
    words = read_settlements().words
    for row in (
        "Figure 1 day 7 days 30 days",
        "Settled volume $45.00 +12.5% $90.00 \N{MINUS SIGN}25.0% $2,000.00",
        "Proven volume $5.00 +25.0% $30.00 +0.0% $700.00",
        "up to 2025-11-23",
    ):
        assert row in words


def test_volume_of_each_day_is_drawn_with_its_proven_part() -> None:
    kinds = [attrs.get("class") for attrs in read_settlements().all("rect")]
    assert kinds.count("fill-none") >= 30
    assert "2025-11-23: $29.00, 40 settlements" in read_settlements().words


def test_unmeasured_proven_figures_are_left_out() -> None:
    words = read_settlements(measured=False).words
    assert "they are not measured here" in words
    assert "Proven volume" not in words
    assert words.count("Proven buyers") == 1
    assert "of proven buyers" not in words


def test_without_an_indexed_chain_the_page_states_it() -> None:
    assert "this server does not index a chain" in page(make_statistics()).words


def test_shares_of_weeks_are_shown_next_to_each_other() -> None:
    def week(number: int, exact: int) -> WeekShares:
        shares = (
            Share("facilitator", "eip155:8453 0xab", 30),
            Share("facilitator", "eip155:8453 ", 10),
            Share("offers", "", 200),
            Share("scheme", "exact", exact),
        )
        return WeekShares(week=number, counted_at=NOW, shares=shares)

    weeks = (week(20_417, 190), week(20_410, 150))
    words = Reader(statistics_html(make_statistics(), stats(), weeks, base_url=BASE)).words
    assert "Scheme 2025-11-25 2025-11-18 exact 95.0% 75.0%" in words
    assert "0xab on Base 75.0% 75.0% others on Base 25.0% 25.0%" in words
    assert "Weekly shares" not in page(make_statistics()).words


def test_explains_the_source_of_endpoints_if_there_are_none() -> None:
    reader = page(make_statistics(endpoints=0))
    assert "No scores yet" in reader.words
    assert not reader.all("table")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str) -> None:
    reader = page(make_statistics(networks=((text, 1),), sources=((text, 1),)))
    assert "1337" not in reader.words
    assert "script" not in {tag for tag, _ in reader.elements}


def test_page_stays_small() -> None:
    names = tuple((f"eip155:{number}" * 4, 100) for number in range(13))
    shown = make_statistics(networks=names, sources=names)
    assert len(statistics_html(shown, stats(), (), base_url=BASE)) < 60_000
