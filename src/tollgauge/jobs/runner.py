"""The runner: runs the loops, each at its own interval, until it is stopped.

A loop's round has a time-out; a round that fails is logged, counted and tried again at the next
tick: this is the one broad `except` of the project. Rounds that must not run twice at once on
several machines take a lease first, which stopping gives back. The lease is short, so that the
work of a machine that died is soon taken up, and renewed for as long as the round goes on; a round
that cannot renew it is ended before the lease is. Stopping waits for the rounds in flight.

How rounds end is noted in the database (store/backlog), for `tollgauge status`: once a
minute, and when a loop begins or ceases to fail.
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

LEASE_MS: Final = 100 * SECOND_MS
"""How long a lease holds that nobody renews, and so how long the work of a dead machine waits."""
RENEW_MS: Final = 15 * SECOND_MS
MARGIN_MS: Final = 10 * SECOND_MS
"""How long before its lease a round is ended, so that it has ended when the lease has."""

NOTED_EVERY_MS: Final = MINUTE_MS
_SLACK_MS: Final = 5 * MINUTE_MS
"""How much later than it should a note may come."""

Tally = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Job:
    """One loop: what a round does and how often. A round that reports `busy: True` in its tally
    is followed by the next at once. `exclusive` rounds run on one machine at a time. Up to
    `concurrency` rounds are under way at once, begun in turn, so that `every_s` holds for them
    together.
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
    """Run all loops until `stop` is set and the rounds in flight have ended."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            loop = _Loop(job, store, clock, owner, stop, _Notes(job, store, clock))
            for number in range(job.concurrency):
                group.create_task(loop.run(number))


@dataclass(slots=True)
class _Notes:
    """What is noted of a job's rounds, by this process."""

    job: Job
    store: Store
    clock: Clock
    _at: int = 0
    _error: str = ""

    async def add(self, began: float, *, error: str = "") -> None:
        """Note a round that began at `began` (monotonic s), unless the same was noted lately."""
        now, job = self.clock(), self.job
        if error == self._error and self._at <= now < self._at + NOTED_EVERY_MS:
            return
        self._at, self._error = now, error
        pause_s = job.concurrency * job.every_s + job.timeout_s
        with contextlib.suppress(StoreUnavailable):
            await self.store.writing(
                backlog.note_round,
                job.name,
                ended_at=now,
                took_ms=int((time.monotonic() - began) * SECOND_MS),
                expected_by=now + int(pause_s * SECOND_MS) + NOTED_EVERY_MS + _SLACK_MS,
                error=error,
            )


@dataclass(frozen=True, slots=True)
class _Loop:
    """A job in this process, the `owner` of its leases."""

    job: Job
    store: Store
    clock: Clock
    owner: str
    stop: asyncio.Event
    notes: _Notes

    async def run(self, number: int) -> None:
        """Round after round until it is time to stop; those that are under way at once begin in
        turn, by their number.
        """
        job = self.job
        await self._pause(number * job.every_s)
        while not self.stop.is_set():
            busy = await self._round()
            # Jitter keeps the loops of several machines from meeting on the same row.
            idle = job.concurrency * job.every_s * random.uniform(0.9, 1.1)  # noqa: S311 - no secret
            await self._pause(0.05 if busy else idle)
        if job.exclusive:
            with contextlib.suppress(StoreUnavailable):  # then it ends by itself
                await self.store.writing(meta.end_lease, job.name, owner=self.owner)

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until it is time to stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    async def _round(self) -> bool:
        """One round; whether the next should follow at once."""
        name, started = self.job.name, time.monotonic()
        try:
            if self.job.exclusive and not await self._take_lease():
                return False
            async with asyncio.timeout(self.job.timeout_s):
                tally = await (self._alone(started) if self.job.exclusive else self.job.run())
        except Exception as error:  # noqa: BLE001 - the one place: a round may fail, the loop may not
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

    async def _alone(self, began: float) -> Tally:
        """A round under a lease that was taken after `began` (monotonic seconds), which is renewed
        until the round has ended. Raises TimeoutError when the lease was lost.
        """
        alone_s = (LEASE_MS - MARGIN_MS) / SECOND_MS

        async def renew(until: asyncio.Timeout) -> None:
            while True:
                await asyncio.sleep(RENEW_MS / SECOND_MS)
                asked = time.monotonic()
                try:
                    renewed = await self._take_lease()
                except StoreUnavailable:
                    continue  # the lease still holds for a while
                until.reschedule(asked + alone_s if renewed else asked)

        # The event loop's clock is the monotonic one.
        async with asyncio.timeout_at(began + alone_s) as until:
            renewing = asyncio.create_task(renew(until))
            try:
                return await self.job.run()
            finally:
                renewing.cancel()
                await asyncio.wait([renewing])
