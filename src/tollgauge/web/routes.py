"""The routes, with the price visible on each paid row, and the one table of errors.

The front (sizes, rate limit, cached bytes, headers of every answer) stands before the routes. A
handler raises; the table at the end says what a caller sees: an `application/problem+json`
document, or a page for a browser that asked for one. No answer ever holds a traceback or a
foreign text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from mcp.server.lowlevel import Server
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tollgauge.core.endpoint import PUBLIC, Perimeter
from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.observe import PAID_REQUESTS, log, place_of
from tollgauge.web.edge.compress import compressed
from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.health import Readiness
from tollgauge.web.edge.middleware import Edge, EdgeSettings
from tollgauge.web.edge.problem import Invalid, Problem, fault, store_unavailable
from tollgauge.web.free import models
from tollgauge.web.free.api import FreeApi
from tollgauge.web.free.discovery_files import LLMS, WELL_KNOWN, DiscoveryFiles
from tollgauge.web.free.feeds import Feeds
from tollgauge.web.mcp import transport
from tollgauge.web.mcp.tools import Tools
from tollgauge.web.pages import views
from tollgauge.web.pages.site import HTML, Site
from tollgauge.web.pages.upgrade import Upgrade
from tollgauge.web.paid import catalogue, payment_preview
from tollgauge.web.paid.catalogue import Call, PaidDependencies, Product
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.payment_terms import payment_required
from tollgauge.web.paid.products import products, trust
from tollgauge.web.paid.products.watch import delivery_tester
from tollgauge.web.watches.edit import Watching
from tollgauge.web.watches.poll import Polling
from tollgauge.web.watches.rotate import Rotation
from tollgauge.web.wire import examples, openapi

VERSION: Final = "2.0.0"
"""Of the interface, as openapi.json names it."""
CACHED: Final = frozenset(
    {"/", "/leaderboard", "/methodology", "/docs", "/v1/x402-trust-preview", "/openapi.json"}
    | {LLMS, WELL_KNOWN}
)
CACHED_UNDER: Final = ("/trust/", "/endpoint/", "/provider/", "/static/", "/favicon.ico")
_BASE_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.ASCII)
_PORT_MAX: Final = 65_535
_ANSWERS: Final = {catalogue.TRUST: examples.trust_report()}
"""Whole answers as examples; a product's own example is the start of one."""
_HELLO: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the server listens and what it calls itself.

    `base_url` is the public address, without a slash at the end; `admin_port` serves metrics on
    loopback, 0 switches it off. Raises ValueError.
    """

    base_url: str = "http://127.0.0.1:8402"
    host: str = "127.0.0.1"
    port: int = 8402
    admin_port: int = 8403
    json_logs: bool = False
    front: EdgeSettings = field(default_factory=EdgeSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)

    def __post_init__(self) -> None:
        if not _BASE_URL.fullmatch(self.base_url):
            raise ValueError("base_url must be a http:// or https:// URL without a query")
        if not all(0 <= port <= _PORT_MAX for port in (self.port, self.admin_port)):
            raise ValueError(f"port and admin_port must be 0 to {_PORT_MAX}")
        if self.port and self.port == self.admin_port:
            raise ValueError("port and admin_port must differ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The opened resources that routes work with."""

    store: Store
    gate: Gate
    dependencies: PaidDependencies
    clock: Callable[[], int]
    settings: ServerSettings
    perimeter: Perimeter = PUBLIC


