"""The table of routes, and the application that serves it.

Each row of `table` says everything that is known of a route: its method and path, its handler,
what it answers, its price, and whether its ready bytes are kept for some seconds. The cache
rule, the documentation page, /llms.txt and the interface description follow from the rows.

web/edge stands before the routes (sizes, rate limit, cached bytes, headers of every answer);
web/errors says what a caller sees of an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import orjson
from fastapi import Depends, FastAPI
from mcp.server.lowlevel import Server
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tollgauge.web import wire
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.health import Readiness, healthz
from tollgauge.web.edge.middleware import Edge
from tollgauge.web.edge.query import check_query
from tollgauge.web.errors import add_error_handlers
from tollgauge.web.free import models
from tollgauge.web.free.api import EMPTY_OBJECT, PREVIEW, PREVIEW_PATH, FreeApi
from tollgauge.web.free.discovery_files import LLMS, WELL_KNOWN, DiscoveryFiles, ResourcesShape
from tollgauge.web.free.feeds import ATOM, Feeds
from tollgauge.web.mcp import transport
from tollgauge.web.mcp.tools import Tools
from tollgauge.web.pages import views
from tollgauge.web.pages.site import Site
from tollgauge.web.pages.upgrade import Upgrade
from tollgauge.web.paid import request as paid
from tollgauge.web.paid.catalogue import Product
from tollgauge.web.paid.products import bulk, history, similar, trace, trust
from tollgauge.web.watches import create as create_watch
from tollgauge.web.watches import edit, poll, rotate
from tollgauge.web.watches import renew as renew_watch
from tollgauge.web.watches.watch_auth import SECURITY
from tollgauge.web.wire import examples, openapi

VERSION: Final = "2.0.0"
"""Of the interface, as openapi.json names it."""
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
_UNKNOWN: Final = {404: "Nothing is known of this resource"}
_UNKNOWN_PAGE: Final = {404: "Nothing is known of it"}
_INVALID: Final = {
    422: "The resource is missing, or no public https URL, or there is an unknown query parameter"
}


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table.

    `answers` are the response models and statuses, and `request` whatever else OpenAPI says of the
    operation. `cached` keeps the answer ready for some seconds, with an `ETag`; `unlimited` exempts
    from the rate limit. `price` is in millionths of a dollar. The documentation page shows the
    routes that have an `example`: the query of a GET (empty, or with its `?`), or the JSON body of
    a POST. An `internal` route is no part of the interface description.
    Where `strict_query`, a query parameter that the route does not take is refused.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    summary: str
    tag: str
    operation_id: str
    answers: openapi.Answers
    _: KW_ONLY
    request: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    unlimited: bool = False
    price: int | None = None
    example: str | None = None
    internal: bool = False
    strict_query: bool = False


def table(dependencies: Dependencies) -> tuple[Route, ...]:
    """Every route of the service. Where two rows have one path, the first names the method that a
    405 allows.
    """
    sold = (
        *_free_routes(dependencies),
        *_tool_routes(dependencies),
        *_paid_routes(dependencies),
    )
    documented = tuple(_documented(route) for route in sold if route.example is not None)
    return (
        *sold,
        *_page_routes(dependencies, documented),
        *_discovery_routes(dependencies, documented),
        *_watch_routes(dependencies),
        *_health_routes(dependencies),
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
        polling=poll.Polling(dependencies),
        gate=dependencies.gate,
    )
    return transport.server(tools, version=VERSION)


def _free_routes(dependencies: Dependencies) -> Iterable[Route]:
    """JSON and feeds that cost nothing."""
    base_url = dependencies.base_url
    api, feeds = FreeApi(dependencies), Feeds(dependencies)
    snapshot = examples.snapshot(base_url)
    board = openapi.free(wire.LeaderboardShape, examples.leaderboard(base_url))
    counts = openapi.free(wire.EcosystemShape, examples.stats())
    by_url = openapi.free(wire.SnapshotShape, snapshot, _UNKNOWN | _INVALID)
    by_id = openapi.free(wire.SnapshotShape, snapshot, _UNKNOWN)
    samples = openapi.free(wire.PreviewShape, examples.preview())
    decoders = openapi.free(models.ModelsShape, models.example())
    feed = openapi.page(ATOM, own=_UNKNOWN_PAGE)
    query = f"?resource={examples.RESOURCE}"
    best, known = "The best 25 listed endpoints", "Counts over everything that is known"
    decoding = "The decoders that a payment trace can name"
    for path, handle, answers, summary, example in (
        ("/trust/leaderboard", api.leaderboard, board, best, ""),
        ("/trust/stats", api.stats, counts, known, ""),
        ("/trust/snapshot", api.snapshot, by_url, "The cached snapshot of an endpoint", query),
        ("/trust/snapshot/{id}", api.snapshot_by_id, by_id, "The same by the endpoint's id", None),
        (PREVIEW_PATH, api.preview, samples, PREVIEW, ""),
        ("/v1/models", models.models, decoders, decoding, None),
    ):
        id_ = f"get_{handle.__name__}"
        yield Route(
            "GET",
            path,
            handle,
            summary,
            "free",
            id_,
            answers,
            cached=True,
            example=example,
            strict_query=True,
        )
    yield Route(
        "POST",
        PREVIEW_PATH,
        api.preview_by_post,
        PREVIEW,
        "free",
        "post_preview",
        samples
        | openapi.problems(
            {
                400: "The body is not JSON",
                422: "The body is not a JSON object, or an unknown query parameter",
            }
        ),
        request={"requestBody": EMPTY_OBJECT},
        strict_query=True,
    )
    for path, read, summary in (
        ("/endpoint/{id}/feed.xml", feeds.of_endpoint, "An endpoint's incidents, as Atom"),
        ("/provider/{host}/feed.xml", feeds.of_provider, "A provider's incidents, as Atom"),
    ):
        id_ = f"feed_{read.__name__}"
        yield Route("GET", path, read, summary, "free", id_, feed, cached=True)
    yield Route(
        "GET",
        "/openapi.json",
        _interface_description,
        "The interface description",
        "free",
        "get_openapi",
        {},
        cached=True,
        example="",
        internal=True,
    )


def _tool_routes(dependencies: Dependencies) -> Iterable[Route]:
    """The tools for agents."""
    server = mcp_server(dependencies)
    yield Route(
        "POST",
        transport.PATH,
        transport.HttpTransport(server, transport.security(dependencies.base_url)).exchange,
        transport.PURPOSE,
        "mcp",
        "post_mcp",
        transport.answers(),
        request=transport.REQUEST,
        example=orjson.dumps(_LIST_TOOLS).decode(),
    )


def _paid_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What is sold: a POST for each product, and a GET that shows its terms."""
    for product in products(dependencies):
        yield Route(
            "POST",
            product.route,
            paid.buy(product, dependencies.gate.serve),
            product.summary,
            "paid",
            f"post_{paid.operation_suffix(product)}",
            paid.buy_answers(product),
            request=paid.buy_description(product),
            price=dependencies.settings.micro_usd(product.route),
            example=orjson.dumps(product.example).decode(),
        )
    for product in products(dependencies):
        yield Route(
            "GET",
            product.route,
            paid.show_terms(product),
            "What the same path asks by POST",
            "paid",
            f"look_{paid.operation_suffix(product)}",
            paid.terms_answers(product),
            request={"parameters": product.path_parameters()},
        )


