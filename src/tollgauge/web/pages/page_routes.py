"""The rows of the pages for people, and of the files that they load."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tollgauge.web.dependencies import Dependencies
from tollgauge.web.free.endpoint_lists import LIST_PARAMETERS
from tollgauge.web.free.lint import Linting
from tollgauge.web.pages import lint_pages as lint
from tollgauge.web.pages.badge import BadgeResponse, Badges, badge_response
from tollgauge.web.pages.search import SearchPages
from tollgauge.web.pages.site import Site
from tollgauge.web.route import INVALID_FILTER, UNKNOWN_PAGE, DocumentedRoute, Route
from tollgauge.web.wire import openapi
from tollgauge.web.wire.lint_answers import RULES_PATH

_UNKNOWN: Final = {404: "Nothing is known of this resource"}
_OTHER: Final = {422: "The resource is not that of the path"}


def page_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """Pages for people, and the files that they load. No query is strict: whoever passes a link on
    appends parameters to it.
    """
    site, badges = Site(dependencies, documented), Badges(dependencies)
    page, known = openapi.page(), openapi.page(own=UNKNOWN_PAGE)
    asked = openapi.page(own={422: "A query parameter has no such value"})
    policies = openapi.page(own={404: "There is no policy of this version"})
    badge = openapi.page("image/svg+xml", own=UNKNOWN_PAGE)
    paying = "Where a wallet in the browser pays for the live report"
    get = partial(Route, "GET", tag="pages")
    for path, summary, handler, answers in (
        ("/", "The first page", site.home, page),
        ("/leaderboard", "The leaderboard as a page", site.leaderboard, page),
        ("/provider/{host}", "One host's endpoints", site.provider, known),
        ("/methodology", "How scores come about", site.methodology, page),
        ("/methodology/{version}", "The same by any policy", site.methodology_of, policies),
        ("/calibration", "Forecasts held against what happened", site.calibration, page),
        ("/docs", "How to ask", site.docs, page),
        ("/endpoint/{id}", "A snapshot as a page", site.endpoint, known),
        ("/endpoint/{id}/badge.svg", "The badge of an endpoint", badges.badge, badge),
        ("/endpoint/{id}/upgrade", paying, site.upgrade, openapi.page(own=UNKNOWN_PAGE | _OTHER)),
        ("/statistics", "How scores, prices and the rest are spread", site.statistics, page),
        ("/incidents", "What changed lately", site.incidents, asked),
        ("/compare", "Up to four endpoints side by side", site.compare, asked),
    ):
        yield get(path, summary, handler, f"page_{handler.__name__}", answers, cached=True)
    shield = openapi.free(
        BadgeResponse, badge_response("proceed", "A", 914).model_dump(by_alias=True), _UNKNOWN
    )
    yield Route(
        "GET",
        "/endpoint/{id}/badge.json",
        "The badge for shields.io",
        badges.badge_json,
        "get_badge_json",
        shield,
        tag="free",
        cached=True,
        strict_query=True,
    )
    search, redirect = SearchPages(dependencies), openapi.redirect()
    leads = "From a resource's URL to its page, or to the offer to probe it"
    yield get("/endpoint", leads, search.endpoint, "page_find", redirect)
    yield get("/search", "What a URL, a host or words name", search.search, "page_search", redirect)
    every, lists_page = "Every endpoint, page by page", openapi.page(own=INVALID_FILTER)
    yield get(
        "/endpoints",
        every,
        search.endpoints,
        "page_endpoints",
        lists_page,
        cached=True,
        request=LIST_PARAMETERS,
    )
    for path, file in (("/static/{name}", site.static), ("/favicon.ico", site.favicon)):
        yield get(path, "", file, "", {}, cached=True, internal=True)
    yield from _lint_routes(dependencies)


def _lint_routes(dependencies: Dependencies) -> Iterable[Route]:
    """The linter for sellers, as pages."""
    pages = lint.LintPages(Linting(dependencies))
    row = partial(Route, tag="pages")
    html = partial(openapi.page, own=lint.ERRORS)
    for method, path, summary, handler, cached, request in (
        ("GET", lint.PATH, "The linter as a page", pages.form, True, {}),
        ("POST", lint.PATH, "The same, answered", pages.submit, False, lint.REQUEST),
        ("GET", RULES_PATH, "Every rule of the linter", pages.rules, True, {}),
        ("GET", f"{RULES_PATH}/{{slug}}", "A rule of the linter", pages.rule, True, {}),
    ):
        id_ = f"page_lint_{handler.__name__}"
        yield row(method, path, summary, handler, id_, html(), cached=cached, request=request)
