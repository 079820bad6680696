"""Routes of the pages and their static files."""

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
from tollgauge.web.route import INVALID_FILTER, INVALID_QUERY, UNKNOWN_PAGE, DocumentedRoute, Route
from tollgauge.web.wire import openapi
from tollgauge.web.wire.lint_answers import RULES_PATH

_UNKNOWN: Final = {404: "This resource is not monitored"}
_OTHER: Final = {422: "`resource` does not match the ID in the path"}


def page_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """Yield the routes of the pages and their static files."""
    # Pages accept unknown query parameters: mail and social sites append their own to links.
    site, badges = Site(dependencies, documented), Badges(dependencies)
    page, known = openapi.page(), openapi.page(own=UNKNOWN_PAGE)
    asked = openapi.page(own={422: "A query parameter is invalid"})
    wallet = openapi.page(own={404: "No endpoint names or named this address"})
    directory = openapi.page(own={404: "No directory with this name"})
    policies = openapi.page(own={404: "No policy with this version"})
    badge = openapi.page("image/svg+xml", own=UNKNOWN_PAGE | INVALID_QUERY)
    paying = "Buy a live report with a browser wallet"
    get = partial(Route, "GET", tag="pages")
    for path, summary, handler, answers in (
        ("/", "Home page", site.home, page),
        ("/leaderboard", "Leaderboard (HTML)", site.leaderboard, page),
        ("/provider/{host}", "Endpoints of a host (HTML)", site.provider, known),
        (
            "/wallet/{address}",
            "Endpoints and income of a payTo address (HTML)",
            site.wallet,
            wallet,
        ),
        ("/methodology", "Scoring methodology", site.methodology, page),
        ("/methodology/{version}", "Methodology of a policy", site.methodology_of, policies),
        ("/calibration", "Forecasts compared with outcomes (HTML)", site.calibration, page),
        ("/docs", "API guide", site.docs, page),
        ("/endpoint/{id}", "Snapshot of an endpoint (HTML)", site.endpoint, known),
        ("/endpoint/{id}/badge.svg", "Badge of an endpoint", badges.badge, badge),
        ("/endpoint/{id}/upgrade", paying, site.upgrade, openapi.page(own=UNKNOWN_PAGE | _OTHER)),
        ("/statistics", "Distributions over all endpoints", site.statistics, page),
        ("/facilitators", "Facilitators of each network", site.facilitators, page),
        ("/directories", "Entries of each directory (HTML)", site.directories, page),
        ("/directories/{name}", "Entries of a directory (HTML)", site.directory, directory),
        ("/incidents", "Recent changes", site.incidents, asked),
        ("/compare", "Compare up to four endpoints", site.compare, asked),
    ):
        yield get(path, summary, handler, f"page_{handler.__name__}", answers, cached=True)
    shield = openapi.free(
        BadgeResponse, badge_response("proceed", "A", 914).model_dump(by_alias=True), _UNKNOWN
    )
    yield Route(
        "GET",
        "/endpoint/{id}/badge.json",
        "Badge of an endpoint for shields.io",
        badges.badge_json,
        "get_badge_json",
        shield,
        tag="free",
        cached=True,
        strict_query=True,
    )
    search, redirect = SearchPages(dependencies), openapi.redirect()
    leads = "Find the page of a resource by its URL"
    yield get("/endpoint", leads, search.endpoint, "page_find", redirect)
    yield get("/search", "Search (HTML)", search.search, "page_search", redirect)
    every, lists_page = "List all endpoints (HTML)", openapi.page(own=INVALID_FILTER)
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
    """Yield the routes of the linter's pages."""
    pages = lint.LintPages(Linting(dependencies))
    row = partial(Route, tag="pages")
    html = partial(openapi.page, own=lint.ERRORS)
    for method, path, summary, handler, cached, request in (
        ("GET", lint.PATH, "Linter form", pages.form, True, {}),
        ("POST", lint.PATH, "Linter result", pages.submit, False, lint.REQUEST),
        ("GET", RULES_PATH, "List linter rules", pages.rules, True, {}),
        ("GET", f"{RULES_PATH}/{{slug}}", "Linter rule", pages.rule, True, {}),
    ):
        id_ = f"page_lint_{handler.__name__}"
        yield row(method, path, summary, handler, id_, html(), cached=cached, request=request)
