"""The table of routes, and the application that serves it.

A row of `table` has everything about a route: its method and path, its handler, its answers, its
price, and whether its answers are cached. The cache, the documentation page, /llms.txt and the
interface description are derived from the rows.

Every request passes web/edge first (sizes, rate limit, cache, headers of every answer); web/errors
turns exceptions into answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Final

import orjson
from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from mcp.server.lowlevel import Server
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tollgauge.web import demo, wire
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.health import Readiness, healthz
from tollgauge.web.edge.middleware import Edge
from tollgauge.web.edge.query import check_query
from tollgauge.web.errors import add_error_handlers
from tollgauge.web.free import endpoint_lists as lists
from tollgauge.web.free import lint as lint_free
from tollgauge.web.free import models
from tollgauge.web.free.api import EMPTY_OBJECT, PREVIEW, PREVIEW_PATH, FreeApi
from tollgauge.web.free.badge import BadgeShape, badge_shape
from tollgauge.web.free.discovery_files import LLMS, WELL_KNOWN, DiscoveryFiles, ResourcesShape
from tollgauge.web.free.feeds import ATOM, Feeds
from tollgauge.web.free.sitemap import XML, Sitemap
from tollgauge.web.mcp import transport
from tollgauge.web.mcp.tool_texts import PAID
from tollgauge.web.mcp.tools import Tools
from tollgauge.web.pages import lint as lint_pages
from tollgauge.web.pages.finding import Finding
from tollgauge.web.pages.site import Site
from tollgauge.web.pages.views import DocumentedRoute
from tollgauge.web.paid import request as paid
from tollgauge.web.paid.catalogue import BULK, Product
from tollgauge.web.paid.products import bulk, history, similar, trace, trust
from tollgauge.web.watches import create as create_watch
from tollgauge.web.watches import edit, poll, rotate
from tollgauge.web.watches import renew as renew_watch
from tollgauge.web.watches.watch_auth import SECURITY
from tollgauge.web.wire import examples, openapi
from tollgauge.web.wire.lint import RULES_PATH

VERSION: Final = "2.1.0"
"""Of the interface, as openapi.json names it."""
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
_UNKNOWN: Final = {404: "Nothing is known of this resource"}
_UNKNOWN_EVIDENCE: Final = {404: "No report has named it in the last 90 days"}
_UNKNOWN_PAGE: Final = {404: "Nothing is known of it"}
_OTHER: Final = {422: "The resource is not that of the path"}
_INVALID: Final = {
    422: "The resource is missing, or no public https URL, or there is an unknown query parameter"
}
_INVALID_QUERY: Final = {422: "A query parameter that is unknown or has no such value"}
_INVALID_FILTER: Final = {422: "A parameter that is missing, invalid, or not one of this route"}
_NO_OBJECT: Final = {
    400: "The body is not JSON",
    422: "The body is not a JSON object, or an unknown query parameter",
}


@dataclass(frozen=True, slots=True)
class Route(DocumentedRoute):
    """One row of the table.

    The documentation shows the routes that have an `example`. `answers` are the response models
    and statuses, and `request` whatever else OpenAPI says of the operation. `cached`: answers are
    cached for some seconds, with an `ETag`; `unlimited`: the rate limit does not apply. An
    `internal` route is no part of the interface description. With `strict_query`, a query parameter
    that the route does not take is refused.
    """

    handler: Callable[..., Awaitable[Response]]
    operation_id: str
    answers: openapi.Answers
    _: KW_ONLY
    tag: str
    request: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    unlimited: bool = False
    internal: bool = False
    strict_query: bool = False


def table(dependencies: Dependencies) -> tuple[Route, ...]:
    """Every route of the service. Where two rows have one path, the first names the method that a
    405 allows.
    """
    described = (
        *_free_routes(dependencies),
        *_list_routes(dependencies),
        *_lint_routes(dependencies),
        *_tool_routes(dependencies),
        *_paid_routes(dependencies),
    )
    documented = tuple(route for route in described if route.example is not None)
    return (
        *described,
        *_page_routes(dependencies, documented),
        *_discovery_routes(dependencies, documented),
        *_watch_routes(dependencies),
        *_health_routes(dependencies),
        *_demo_routes(dependencies),
    )


def products(dependencies: Dependencies) -> tuple[Product, ...]:
    """Every paid route, in the order in which it is documented."""
    return (
        trust.product(dependencies),
        *bulk.products(dependencies),
        history.product(dependencies),
        trace.product(dependencies),
        similar.product(dependencies),
        create_watch.product(dependencies),
        renew_watch.product(dependencies),
    )


def create(dependencies: Dependencies) -> Edge:
    """The whole ASGI application."""
    app = FastAPI(
        title="tollgauge",
        version=VERSION,
        summary="Trust and reliability scores for pay-per-call (x402) endpoints",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = PlainRoute
    routes = table(dependencies)
    for route in routes:
        _add(app, route)
    add_error_handlers(app, base_url=dependencies.base_url)
    cached = [route.path for route in routes if route.cached]
    return Edge(
        app,
        dependencies.edge,
        cached=frozenset(path for path in cached if "{" not in path),
        cached_under=tuple({path.partition("{")[0]: None for path in cached if "{" in path}),
        unlimited=frozenset(route.path for route in routes if route.unlimited),
    )


def mcp_server(dependencies: Dependencies) -> Server[Any]:
    """Everything that is sold or free, as tools for agents."""
    tools = Tools(
        products=products(dependencies),
        free=FreeApi(dependencies),
        lists=lists.EndpointLists(dependencies),
        linting=lint_free.Linting(dependencies),
        polling=poll.Polling(dependencies),
        gate=dependencies.gate,
    )
    return transport.server(tools, version=VERSION)


def _free_routes(dependencies: Dependencies) -> Iterable[Route]:
    """JSON and feeds that cost nothing."""
    yield from _json_routes(dependencies)
    yield Route(
        "POST",
        PREVIEW_PATH,
        PREVIEW,
        FreeApi(dependencies).preview_by_post,
        "post_preview",
        openapi.free(wire.PreviewShape, examples.preview(), _NO_OBJECT),
        tag="free",
        request={"requestBody": EMPTY_OBJECT},
        strict_query=True,
    )
    feeds, answers = Feeds(dependencies), openapi.page(ATOM, own=_UNKNOWN_PAGE)
    get = partial(Route, "GET", tag="free", cached=True)
    for path, summary, handler in (
        ("/endpoint/{id}/feed.xml", "An endpoint's incidents, as Atom", feeds.of_endpoint),
        ("/provider/{host}/feed.xml", "A provider's incidents, as Atom", feeds.of_provider),
    ):
        yield get(path, summary, handler, f"feed_{handler.__name__}", answers)
    every = "The incidents of all endpoints, as Atom"
    yield get(
        "/incidents/feed.xml",
        every,
        feeds.of_all,
        "feed_of_all",
        openapi.page(ATOM, own=_INVALID_QUERY),
        strict_query=True,
    )
    yield get(
        "/openapi.json",
        "The interface description",
        _interface_description,
        "get_openapi",
        {},
        example="",
        internal=True,
    )


def _json_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What is read by GET as JSON, without a payment."""
    base_url, api = dependencies.base_url, FreeApi(dependencies)
    board = openapi.free(wire.LeaderboardShape, examples.leaderboard(base_url))
    counts = openapi.free(wire.EcosystemShape, examples.stats())
    snapshot = partial(openapi.free, wire.SnapshotShape, examples.snapshot(base_url))
    by_url, by_id = snapshot(_UNKNOWN | _INVALID), snapshot(_UNKNOWN)
    samples = openapi.free(wire.PreviewShape, examples.preview())
    decoders = openapi.free(models.ModelsShape, models.CATALOGUE.model_dump(by_alias=True))
    calibration = openapi.free(wire.CalibrationShape, examples.calibration())
    document = openapi.document(examples.evidence(), _UNKNOWN_EVIDENCE)
    shield = badge_shape("proceed", "A", 914).model_dump(by_alias=True)
    badge = openapi.free(BadgeShape, shield, _UNKNOWN)
    query = f"?resource={examples.RESOURCE}"
    best = "The best 25 listed endpoints that may be paid"
    known = "Counts over everything that is known"
    decoding = "The decoders that a payment trace can name"
    calibrated = "Forecasts held against what happened, by policy"
    get = partial(Route, "GET", tag="free", cached=True)
    for path, summary, handler, answers, example in (
        ("/trust/leaderboard", best, api.leaderboard, board, ""),
        ("/trust/stats", known, api.stats, counts, ""),
        ("/trust/snapshot", "The cached snapshot of an endpoint", api.snapshot, by_url, query),
        ("/trust/snapshot/{id}", "The same by the endpoint's id", api.snapshot_by_id, by_id, None),
        (PREVIEW_PATH, PREVIEW, api.preview, samples, ""),
        ("/calibration.json", calibrated, api.calibration, calibration, ""),
        ("/endpoint/{id}/badge.json", "The badge for shields.io", api.badge_json, badge, None),
        ("/evidence/{digest}", "What a score was computed from", api.evidence, document, None),
        ("/v1/models", decoding, models.models, decoders, None),
    ):
        id_ = f"get_{handler.__name__}"
        yield get(path, summary, handler, id_, answers, example=example, strict_query=True)