def _page_routes(
    dependencies: Dependencies, documented: tuple[views.Route, ...]
) -> Iterable[Route]:
    """Pages for people, and the files that they load."""
    site = Site(dependencies, documented)
    page, known = openapi.page(), openapi.page(own=_UNKNOWN_PAGE)
    badge = openapi.page("image/svg+xml", own=_UNKNOWN_PAGE)
    paying = "Where a wallet in the browser pays for the live report"
    for path, handle, answers, summary, id_ in (
        ("/", site.home, page, "The first page", "page_home"),
        ("/leaderboard", site.leaderboard, page, "The leaderboard as a page", "page_leaderboard"),
        ("/provider/{host}", site.provider, known, "One host's endpoints", "page_provider"),
        ("/methodology", site.methodology, page, "How scores come about", "page_methodology"),
        ("/docs", site.docs, page, "How to ask", "page_docs"),
        ("/endpoint/{id}", site.endpoint, known, "A snapshot as a page", "page_endpoint"),
        ("/endpoint/{id}/badge.svg", site.badge, badge, "The badge of an endpoint", "page_badge"),
        ("/endpoint/{id}/upgrade", Upgrade(dependencies).page, known, paying, "page_upgrade"),
    ):
        yield Route("GET", path, handle, summary, "pages", id_, answers, cached=True)
    to_page, answers = "From a resource's URL to its page", openapi.redirect()
    yield Route("GET", "/endpoint", site.find, to_page, "pages", "page_find", answers)
    for path, file in (("/static/{name}", site.static), ("/favicon.ico", site.favicon)):
        yield Route("GET", path, file, "", "pages", "", {}, cached=True, internal=True)


