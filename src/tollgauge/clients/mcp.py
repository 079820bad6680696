"""The requests of a probe of an MCP tool over streamable HTTP, through egress.

The messages are written here, because a client library would not keep the limits of egress: its
checks of addresses, deadline and sizes. A tool is only called without a payment. A probe makes at
most LIST_PAGES_MAX + 4 requests, one after the other: the handshake (`initialize` and its
notification), `tools/list`, `tools/call`, and the end of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import Request
from tollgauge.core.base import strictjson
from tollgauge.core.endpoint.identity import Endpoint, ResourceError, tool_name
from tollgauge.core.lint import mcp
from tollgauge.core.lint.parsing import members
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind

LIST_PAGES_MAX: Final = 3
_HEADERS: Final = (
    ("Accept", "application/json, text/event-stream"),
    ("Content-Type", "application/json"),
)
_NO_HANDSHAKE: Final = frozenset({400, 404, 405, 501})
"""Statuses with which servers refuse `initialize` if they only know revisions without it."""


async def call_tool(egress: Egress, endpoint: Endpoint, *, now: int) -> Exchange:
    """Call a tool without a payment. `now` is the start in milliseconds UTC.

    Returns:
        The exchange of the call, with the status of HTTP that its message corresponds to
        (core/lint/mcp), or that of the request that failed before it.
    """
    connection = _Connection(egress, endpoint, now)
    failed = await connection.open()
    if failed is not None:
        return replace(failed, url=endpoint.resource)
    try:
        return replace(await connection.call(), url=endpoint.resource)
    finally:
        await connection.close()


class _Connection:
    """The requests to one server in the course of a probe."""

    def __init__(self, egress: Egress, endpoint: Endpoint, now: int) -> None:
        self._egress = egress
        self._url = endpoint.probe_url
        self._tool = tool_name(endpoint.resource)
        self._arguments = _read_arguments(endpoint.body)
        self._at = now
        self._id = 0
        self._version = ""
        self._session: tuple[tuple[str, str], ...] = ()

    @property
    def _is_stateless(self) -> bool:
        return self._version == mcp.STATELESS_VERSION

    async def open(self) -> Exchange | None:
        """Make the handshake; return the exchange that failed, or None."""
        exchange, message = await self._ask("initialize", mcp.initialize_params())
        answer = exchange.result
        if not isinstance(answer, Answer):
            return exchange
        if "result" not in message:
            if "error" in message or answer.status in _NO_HANDSHAKE:
                self._version = mcp.STATELESS_VERSION
                return None
            is_success = 200 <= answer.status < 300
            return replace(exchange, result=mcp.NOT_MCP) if is_success else exchange
        version = members(message["result"]).get("protocolVersion")
        session = answer.header("mcp-session-id")
        if not isinstance(version, str) or not mcp.SESSION_ID.fullmatch(version):
            return replace(exchange, result=mcp.NOT_MCP)
        self._version = version
        if session is not None:
            if not mcp.SESSION_ID.fullmatch(session):
                return replace(exchange, result=mcp.NOT_MCP)
            self._session = (("Mcp-Session-Id", session),)
        await self._send("POST", mcp.build_request("notifications/initialized", {}, id_=None))
        return None

    async def call(self) -> Exchange:
        """Look the tool up, and call it."""
        listed = await self._find_tool()
        params = {"name": self._tool, "arguments": self._arguments}
        exchange, message = await self._ask("tools/call", params)
        if not isinstance(exchange.result, Answer):
            return exchange
        return replace(exchange, result=mcp.as_answer(exchange.result, message, listed=listed))

    async def close(self) -> None:
        """End the session, if the server began one."""
        if self._session:
            await self._send("DELETE", None)

    async def _find_tool(self) -> dict[str, object] | None:
        """Return the tool's entry in `tools/list`: empty if it has none, None if it is unknown."""
        cursor: str | None = None
        for _ in range(LIST_PAGES_MAX):
            _, message = await self._ask("tools/list", {"cursor": cursor} if cursor else {})
            if not isinstance(members(message.get("result")).get("tools"), list):
                return None
            if (tool := mcp.find_tool(message, self._tool)) is not None:
                return tool
            cursor = mcp.next_cursor(message)
            if cursor is None:
                return {}
        return None

    async def _ask(self, method: str, params: dict[str, Any]) -> tuple[Exchange, dict[str, object]]:
        """Send a request; return its exchange and the message of the response, empty without
        one.
        """
        self._id += 1
        body = mcp.build_request(method, params, id_=self._id, stateless=self._is_stateless)
        named: tuple[tuple[str, str], ...] = ()
        if self._is_stateless:
            named = (("Mcp-Method", method),)
            if method == "tools/call" and self._tool.isascii():
                named += (("Mcp-Name", self._tool),)
        scanner = mcp.ResponseScanner(self._id)
        exchange = await self._send("POST", body, named, ends_body=scanner.feed)
        result = exchange.result
        return exchange, mcp.read_message(result, self._id) if isinstance(result, Answer) else {}

    async def _send(
        self,
        method: str,
        body: bytes | None,
        named: tuple[tuple[str, str], ...] = (),
        *,
        ends_body: Callable[[bytes], bool] | None = None,
    ) -> Exchange:
        headers = (*_HEADERS, *self._session, *named)
        if self._version:
            headers += (("MCP-Protocol-Version", self._version),)
        request = Request(
            url=self._url, method=method, headers=headers, body=body, ends_body=ends_body
        )
        try:
            exchange = await self._egress.fetch(request, at=self._at)
        except ResourceError as error:
            fault = Fault(kind=FaultKind.LOCAL, detail=str(error))
            return Exchange(url=self._url, method=method, at=self._at, result=fault)
        self._at += exchange.timings.total
        return exchange


def _read_arguments(body: bytes | None) -> dict[str, object]:
    """Return the stored example arguments of a tool."""
    try:
        return members(strictjson.loads(body)) if body else {}
    except strictjson.StrictJsonError:
        return {}