def _list_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Search, and every endpoint page by page."""
    endpoints, base_url = lists.EndpointLists(dependencies), dependencies.base_url
    found = openapi.free(wire.lists.SearchShape, examples.search(base_url), _INVALID_FILTER)
    get = partial(Route, "GET", tag="free", cached=True, strict_query=True)
    search = "Endpoints by URL, by host, or by what they are for"
    for path, handler, id_, example in (
        (lists.SEARCH, endpoints.search, "get_search", "?q=weather%20forecast&minGrade=B"),
        (lists.SEMANTIC_SEARCH, endpoints.search, "get_semantic_search", None),
    ):
        yield get(path, search, handler, id_, found, example=example)
    yield Route(
        "POST",
        lists.SEMANTIC_SEARCH,
        search,
        endpoints.search_by_post,
        "post_semantic_search",
        openapi.free(wire.lists.SearchShape, examples.search(base_url), _NO_OBJECT),
        tag="free",
        request={"requestBody": lists.SearchRequest.body(lists.EXAMPLE)},
        strict_query=True,
        example=orjson.dumps(lists.EXAMPLE).decode(),
    )
    page = openapi.free(
        wire.lists.EndpointListShape, examples.endpoint_list(base_url), _INVALID_FILTER
    )
    csv = openapi.csv(_INVALID_FILTER)
    either = {**page, 200: openapi.either(page[200], csv[200])}
    every = "Every listed endpoint, 100 a page, as JSON or CSV"
    query = "?sort=price&grade=A"
    yield get(lists.ENDPOINTS, every, endpoints.endpoints, "get_endpoints", either, example=query)
    as_csv, path = "The same as CSV", f"{lists.ENDPOINTS}.csv"
    yield get(path, as_csv, endpoints.endpoints_csv, "get_endpoints_csv", csv, example=query)


def _lint_routes(dependencies: Dependencies) -> Iterable[Route]:
    """The linter for sellers, as JSON and as pages."""
    linting = lint_free.Linting(dependencies)
    yield Route(
        "POST",
        lint_free.LINT_PATH,
        lint_free.SUMMARY,
        linting.lint,
        "post_lint",
        openapi.free(wire.LintShape, lint_free.example_answer(), lint_free.ERRORS),
        tag="free",
        request={"requestBody": lint_free.LintRequest.body(lint_free.EXAMPLE)},
        example=orjson.dumps(lint_free.EXAMPLE).decode(),
        strict_query=True,
    )
    pages = lint_pages.LintPages(linting)
    row = partial(Route, tag="pages", strict_query=True)
    html = partial(openapi.page, own=lint_pages.ERRORS)
    for method, path, summary, handler, cached, request in (
        ("GET", lint_pages.PATH, "The linter as a page", pages.form, True, {}),
        ("POST", lint_pages.PATH, "The same, answered", pages.submit, False, lint_pages.REQUEST),
        ("GET", RULES_PATH, "Every rule of the linter", pages.rules, True, {}),
        ("GET", f"{RULES_PATH}/{{slug}}", "A rule of the linter", pages.rule, True, {}),
    ):
        id_ = f"page_lint_{handler.__name__}"
        yield row(method, path, summary, handler, id_, html(), cached=cached, request=request)


def _tool_routes(dependencies: Dependencies) -> Iterable[Route]:
    """The tools for agents."""
    server = mcp_server(dependencies)
    yield Route(
        "POST",
        transport.PATH,
        transport.PURPOSE,
        transport.HttpTransport(server, transport.security(dependencies.base_url)).exchange,
        "post_mcp",
        transport.answers(),
        tag="mcp",
        request=transport.REQUEST,
        example=orjson.dumps(_LIST_TOOLS).decode(),
    )


def _paid_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What is sold: a POST for each product, and a GET that shows its terms."""
    sold = products(dependencies)
    for product in sold:
        yield Route(
            "POST",
            product.route,
            product.summary,
            paid.buy(product, dependencies.gate.serve),
            f"post_{paid.operation_suffix(product)}",
            paid.buy_answers(product),
            tag="paid",
            request=paid.buy_description(product),
            micro_usd=dependencies.settings.micro_usd(product.route),
            example=orjson.dumps(product.example).decode(),
            **_tool_of(product),
        )
    for product in sold:
        yield Route(
            "GET",
            product.route,
            "What the same path asks by POST",
            paid.show_terms(product),
            f"look_{paid.operation_suffix(product)}",
            paid.terms_answers(product),
            tag="paid",
            request={"parameters": product.path_parameters()},
        )


