"""Lateness: how late a loop of ours gets its turn while it has work in flight.

A machine that is too busy, a stopped process and a long step of our own all look, from inside, like
a target that is slow to answer. So each loop that serves transfers (the thread of
clients/egress/curl_loop, and the event loop) should wake at least every TICK_S while anything is in
flight, and notes how much later than that it woke: a delay of at most TICK_S goes unnoticed.
core/probe/probe decides what it means (docs/methodology.md, *Attribution*).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

TICK_S: Final = 0.05
"""How long a loop with work in flight sleeps at most."""
_NOISE_S: Final = 0.01
"""Every sleep ends a little late; less than this is not worth a note."""
_REMEMBER_S: Final = 600.0
"""How long a delay is remembered: longer than any deadline of an attempt."""


class Lateness:
    """The delays of one loop, in seconds of the monotonic clock. Used by that loop alone."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._noted: deque[tuple[float, float]] = deque()

    def beat(self, now: float) -> None:
        """The loop has work in flight, and wakes now."""
        if self._due is not None:
            self.note(now, now - self._due)
        self._due = now + TICK_S

    def rest(self) -> None:
        """The loop has nothing in flight: it may sleep for as long as it likes."""
        self._due = None

    def note(self, now: float, delay: float) -> None:
        """Something that was to happen `delay` ago happens now."""
        if delay < _NOISE_S:
            return
        while self._noted and self._noted[-1][1] <= delay:
            self._noted.pop()  # older and no longer: never the largest again
        self._noted.append((now, delay))
        while self._noted[0][0] < now - _REMEMBER_S:
            self._noted.popleft()

    def largest(self, since: float, now: float) -> float:
        """The largest delay between two instants, the one that has just ended included."""
        pending = 0.0 if self._due is None else now - self._due
        largest = pending if pending >= _NOISE_S else 0.0
        for at, delay in reversed(self._noted):
            if at < since:
                break
            largest = max(largest, min(delay, at - since))
        return largest


class LoopLateness(Lateness):
    """The delays of the event loop, which beats by a timer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        """Beat for as long as this block lasts."""
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
