"""What an endpoint's page has for its seller."""

from __future__ import annotations

from dataclasses import replace

from tests.support.page_reader import BASE, NOW, Reader, snapshot, view

from tollgauge.core.improvement import Improvement
from tollgauge.monitor.reports import EndpointView
from tollgauge.web.pages import views


def endpoint(shown: EndpointView) -> Reader:
    return Reader(views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=5_000))


def test_an_endpoint_page_says_what_would_raise_the_score() -> None:
    row = Improvement(
        code="lint:asset-known",
        points_tenths=415,
        score_tenths=905,
        grade="A",
        fix="Name a `token` that clients know.",
        in_days=0,
    )
    later = replace(row, code="age", fix="Stay listed.", points_tenths=12, in_days=1)
    said = endpoint(view(snapshot(improvements=(row, later)))).words
    assert "What would raise this score" in said
    assert "Name a token that clients know. lint:asset-known +41.5" in said
    assert "within 1 day" in said
    assert "What would raise this score" not in endpoint(view()).words


def test_a_badge_can_be_embedded_in_markdown_and_html() -> None:
    snippets = endpoint(view()).pieces["pre"]
    page = f"{BASE}/endpoint/0123456789abcdef"
    assert f"[![tollgauge]({page}/badge.svg)]({page})" in snippets
    assert (
        f'<a href="{page}"><img src="{page}/badge.svg" alt="tollgauge" height="20"></a>' in snippets
    )
