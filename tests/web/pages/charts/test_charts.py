"""Charts: any data gives a valid picture, and missing data is not drawn as measured."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.probe.rollup import SLOT_MS
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.score import Down
from tollgauge.core.score.window import DayScore
from tollgauge.monitor.reports.endpoint import DayBar
from tollgauge.web.pages.badge import badge_svg
from tollgauge.web.pages.charts.days import (
    day_uptime,
    latency_lines,
    score_line,
    score_texts,
    ticks,
    uptime_bars,
    uptime_strip,
    uptime_text,
)
from tollgauge.web.pages.charts.pictures import component_bar, gauge, grade_strip, timeline
from tollgauge.web.pages.charts.svg import element, number

GRADES = (("A", 810), ("B", 650), ("C", 500), ("D", 350), ("F", 0))
KINDS = (
    "listed",
    "delisted",
    "relisted",
    "price-changed",
    "payto-changed",
    "network-changed",
    "something new",
)
GEOMETRY = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"}

counts = st.integers(min_value=0, max_value=10**9)
scores = st.none() | st.builds(DayScore, st.integers(0, 1_000), st.integers(1, 3))
latencies = st.none() | st.integers(min_value=0, max_value=10**7)


@st.composite
def day_rows(draw: st.DrawFn) -> tuple[DayBar, ...]:
    first = draw(st.integers(min_value=0, max_value=40_000))
    size = draw(st.sampled_from((0, 1, 2, 30, 31, 90)))
    return tuple(
        DayBar(
            day=first + index,
            up_ms=draw(counts),
            down_ms=draw(counts),
            scored=draw(counts),
            up=draw(counts),
            excluded=draw(counts),
            p50_ms=draw(latencies),
            p95_ms=draw(latencies),
            score=draw(scores),
        )
        for index in range(size)
    )


events = st.lists(
    st.builds(
        TermChange,
        at=st.integers(min_value=0, max_value=40_000 * DAY_MS),
        kind=st.sampled_from(KINDS),
        source=st.text(max_size=20),
        before=st.text(max_size=20),
        after=st.text(max_size=20),
    ),
    max_size=8,
).map(tuple)


def day(scored: int = 48, up: int = 48, *, p50: int | None = 100, p95: int | None = 200) -> DayBar:
    return DayBar(
        day=20_000,
        up_ms=up * SLOT_MS,
        down_ms=(scored - up) * SLOT_MS,
        scored=scored,
        up=up,
        excluded=0,
        p50_ms=p50,
        p95_ms=p95,
    )


def parse(picture: str) -> ET.Element:
    """The picture as XML, with every coordinate finite and every size not below zero."""
    tree = ET.fromstring(picture)
    for node in tree.iter():
        assert "style" not in node.attrib
        for name in GEOMETRY & node.attrib.keys():
            value = float(node.attrib[name])
            assert math.isfinite(value)
            assert name in {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy"} or value >= 0
        for name in {"points", "d", "transform", "viewBox"} & node.attrib.keys():
            assert not re.search(r"nan|inf", node.attrib[name])
    return tree


def all_of(tree: ET.Element, kind: str) -> list[ET.Element]:
    return [node for node in tree.iter() if kind in node.attrib.get("class", "").split()]


def titles(tree: ET.Element) -> list[str]:
    return [node.text or "" for node in tree.iter("title")]


def columns(tree: ET.Element, kind: str) -> list[tuple[float, float]]:
    """The middle and the height of each column of a kind."""
    paths = "".join(node.attrib["d"] for node in all_of(tree, kind))
    return [(float(x), float(height)) for x, height in re.findall(r"M(\S+) \S+?v([\d.]+)", paths)]


def covers(tree: ET.Element) -> list[float]:
    """Return the length of the line under each day."""
    paths = "".join(node.attrib["d"] for node in all_of(tree, "cover"))
    return [float(length) for length in re.findall(r"h([\d.]+)", paths)]


def tooltips(tree: ET.Element) -> list[str]:
    """The texts of the days."""
    return [text for group in all_of(tree, "hover") for text in titles(group)]


@given(day_rows())
def test_any_days_give_a_valid_picture_of_uptime(days: tuple[DayBar, ...]) -> None:
    tree = parse(uptime_bars(days))
    hollow = sum(bar.spoken_ms == 0 for bar in days)
    assert sum(node.attrib["d"].count("z") for node in all_of(tree, "none")) == hollow
    assert len(covers(tree)) == len(days) - hollow
    assert tooltips(tree) == [uptime_text(bar) for bar in days]
    for kind in ("up", "down"):
        assert all(height >= 4 for _, height in columns(tree, kind))


@pytest.mark.parametrize("number", [1, 7, 30, 60, 90])
def test_bars_fill_the_chart_without_overlap(number: int) -> None:
    first = DayBar(
        day=0, up_ms=DAY_MS, down_ms=0, scored=48, up=48, excluded=0, p50_ms=None, p95_ms=None
    )
    tree = parse(uptime_bars(tuple(replace(first, day=day) for day in range(number))))
    width = float(all_of(tree, "up")[0].attrib["stroke-width"])
    places = [x for x, _ in columns(tree, "up")]
    for x, following in pairwise(places):
        assert x + width < following < x + width + 4
    assert places[0] - width / 2 < 52 + 4
    assert 516 < places[-1] + width / 2 < 520


@given(day_rows())
def test_any_days_give_a_valid_picture_of_latency(days: tuple[DayBar, ...]) -> None:
    tree = parse(latency_lines(days))
    measured = sum((bar.p50_ms is not None) + (bar.p95_ms is not None) for bar in days)
    dots = all_of(tree, "dot")
    assert len(dots) == measured or len(days) > 31
    _, _, width, height = (float(part) for part in tree.attrib["viewBox"].split())
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height


@given(day_rows())
def test_any_days_give_a_valid_picture_of_scores(days: tuple[DayBar, ...]) -> None:
    tree = parse(score_line(days))
    assert tooltips(tree) == [text for text in score_texts(days) if text]
    assert len(tooltips(tree)) == sum(bar.score is not None for bar in days)
    for line in all_of(tree, "line"):
        places = [pair.split(",") for pair in line.attrib["points"].split()]
        assert all(14 <= float(y) <= 144 for _, y in places)


def test_line_of_scores_breaks_at_a_new_policy() -> None:
    rows = tuple(
        replace(day(), day=number, score=DayScore(800, 1 if number < 3 else 2))
        for number in range(6)
    )
    tree = parse(score_line(rows))
    assert len(all_of(tree, "line")) == 2
    named = [text.partition("policy ")[2] for text in tooltips(tree)]
    assert named == ["1", "", "", "2", "", ""]
    same = tuple(replace(row, score=DayScore(800, 2)) for row in rows)
    assert len(all_of(parse(score_line(same)), "line")) == 1


def test_chart_without_stored_scores_explains_it() -> None:
    assert "No score of these days is kept." in titles(parse(score_line((day(),)))) + [
        node.text for node in parse(score_line((day(),))).iter("desc")
    ]


@given(events, st.integers(min_value=0, max_value=40_000), st.integers(0, 90))
def test_any_events_give_a_valid_picture_of_the_changes_in_view(
    events: tuple[TermChange, ...], first: int, span: int
) -> None:
    tree = parse(timeline(events, first_day=first, last_day=first + span))
    shown = [
        event
        for event in events
        if first <= event.at // DAY_MS <= first + span and event.kind != "something new"
    ]
    assert (tree.findtext("desc") or "").startswith(f"{len(shown)} changes between")
    marked = {(event.kind.split("-")[0], event.at // DAY_MS) for event in shown}
    lanes = {"listed": "listing", "delisted": "listing", "relisted": "listing", "network": "payto"}
    marks = {(lanes.get(kind, kind), day) for kind, day in marked}
    drawn = "".join(node.attrib["d"] for node in all_of(tree, "event"))
    assert drawn.count("M") == len(marks)


@given(
    st.none() | st.integers(min_value=0, max_value=1_000),
    st.none() | st.integers(min_value=0, max_value=1_000),
    st.none() | st.integers(min_value=0, max_value=1_000),
)
def test_any_score_gives_a_valid_barrier(
    score: int | None, low: int | None, high: int | None
) -> None:
    tree = parse(gauge(GRADES, score=score, grade="A", low=low, high=high))
    assert len(all_of(tree, "band")) == len(GRADES)
    assert bool(all_of(tree, "boom-none")) == (score is None)
    assert bool(all_of(tree, "range")) == (low is not None and high is not None)


@given(st.lists(st.tuples(st.text(max_size=12), st.integers(0, 10**9)), max_size=8))
def test_any_counts_give_a_valid_strip(grades: list[tuple[str, int]]) -> None:
    tree = parse(grade_strip(tuple(grades)))
    widths = [float(bar.attrib["width"]) for bar in tree.iter("rect")]
    assert sum(widths) <= 600.5


@given(st.integers(0, 100), st.integers(0, 1_000))
def test_any_component_gives_a_valid_bar(weight: int, tenths: int) -> None:
    tree = parse(component_bar(weight, tenths, heaviest=max(1, weight)))
    track, fill = (float(bar.attrib["width"]) for bar in tree.iter("rect"))
    assert 0 <= fill <= track <= 300


@given(
    st.sampled_from(["proceed", "avoid"]) | st.text(max_size=30),
    st.none() | st.text(max_size=30),
    st.none() | st.integers(0, 1_000),
)
def test_any_advice_gives_a_valid_badge(advice: str, grade: str | None, tenths: int | None) -> None:
    shown = ScoreFigures(recommendation=advice, grade=grade, score_tenths=tenths)
    tree = parse(badge_svg(shown).decode())
    assert tree.attrib["aria-label"].startswith("tollgauge: ")
    if advice == "proceed" and (grade is None or tenths is None):
        assert tree.attrib["aria-label"] == "tollgauge: proceed"


@given(st.integers(min_value=0, max_value=10**9))
def test_scale_reaches_the_largest_latency_in_few_round_steps(largest: int) -> None:
    marks = ticks(largest)
    assert marks[0] == 0
    assert marks[-1] >= largest
    assert 3 <= len(marks) <= 6
    assert len({after - before for before, after in pairwise(marks)}) == 1


@given(st.text(), st.text())
def test_escapes_text_in_elements(text: str, other: str) -> None:
    tree = ET.fromstring(element("rect", class_=text, aria_label=other))
    assert set(tree.attrib) == {"class", "aria-label"}
    assert not list(tree)


def test_day_without_probes_is_neither_up_nor_down() -> None:
    tree = parse(uptime_bars((day(0, 0, p50=None, p95=None),)))
    assert not all_of(tree, "up")
    assert not all_of(tree, "down")
    assert tooltips(tree) == ["2024-10-04: no data"]


def test_single_failure_is_visible_and_never_rounded_to_100_percent() -> None:
    bar = day(100_000, 99_999)
    tree = parse(uptime_bars((bar,)))
    assert columns(tree, "down")[0][1] >= 4
    assert day_uptime(bar) == 999
    assert "99.9% up" in uptime_text(bar)


def test_partly_measured_day_shows_its_duration_and_a_shorter_line() -> None:
    (whole,), (part,) = (covers(parse(uptime_bars((bar,)))) for bar in (day(48, 48), day(12, 12)))
    assert part == pytest.approx(whole / 4, abs=0.02)
    assert uptime_text(day(12, 12)).endswith("up of 6 h")


def test_excluded_probes_are_named_on_a_day_without_data() -> None:
    bar = replace(day(0, 0), excluded=7)
    assert uptime_text(bar) == "2024-10-04: no data, 7 left out"


def test_day_of_refusals_is_down_without_scored_probes() -> None:
    bar = replace(day(0, 0), down_ms=DAY_MS, excluded=48)
    tree = parse(uptime_bars((bar,)))
    assert len(all_of(tree, "down")) == 1
    assert not all_of(tree, "up")
    assert uptime_text(bar) == "2024-10-04: 0.0% up of 24 h, 48 left out"


def test_line_has_a_gap_for_days_without_data() -> None:
    rows = [day(), day(), day(p50=None, p95=None), day(), day(), day()]
    tree = parse(latency_lines(tuple(rows)))
    lines = [node for node in all_of(tree, "p50") if node.tag == "polyline"]
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 3]


def test_day_between_two_gaps_is_a_dot() -> None:
    none = day(p50=None, p95=None)
    tree = parse(latency_lines((none, day(), none)))
    assert not list(tree.iter("polyline"))
    assert len(all_of(tree, "dot")) == 2


def test_latency_chart_without_successful_probes_explains_it() -> None:
    tree = parse(latency_lines((day(p50=None, p95=None),)))
    assert "No probe succeeded" in "".join(tree.itertext())
    unseen = parse(latency_lines((day(scored=0, up=0, p50=None, p95=None),)))
    assert "Nothing was measured" in "".join(unseen.itertext())


def test_barrier_is_shut_at_zero_and_upright_at_one_hundred() -> None:
    shut = all_of(parse(gauge(GRADES, score=0, grade="F")), "boom")[0].attrib
    upright = all_of(parse(gauge(GRADES, score=1_000, grade="A")), "boom")[0].attrib
    assert shut["y1"] == shut["y2"]
    assert upright["x1"] == upright["x2"]
    assert float(upright["y2"]) < float(upright["y1"])


def test_barrier_of_a_down_endpoint_is_shut_whatever_its_score() -> None:
    down = Down(since=0, reason="it answered with an error", confirmed=True)
    tree = parse(gauge(GRADES, score=850, grade="A", down=down))
    boom = all_of(tree, "boom")[0].attrib
    assert boom["y1"] == boom["y2"]
    title = tree.find("title")
    assert title is not None
    assert (title.text or "").startswith("Down since 1970-01-01 00:00 UTC: it answered")


def test_barrier_has_score_grade_and_range_as_text() -> None:
    tree = parse(gauge(GRADES, score=831, grade="A", low=800, high=852))
    assert tree.find("title") is not None
    words = " ".join(tree.itertext())
    assert "Trust score 83.1 of 100, grade A" in words
    assert "between 80.0 and 85.2" in words


def test_rejects_a_coordinate_that_is_not_finite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="finite"):
            number(value)


def test_strip_of_a_list_has_a_bar_per_day_and_marks_outages() -> None:
    strip = str(uptime_strip((1_000, 1_000, 979, 0, None, 1_000)))
    assert 'aria-label="6 days: 3 up, 2 with an outage, 1 without data"' in strip
    paths = re.findall(r'd="([^"]*)" class="(\w+)" stroke-width="(\d+)"', strip)
    assert paths == [
        ("M0 8h7M20 8h3", "up", "16"),
        ("M8 11.5h3", "up", "9"),
        ("M8 3h7", "down", "6"),
        ("M16 15h3", "cover", "2"),
    ]


def test_strip_without_closed_days_has_no_data() -> None:
    assert 'aria-label="30 days: 30 without data"' in uptime_strip(())
