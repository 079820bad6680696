"""Run the background loops, each at its own interval, until the process stops.

A round has a timeout. A failed round is logged, counted and repeated at the next tick. Rounds that
must not run concurrently on several machines hold a lease. It is short, so that another machine
soon takes over from a dead one, and renewed during the round; a round that cannot renew it is
cancelled before it expires. Stopping waits for running rounds and returns the leases.

The end of a round is recorded for `tollgauge status` (store/backlog) once per minute, and when a
loop starts or stops failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from tollgauge.core.base.units import MINUTE_MS, SECOND_MS, Clock
from tollgauge.db import meta
from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.observe import JOB_RUNS, JOB_SECONDS, cause_of, log, place_of
from tollgauge.store import backlog

LEASE_MS: Final = 100 * SECOND_MS  # maximum wait for the work of a dead machine
RENEW_MS: Final = 15 * SECOND_MS
MARGIN_MS: Final = 10 * SECOND_MS  # a round is cancelled this long before its lease expires

NOTE_INTERVAL_MS: Final = MINUTE_MS
_SLACK_MS: Final = 5 * MINUTE_MS  # delay of a round before `tollgauge status` reports it

Tally = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Job:
    """One loop: the function of a round, and its interval.

    - A round with `busy: True` in its tally is followed by the next immediately.
    - `exclusive` rounds run on one machine at a time.
    - Up to `concurrency` rounds run concurrently, with staggered starts: `every_s` is the interval
      between any two of them.
    """

    name: str
    run: Callable[[], Awaitable[Tally]]
    _: KW_ONLY
    every_s: float
    timeout_s: float
    exclusive: bool = False
    concurrency: int = 1


async def run_jobs(
    jobs: Sequence[Job], *, store: Store, clock: Clock, owner: str, stop: asyncio.Event
) -> None:
    """Run all loops until `stop` is set and all rounds have ended."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            loop = _Loop(job, store, clock, owner, stop, _Notes(job, store, clock))
            for number in range(job.concurrency):
                group.create_task(loop.run(number))


@dataclass(slots=True)
class _Notes:
    """The last recorded end of a job's rounds in this process."""

    job: Job
    store: Store
    clock: Clock
    _at: int = 0
    _error: str = ""

    async def add(self, began: float, *, error: str = "") -> None:
        """Record the end of a round, unless the same was recorded within a minute. `began` is its
        start in monotonic seconds.
        """
        now, job = self.clock(), self.job
        if error == self._error and self._at <= now < self._at + NOTE_INTERVAL_MS:
            return
        self._at, self._error = now, error
        pause_s = job.concurrency * job.every_s + job.timeout_s
        with contextlib.suppress(StoreUnavailable):
            await self.store.writing(
                backlog.note_round,
                job.name,
                ended_at=now,
                took_ms=int((time.monotonic() - began) * SECOND_MS),
                expected_by=now + int(pause_s * SECOND_MS) + NOTE_INTERVAL_MS + _SLACK_MS,
                error=error,
            )


@dataclass(frozen=True, slots=True)
class _Loop:
    """A job in this process, which is the `owner` of its leases."""

    job: Job
    store: Store
    clock: Clock
    owner: str
    stop: asyncio.Event
    notes: _Notes

    async def run(self, number: int) -> None:
        """Run rounds until `stop` is set. Concurrent rounds start one after another, by
        `number`.
        """
        job = self.job
        await self._pause(number * job.every_s)
        while not self.stop.is_set():
            busy = await self._round()
            # Jitter keeps the loops of several machines from meeting on the same row.
            idle = job.concurrency * job.every_s * random.uniform(0.9, 1.1)  # noqa: S311 - no secret
            await self._pause(0.05 if busy else idle)
        if job.exclusive:
            with contextlib.suppress(StoreUnavailable):  # the lease then expires
                await self.store.writing(meta.end_lease, job.name, owner=self.owner)

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds or until `stop` is set."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    async def _round(self) -> bool:
        """Run one round; return whether the next one must follow immediately."""
        name, started = self.job.name, time.monotonic()
        try:
            if self.job.exclusive and not await self._take_lease():
                return False
            async with asyncio.timeout(self.job.timeout_s):
                tally = await (
                    self._run_exclusively(started) if self.job.exclusive else self.job.run()
                )
        # The only broad `except` of the project: a failed round must not end its loop.
        except Exception as error:  # noqa: BLE001
            JOB_RUNS.labels(name, "failed").inc()
            cause = cause_of(error)
            kind, where = type(cause).__name__, place_of(cause)
            log().error("job.fail", job=name, error=kind, where=where)
            await self.notes.add(started, error=f"{kind} {where}".strip())
            return False
        JOB_RUNS.labels(name, "ok").inc()
        JOB_SECONDS.labels(name).observe(time.monotonic() - started)
        await self.notes.add(started)
        if any(tally.values()):
            log().info("job.round", job=name, **{str(key): value for key, value in tally.items()})
        return bool(tally.get("busy"))

    async def _take_lease(self) -> bool:
        return await self.store.writing(
            meta.take_lease, self.job.name, owner=self.owner, now=self.clock(), ttl_ms=LEASE_MS
        )

    async def _run_exclusively(self, began: float) -> Tally:
        """Run a round under a lease that is renewed until the round ends.

        `began` is a time before the lease was taken, in monotonic seconds.

        Raises:
            TimeoutError: The lease was lost.
        """
        usable_s = (LEASE_MS - MARGIN_MS) / SECOND_MS

        async def renew(until: asyncio.Timeout) -> None:
            while True:
                await asyncio.sleep(RENEW_MS / SECOND_MS)
                # Measured before the request: the database may have granted the lease any time
                # after it.
                asked = time.monotonic()
                try:
                    renewed = await self._take_lease()
                except StoreUnavailable:
                    continue  # the lease is still valid; the timeout ends the round in time
                until.reschedule(asked + usable_s if renewed else asked)

        # The event loop's clock is the monotonic one.
        async with asyncio.timeout_at(began + usable_s) as until:
            renewing = asyncio.create_task(renew(until))
            try:
                return await self.job.run()
            finally:
                renewing.cancel()
                await asyncio.wait([renewing])