def _tool_of(product: Product) -> dict[str, Any]:
    """The tool that sells a product, if there is one, and its arguments."""
    texts = PAID.get(product.route)
    tiers = {route: {"tier": tier} for tier, route in BULK.items()}
    arguments = product.example | tiers.get(product.route, {})
    return {"tool": texts and texts.name, "tool_example": orjson.dumps(arguments).decode()}


def _page_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """Pages for people, and the files that they load."""
    site, api = Site(dependencies, documented), FreeApi(dependencies)
    page, known = openapi.page(), openapi.page(own=_UNKNOWN_PAGE)
    policies = openapi.page(own={404: "There is no policy of this version"})
    badge = openapi.page("image/svg+xml", own=_UNKNOWN_PAGE)
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
        ("/endpoint/{id}/badge.svg", "The badge of an endpoint", api.badge, badge),
        ("/endpoint/{id}/upgrade", paying, site.upgrade, openapi.page(own=_UNKNOWN_PAGE | _OTHER)),
    ):
        yield get(path, summary, handler, f"page_{handler.__name__}", answers, cached=True)
    asked = openapi.page(own=_INVALID_QUERY)
    for path, summary, handler in (
        ("/statistics", "How scores, prices and the rest are spread", site.statistics),
        ("/incidents", "What changed lately", site.incidents),
        ("/compare", "Up to four endpoints side by side", site.compare),
    ):
        id_ = f"page_{handler.__name__}"
        yield get(path, summary, handler, id_, asked, cached=True, strict_query=True)
    finding, redirect = Finding(dependencies), openapi.redirect()
    leads = "From a resource's URL to its page, or to the offer to probe it"
    yield get("/endpoint", leads, finding.endpoint, "page_find", redirect)
    yield get(
        "/search", "What a URL, a host or words name", finding.search, "page_search", redirect
    )
    every, lists_page = "Every endpoint, page by page", openapi.page(own=_INVALID_FILTER)
    yield get("/endpoints", every, finding.endpoints, "page_endpoints", lists_page, cached=True)
    for path, file in (("/static/{name}", site.static), ("/favicon.ico", site.favicon)):
        yield get(path, "", file, "", {}, cached=True, internal=True)


