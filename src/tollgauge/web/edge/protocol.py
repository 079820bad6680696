"""uvicorn's HTTP/1.1 connection with deadlines for slow clients and connection limits.

uvicorn only limits the idle time between two requests. Here every wait for the client has a
deadline (web/edge/connections): a late request gets 408 (RFC 9110 section 15.5.9), and a
connection without a request is closed.

uvicorn has no hook for this, so `CountedProtocol` extends its protocol class: it overrides the
callbacks of asyncio and of the parser, calls each one's original, and overrides no private method.
It reads `cycle`, `pipeline` and `flow` to see whether a request is being answered.
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
    """A client's connection. uvicorn creates it; `connections` are those of the server."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = "unknown"
        self._connections = connections
        self._reading: Phase | None = Phase.HEAD
        self._got_data = False
        self._phase: Phase | None = None
        self.answered = False
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        settings = connections.settings
        self._head_s, self._body_s = settings.head_ms / 1_000, settings.body_ms / 1_000
        self._idle_s = settings.idle_ms / 1_000

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its first deadline."""
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
        """Remove the connection from the count."""
        self._connections.leave(self)
        self._deadline = None
        self._stop_timer()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close the connection and discard unsent bytes."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client. The first bytes after an answer begin a request."""
        self._got_data = True
        if self._reading is None:
            self._reading = Phase.HEAD
        super().data_received(data)
        self._update_phase()

    def on_message_begin(self) -> None:
        """The parser has the first byte of a request."""
        self._reading = Phase.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser has a complete head."""
        # Set before the call: uvicorn starts the application there, and may pause the transport.
        self._reading = Phase.BODY
        super().on_headers_complete()
        if HEALTH_ONLY in self.app_state:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The parser has a complete request."""
        self._reading = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is written. uvicorn's own keep-alive timer is set longer than the deadline of
        this class (process), so it never closes a connection first.
        """
        super().on_response_complete()
        self._phase = None  # the next wait is a new one, even if it is in the same phase
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
        """Set the deadline of the phase if it has changed."""
        phase = self._current_phase()
        if phase is self._phase:
            return
        self._phase = phase
        self.answered = phase is Phase.ANSWERED
        if self.answered:
            self._deadline = None
            return
        self._connections.wait(self)
        wait_s = self._idle_s
        if phase is Phase.HEAD:
            wait_s = self._head_s
        elif phase is Phase.BODY:
            wait_s = self._body_s
        self._deadline = self.loop.time() + wait_s
        if self._timer is None or self._timer.when() > self._deadline:
            self._stop_timer()
            self._timer = self.loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """Close the connection if its deadline has passed."""
        # The deadline has usually moved since the timer was set. Setting it again here is cheaper
        # than cancelling and creating a timer at every change of phase.
        self._timer = None
        if self._deadline is None:
            return
        if self.loop.time() < self._deadline:
            self._timer = self.loop.call_at(self._deadline, self._check_deadline)
        else:
            self._expire()

    def _current_phase(self) -> Phase:
        if self.transport.is_closing():
            return Phase.CLOSING
        answering = self.cycle is not None and not self.cycle.response_complete
        if not (answering or self.pipeline):
            return self._reading or Phase.IDLE
        if self.flow.write_paused:
            return Phase.UNREAD
        # uvicorn stops reading while a pipelined request waits for the ones before it.
        waits = self._reading is Phase.BODY and not self.pipeline
        return Phase.BODY if waits else Phase.ANSWERED

    def _expire(self) -> None:
        """Close the connection of a slow client, with 408 if its request has no answer yet."""
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

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
