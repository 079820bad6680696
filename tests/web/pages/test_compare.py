"""`/compare`: the figures of each endpoint, the best of each, and invalid input."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.http_service import WEATHER, WEATHER_ID, Running, configuration, open_service
from tests.support.page_reader import BASE, HOSTILE, Reader, snapshot, unmeasured_view, view

from tollgauge.core.endpoint.identity import PUBLIC, endpoint_id
from tollgauge.core.score.score import Down, Settlement, ShownDemand
from tollgauge.monitor.reports.endpoint import EndpointView
from tollgauge.web.pages.views import Column, compare_html, parse_columns

DOWN = Down(since=0, reason="it answered with an error", confirmed=True)
IDS = tuple(f"{number:016x}" for number in range(4))
SETTLED = Settlement(
    network="eip155:8453",
    pay_to="0xab",
    volume=12_340_000,
    transfers=40,
    distinct_payers=17,
    shared_hosts=2,
    indexed_to_block=1,
    indexed_to=1,
)


def page(*shown: EndpointView) -> Reader:
    asked = [Column(text=one.snapshot.resource, id=one.snapshot.id) for one in shown]
    views = {one.snapshot.id: one for one in shown}
    return Reader(compare_html(asked, views, base_url=BASE))


def make_snapshot(number: int, **changes: object) -> EndpointView:
    return view(snapshot(id=IDS[number], **changes))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("compare") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


@pytest.mark.asyncio(loop_scope="module")
async def test_compares_endpoints_by_address_or_id(running: Running) -> None:
    board = (await running.get("/trust/leaderboard")).json()
    resources = [row["resource"] for row in board["endpoints"]]
    other = next(endpoint_id(url) for url in resources if url != WEATHER)
    as_shown = WEATHER.removeprefix("https://")
    answer = await running.get(
        "/compare", params={"a": as_shown, "b": other, "c": WEATHER, "d": WEATHER_ID}
    )
    assert answer.status_code == 200
    reader = Reader(answer.content)
    links = [attrs["href"] for attrs in reader.all("a") if "/endpoint/" in (attrs["href"] or "")]
    assert links == [f"/endpoint/{WEATHER_ID}", f"/endpoint/{other}"]
    assert "etag" in answer.headers
    assert len(answer.content) < 60_000


@pytest.mark.asyncio(loop_scope="module")
async def test_column_explains_an_unknown_or_invalid_address(running: Running) -> None:
    answer = await running.get("/compare", params={"a": "ftp://x", "b": "0" * 16, "c": WEATHER})
    words = Reader(answer.content).words
    assert "ftp://x The resource must start with https://." in words
    assert "0000000000000000 This endpoint is not monitored yet." in words


@pytest.mark.asyncio(loop_scope="module")
async def test_form_of_an_endpoint_page_opens_the_comparison(running: Running) -> None:
    text = (await running.get(f"/endpoint/{WEATHER_ID}")).text
    form = re.search(r'<form class="ask" action="([^"]+)" method="get">', text)
    assert form is not None
    assert f'name="a" value="{WEATHER_ID}"' in text
    answer = await running.get(form[1], params={"a": WEATHER_ID, "b": WEATHER})
    assert answer.status_code == 200


def test_marks_the_best_of_each_figure_that_differs() -> None:
    reader = page(
        make_snapshot(0, score_tenths=900, latency_ms=80, price_micro_usd=5_000),
        make_snapshot(1, score_tenths=700, latency_ms=40, price_micro_usd=5_000),
        make_snapshot(2, score_tenths=900, latency_ms=None, price_micro_usd=None),
    )
    words = reader.words
    assert words.count("90.0 of 100 best") == 2
    assert "70.0 best" not in words
    assert "40 ms best" in words
    assert "80 ms best" not in words
    assert words.count("$0.005 best") == 2
    assert "99.5% best" not in words


def test_shows_settlements_if_measured() -> None:
    shown = ShownDemand(payers=17, volume=2_000_000, proven_payers=3, proven_volume=500_000)
    known = replace(make_snapshot(0), settlement=SETTLED, demand=shown)
    words = page(known, replace(make_snapshot(1), demand=None)).words
    assert "Settled in 30 days $12.34 of the whole wallet Wallets that paid 17 $2.00" in words
    assert "Also buy elsewhere 3 $0.50" in words
    assert "Settled in 30 days — Wallets that paid — Also buy elsewhere —" in words


def test_endpoint_without_a_score_shows_the_reason() -> None:
    words = page(unmeasured_view(), make_snapshot(1)).words
    assert "not scored yet" in words
    assert "not advertised" in words


def test_form_without_input_asks_for_endpoints() -> None:
    reader = Reader(compare_html((), {}, base_url=BASE))
    assert "Put up to four endpoints side by side" in reader.words
    names = [attrs["name"] for attrs in reader.all("input")]
    assert names == ["q", "a", "b", "c", "d"], "the search of every page, and the form"
    labelled = {attrs["for"] for attrs in reader.all("label")}
    assert labelled == {attrs["id"] for attrs in reader.all("input")}


def test_duplicates_are_shown_once_and_empty_fields_are_skipped() -> None:
    url = "https://api.example.com/a"
    (one,) = parse_columns((url, " ", None, f" {url}?x=1 "), PUBLIC)
    assert (one.text, one.problem) == (url, "")
    wrong = parse_columns(("nonsense", "nonsense", None, None), PUBLIC)
    assert [(row.id, bool(row.problem)) for row in wrong] == [(None, True)]


@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_input(text: str) -> None:
    asked = parse_columns((text, None, None, None), PUBLIC)
    reader = Reader(compare_html(asked, {}, base_url=BASE))
    assert "1337" not in reader.words
    assert not {"script", "img"} & {tag for tag, _ in reader.elements}
    shown = page(view(snapshot(id=IDS[0], resource=f"https://x.dev/{text}", network=text)))
    assert not {"script", "img"} & {tag for tag, _ in shown.elements}


def test_comparison_of_four_endpoints_with_ninety_days_stays_small() -> None:
    days = tuple(replace(view().days[0], day=20_000 + number) for number in range(90))
    shown = [replace(make_snapshot(number), days=days) for number in range(4)]
    asked = [Column(text=one.snapshot.resource, id=one.snapshot.id) for one in shown]
    html = compare_html(asked, {one.snapshot.id: one for one in shown}, base_url=BASE)
    assert len(html) < 60_000


def test_down_endpoint_is_the_best_in_nothing_and_its_outage_comes_first() -> None:
    figures = {"uptime_tenths": 999, "payable_24h_permille": 999, "latency_ms": 1}
    down = make_snapshot(0, score_tenths=850, price_micro_usd=1, down=DOWN, **figures)
    slower, faster = make_snapshot(1, score_tenths=700), make_snapshot(2, score_tenths=710)
    said = page(down, slower, faster).words
    column, _, others = said.partition(slower.snapshot.resource.removeprefix("https://"))[
        2
    ].partition(slower.snapshot.resource.removeprefix("https://"))
    assert column.strip().startswith("Down since 1970-01-01 00:00 UTC: it answered with an error.")
    assert " best" not in column
    assert "71.0 of 100 best" in others
