"""The thread that drives libcurl: one multi handle for all transfers of an egress.

One multi handle, because it caches the parsed trust anchors; a separate thread, because hostile
responses must not delay the event loop.

A busy machine, a stopped process and a long step of this process all look like a slow target. Both
loops that serve transfers (this thread and the event loop) therefore wake at least every TICK_S
while a transfer is in flight, and record how late they woke. Each exchange contains the largest
delay during its flight, which core/probe/probe evaluates (docs/methodology.md, *Attribution*).
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pycurl

from tollgauge.clients.egress.transfer import CurlTransfer
from tollgauge.core.probe.exchange import Exchange

OnEnd = Callable[[Exchange], None]
"""Called once when a transfer has ended, on the loop's thread."""

TICK_S: Final = 0.05  # a loop with work in flight sleeps no longer
_NOISE_S: Final = 0.01  # every sleep ends slightly late; smaller delays are ignored
_REMEMBER_S: Final = 600.0  # longer than any deadline of an attempt
_NOT_RUNNING: Final = "egress is not running"
_INTEREST: Final = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


class Lateness:
    """Delays of one loop (seconds, monotonic clock). Not thread-safe: used only by that loop."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._noted: deque[tuple[float, float]] = deque()

    def beat(self, now: float) -> None:
        """Record that the loop woke with transfers in flight."""
        if self._due is not None:
            self.note(now, now - self._due)
        self._due = now + TICK_S

    def rest(self) -> None:
        """Record that nothing is in flight: the loop may sleep without a limit."""
        self._due = None

    def note(self, now: float, delay: float) -> None:
        """Record that something due `delay` seconds ago happens now."""
        if delay < _NOISE_S:
            return
        while self._noted and self._noted[-1][1] <= delay:
            self._noted.pop()  # older and shorter: can never be the largest again
        self._noted.append((now, delay))
        while self._noted[0][0] < now - _REMEMBER_S:
            self._noted.popleft()

    def largest(self, since: float, now: float) -> float:
        """Return the largest delay between two times, a pending one included."""
        pending = 0.0 if self._due is None else now - self._due
        largest = pending if pending >= _NOISE_S else 0.0
        for at, delay in reversed(self._noted):
            if at < since:
                break
            largest = max(largest, min(delay, at - since))
        return largest


class LoopLateness(Lateness):
    """The delays of the event loop, measured by a timer."""

    def __init__(self) -> None:
        super().__init__()
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        """Measure delays for the duration of this block."""
        self._in_flight += 1
        if self._in_flight == 1:
            self._beat()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._stop()

    def _beat(self) -> None:
        self.beat(time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._beat)

    def _stop(self) -> None:
        self.rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The callback of a transfer, and its time of submission (monotonic clock)."""

    on_end: OnEnd
    since: float


