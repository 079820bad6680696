"""Protocol: uvicorn's HTTP/1.1 connection, with deadlines for the client, caps, and a fast path for
cached answers.

uvicorn limits how long a connection idles between two requests, and nothing else. Here each wait
for the client has its deadline (web/edge/connections): a request that is late gets 408 (RFC 9110
section 15.5.9), a connection without a request is closed.

A request goes to the application when its body is whole, so that thousands of clients that hang up
in between cost no more than their bytes. One with a body of unknown or refused length goes at once.

A request with a cached answer (web/edge/middleware, `Edge.ready`) is answered as soon as it is
parsed, without a task. Every other one goes through ASGI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tollgauge.observe import log
from tollgauge.web.edge.cache import Ready
from tollgauge.web.edge.connections import Admission, Connections, Phase
from tollgauge.web.edge.limits import BODY_MAX
from tollgauge.web.edge.middleware import HEALTH_ONLY
from tollgauge.web.edge.rate import address_key

_LATE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 30\r\nconnection: close\r\n\r\nThe request came too slowly.\r\n"
)

FindReady = Callable[[Any], Ready | None]
"""Finds the cached answer to an HTTP scope; None where there is none."""


def no_ready(_scope: object) -> Ready | None:
    """The FindReady of an application without a cache."""
    return None


class CountedProtocol(HttpToolsProtocol):
    """One connection of a client, created by uvicorn with the server's `connections`; `ready` finds
    cached answers.
    """

    def __init__(
        self, connections: Connections, ready: FindReady, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.key = "unknown"
        self._connections = connections
        self._find_ready = ready
        self._parsing = False
        self._reading: Phase | None = Phase.HEAD
        self._got_data = False
        self._phase: Phase | None = None
        self.answered = False
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unstarted: tuple[RequestResponseCycle, Any] | None = None
        settings = connections.settings
        self._head_s, self._body_s = settings.head_ms / 1_000, settings.body_ms / 1_000
        self._idle_s = settings.idle_ms / 1_000

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
        self._deadline = None
        self._stop_timer()
        if self._unstarted is not None:
            # nginx's status for a client that hung up
            log().debug("request.gone", path=self._unstarted[0].scope["path"], status=499)
            self._unstarted = None
        super().connection_lost(exc)

    def end(self) -> None:
        """Close it now, whatever the client has not read."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; the first ones after an answer begin a request."""
        self._got_data = True
        if self._reading is None:
            self._reading = Phase.HEAD
        self._parsing = True
        super().data_received(data)
        self._parsing = False
        self._update_phase()

    def on_message_begin(self) -> None:
        """The parser has the first byte of a request."""
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
        if self._unstarted is not None:
            (cycle, app), self._unstarted = self._unstarted, None
            self._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """An answer is written. As in uvicorn, without its keep-alive timer: the deadline of this
        class replaces it.
        """
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                self._start_asgi_task(cycle, app)
        self._phase = None  # what comes is new, even if it is one more wait for a request
        if not self._parsing:
            self._update_phase()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer the next request when its body is whole, at once where its answer is cached. With
        more requests in the pipeline a task answers it, because each answer starts the next one:
        answered here, they would nest.
        """
        if cycle.more_body and _is_short(cycle.scope):
            self._unstarted = cycle, app
            return
        may_send = not (self.pipeline or self.flow.write_paused or self.transport.is_closing())
        ready = self._find_ready(cycle.scope) if may_send else None
        if ready is None:
            super()._start_asgi_task(cycle, app)
            return
        head = [ready.head]
        for name, value in self.server_state.default_headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        self.transport.writelines((b"".join(head), ready.body["body"]))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response = _nothing  # it refers to this connection
        self.on_response_complete()

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
        """The timer has fired. The deadline has usually moved since: setting a new timer for each
        change would cost more than looking again here.
        """
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

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_short(scope: Any) -> bool:
    """Whether the body of a request has a known length that is taken, and is sent unasked."""
    fields = dict(scope["headers"])
    length = fields.get(b"content-length", b"0")
    asks = b"expect" in fields or b"transfer-encoding" in fields
    return not asks and length.isdigit() and int(length[:12]) <= BODY_MAX


def _nothing() -> None:
    pass
