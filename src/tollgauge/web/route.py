"""Route: the complete definition of a route.

The cache, the API guide, /llms.txt and /openapi.json are derived from the table of routes
(web/routes).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from fastapi import Depends, FastAPI, params
from starlette.responses import Response

from tollgauge.web.edge.messages import query_check
from tollgauge.web.wire import openapi

INVALID_QUERY: Final = {422: "A query parameter is unknown or invalid"}
INVALID_FILTER: Final = {422: "A query parameter is missing, unknown or invalid"}
UNKNOWN_PAGE: Final = {404: "The endpoint or host is not monitored"}


@dataclass(frozen=True, slots=True)
class DocumentedRoute:
    """A route in the API guide.

    Attributes:
        path: May contain placeholders.
        micro_usd: The price; None if the route is free.
        example: The query of a GET (empty, or with its `?`), or the JSON body of a POST.
        saved_as: The file name for a binary response.
        tool, tool_example: The MCP tool that sells the product, and its arguments as JSON.
    """

    method: str
    path: str
    summary: str
    _: KW_ONLY
    micro_usd: int | None = None
    example: str | None = None
    saved_as: str | None = None
    tool: str | None = None
    tool_example: str = "{}"


@dataclass(frozen=True, slots=True)
class Route(DocumentedRoute):
    """A route with its handler. The API guide lists routes with an `example`.

    Attributes:
        answers: The OpenAPI responses.
        request: Other OpenAPI fields of the operation.
        cached: Responses are cached for a few seconds, with an `ETag`.
        unlimited: The rate limit does not apply.
        internal: The route is not part of OpenAPI.
        strict_query: Unknown query parameters are rejected.
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


def serve(app: FastAPI, route: Route) -> None:
    """Add a route to an application, without its OpenAPI description."""
    app.add_api_route(
        route.path,
        route.handler,
        methods=[route.method],
        response_class=Response,
        response_model=None,
        dependencies=_checks(route),
    )


def describe(app: FastAPI, route: Route) -> None:
    """Add a route to the application from which the OpenAPI document is generated."""
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
        dependencies=_checks(route),
        responses=openapi.add_caching(answers) if route.cached else answers,
        status_code=402 if 200 not in route.answers and 402 in route.answers else 200,
        tags=[route.tag],
        openapi_extra=dict(route.request) or None,
    )


def _checks(route: Route) -> list[params.Depends]:
    """Return the checks that run before the handler."""
    if not route.strict_query:
        return []
    described = route.request.get("parameters", ())
    return [Depends(query_check([row["name"] for row in described if row["in"] == "query"]))]
