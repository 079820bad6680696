"""`POST /v1/lint`: check a response to an unpaid request.

The request contains the response, or names a monitored endpoint, whose last probe is used. Nothing
is fetched or stored. The lint page and the MCP tool use this module too.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.lint import capture, judge
from tollgauge.core.lint.rule import RULE_ENTRIES
from tollgauge.core.probe.exchange import Exchange
from tollgauge.monitor.reports import endpoint as endpoint_reports
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.messages import BODY_MAX, read_body
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.route import Routes
from tollgauge.web.wire import lint_answers, openapi
from tollgauge.web.wire.examples import BASE_URL
from tollgauge.web.wire.lint_answers import LintResponse, stored_lint
from tollgauge.web.wire.request_model import RequestedResource, RequestModel, invalid
from tollgauge.web.wire.response_model import dump

ROUTES: Final = Routes(tag="free", strict_query=True)
LINT_PATH: Final = "/v1/lint"
EXAMPLE_RULE: Final = "domain-wrong"
"""The rule whose invalid example is the example of the linter."""
EXAMPLE: Final = {"capture": RULE_ENTRIES[EXAMPLE_RULE].wrong.capture() or ""}
ERRORS: Final = {
    400: "The body is not JSON",
    404: "This resource is not monitored or not probed yet",
    422: "`capture` is not an HTTP response, `resource` is not a public https URL, or the body "
    "does not contain exactly one of them",
}

Capture = Annotated[str, Field(min_length=1, max_length=BODY_MAX)]
CAPTURE_TEXT: Final = (
    "Response to an unpaid request: output of `curl -i`, or {status, headers, body, url?, method?} "
    "as JSON text, or value of the PAYMENT-REQUIRED header, or envelope as JSON text"
)


def _lint_response(exchange: Exchange, base_url: str) -> LintResponse:
    return lint_answers.lint(judge.lint(exchange), exchange, base_url=base_url)


def _example_answer() -> Any:
    exchange = capture.read_capture(EXAMPLE["capture"].encode())
    return orjson.loads(dump(_lint_response(exchange, BASE_URL)))


class LintRequest(RequestModel):
    """The input of the linter: a response, or a monitored endpoint."""

    capture: Capture | None = Field(None, description=CAPTURE_TEXT)
    resource: RequestedResource | None = None


async def check(service: Service, document: object) -> LintResponse:
    """Return the result for a request. Raises Problem 404 or 422."""
    asked = LintRequest.read(document, service.perimeter)
    # Count the given fields, not the values: the published schema does not allow null.
    if len(asked.model_fields_set) == 1 and asked.capture is not None:
        return await lint_captured(service, asked.capture)
    if len(asked.model_fields_set) == 1 and asked.resource is not None:
        return await lint_stored(service, asked.resource.id)
    raise invalid("capture", "Send either capture or resource.")


async def lint_captured(service: Service, text: str) -> LintResponse:
    """Lint a captured response. Raises Problem 422."""
    try:
        exchange = capture.read_capture(text.encode("utf-8", "replace"))
    except capture.CaptureError as error:
        raise _unreadable(error) from error
    # In a thread: a hostile schema takes several milliseconds and would block other requests.
    return await asyncio.to_thread(_lint_response, exchange, service.base_url)


async def lint_stored(service: Service, endpoint_id: str) -> LintResponse:
    """Return the lint of an endpoint's last probe. Raises Problem 404."""
    stored = await service.read_endpoint(endpoint_reports.stored_lint, endpoint_id)
    if stored.lint is None:
        raise Problem(404, "not-probed", "This resource has not been probed yet.")
    return stored_lint(
        stored.lint,
        base_url=service.base_url,
        resource=stored.resource,
        at=stored.at,
    )


def _unreadable(error: capture.CaptureError) -> Problem:
    """Return Problem 422 for an unreadable text, with the accepted formats."""
    message = f"{error} {error.hint}"
    return Problem(
        422, "capture-invalid", message, errors=(Invalid(path="capture", message=str(error)),)
    )


@ROUTES.post(
    LINT_PATH,
    openapi.free(LintResponse, _example_answer(), ERRORS),
    request={"requestBody": LintRequest.body(EXAMPLE)},
    example=orjson.dumps(EXAMPLE).decode(),
)
async def lint(service: Service, request: Request) -> Response:
    """Check a 402 response. Raises Problem 400, 404 or 422."""
    return json_response(await check(service, await read_body(request)))