class CurlLoop:
    """Runs transfers until stopped. `submit`, `cancel` and `stop` may be called on any thread."""

    def __init__(self) -> None:
        self._inbox: deque[tuple[CurlTransfer, _Job | None]] = deque()
        self._lock = threading.Lock()
        self._ended = False
        self._stopping = False
        self._running: dict[CurlTransfer, _Job] = {}
        self._lateness = Lateness()
        self._due: float | None = None
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.settimeout(0)
        self._wakeup_writer.settimeout(0)
        self._woken = False
        self._poll = select.epoll()
        self._polled: set[int] = set()
        self._poll.register(self._wakeup_reader, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="egress", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def submit(self, transfer: CurlTransfer, on_end: OnEnd) -> None:
        """Run a transfer; `on_end` receives its exchange on the loop's thread.

        If the loop has ended, `on_end` is called immediately on the calling thread.
        """
        # The lock makes the check and the append one step: after `_end` has set `_ended`, no
        # transfer may enter the inbox, because its callback would never run.
        with self._lock:
            if self._thread.is_alive() and not self._ended:
                self._inbox.append((transfer, _Job(on_end=on_end, since=time.monotonic())))
                self._wake()
                return
        on_end(transfer.build_local_failure(_NOT_RUNNING))

    def cancel(self, transfer: CurlTransfer) -> None:
        """Abort a transfer without calling its `on_end`. Unknown transfers are ignored."""
        with self._lock:
            if not self._ended:
                self._inbox.append((transfer, None))
                self._wake()

    def stop(self, seconds: float) -> None:
        """Abort all transfers and end the thread; wait at most `seconds` for it."""
        self._stopping = True
        with self._lock:
            if not self._ended:
                self._wake()
        if self._thread.ident is None:
            self._close()
        else:
            self._thread.join(seconds)

    def _wake(self) -> None:
        """Interrupt the thread's current or next wait. The caller holds the lock."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes the thread too
                self._wakeup_writer.send(b"\0")

    def _run(self) -> None:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_interest)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        try:
            while not self._stopping:
                self._take(multi)
                self._step(multi)
                self._reap(multi)
        finally:
            self._end(multi)

    def _take(self, multi: Any) -> None:
        while self._inbox:
            transfer, job = self._inbox.popleft()
            if job is None:
                if self._running.pop(transfer, None):
                    self._drop(multi, transfer)
                continue
            now = time.monotonic()
            self._lateness.beat(now)  # setting up a transfer takes time too
            self._lateness.note(now, now - job.since)
            try:
                multi.add_handle(transfer.open())
            except (pycurl.error, OSError, MemoryError):
                transfer.close()
                job.on_end(transfer.build_local_failure("the transfer could not be set up"))
            else:
                transfer.handle.transfer = transfer
                self._running[transfer] = job

    def _await(self) -> list[tuple[int, int]]:
        """Wait for ready sockets and record how late the thread woke."""
        waits = [] if self._due is None else [max(0.0, self._due - time.monotonic())]
        if self._running:
            ready = self._poll.poll(min([TICK_S, *waits]))
            self._lateness.beat(time.monotonic())
            return ready
        self._lateness.rest()
        return self._poll.poll(min(waits, default=None))

    def _step(self, multi: Any) -> None:
        for fd, events in self._await():
            if fd in self._polled:  # an earlier event of this batch may have closed it
                # For EPOLLERR and EPOLLHUP both bits are set: libcurl finds out by trying.
                ready = pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0
                ready |= pycurl.CSELECT_OUT if events & ~select.EPOLLIN else 0
                multi.socket_action(fd, ready)
            elif fd == self._wakeup_reader.fileno():
                with self._lock:
                    self._woken = False
                    self._wakeup_reader.recv(16)
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _reap(self, multi: Any) -> None:
        more = True
        while more:
            more, good, bad = multi.info_read()
            for handle in good:
                self._finish(multi, handle.transfer, 0, "")
            for handle, code, message in bad:
                self._finish(multi, handle.transfer, code, message)

    def _finish(self, multi: Any, transfer: CurlTransfer, code: int, message: str) -> None:
        job = self._running.pop(transfer)
        delay = self._lateness.largest(job.since, time.monotonic())
        exchange = transfer.build_exchange(code, message, delay_ms=int(delay * 1_000 + 0.5))
        self._drop(multi, transfer)
        job.on_end(exchange)

    def _drop(self, multi: Any, transfer: CurlTransfer) -> None:
        multi.remove_handle(transfer.handle)
        transfer.close()

    def _end(self, multi: Any) -> None:
        with self._lock:
            self._ended = True
        waiting = {transfer: job for transfer, job in self._inbox if job is not None}
        for transfer in self._running:
            self._drop(multi, transfer)
        for transfer, job in (self._running | waiting).items():
            job.on_end(transfer.build_local_failure(_NOT_RUNNING))
        self._running.clear()
        multi.close()
        self._close()

    def _close(self) -> None:
        self._ended = True
        self._poll.close()
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    def _on_interest(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        events = _INTEREST.get(what)
        if events is None:
            if fd in self._polled:
                self._polled.remove(fd)
                self._poll.unregister(fd)
        elif fd in self._polled:
            self._poll.modify(fd, events)
        else:
            self._polled.add(fd)
            self._poll.register(fd, events)

    def _on_timer(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1_000
