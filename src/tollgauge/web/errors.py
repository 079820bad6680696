"""The one table of errors: what a handler raised, and what the caller sees of it.

A caller sees an `application/problem+json` document (RFC 9457), or a page where a browser asked
for one. No answer ever holds a traceback or the text of a foreign exception.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.db.engine import StoreUnavailable
from tollgauge.observe import log, place_of
from tollgauge.web.edge.problem import Invalid, Problem, fault, store_unavailable
from tollgauge.web.pages import views
from tollgauge.web.pages.site import HTML


def add_error_handlers(app: FastAPI, *, base_url: str) -> None:
    """Answer every exception of the routes of `app`."""

    def respond(request: Request, problem: Problem) -> Response:
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

    async def raised_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class
        return respond(request, error)

    async def missing_parameter(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
        names = sorted({str(detail["loc"][-1]) for detail in error.errors()})
        errors = tuple(Invalid(path=name, message=f"{name} is missing.") for name in names)
        return respond(request, Problem(422, "invalid-input", errors[0].message, errors=errors))

    async def database_unavailable(request: Request, _error: Exception) -> Response:
        return respond(request, store_unavailable())

    async def no_such_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
        details = {
            404: "There is nothing at this address.",
            405: "This method is not allowed here.",
        }
        detail = details.get(error.status_code, "The request cannot be served.")
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
        response = respond(request, Problem(error.status_code, code, detail))
        response.headers.update(error.headers or {})
        return response

    async def unexpected(request: Request, error: Exception) -> Response:
        log().error(
            "request.fail",
            path=request.url.path,
            error=type(error).__name__,
            where=place_of(error),
        )
        return respond(request, fault())

    app.add_exception_handler(Problem, raised_problem)
    app.add_exception_handler(StoreUnavailable, database_unavailable)
    app.add_exception_handler(RequestValidationError, missing_parameter)
    app.add_exception_handler(HTTPException, no_such_route)
    app.add_exception_handler(Exception, unexpected)