def _discovery_routes(
    dependencies: Dependencies, documented: tuple[views.Route, ...]
) -> Iterable[Route]:
    """The two files that a machine looks for first."""
    settings = dependencies.settings
    files = DiscoveryFiles(
        base_url=dependencies.base_url,
        routes=documented,
        network=settings.network if settings.pay_to else "",
    )
    sold = openapi.free(ResourcesShape, {"version": 1, "resources": files.sold()})
    text, words = openapi.page("text/plain"), "What this is, for language models"
    for path, handle, answers, summary in (
        (WELL_KNOWN, files.well_known, sold, "What is sold here"),
        (LLMS, files.llms, text, words),
    ):
        id_ = f"get_{handle.__name__}"
        yield Route("GET", path, handle, summary, "free", id_, answers, cached=True)


def _watch_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What the owner of a watch reads and changes."""
    watch, events = "/v1/watch/{id}", poll.Polling(dependencies).poll
    watching = edit.Watching(dependencies)
    for method, path, handle, summary, answers, request in (
        ("GET", f"{watch}/events", events, "What a watch has seen", poll.ANSWERS, SECURITY),
        ("PATCH", watch, watching.edit, edit.EDIT, edit.EDIT_ANSWERS, edit.EDIT_REQUEST),
        ("DELETE", watch, watching.cancel, edit.CANCEL, edit.CANCEL_ANSWERS, SECURITY),
        (
            "POST",
            f"{watch}/rotate",
            rotate.Rotation(dependencies).rotate,
            rotate.ROTATE,
            rotate.ANSWERS,
            rotate.REQUEST,
        ),
    ):
        id_ = f"watch_{handle.__name__}"
        yield Route(
            method,
            path,
            handle,
            summary,
            "watch",
            id_,
            answers,
            request=request,
            strict_query=True,
        )


def _health_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What load balancers ask."""
    ready = "Whether it can sell: its database takes what a sale writes"
    for path, handle, summary, status in (
        ("/healthz", healthz, "Whether the process lives", "ok"),
        ("/readyz", Readiness(dependencies.store, dependencies.clock).readyz, ready, "ready"),
    ):
        id_ = f"get_{handle.__name__}"
        yield Route(
            "GET", path, handle, summary, "health", id_, openapi.health(status), unlimited=True
        )


async def _interface_description(request: Request) -> Response:
    return JSONResponse(await asyncio.to_thread(openapi.description, request.app))


def _documented(route: Route) -> views.Route:
    """A row as the documentation page and /llms.txt show it."""
    return views.Route(
        method=route.method,
        path=route.path,
        purpose=route.summary,
        micro_usd=route.price,
        example=route.example or "",
    )


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