def create(services: Services) -> Edge:
    """The whole ASGI application."""
    app = FastAPI(
        title="tollgauge",
        version=VERSION,
        summary="Trust and reliability scores for pay-per-call (x402) endpoints",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    base_url, shared = _base_url(services), _shared(services)
    app.include_router(FreeApi(**shared).router())
    app.include_router(transport.router(mcp_server(services), base_url=base_url))
    app.include_router(models.router())
    for product in products(services.dependencies):
        _sell(app, services, product)
    app.include_router(
        payment_preview.router(
            (each, _payment_required_example(each)) for each in products(services.dependencies)
        )
    )
    sale, routes = services.dependencies.settings, _documented(services.dependencies)
    app.include_router(
        Site(
            **shared,
            report_micro_usd=catalogue.micro_usd(sale.price(catalogue.TRUST))
            if sale.pay_to
            else None,
            routes=routes,
        ).router()
    )
    network = sale.network if sale.pay_to else ""
    app.include_router(DiscoveryFiles(base_url=base_url, routes=routes, network=network).router())
    app.include_router(Upgrade(dependencies=services.dependencies).router())
    app.include_router(polling(services).router())
    app.include_router(watching(services).router())
    rotation = Rotation(
        store=services.store,
        clock=services.clock,
        base_url=base_url,
        sealer=services.dependencies.sealer,
        chain=services.gate.chain,
    )
    app.include_router(rotation.router())
    feeds = Feeds(store=services.store, base_url=base_url, clock=services.clock)
    app.include_router(feeds.router())
    _add_health(app, services)
    _add_errors(app, base_url)
    openapi.finish(app)
    openapi.add_bearer(app.openapi())
    return Edge(
        app,
        services.settings.front,
        cached=CACHED,
        cached_under=CACHED_UNDER,
        unlimited=frozenset({"/healthz", "/readyz"}),
    )


def mcp_server(services: Services) -> Server[Any]:
    """Everything that is sold or free, as tools for agents."""
    tools = Tools(
        products=products(services.dependencies),
        free=FreeApi(**_shared(services)),
        polling=polling(services),
        gate=services.gate,
    )
    return transport.server(tools, version=VERSION)


def polling(services: Services) -> Polling:
    """What the owners of watches may read."""
    return Polling(store=services.store, clock=services.clock, base_url=_base_url(services))


def watching(services: Services) -> Watching:
    """What the owners of watches may change."""
    dependencies = services.dependencies
    return Watching(
        store=services.store,
        clock=services.clock,
        perimeter=services.perimeter,
        sealer=dependencies.sealer,
        delivery_tester=delivery_tester(dependencies),
    )


def _base_url(services: Services) -> str:
    return services.settings.base_url.rstrip("/")


def _shared(services: Services) -> dict[str, Any]:
    """What every reader of the store is given."""
    return {
        "store": services.store,
        "clock": services.clock,
        "base_url": _base_url(services),
        "perimeter": services.perimeter,
    }


def _sell(app: FastAPI, services: Services, product: Product) -> None:
    """A paid row: its price, its gate, its description."""
    route, price = product.route, services.dependencies.settings.price(product.route)

    async def answer(request: Request) -> Response:
        status = 500
        try:
            call = Call(path=request.url.path, parameters=request.path_params)
            response = await services.gate.serve(request, product.sale(call))
            status = response.status_code
            response = await compressed(request, response)
        except Problem as problem:
            status = problem.status
            raise
        finally:
            PAID_REQUESTS.labels(route, str(status)).inc()
            log().info("paid.request", route=route, status=status)
        return response

    app.add_api_route(
        route,
        answer,
        methods=["POST"],
        summary=product.summary,
        operation_id=f"post_{route.rsplit('/', 1)[-1].replace('-', '_')}",
        response_class=Response,
        responses=openapi.paid(
            product.shape,
            _ANSWERS.get(route, product.answer),
            _payment_required_example(product),
            product.refusals,
        ),
        tags=["paid"],
        openapi_extra={
            **(_payment_info(price) if services.dependencies.settings.pay_to else {}),
            "requestBody": {
                "required": not product.bodyless,
                "description": catalogue.FIELDS,
                "content": {
                    "application/json": {"schema": product.body, "example": product.example}
                },
            },
            "parameters": [
                {
                    "name": "PAYMENT-SIGNATURE",
                    "in": "header",
                    "required": False,
                    "description": "The signed x402 v2 payment, base64 of its JSON, at most 16 KB",
                    "schema": {"type": "string"},
                },
                *product.path_parameters(),
            ],
        },
    )


def _payment_info(price: str) -> dict[str, Any]:
    """What directories read as "this is sold", hence left out while nothing is."""
    return {
        "x-payment-info": {
            "price": {"mode": "fixed", "currency": "USD", "amount": price},
            "protocols": [{"x402": {}}],
        }
    }


def _payment_required_example(product: Product) -> Any:
    """What an unpaid request is told, also where nothing is for sale yet."""
    dependencies = product.dependencies
    settings = replace(
        dependencies.settings, pay_to=dependencies.settings.pay_to or examples.PAY_TO
    )
    sale = replace(product, dependencies=replace(dependencies, settings=settings)).sale()
    return orjson.loads(bytes(payment_required(sale, "PAYMENT-SIGNATURE header is required").body))


def _documented(dependencies: PaidDependencies) -> tuple[views.Route, ...]:
    """The routes as the docs page shows them."""
    example = f"?resource={trust.EXAMPLE['resource']}"
    free = (
        ("/trust/leaderboard", "The best 25 endpoints", ""),
        ("/trust/stats", "Counts over everything that is known", ""),
        ("/trust/snapshot", "The cached snapshot of an endpoint", example),
        ("/v1/x402-trust-preview", "Three full sample reports", ""),
        ("/openapi.json", "The interface description", ""),
    )
    rows = [
        views.Route(method="GET", path=path, purpose=words, example=query)
        for path, words, query in free
    ]
    rows.append(
        views.Route(
            method="POST",
            path=transport.PATH,
            purpose=transport.PURPOSE,
            example=orjson.dumps(_HELLO).decode(),
        )
    )
    rows += [
        views.Route(
            method="POST",
            path=product.route,
            purpose=product.summary,
            micro_usd=catalogue.micro_usd(dependencies.settings.price(product.route)),
            example=orjson.dumps(product.example).decode(),
        )
        for product in products(dependencies)
    ]
    return tuple(rows)


def _add_health(app: FastAPI, services: Services) -> None:
    readiness = Readiness(store=services.store, clock=services.clock)

    async def healthz() -> Response:
        return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})

    async def readyz() -> Response:
        await readiness.check()
        return JSONResponse({"status": "ready"}, headers={"Cache-Control": "no-store"})

    for path, handler, state, words in (
        ("/healthz", healthz, "ok", "Whether the process lives"),
        ("/readyz", readyz, "ready", "Whether it can sell: its database takes what a sale writes"),
    ):
        app.add_api_route(
            path,
            handler,
            methods=["GET"],
            summary=words,
            operation_id=f"get_{handler.__name__}",
            response_class=Response,
            responses=openapi.health(state),
            tags=["health"],
        )


