"""Converts the exceptions of handlers to responses.

Clients receive an `application/problem+json` document (RFC 9457), browsers a page. No response
contains a traceback or the text of a foreign exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tollgauge.db.engine import StoreUnavailable
from tollgauge.observe import log, place_of
from tollgauge.web.edge.messages import accepts_page
from tollgauge.web.edge.problem import Invalid, Problem, internal_error, store_unavailable
from tollgauge.web.pages import views

_NO_ROUTE: Final = {
    404: ("not-found", "There is nothing at this address."),
    405: ("method-not-allowed", "This method is not allowed here."),
}


def add_error_handlers(app: FastAPI, *, base_url: str) -> None:
    """Convert all exceptions of the routes of `app` to responses."""

    async def respond(request: Request, error: Exception) -> Response:
        accepts = request.headers.get("accept", "")
        response = error_response(_problem(request, error), accepts, base_url=base_url)
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    for kind in (Problem, StoreUnavailable, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, respond)


def error_response(problem: Problem, accepts: str, *, base_url: str) -> Response:
    """Return the response to a problem: a page if the client `accepts` one, otherwise JSON."""
    if not accepts_page(accepts):
        return problem.response()
    html = views.error_html(problem, base_url=base_url)
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
