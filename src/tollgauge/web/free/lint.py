"""`POST /v1/lint`: what is wrong with an answer to an unpaid request, and how to mend it.

The answer is sent along, or it is the last one of a monitored endpoint; nothing is fetched and
nothing is stored. The page and the tool of the same name answer by this module too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core import lint as linter
from tollgauge.core.lint.example import EXAMPLES
from tollgauge.core.probe.exchange import Exchange
from tollgauge.monitor.reports import lint_reports
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.input import BODY_MAX, read_body
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.wire import lint_answers
from tollgauge.web.wire.examples import BASE_URL
from tollgauge.web.wire.lint_answers import LintResponse, stored_lint
from tollgauge.web.wire.request_model import RequestedResource, RequestModel, invalid
from tollgauge.web.wire.response_model import dump

LINT_PATH: Final = "/v1/lint"
SUMMARY: Final = "What is wrong with a 402, and how to mend it"
EXAMPLE_RULE: Final = "domain-wrong"
"""The rule by whose wrong example the linter is shown."""
EXAMPLE: Final = {"capture": EXAMPLES[EXAMPLE_RULE].wrong.capture() or ""}
ERRORS: Final = {
    400: "The body is not JSON",
    404: "Nothing is known of this resource, or it was not probed yet",
    422: "What was captured is no answer, the resource is no public https URL, or both or neither "
    "of them are given",
}

Capture = Annotated[str, Field(min_length=1, max_length=BODY_MAX)]
CAPTURE_WORDS: Final = (
    "The answer to an unpaid request: what `curl -i` prints, or {status, headers, body, url?, "
    "method?} as JSON text, or the value of its PAYMENT-REQUIRED header, or its envelope as JSON "
    "text"
)


class LintRequest(RequestModel):
    """What to lint: a captured answer, or the last probe of a monitored endpoint."""

    capture: Capture | None = Field(None, description=CAPTURE_WORDS)
    resource: RequestedResource | None = None


@dataclass(frozen=True, slots=True)
class Linting:
    """The linter for callers: the route, the page and the tool."""

    dependencies: Dependencies

    async def lint(self, request: Request) -> Response:
        """The lint of the answer in the request's body. Raises Problem 400, 404 or 422."""
        return json_response(await self.result(await read_body(request)))

    async def result(self, document: object) -> LintResponse:
        """What the linter says to a request. Raises Problem 404 or 422."""
        asked = LintRequest.read(document, self.dependencies.perimeter)
        # By the names that are there: null is not in the published schema.
        if len(asked.model_fields_set) == 1 and asked.capture is not None:
            return await self.captured(asked.capture)
        if len(asked.model_fields_set) == 1 and asked.resource is not None:
            return await self.stored(asked.resource.id)
        raise invalid("capture", "Give either capture or resource.")

    async def captured(self, text: str) -> LintResponse:
        """The lint of a captured answer. Raises Problem 422."""
        try:
            exchange = linter.read_capture(text.encode("utf-8", "replace"))
        except linter.CaptureError as error:
            raise _unreadable(error) from error
        # A hostile schema takes some milliseconds, which other requests should not wait for.
        return await asyncio.to_thread(_explained, exchange, self.dependencies.base_url)

    async def stored(self, endpoint_id: str) -> LintResponse:
        """The lint of an endpoint's last probe, by its id. Raises Problem 404."""
        stored = await self.dependencies.read_endpoint(lint_reports.stored_lint, endpoint_id)
        if stored.lint is None:
            raise Problem(404, "not-probed", "This resource was not probed yet.")
        return stored_lint(
            stored.lint,
            base_url=self.dependencies.base_url,
            resource=stored.resource,
            at=stored.at,
        )


@cache
def example_answer() -> Any:
    """The answer to the example as JSON value, for the interface description."""
    exchange = linter.read_capture(EXAMPLE["capture"].encode())
    return orjson.loads(dump(_explained(exchange, BASE_URL)))


def _explained(exchange: Exchange, base_url: str) -> LintResponse:
    return lint_answers.lint(linter.lint(exchange), exchange, base_url=base_url)


def _unreadable(error: linter.CaptureError) -> Problem:
    """422 for a text that is no answer, with the forms that can be read."""
    message = f"{error} {error.hint}"
    return Problem(
        422, "capture-invalid", message, errors=(Invalid(path="capture", message=str(error)),)
    )