def _add_errors(app: FastAPI, base_url: str) -> None:
    """The one table: what was raised, and what a caller sees."""

    def show(request: Request, problem: Problem) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return problem.response()
        html = views.error_html(
            status=problem.status,
            title=problem.code.replace("-", " ").capitalize(),
            detail=str(problem),
            code=problem.code,
            base_url=base_url,
        )
        return Response(
            html, status_code=problem.status, media_type=HTML, headers=problem.headers()
        )

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class
        return show(request, error)

    async def parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
        names = sorted({str(each["loc"][-1]) for each in error.errors()})
        wrong = tuple(Invalid(path=name, message=f"{name} is missing.") for name in names)
        return show(request, Problem(422, "invalid-input", wrong[0].message, errors=wrong))

    async def store_gone(request: Request, _error: Exception) -> Response:
        return show(request, store_unavailable())

    async def routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
        words = {404: "There is nothing at this address.", 405: "This method is not allowed here."}
        detail = words.get(error.status_code, "The request cannot be served.")
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
        response = show(request, Problem(error.status_code, code, detail))
        response.headers.update(error.headers or {})
        return response

    async def bug(request: Request, error: Exception) -> Response:
        log().error(
            "request.fail",
            path=request.url.path,
            error=type(error).__name__,
            where=place_of(error),
        )
        return show(request, fault())

    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(StoreUnavailable, store_gone)
    app.add_exception_handler(RequestValidationError, parameters)
    app.add_exception_handler(HTTPException, routing)
    app.add_exception_handler(Exception, bug)
