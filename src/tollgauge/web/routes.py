"""The table of routes, and the application that serves it.

Most routes are declared at their handlers; those that keep state or need the configuration are
declared here. Every request passes web/edge first. Exceptions become an `application/problem+json`
document (RFC 9457) for clients and a page for browsers, without a traceback or the text of a
foreign exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any, Final

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tollgauge.db.engine import StoreUnavailable
from tollgauge.observe import log, place_of
from tollgauge.web import mcp
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.health import Readiness, healthz
from tollgauge.web.edge.messages import accepts_page
from tollgauge.web.edge.middleware import Edge
from tollgauge.web.edge.problem import Invalid, Problem, internal_error, store_unavailable
from tollgauge.web.free import (
    api,
    discovery_files,
    downloads,
    endpoint_lists,
    keys,
    lint,
    outcomes,
    preflight,
)
from tollgauge.web.pages import badge, lint_pages, search, site
from tollgauge.web.pages.render import render
from tollgauge.web.paid import request
from tollgauge.web.paid.product import Product
from tollgauge.web.paid.products import all_products
from tollgauge.web.route import Route, Routes, describe, serve
from tollgauge.web.watches import edit, poll, watch_secret
from tollgauge.web.wire import openapi
from tollgauge.web.wire.examples import BASE_URL

VERSION: Final = "2.2.0"
"""Version of the interface in openapi.json."""
_ROUTES: Final = Routes(tag="free", cached=True)
_NO_ROUTE: Final = {
    404: ("not-found", "There is nothing at this address."),
    405: ("method-not-allowed", "This method is not allowed here."),
}


def table(dependencies: Dependencies) -> tuple[Route, ...]:
    """Return all routes. If two rows have the same path, a 405 names the method of the first."""
    return (
        *api.ROUTES.rows,
        *preflight.ROUTES.rows,
        *downloads.Bundles(dependencies).routes(),
        *downloads.ROUTES.rows,
        *discovery_files.FEEDS.rows,
        *endpoint_lists.ROUTES.rows,
        *lint.ROUTES.rows,
        *outcomes.ROUTES.rows,
        *_ROUTES.rows,
        mcp.route(dependencies),
        *_paid_routes(dependencies),
        *site.PAGES.rows,
        *badge.ROUTES.rows,
        *search.ROUTES.rows,
        *lint_pages.ROUTES.rows,
        *discovery_files.FILES.rows,
        *keys.ROUTES.rows,
        *poll.ROUTES.rows,
        *edit.ROUTES.rows,
        *watch_secret.ROUTES.rows,
        *_health_routes(dependencies),
    )


def create(dependencies: Dependencies, more: Iterable[Route] = ()) -> Edge:
    """Build the ASGI application, with the routes of the table and `more`."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    routes = (*table(dependencies), *more)
    app.state.dependencies, app.state.routes = dependencies, routes
    app.state.interface = cache(partial(build_interface, routes, dependencies.base_url))
    # Routes are tried one after the other. Most requests for a cached answer end before this, so
    # the other routes come first, paid ones before free ones.
    for route in sorted(routes, key=lambda route: (route.cached, route.micro_usd is None)):
        serve(app, route)
    _add_error_handlers(app, base_url=dependencies.base_url)
    cached = [route.path for route in routes if route.cached]
    return Edge(
        app,
        dependencies.edge,
        cached=frozenset(path for path in cached if "{" not in path),
        cached_under=tuple({path.partition("{")[0]: None for path in cached if "{" in path}),
        unlimited=frozenset(route.path for route in routes if route.unlimited),
        refuse=partial(_error_response, base_url=dependencies.base_url),
    )


