"""The paying tool that the adapters give to a language model.

A model chooses URL, method, headers and body, and nothing else: whatever else it sends is ignored,
and no argument changes a decision of the guard. Refusals come back as data without addresses and
without settings that would allow the payment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field

from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import HANDLE
from tollgauge_guard.headers import drop_headers
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.refusal import PaymentRefusedError

NAME: Final = "paid_request"
DESCRIPTION: Final = (
    "Send an HTTP request and pay for it if the endpoint requires a payment (x402) that the "
    "owner's policy allows. Returns status, content type and body. A result with `error` was not "
    "paid, or has no response yet; repeat the same call only while `retryUntil` lies ahead."
)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_TEXT: Final = 20_000  # characters of a body that a model gets
_OF_TRANSPORT: Final = frozenset({"host", "content-length", "expect", "proxy-authorization"})
_OTHER_PAYER: Final = re.compile(r"x402|402[_-]?pay|pay[_-]?402", re.IGNORECASE)
ToolT = TypeVar("ToolT")


class PaidRequest(BaseModel):
    """The arguments that a model may choose."""

    model_config = ConfigDict(extra="ignore")

    url: str = Field(description="absolute http or https URL")
    method: str = Field(default="GET", description=f"one of {', '.join(METHODS)}")
    headers: dict[str, str] = Field(default_factory=dict, description="request headers")
    body: str | None = Field(default=None, description="request body, as text")


class PaidTool:
    """Sends the requests of a model with a guarded client.

    Args:
        http: what `guarded` returned: an `httpx.AsyncClient` or a `requests.Session`.
    """

    def __init__(self, http: Any) -> None:
        self.http = http
        self.is_async = isinstance(http, GuardedClient)
        if not hasattr(http, "guard"):
            raise GuardError("The client has no guard.", hint="Use what `guarded(…)` returns.")

    async def call(self, arguments: PaidRequest) -> dict[str, object]:
        """Send a request, and return the response for the model."""
        if not self.is_async:
            return await asyncio.to_thread(self.call_sync, arguments)
        if (problem := _find_problem(arguments)) is not None:
            return problem
        try:
            answer = await self.http.request(**_options(arguments), follow_redirects=True)
        except Exception as error:  # noqa: BLE001  # a model gets data, never a traceback
            return _describe_error(error)
        return _describe(answer.status_code, answer.headers, answer.text, _handle(answer))

    def call_sync(self, arguments: PaidRequest) -> dict[str, object]:
        """The same with a `requests.Session`. Raises GuardError for an asynchronous client."""
        if self.is_async:
            raise GuardError(
                "A synchronous call needs a synchronous client.",
                hint="Use guarded(x402ClientSync(), …), or call the agent asynchronously.",
            )
        if (problem := _find_problem(arguments)) is not None:
            return problem
        options = _options(arguments)
        options["data"] = options.pop("content")
        try:
            answer = self.http.request(**options, allow_redirects=True)
        except Exception as error:  # noqa: BLE001  # a model gets data, never a traceback
            return _describe_error(error)
        return _describe(answer.status_code, answer.headers, answer.text, _handle(answer))


def refuse_other_payers(tools: Iterable[ToolT]) -> list[ToolT]:
    """Return the tools of an agent. Raises GuardError if one of them pays by x402 itself."""
    kept = list(tools)
    for tool in kept:
        names = (str(getattr(tool, "name", "")), type(tool).__module__, type(tool).__name__)
        if any(_OTHER_PAYER.search(name) for name in names):
            raise GuardError(
                f"The tool {names[0] or names[2]} pays by x402 without the guard.",
                hint="Remove it: the paying tool of the guard replaces it.",
            )
        if names[0] == NAME:
            raise GuardError(f"The tool {NAME} is registered already.")
    return kept


def _find_problem(arguments: PaidRequest) -> dict[str, object] | None:
    """Return the model's error for arguments that are not a request."""
    if arguments.method.upper() not in METHODS:
        return {"error": "invalid-request", "message": f"Use one of {', '.join(METHODS)}."}
    if not arguments.url.lower().startswith(("http://", "https://")):
        return {"error": "invalid-request", "message": "Use an absolute http or https URL."}
    return None


def _options(arguments: PaidRequest) -> dict[str, Any]:
    headers = drop_headers((name.strip(), value) for name, value in arguments.headers.items())
    return {
        "method": arguments.method.upper(),
        "url": arguments.url,
        "headers": {name: value for name, value in headers if name.lower() not in _OF_TRANSPORT},
        "content": None if arguments.body is None else arguments.body.encode(),
    }


def _describe(status: int, headers: Any, text: str, handle: str | None) -> dict[str, object]:
    document: dict[str, object] = {
        "status": status,
        "contentType": headers.get("content-type"),
        "body": text[:MAX_TEXT],
    }
    if len(text) > MAX_TEXT:
        document["truncated"] = True
    return document if handle is None else document | {"payment": handle}


def _describe_error(error: Exception) -> dict[str, object]:
    if isinstance(error, PaymentRefusedError):
        return error.for_model()
    document: dict[str, object] = {"error": "request-failed", "kind": type(error).__name__}
    handle = getattr(error, HANDLE, None)
    return document if handle is None else document | {"payment": handle}


def _handle(answer: Any) -> str | None:
    """Return the handle of the payment that a response answers."""
    if isinstance(answer, httpx.Response):
        found = answer.extensions.get(HANDLE)
    else:
        found = getattr(answer, HANDLE, None)
    return found if isinstance(found, str) else None
