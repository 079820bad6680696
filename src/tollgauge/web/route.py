"""Route: the complete definition of a route; Routes: the routes of a module.

A route is declared at its handler. The cache, the API guide, /llms.txt and /openapi.json are
derived from the table of all routes (web/routes).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, FastAPI, params
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.web.edge.messages import query_check
from tollgauge.web.wire import openapi

INVALID_QUERY: Final = {422: "A query parameter is unknown or invalid"}
INVALID_FILTER: Final = {422: "A query parameter is missing, unknown or invalid"}
INVALID_RESOURCE: Final = {
    422: "`resource` is missing or not a public https URL, or a query parameter is unknown"
}
INVALID_OBJECT: Final = {
    400: "The body is not JSON",
    422: "The body is not a JSON object, or a query parameter is unknown",
}
UNKNOWN_PAGE: Final = {404: "The endpoint or host is not monitored"}
UNKNOWN_RESOURCE: Final = {404: "This resource is not monitored"}
_ID_PREFIXES: Final = {"pages": "page", "watch": "watch"}

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True)
class Route:
    """A route with its handler. The API guide lists routes with an `example`.

    Attributes:
        path: May contain placeholders.
        answers: The OpenAPI responses.
        name: The operation ID. Default: `operation_id`.
        request: Other OpenAPI fields of the operation.
        cached: Responses are cached for a few seconds, with an `ETag`.
        unlimited: The rate limit does not apply.
        internal: The route is not part of OpenAPI.
        strict_query: Unknown query parameters are rejected.
        micro_usd: The price; None if the route is free.
        example: The query of a GET (empty, or with its `?`), or the JSON body of a POST.
        saved_as: The file name for a binary response.
        tool, tool_example: The MCP tool that sells the product, and its arguments as JSON.
    """

    method: str
    path: str
    summary: str
    handler: Callable[..., Awaitable[Response]]
    answers: openapi.Answers
    _: KW_ONLY
    tag: str
    name: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    unlimited: bool = False
    internal: bool = False
    strict_query: bool = False
    micro_usd: int | None = None
    example: str | None = None
    saved_as: str | None = None
    tool: str | None = None
    tool_example: str = "{}"

    @property
    def operation_id(self) -> str:
        """The operation ID: by default the method, `page` or `watch`, and the handler's name."""
        prefix = _ID_PREFIXES.get(self.tag, self.method.lower())
        return self.name or f"{prefix}_{self.handler.__name__}"


class Routes:
    """The routes of a module, with the fields of Route that they share.

    `get` and `post` declare a route at its handler. Its summary is the first sentence of the
    handler's docstring.
    """

    def __init__(self, **shared: Any) -> None:
        self.rows: Final[list[Route]] = []
        self._shared: Final = shared

    def get(
        self, path: str, answers: openapi.Answers, **fields: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a GET route."""
        return self.add("GET", path, answers, **fields)

    def post(
        self, path: str, answers: openapi.Answers, **fields: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a POST route, which is never cached."""
        return self.add("POST", path, answers, cached=False, **fields)

    def add(
        self, method: str, path: str, answers: openapi.Answers, **fields: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a route with another method."""

        def declare(handler: Handler) -> Handler:
            paragraph = " ".join((handler.__doc__ or "").partition("\n\n")[0].split())
            summary = paragraph.partition(". ")[0].removesuffix(".")
            row = Route(method, path, summary, handler, answers, **self._shared | fields)
            self.rows.append(row)
            return handler

        return declare


async def _select_documented(request: Request) -> tuple[Route, ...]:
    return tuple(route for route in request.app.state.routes if route.example is not None)


Documented = Annotated[tuple[Route, ...], Depends(_select_documented)]
"""The routes in the API guide, as the parameter of a handler."""


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