def _paid_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield two routes per product: POST buys, GET shows the terms."""
    for product in all_products():
        terms = request.example_terms(product, dependencies)
        yield Route(
            "POST",
            product.path,
            product.summary,
            request.buy(product, dependencies, dependencies.gate.serve),
            request.buy_answers(product, terms),
            tag="paid",
            name=f"post_{request.operation_suffix(product)}",
            request=request.buy_description(product, dependencies.settings),
            micro_usd=product.micro_usd(dependencies.settings),
            example=orjson.dumps(product.example).decode(),
            tool=product.tool.name,
            tool_example=orjson.dumps(_tool_arguments(product)).decode(),
        )
        yield Route(
            "GET",
            product.path,
            "Get the payment terms of a paid route",
            request.show_terms(product, dependencies),
            request.terms_answers(terms),
            tag="paid",
            name=f"get_{request.operation_suffix(product)}",
            request={"parameters": [*product.parameters]},
        )


def _tool_arguments(product: Product) -> dict[str, Any]:
    """Return example arguments for the tool that sells a product."""
    arguments = dict(product.tool.example or product.example)
    return arguments | ({} if product.tier is None else {"tier": product.tier})


def _health_routes(dependencies: Dependencies) -> list[Route]:
    """Return the routes for load balancers."""
    readiness = Readiness(
        dependencies.store,
        dependencies.clock,
        late_ms=dependencies.late_ms,
        signs=dependencies.signing_key is not None,
        loading=dependencies.loading,
    )
    routes = Routes(tag="health", unlimited=True)
    routes.get("/healthz", openapi.health("ok"))(healthz)
    answers = openapi.health("ready", openapi.read_schema("ready"))
    routes.get("/readyz", answers)(readiness.readyz)
    return routes.rows


@_ROUTES.get("/openapi.json", {}, example="", internal=True)
async def interface(request: Request) -> Response:
    """Get the OpenAPI document. It is built at the first request, because this takes ten times as
    long as building the application.
    """
    document = await asyncio.to_thread(request.app.state.interface)
    return Response(document, media_type="application/json")


def build_interface(routes: Iterable[Route], base_url: str) -> bytes:
    """Build the OpenAPI document of all public routes."""
    app = FastAPI(
        title="tollgauge",
        version=VERSION,
        summary="Trust and reliability scores for pay-per-call (x402) endpoints",
        servers=[{"url": base_url}],
    )
    for route in routes:
        if not route.internal:
            describe(app, route)
    return orjson.dumps(openapi.description(app)).replace(BASE_URL.encode(), base_url.encode())


def _add_error_handlers(app: FastAPI, *, base_url: str) -> None:
    """Convert all exceptions of the routes of `app` to responses."""

    async def respond(request: Request, error: Exception) -> Response:
        accepts = request.headers.get("accept", "")
        response = _error_response(_problem(request, error), accepts, base_url=base_url)
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    for kind in (Problem, StoreUnavailable, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, respond)


def _error_response(problem: Problem, accepts: str, *, base_url: str) -> Response:
    """Return the response to a problem: a page if the client `accepts` one, otherwise JSON."""
    if not accepts_page(accepts):
        return problem.response()
    html = render("error.html", base_url, problem=problem)
    return HTMLResponse(html, problem.status, problem.headers())


def _problem(request: Request, error: Exception) -> Problem:
    """Return the problem of an exception; an unexpected one is logged."""
    match error:
        case Problem():
            return error
        case StoreUnavailable():
            return store_unavailable()
        case RequestValidationError():
            invalid = {str(detail["loc"][-1]): _what(detail) for detail in error.errors()}
            errors = tuple(
                Invalid(path=name, message=f"{name} {what}.")
                for name, what in sorted(invalid.items())
            )
            return Problem(422, "invalid-input", errors[0].message, errors=errors)
        case HTTPException():
            refused = ("refused", "The request cannot be served.")
            return Problem(error.status_code, *_NO_ROUTE.get(error.status_code, refused))
        case _:
            log().error(
                "request.fail",
                path=request.url.path,
                error=type(error).__name__,
                where=place_of(error),
            )
            return internal_error()


def _what(detail: Mapping[str, Any]) -> str:
    """Describe the error of a parameter; the text follows its name."""
    if detail["type"] == "missing":
        return "is missing"
    _, _, takes = detail["msg"].partition(" should be ")
    return f"must be {takes}" if takes else "is not valid"
