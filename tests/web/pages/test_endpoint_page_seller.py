"""Parts of the endpoint page for its seller: statement, announced changes, improvements, badge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.page_reader import BASE, HOSTILE, NOW, Reader, snapshot, view
from tests.support.seller_files import announcement

from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.improvement import Improvement
from tollgauge.monitor.reports.endpoint import EndpointView
from tollgauge.monitor.reports.snapshots import Provider
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.web.pages import views
from tollgauge.web.pages.overview_pages import provider_html


def endpoint(shown: EndpointView) -> Reader:
    return Reader(views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=5_000))


FILE = StoredSellerFile(
    host="api.example.com",
    read_at=NOW,
    contact="ops@example.com",
    statement="We had a bad week.",
    opt_out=True,
    problems=("`optOut` is not true or false.",),
    announcements=(announcement(),),
)


def of_endpoint(file: StoredSellerFile) -> Reader:
    return endpoint(replace(view(), seller_file=file))


def of_provider(file: StoredSellerFile) -> Reader:
    provider = Provider(host="api.example.com", rows=(snapshot(),), seller_file=file)
    return Reader(provider_html(provider, {}, base_url=BASE))


@pytest.mark.parametrize("page", [of_endpoint, of_provider])
def test_shows_the_statement_of_the_provider_as_unverified(
    page: Callable[[StoredSellerFile], Reader],
) -> None:
    said = page(FILE).words
    assert "The provider's statement unverified We had a bad week." in said
    assert "Contact, as the provider gives it: ops@example.com ." in said
    assert "has opted out of test purchases" in said
    assert "is unverified, does not affect any score" in said
    assert f"From {announcement().before} to {announcement().after}" in said
    assert "signed by the old address" in said
    assert "optOut is not true or false." in said


@pytest.mark.parametrize("page", [of_endpoint, of_provider])
@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_statements(page: Callable[[StoredSellerFile], Reader], text: str) -> None:
    plain, hostile = page(FILE), page(replace(FILE, statement=text, contact=text))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]


def test_shows_no_statement_without_a_seller_file() -> None:
    assert "provider's statement" not in endpoint(view()).words


def test_timeline_marks_announced_changes() -> None:
    change = TermChange(
        at=NOW, kind="payto-changed", source="probe", before="0x1", after="0x2", announced=True
    )
    said = endpoint(replace(view(), events=(change, replace(change, announced=False)))).words
    assert said.count("announced, seen by probe") == 1
    assert said.count("seen by probe") == 2


def test_endpoint_page_lists_improvements() -> None:
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
    assert "How to raise this score" in said
    assert "Name a token that clients know. lint:asset-known +41.5" in said
    assert "within 1 day" in said
    assert "How to raise this score" not in endpoint(view()).words


def test_badge_can_be_embedded_in_markdown_and_html() -> None:
    snippets = endpoint(view()).pieces["pre"]
    page = f"{BASE}/endpoint/0123456789abcdef"
    assert f"[![tollgauge]({page}/badge.svg)]({page})" in snippets
    assert (
        f'<a href="{page}"><img src="{page}/badge.svg" alt="tollgauge" height="20"></a>' in snippets
    )
