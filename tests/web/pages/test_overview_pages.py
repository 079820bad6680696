"""The home page, the leaderboard and the page of a provider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.page_reader import (
    BASE,
    NOW,
    PAY_TO,
    Reader,
    board,
    board_html,
    read_page,
    snapshot,
    stats,
    view,
)

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.watch.changes import Change
from tollgauge.monitor.reports.snapshots import Provider, Snapshot
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.pages.overview_pages import provider_html

TEMPLATES = ["home.html", "leaderboard.html"]


def board_page(template: str, *rows: Snapshot, **figures: Any) -> Reader:
    page = board_html(template, board(*rows), stats(**figures))
    return read_page(page)


def provider_page(provider: Provider) -> Reader:
    return read_page(provider_html(provider, {}, base_url=BASE))


@pytest.mark.parametrize("template", TEMPLATES)
def test_leaderboard_row_has_every_figure(template: str) -> None:
    reader = board_page(template, snapshot())
    assert (
        "1 api.example.com /v1/weather Grade A 83.1 proceed "
        "99.5% up · 1,240 ms · confidence 0.98 $0.005 base" in reader.words
    )
    assert {"/endpoint/0123456789abcdef"} <= {attrs["href"] for attrs in reader.all("a")}


@pytest.mark.parametrize("template", TEMPLATES)
def test_empty_leaderboard_explains_missing_scores(template: str) -> None:
    reader = board_page(template, grades=())
    assert "No scores yet" in reader.words
    assert not reader.all("table")


@pytest.mark.parametrize("template", TEMPLATES)
def test_server_without_endpoints_names_their_sources(template: str) -> None:
    words = board_page(template, grades=(), listed=0, delisted=0, monitored=0).words
    assert "No endpoints yet" in words
    assert "tollgauge discover" in words


def test_provider_page_counts_recommendations_and_shows_paths() -> None:
    rows = (
        snapshot(recommendation="avoid", id="1"),
        snapshot(id="2"),
        snapshot(recommendation="avoid", id="3", resource="https://api.example.com:8443/other"),
    )
    shown = Provider(host="api.example.com", rows=rows)
    words = provider_page(shown).words
    assert "3 monitored endpoints on this host, best first. avoid 2 proceed 1" in words
    assert "Price /v1/weather Grade A" in words
    assert "api.example.com:8443 /other Grade A" in words


def test_provider_page_links_to_the_next_page_if_any() -> None:
    first = Provider(host="api.example.com", rows=(snapshot(),), next_after=snapshot().id)
    reader = provider_page(first)
    (link,) = [attrs for attrs in reader.all("a") if attrs.get("rel") == "next"]
    assert link["href"] == f"/provider/api.example.com?after={snapshot().id}"
    assert "1 monitored endpoint on this host; more on the next page." in reader.words
    last = Provider(host="api.example.com", rows=(snapshot(),), after=snapshot().id)
    reader = provider_page(last)
    assert not [attrs for attrs in reader.all("a") if attrs.get("rel") == "next"]
    assert "1 more monitored endpoint on this host." in reader.words


def test_provider_page_shows_pay_tos_reasons_and_changes() -> None:
    change = Change(
        type="price_change",
        at=NOW,
        severity=Severity.WARN,
        reason="The price is twice the usual one.",
        before={},
        after={},
        evidence={},
    )
    incidents = [
        Incident(
            id=number,
            endpoint_id="2",
            change=replace(change, at=NOW - number * HOUR_MS),
            resource="https://api.example.com/v1/weather",
            simulated=False,
        )
        for number in range(3)
    ]
    demand = view().demand
    shown = Provider(
        host="api.example.com",
        rows=(
            snapshot(id="1", demand=demand),
            snapshot(id="2", recommendation="avoid"),
            snapshot(id="3", pay_to="0x" + "cd" * 20),
        ),
        reasons={"2": "The price rose."},
        changes=tuple(incidents),
    )
    reader = provider_page(shown)
    assert f"/wallet/{PAY_TO}" in [attrs["href"] for attrs in reader.all("a")]
    assert f"{PAY_TO} base 2 endpoints. 43 wallets paid $0.14 in 30 days" in reader.words
    assert f"0x{'cd' * 20} base 1 endpoint. Demand is not measured." in reader.words
    assert "/v1/weather The price rose. Grade A" in reader.words
    assert "Price changed 2025-11-24 16:00 UTC" in reader.words
    assert reader.pieces["summary"][1] == "3 changes in 1 day"
