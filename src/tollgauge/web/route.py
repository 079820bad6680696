"""A row of the table of routes (web/routes): everything about a route in one place.

The rows stand in the `routes` module of each folder of `web`. The cache, the documentation page,
/llms.txt and the interface description are derived from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from fastapi import Depends, FastAPI, params
from starlette.responses import Response

from tollgauge.web.edge.input import query_check
from tollgauge.web.wire import openapi

INVALID_QUERY: Final = {422: "A query parameter that is unknown or has no such value"}
INVALID_FILTER: Final = {422: "A parameter that is missing, invalid, or not one of this route"}
UNKNOWN_PAGE: Final = {404: "Nothing is known of it"}


@dataclass(frozen=True, slots=True)
class DocumentedRoute:
    """A route as the docs page shows it: `micro_usd` None is free; `example` is the query of a GET
    (empty, or with its `?`) or the JSON body of a POST; `path` may hold a placeholder. An answer
    that is no text is `saved_as` a file of this name. A route that agents can buy as a tool has its
    `tool` and the tool's arguments as JSON (`tool_example`).
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
    """One row.

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


def serve(app: FastAPI, route: Route) -> None:
    """Let an application serve a row. It knows nothing of what the interface description says."""
    app.add_api_route(
        route.path,
        route.handler,
        methods=[route.method],
        response_class=Response,
        response_model=None,
        dependencies=_checks(route),
    )


def describe(app: FastAPI, route: Route) -> None:
    """Add a row to the application that the interface description is made of."""
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
        responses=openapi.cached(answers) if route.cached else answers,
        status_code=402 if 200 not in route.answers and 402 in route.answers else 200,
        tags=[route.tag],
        openapi_extra=dict(route.request) or None,
    )


def _checks(route: Route) -> list[params.Depends]:
    """What a request passes before its handler."""
    if not route.strict_query:
        return []
    described = route.request.get("parameters", ())
    return [Depends(query_check([row["name"] for row in described if row["in"] == "query"]))]
