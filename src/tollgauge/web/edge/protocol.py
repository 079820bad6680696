"""Protocol: uvicorn's HTTP/1.1 connection with deadlines for the client, and counted.

uvicorn limits how long a connection idles between two requests, and nothing else. Here each wait
for the client has its deadline (web/edge/connections): a request that is late gets 408 (RFC 9110
section 15.5.9), a connection without one is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tollgauge.web.edge.connections import Admission, Connections, Phase
from tollgauge.web.edge.middleware import HEALTH_ONLY, address_key

_LATE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 30\r\nconnection: close\r\n\r\nThe request came too slowly.\r\n"
)


class CountedProtocol(HttpToolsProtocol):
    """One connection of a client. Made by uvicorn, with the connections of its server."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = "unknown"
        self._connections = connections
        self._reading: Phase | None = Phase.HEAD
        self._got_data = False
        self._phase: Phase | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and wait for a request."""
        super().connection_made(transport)
        self.key = address_key(self.client[0] if self.client else "")
        admission = self._connections.admit(self)
        if admission is Admission.NOTHING:
            transport.abort()
            return
        if admission is Admission.HEALTH_ONLY:
            self.app_state = {**self.app_state, HEALTH_ONLY: True}
        self._update_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._connections.leave(self)
        self._stop_deadline()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close it now, whatever the client has not read."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client, which begin a request where none was begun."""
        self._got_data = True
        if self._reading is None:
            self._reading = Phase.HEAD
        super().data_received(data)
        self._update_phase()

    def on_message_begin(self) -> None:
        """The parser meets a request."""
        self._reading = Phase.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser has a whole head."""
        self._reading = Phase.BODY
        super().on_headers_complete()
        if HEALTH_ONLY in self.app_state:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The parser has a whole request."""
        self._reading = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is handed over."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # the deadline here stands for uvicorn's
        self._update_phase()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._update_phase()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._update_phase()

    def _update_phase(self) -> None:
        """Where the connection is at something new, set the deadline of that."""
        phase = self._current_phase()
        if phase is self._phase:
            return
        self._phase = phase
        self._stop_deadline()
        if phase is Phase.ANSWERED:
            self._connections.answer(self)
            return
        self._connections.wait(self)
        settings = self._connections.settings
        wait_ms = {Phase.HEAD: settings.head_ms, Phase.BODY: settings.body_ms}
        seconds = wait_ms.get(phase, settings.idle_ms) / 1_000
        self._deadline = self.loop.call_later(seconds, self._expire)

    def _current_phase(self) -> Phase:
        if self.transport.is_closing():
            return Phase.CLOSING
        answering = self.cycle is not None and not self.cycle.response_complete
        if not (answering or self.pipeline):
            return self._reading or Phase.IDLE
        if self.flow.write_paused:
            return Phase.UNREAD
        # A request in the pipeline is read no further until those before it are answered.
        waits = self._reading is Phase.BODY and not self.pipeline
        return Phase.BODY if waits else Phase.ANSWERED

    def _expire(self) -> None:
        """The client was too slow. 408 is no answer to a request that has one already."""
        if self._phase is Phase.BODY:
            unanswered = not self.cycle.response_started
        else:
            unanswered = self._phase is Phase.HEAD and self._got_data
        if not unanswered:
            self.end()
            return
        self.transport.write(_LATE)
        self.transport.close()
        self._update_phase()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
