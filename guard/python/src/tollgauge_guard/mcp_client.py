"""MCP: the paid tools of a server, called with a guard.

The SDK's own MCP clients do not work with mcp 2 (x402 2.25), so this module adds the payment:
`tools = GuardedTools(guard, client, session, url=...)`, then `await tools.call_tool(...)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from pydantic import BaseModel
from x402 import x402Client
from x402.http.utils import encode_payment_signature_header

from tollgauge_guard.approval import describe
from tollgauge_guard.decision import Ask
from tollgauge_guard.guard import Guard
from tollgauge_guard.http_clients import GuardedHTTPClient
from tollgauge_guard.mcp_messages import (
    PAYMENT,
    call_key,
    payment_required,
    read_result,
    reads_text,
    tool_url,
)
from tollgauge_guard.request import Attempt, set_current
from tollgauge_guard.resource import parse


class Session(Protocol):
    """Calls tools: a `Client` or a `ClientSession` of mcp 2."""

    @property
    def call_tool(self) -> Callable[..., Awaitable[BaseModel]]:
        """Calls a tool by name with arguments and `meta`."""


class Context(Protocol):
    """The context of a tool call: `mcp.server.mcpserver.Context`."""

    @property
    def session(self) -> Any:
        """The session with the client."""

    @property
    def elicit(self) -> Callable[..., Awaitable[Any]]:
        """Asks the user of the client."""


class GuardedTools:
    """The tools of one MCP server.

    `url` is the server's address, under which the bundle may list its tools. Without one (a server
    on stdio), the bundle lists none of them.
    """

    def __init__(
        self, guard: Guard, client: x402Client, session: Session, *, url: str | None = None
    ) -> None:
        self.guard = guard
        self._payer, self._session, self._url = GuardedHTTPClient(guard, client), session, url

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, **options: Any
    ) -> BaseModel:
        """Return the result of a tool, paid for if payment is requested and allowed.

        `options` are those of the session. Raises PaymentRefusedError if the guard refuses, and
        PaymentUnresolved if an earlier payment of the same call has no answer.
        """
        result = await self._session.call_tool(name, arguments, **options)
        document = _json(result)
        required = payment_required(document)
        if required is None:
            return result
        is_text = reads_text(document)
        url = self._url or tool_url(name)
        attempt = Attempt(
            owner=self._payer,
            url=url,
            key=call_key(url, name, arguments),
            alias=f"x402://{name}" if is_text else tool_url(name),
            tool=name,
        )
        with set_current(attempt):
            try:
                payload = await self._payer.create_payment_payload(required)
                text = encode_payment_signature_header(payload)
                self.guard.check_leaving(attempt, url, [text])
                payment = text if is_text else payload.model_dump(by_alias=True, exclude_none=True)
                meta = dict(options.pop("meta", None) or {}) | {PAYMENT: payment}
                return await self._call_paid(attempt, name, arguments, meta=meta, **options)
            finally:
                self.guard.give_up(attempt)

    async def _call_paid(self, attempt: Attempt, *arguments: Any, **options: Any) -> BaseModel:
        """Call the tool with the payment."""
        try:
            result = await self._session.call_tool(*arguments, **options)
        except BaseException as error:
            self.guard.record_silence(attempt, error)
            raise
        self.guard.record_answer(attempt, read_result(_json(result)))
        return result


def _json(result: BaseModel) -> object:
    return result.model_dump(by_alias=True, mode="json")


class Elicitation:
    """Asks the user of an MCP client, for a guard inside a server's tool.

    Give it to the guard as `ask`, and enter `during(context)` in each tool that pays. A client that
    did not declare elicitation cannot answer, so the payment is refused.
    """

    def __init__(self) -> None:
        self._context: ContextVar[Context | None] = ContextVar("elicitation", default=None)

    @contextmanager
    def during(self, context: Context) -> Iterator[None]:
        """Ask through this context of a tool call."""
        token = self._context.set(context)
        try:
            yield
        finally:
            self._context.reset(token)

    async def __call__(self, question: Ask, url: str) -> bool:
        """Return whether the user allowed the payment."""
        from mcp.types import ClientCapabilities, ElicitationCapability  # an optional dependency

        context = self._context.get()
        needed = ClientCapabilities(elicitation=ElicitationCapability())
        if context is None or not context.session.check_client_capability(needed):
            return False
        result = await context.elicit(describe(question, parse(url).host), _Consent)
        return result.action == "accept" and result.data.allow is True


class _Consent(BaseModel):
    """The user's answer."""

    allow: bool
