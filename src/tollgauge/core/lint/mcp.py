"""Messages of a probe of an MCP tool, and the HTTP status that a server's answer corresponds to.

Sources: MCP, streamable HTTP; x402 transport for MCP. A payment error becomes a 402 whose body is
the JSON-RPC message, so that a tool is judged like any endpoint. Functions accept any bytes and
never raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tollgauge.core.lint.parsing import load_json, members
from tollgauge.core.probe.exchange import Answer, Defect, Fault, FaultKind

HANDSHAKE_VERSION: Final = "2025-11-25"
STATELESS_VERSION: Final = "2026-07-28"
"""The first revision without a handshake: each request states the version and the client."""
SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}", re.ASCII)
_CLIENT: Final = {"name": "tollgauge", "version": "1"}
_META: Final = "io.modelcontextprotocol/"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_EVENT_END_MAX: Final = 3  # bytes of an end that may have been received without its last one
_JSON_RPC_PAYMENT: Final = 402
_INVALID_PARAMS: Final = -32602
_METHOD_NOT_FOUND: Final = -32601
_STATUS_OF_CODE: Final = {_INVALID_PARAMS: 422, _METHOD_NOT_FOUND: 404, _JSON_RPC_PAYMENT: 402}

PLACES: Final = ("structuredContent", "content[0].text", "error.data")
"""The places of payment terms in a message, in the order in which clients read them: two in a tool
result, and that of a JSON-RPC error in version 1.
"""
NOT_MCP: Final = Fault(
    kind=FaultKind.MALFORMED, detail="the answer is not a message of MCP", defect=Defect.NOT_MCP
)


def build_request(
    method: str, params: Mapping[str, Any], *, id_: int | None, stateless: bool = False
) -> bytes:
    """Return a JSON-RPC message; a notification without an ID."""
    if stateless:
        meta = {"protocolVersion": STATELESS_VERSION, "clientInfo": _CLIENT}
        meta |= {"clientCapabilities": {}}
        params = {**params, "_meta": {f"{_META}{key}": value for key, value in meta.items()}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id_ is None else message | {"id": id_}).encode()


def initialize_params() -> dict[str, Any]:
    """Return the parameters of the handshake."""
    return {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}


def read_message(answer: Answer, id_: int) -> dict[str, object]:
    """Return the response to a request, from JSON or from a stream of events; otherwise an empty
    object.
    """
    kind = (answer.header("content-type") or "").partition(";")[0].strip().lower()
    bodies = _list_events(answer.body) if kind == "text/event-stream" else iter((answer.body,))
    for body in bodies:
        message = members(load_json(body))
        if _is_response(message, id_):
            return message
    return {}


def _list_events(body: bytes) -> Iterator[bytes]:
    """Yield the data of each complete server-sent event."""
    for event in _EVENT_END.split(body):
        lines = (line.partition(b":") for line in event.splitlines())
        data = [value.removeprefix(b" ") for name, _, value in lines if name == b"data"]
        if data:
            yield b"\n".join(data)


class ResponseScanner:
    """Finds the response to a request in a stream of server-sent events while it is received."""

    def __init__(self, id_: int) -> None:
        self._id = id_
        self._event = bytearray()

    def feed(self, data: bytes) -> bool:
        """Add received bytes; return whether the response is complete. Each byte is searched once,
        because a server may send them one by one.
        """
        start = max(0, len(self._event) - _EVENT_END_MAX)
        self._event += data
        while end := _EVENT_END.search(self._event, start):
            event, start = bytes(self._event[: end.end()]), 0
            del self._event[: end.end()]
            if any(_is_response(members(load_json(one)), self._id) for one in _list_events(event)):
                return True
        return False


def _is_response(message: Mapping[str, object], id_: int) -> bool:
    return message.get("id") == id_ and bool(message.keys() & {"result", "error"})


def find_tool(message: Mapping[str, object], name: str) -> dict[str, object] | None:
    """Return the entry of a tool in the result of `tools/list`; None without one."""
    tools = members(message.get("result")).get("tools")
    entries = map(members, tools if isinstance(tools, list) else ())
    return next((entry for entry in entries if entry.get("name") == name), None)


def next_cursor(message: Mapping[str, object]) -> str | None:
    """Return the cursor of the next page of `tools/list`; None on the last page."""
    cursor = members(message.get("result")).get("nextCursor")
    return cursor if isinstance(cursor, str) and len(cursor) < 1_024 else None


def payment_forms(message: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the payment terms in a message by their place (PLACES)."""
    result, error = members(message.get("result")), members(message.get("error"))
    content = result.get("content")
    first = members(content[0]) if isinstance(content, list) and content else {}
    text = first.get("text") if first.get("type") == "text" else None
    written = load_json(text.encode("utf-8", "replace")) if isinstance(text, str) else None
    found = (
        members(result.get("structuredContent")),
        members(written),
        members(error.get("data")) if error.get("code") == _JSON_RPC_PAYMENT else {},
    )
    return {
        place: terms
        for place, terms in zip(PLACES, found, strict=True)
        if {"x402Version", "accepts"} <= terms.keys()
    }


def payment_error(terms: Mapping[str, object]) -> Answer:
    """Return the answer of a tool that states these payment terms correctly."""
    text = json.dumps(terms)
    content = [{"type": "text", "text": text}]
    result = {"isError": True, "structuredContent": terms, "content": content}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result, "listed": None})
    return Answer(status=402, headers=(), body=body.encode())


def as_answer(
    answer: Answer, message: Mapping[str, object], *, listed: Mapping[str, object] | None
) -> Answer | Fault:
    """Return the answer to `tools/call` with the HTTP status that it corresponds to.

    Args:
        answer: The HTTP response.
        message: The JSON-RPC message in it; empty without one.
        listed: The tool's entry in `tools/list`; empty if it has none, None if it is unknown. The
            body has it as the member `listed`.
    """
    if not message:
        return NOT_MCP if 200 <= answer.status < 300 else answer
    return Answer(
        status=_find_status(message, is_listed=listed != {}),
        headers=answer.headers,
        body=json.dumps({**message, "listed": listed}).encode(),
        truncated=answer.truncated,
        defect=answer.defect,
    )


def _find_status(message: Mapping[str, object], *, is_listed: bool) -> int:
    """Return the status of HTTP with the meaning of a message."""
    result = members(message.get("result"))
    if payment_forms(message) or "paymentRequired" in result:
        return 402
    if "error" not in message and not result.get("isError"):
        return 200
    if not is_listed:
        return 404
    code = members(message.get("error")).get("code", _INVALID_PARAMS)
    return _STATUS_OF_CODE.get(code, 500) if isinstance(code, int) else 500