def _discovery_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """The files that a machine looks for first."""
    files, sitemap = DiscoveryFiles(dependencies, documented), Sitemap(dependencies)
    sold = openapi.free(ResourcesShape, {"version": 1, "resources": files.sold()})
    text, xml = openapi.page("text/plain"), openapi.page(XML)
    parts = openapi.page(XML, own={404: "The sitemap has no such part"})
    for path, summary, handler, answers in (
        (WELL_KNOWN, "What is sold here", files.well_known, sold),
        (LLMS, "What this is, for language models", files.llms, text),
        ("/robots.txt", "What crawlers may read", sitemap.robots, text),
        ("/sitemap.xml", "The parts of the sitemap", sitemap.index, xml),
        ("/sitemap/{name}", "A part of the sitemap", sitemap.part, parts),
    ):
        id_ = f"get_{handler.__name__}"
        yield Route("GET", path, summary, handler, id_, answers, tag="free", cached=True)


def _watch_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What the owner of a watch reads and changes."""
    watch, events = "/v1/watch/{id}", poll.Polling(dependencies).poll
    watching, rotation = edit.Watching(dependencies), rotate.Rotation(dependencies)
    row = partial(Route, tag="watch", strict_query=True)
    for method, path, summary, handler, answers, request in (
        ("GET", f"{watch}/events", "What a watch has seen", events, poll.ANSWERS, SECURITY),
        ("PATCH", watch, edit.EDIT, watching.edit, edit.EDIT_ANSWERS, edit.EDIT_REQUEST),
        ("DELETE", watch, edit.CANCEL, watching.cancel, edit.CANCEL_ANSWERS, SECURITY),
        ("POST", f"{watch}/rotate", rotate.ROTATE, rotation.rotate, rotate.ANSWERS, rotate.REQUEST),
    ):
        id_ = f"watch_{handler.__name__}"
        yield row(method, path, summary, handler, id_, answers, request=request)


def _health_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What load balancers ask."""
    ready = "Whether it can sell: its database takes what a sale writes"
    readyz = Readiness(
        dependencies.store,
        dependencies.clock,
        late_ms=dependencies.late_ms,
        loading=dependencies.loading,
    ).readyz
    for path, summary, handler, answers in (
        ("/healthz", "Whether the process lives", healthz, openapi.health("ok")),
        ("/readyz", ready, readyz, openapi.health("ready", openapi.READY)),
    ):
        id_ = f"get_{handler.__name__}"
        yield Route("GET", path, summary, handler, id_, answers, tag="health", unlimited=True)


