"""A pytest plugin: `-p tests.parallel --processes 5` runs test files concurrently.

The tests are imported once, then the workers are forked, because the imports take longer than most
files. A worker takes the next file when it has finished one, so the fixtures of a file stay in one
process. If a worker dies, the test that it was running has failed.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, cast

import pytest
from tests.support.processes import end_with_parent

NUMBER: Final = struct.Struct("!H")
Range = tuple[int, int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="Run this many files at a time.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests; return None to leave them to pytest's own loop."""
    options = session.config.option
    if options.processes < 2 or options.collectonly or session.testsfailed:
        return None
    run(session, options.processes)
    return True


def files(items: list[pytest.Item]) -> list[Range]:
    """Return the range of each file's tests."""
    ranges = []
    start = 0
    for _, tests in itertools.groupby(items, key=lambda item: item.path):
        end = start + sum(1 for _ in tests)
        ranges.append((start, end))
        start = end
    return ranges


@dataclass
class Worker:
    """A worker, as the main process sees it."""

    pid: int
    connection: Connection
    at: str = ""
    """The ID of the current test."""
    whole: bool = False
    """Whether the worker has run all its tests."""


@dataclass(eq=False)
class Runs:
    """The loop of a worker. It sends the report of each test to the main process.

    The terminal shows nothing for a set-up or an end that passed, so these reports are not sent,
    unless the slowest ones are listed.
    """

    session: pytest.Session
    queue: int
    connection: Connection
    ranges: list[Range] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        if report.passed and report.when != "call" and config.option.durations is None:
            return
        self.connection.send(
            ("report", config.hook.pytest_report_to_serializable(config=config, report=report))
        )

    def run(self) -> None:
        """Run files until the queue is empty."""
        items = self.session.items
        following = self._next_file()
        while following is not None:
            start, end = following
            for place in range(start, end):
                next_item: pytest.Item | None
                if place + 1 < end:
                    next_item = items[place + 1]
                else:
                    following = self._next_file()
                    next_item = None if following is None else items[following[0]]
                self.connection.send(("at", items[place].nodeid))
                hook = items[place].config.hook
                hook.pytest_runtest_protocol(item=items[place], nextitem=next_item)
        self.connection.send(("whole", ""))

    def _next_file(self) -> Range | None:
        number = os.read(self.queue, NUMBER.size)
        return self.ranges[NUMBER.unpack(number)[0]] if number else None


def run(session: pytest.Session, processes: int) -> None:
    """Fork the workers and publish their reports until the last one has ended."""
    ranges = files(session.items)
    queue, filling = os.pipe()
    # The queue is a pipe of file numbers. Reads of two bytes are atomic, so it needs no lock.
    os.write(filling, b"".join(map(NUMBER.pack, range(len(ranges)))))
    os.close(filling)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
    workers = [run_forked(session, queue, ranges) for _ in range(processes)]
    os.close(queue)
    try:
        for worker, (kind, value) in messages(workers):
            if kind == "at":
                worker.at = value
            elif kind == "whole":
                worker.whole = True
            else:
                report(session, value)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    finally:
        for worker in workers:
            if not worker.whole:
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def run_forked(session: pytest.Session, queue: int, ranges: list[Range]) -> Worker:
    """Fork a worker."""
    ours, its = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        its.close()
        return Worker(pid=pid, connection=ours)
    end_with_parent()
    status = 1
    try:
        plugins = session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # into a file that all the workers would share
        capture.start_global_capturing()
        runs = Runs(session, queue, its, ranges)
        plugins.register(runs)
        runs.run()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        raise
    finally:
        os._exit(status)


def messages(workers: list[Worker]) -> Iterator[tuple[Worker, tuple[str, Any]]]:
    """Yield the messages of the workers as they arrive. The death of a worker is also a message."""
    open_workers = {worker.connection: worker for worker in workers}
    while open_workers:
        for ready in cast("list[Connection]", wait(list(open_workers))):
            worker = open_workers[ready]
            try:
                yield worker, ready.recv()
            except (EOFError, pickle.UnpicklingError):
                del open_workers[ready]
                if not worker.whole:
                    yield worker, ("report", death(worker.at))


def death(nodeid: str) -> dict[str, Any]:
    """Return the report of a test whose process died."""
    died = pytest.TestReport(
        nodeid=nodeid,
        location=(nodeid.split("::")[0], None, nodeid),
        keywords={},
        outcome="failed",
        longrepr="The process died in this test; the rest of its file was not run.",
        when="call",
    )
    return {"$report_type": "TestReport", **died._to_json()}


def report(session: pytest.Session, document: dict[str, Any]) -> None:
    hook = session.config.hook
    outcome = hook.pytest_report_from_serializable(config=session.config, data=document)
    hook.pytest_runtest_logreport(report=outcome)
