"""`POST /endpoint/{id}/recheck`: probe an endpoint again after its seller fixed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.endpoint.identity import page_url
from tollgauge.monitor.recording import PayableError, RecheckedError, request_probe
from tollgauge.web.dependencies import Dependencies, unknown_resource
from tollgauge.web.edge.messages import accepts_page
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.wire import examples
from tollgauge.web.wire.parameters import EndpointId
from tollgauge.web.wire.response_model import ResponseModel

PATH: Final = "/endpoint/{id}/recheck"
SUMMARY: Final = "Probe an endpoint now that was not payable"
EXAMPLE: Final = {"resource": examples.RESOURCE, "probe": "queued"}
ERRORS: Final = {
    404: "This resource is not monitored",
    409: "The last probe found the endpoint payable",
    429: "A probe of the same host was requested in the last 10 minutes",
}


class RecheckResponse(ResponseModel):
    """The endpoint will be probed within a minute, unless it asked for a pause (Retry-After) or the
    service is behind schedule.
    """

    resource: str
    probe: str


@dataclass(frozen=True, slots=True)
class Rechecks:
    """Handler of the route."""

    dependencies: Dependencies

    async def recheck(self, id: EndpointId, request: Request) -> Response:  # noqa: A002 - the path's name
        """Queue a probe. Browsers are sent back to the page. Raises Problem 404, 409 or 429."""
        now = self.dependencies.clock()
        try:
            endpoint = await self.dependencies.store.writing(request_probe, id, now=now)
        except PayableError as error:
            hint = "It is probed about every 30 minutes; a paid report contains a probe made now."
            raise Problem(409, "already-payable", f"{error} {hint}") from error
        except RecheckedError as error:
            wait_s = -(-(error.next_at - now) // SECOND_MS)
            detail = f"{error} Try again in {wait_s} seconds."
            raise Problem(429, "rechecked", detail, retry_after=wait_s) from error
        if endpoint is None:
            raise unknown_resource()
        if accepts_page(request.headers.get("accept", "")):
            return RedirectResponse(page_url(self.dependencies.base_url, id), 303)
        return json_response(RecheckResponse(resource=endpoint.resource, probe="queued"))