def _demo_routes(dependencies: Dependencies) -> Iterable[Route]:
    """The wallet of `tollgauge demo`, which no other service has."""
    if not dependencies.demo.buyer_key:
        return
    wallet = demo.DemoWallet(dependencies.demo, dependencies.settings.network)
    for method, path, handler in (
        ("GET", demo.SCRIPT_PATH, wallet.script),
        ("POST", demo.WALLET_PATH, wallet.answer),
    ):
        yield Route(method, path, "", handler, "", {}, tag="pages", internal=True)


async def _interface_description(request: Request) -> Response:
    return JSONResponse(await asyncio.to_thread(openapi.description, request.app))


class PlainRoute(APIRoute):
    """A route whose handler takes the request alone: it is called at once, because FastAPI has
    nothing to read, validate or convert for it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler itself, unless other arguments or dependencies come with it."""
        if self.dependencies or list(signature(self.endpoint).parameters) != ["request"]:
            return super().get_route_handler()
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def _add(app: FastAPI, route: Route) -> None:
    """Serve a row, and describe it."""
    answers = route.answers
    if route.strict_query:
        answers = openapi.problems(openapi.QUERY) | answers
    app.add_api_route(
        route.path,
        route.handler,
        methods=[route.method],
        summary=route.summary,
        operation_id=route.operation_id,
        response_class=Response,
        dependencies=[Depends(check_query)] if route.strict_query else [],
        responses=openapi.cached(answers) if route.cached else answers,
        status_code=402 if 200 not in route.answers and 402 in route.answers else 200,
        tags=[route.tag],
        openapi_extra=dict(route.request) or None,
        include_in_schema=not route.internal,
    )
