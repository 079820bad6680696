"""Every page is well formed, escaped, self-contained and small."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest
from jinja2 import nodes
from tests.support.forecasts import empty_calibration, make_calibration
from tests.support.page_reader import (
    BASE,
    BIDI,
    HOSTILE,
    NOW,
    board,
    board_html,
    read_page,
    snapshot,
    stats,
    unmeasured_view,
    view,
)

from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import Cap
from tollgauge.core.score.score import Component
from tollgauge.monitor.calibration import Calibration
from tollgauge.monitor.reports.endpoint import EndpointView
from tollgauge.monitor.reports.snapshots import Provider, Snapshot
from tollgauge.web.edge.problem import Problem
from tollgauge.web.pages import render, views
from tollgauge.web.pages.overview_pages import provider_html
from tollgauge.web.pages.render import ASSETS

TEMPLATES = sorted(
    entry.name for entry in resources.files("tollgauge.web.pages").joinpath("templates").iterdir()
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_filters_of_template_exist(name: str) -> None:
    # Jinja reports an unknown filter inside a condition only when the condition is true.
    engine = render.ENGINE
    assert engine.loader is not None
    tree = engine.parse(engine.loader.get_source(engine, name)[0])
    assert {one.name for one in tree.find_all(nodes.Filter)} <= engine.filters.keys()


def home(*rows: Snapshot, **changes: Any) -> bytes:
    return board_html("home.html", board(*rows), stats(**changes))


def leaderboard(*rows: Snapshot) -> bytes:
    return board_html("leaderboard.html", board(*rows), stats())


def endpoint(shown: EndpointView) -> bytes:
    return views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=5_000)


def provider(*rows: Snapshot, host: str = "api.example.com") -> bytes:
    return provider_html(Provider(host=host, rows=rows), {}, base_url=BASE)


def calibration(report: Calibration) -> bytes:
    return render.render("calibration.html", BASE, calibration=report)


def error(problem: Problem) -> bytes:
    return render.render("error.html", BASE, problem=problem)


PAGES: dict[str, Callable[[], bytes]] = {
    "home": lambda: home(snapshot()),
    "home-empty": lambda: home(grades=()),
    "leaderboard": lambda: leaderboard(snapshot()),
    "leaderboard-empty": leaderboard,
    "endpoint": lambda: endpoint(view()),
    "endpoint-new": lambda: endpoint(unmeasured_view()),
    "provider": lambda: provider(snapshot()),
    "provider-empty": provider,
    "methodology": lambda: views.methodology_html(base_url=BASE),
    "calibration": lambda: render.render("calibration.html", BASE, calibration=make_calibration()),
    "calibration-empty": lambda: render.render(
        "calibration.html", BASE, calibration=empty_calibration()
    ),
    "not-found": lambda: error(Problem(404, "not-found", "There is no page here.")),
    "error": lambda: error(Problem(429, "rate-limited", "Slow down.")),
}


def hostile_view(text: str) -> EndpointView:
    """Return a view with a text in every field that a provider or a directory writes."""
    shown = snapshot(
        resource=f"https://api.example.com/{text}",
        host=text,
        network=text,
        pay_to=text,
        sources=(text,),
        excluded=((text, 1),),
        service_name=text,
        description=text,
        summary=text,
        verdict=text,
        status=text,
    )
    return view(
        shown,
        components=(Component(name=text, weight=10, tenths=10),),
        flags=(Flag(code=text, severity=Severity.ERROR, message=text),),
        caps=(Cap(code=text, limit_tenths=1, reason=text),),
        events=(TermChange(at=NOW, kind=text, source=text, before=text, after=text),),
    )


def hostile_pages(text: str) -> list[bytes]:
    shown = hostile_view(text)
    return [
        endpoint(shown),
        home(shown.snapshot, grades=((text, 3),)),
        leaderboard(shown.snapshot),
        provider(shown.snapshot, host=text),
        error(Problem(422, text, text)),
    ]


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_well_formed_and_loads_nothing_from_elsewhere(name: str) -> None:
    page = PAGES[name]()
    reader = read_page(page)
    assert page.startswith(b'<!doctype html>\n<html lang="en">')
    assert next(attrs.get("charset") for attrs in reader.all("meta")) == "utf-8"
    assert len(reader.all("h1")) == len(reader.all("main")) == 1
    assert any(attrs.get("class") == "skip" for attrs in reader.all("a"))
    for attrs in reader.all("link"):
        target = attrs["href"] or ""
        if attrs["rel"] == "alternate":  # a feed: a browser offers it, and loads nothing
            assert re.fullmatch(r"/((endpoint|provider)/[\w.]+|incidents)/feed\.xml", target)
            continue
        if attrs["rel"] == "canonical":
            continue
        path = target.removeprefix("/static/").partition("?v=")
        assert ASSETS[path[0]].digest == path[2]


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_has_a_name_or_is_hidden_and_every_column_a_header(name: str) -> None:
    reader = read_page(PAGES[name]())
    for attrs in reader.all("svg"):
        assert attrs.get("aria-hidden") == "true" or (
            attrs.get("role") == "img" and (attrs.get("aria-labelledby") or attrs.get("aria-label"))
        )
    for attrs in reader.all("img"):
        assert attrs.get("alt")
    assert all(attrs.get("scope") for attrs in reader.all("th"))


@pytest.mark.parametrize("name", PAGES)
def test_no_heading_skips_a_level(name: str) -> None:
    levels = [int(level) for level in re.findall(r"<h([1-6])", PAGES[name]().decode())]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_one_description_for_search_engines_and_chats(name: str) -> None:
    reader = read_page(PAGES[name]())
    named = {attrs.get("property") or attrs.get("name"): attrs for attrs in reader.all("meta")}
    (title,) = {text for text in reader.pieces["title"] if "tollgauge" in text}
    assert named["og:title"]["content"] == title
    assert named["og:description"]["content"] == named["description"]["content"]
    canonical = [attrs["href"] for attrs in reader.all("link") if attrs["rel"] == "canonical"]
    if "robots" in named:
        assert name in {"not-found", "error"}
        assert not canonical
    else:
        assert canonical == [named["og:url"]["content"]]
        assert (canonical[0] or "").startswith(f"{BASE}/")


@pytest.mark.parametrize("name", PAGES)
def test_same_view_gives_the_same_page(name: str) -> None:
    assert PAGES[name]() == PAGES[name]()


@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_provider_text_on_every_page(text: str) -> None:
    for page in hostile_pages(text):
        reader = read_page(page)
        assert "canary" not in " ".join(name for _, attrs in reader.elements for name in attrs)
        assert "1337" not in reader.words
        for char in f"{BIDI}\x00\x1b":
            assert char not in page.decode()


@pytest.mark.parametrize("text", HOSTILE)
def test_provider_text_never_becomes_a_link(text: str) -> None:
    for page in hostile_pages(text):
        for attrs in read_page(page).all("a"):
            link = attrs["href"] or ""
            assert link.startswith(("/", "#"))
            of_host = ("/provider/", "/endpoints?host=", "/trust/endpoints?host=")
            assert "evil.example" not in link or link.startswith(of_host)


def test_simulated_data_is_announced() -> None:
    words = "Part of this history is simulated."
    marked = snapshot(simulated=True)
    for page in (
        home(simulated=True),
        home(marked),
        leaderboard(marked),
        provider(marked),
        endpoint(view(marked)),
    ):
        assert words in read_page(page).words
    for real in PAGES.values():
        assert words not in read_page(real()).words


def test_pages_work_below_a_path_prefix() -> None:
    page = board_html("home.html", board(snapshot()), stats(), base_url=f"{BASE}/gauge/")
    for tag in ("a", "link"):
        for attrs in read_page(page).all(tag):
            assert (attrs["href"] or "").removeprefix(BASE).startswith(("/gauge/", "#"))


def test_page_with_many_rows_stays_small() -> None:
    rows = tuple(snapshot(id=f"{n:016x}") for n in range(25))
    assert len(leaderboard(*rows)) < 64_000
    assert len(endpoint(view())) < 64_000


def test_assets_load_nothing_and_two_pages_have_a_script() -> None:
    assert set(ASSETS) == {"copy.js", "favicon.svg", "tollgauge.css", "upgrade.js"}
    for asset in ASSETS.values():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"url\(|@import|https?:|<script|<style|style=", text)
