"""The connection of a caller of the gateway: HTTP/1.1 (h11), with one request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final

import h11
import httpx

from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import HANDLE
from tollgauge_guard.headers import drop_headers

MAX_HEAD: Final = 64 * 1_024
MAX_BODY: Final = 10 * 2**20
PAYMENT: Final = "tollgauge-payment"


class GatewayError(GuardError):
    """A request that the gateway refuses, with the status of the response."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class CallerConnection:
    """One connection of a caller, which carries one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._is_head = False

    async def read_head(self) -> h11.Request | None:
        """Return the head of the request. Raises GatewayError if it is not HTTP."""
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        return event

    async def read_body(self) -> bytes:
        """Return the body. Raises GatewayError if it is too long or not whole."""
        if self._http.they_are_waiting_for_100_continue:
            informed = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._http.send(informed) or b"")
        body = bytearray()
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise GatewayError(400, "body", "The body is not complete.")
            body += event.data
            if len(body) > MAX_BODY:
                raise GatewayError(413, "body", f"A body has at most {MAX_BODY >> 20} MB.")
        return bytes(body)

    async def wait_closed(self) -> None:
        """Wait until the caller closes its side. Data that it sends until then is ignored."""
        with contextlib.suppress(OSError):
            while await self._reader.read(4_096):
                pass

    async def refuse(self, status: int, document: dict[str, object]) -> None:
        """Send a response of the gateway's own."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = json.dumps(document).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        await self._start(status, headers)
        if not self._is_head:
            await self._write(h11.Data(data=body))
        await self._write(h11.EndOfMessage())

    async def send(self, answer: httpx.Response) -> None:
        """Stream the response of a seller. One that breaks off is not completed here either."""
        # The last chunk is held back until the seller's body has ended: the caller closes as soon
        # as it has everything, which must not look like hanging up before the end.
        held = b""
        headers = drop_headers(answer.headers.multi_items())
        if isinstance(handle := answer.extensions.get(HANDLE), str):
            headers.append((PAYMENT, handle))
        await self._start(answer.status_code, headers)
        try:
            async for chunk in answer.aiter_raw():
                if held:
                    await self._write(h11.Data(data=held))
                held = chunk
        except httpx.HTTPError:
            self._writer.transport.abort()
            return
        if held:
            await self._write(h11.Data(data=held))
        await self._write(h11.EndOfMessage())

    async def _start(self, status: int, headers: list[tuple[str, str]]) -> None:
        await self._write(
            h11.Response(status_code=status, headers=[*headers, ("Connection", "close")])
        )

    async def _write(self, event: Any) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def _next_event(self) -> Any:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise GatewayError(
                    error.error_status_hint, "http", "Not a valid request."
                ) from error
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._reader.read(65_536))
