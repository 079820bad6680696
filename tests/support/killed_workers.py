"""Workers of the probe loop that are killed at random, and checks of their probes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.command_server import command as prepared_command
from tests.support.fork_server import ROOT
from tests.support.probing_process import Order

from tollgauge.app import now_ms


@dataclass
class Workers:
    """The running workers by process ID, and when others were killed (ms UTC)."""

    process: subprocess.Popen[str]
    order: Order
    living: set[int] = field(default_factory=set)
    killed: dict[int, int] = field(default_factory=dict)

    def start(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(self.order)) + "\n")
        self.process.stdin.flush()
        self.living.add(int(self.process.stdout.readline()))

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.living.discard(pid)
        self.killed[pid] = now_ms() + 50  # it may run for a moment after the kill

    def find_ended(self) -> set[int]:
        """Return the workers that should run and do not."""
        return {pid for pid in self.living if not Path(f"/proc/{pid}").exists()}

    def replace_one(self, dice: random.Random) -> None:
        self.kill(dice.choice(sorted(self.living)))
        self.start()


@contextlib.contextmanager
def run_workers(order: Order, *, workers: int) -> Iterator[Workers]:
    process = subprocess.Popen(
        prepared_command("-m", "tests.support.probing_process"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    group = Workers(process, order)
    try:
        for _ in range(workers):
            group.start()
        yield group
    finally:
        for pid in sorted(group.living):
            with contextlib.suppress(ProcessLookupError):
                group.kill(pid)
        process.communicate(timeout=60)


def kill_at_random(
    kill: Callable[[random.Random], None], *, seconds: float, every_s: float, seed: int
) -> int:
    """Kill processes repeatedly; return the number of kills.

    On a busy machine, a kill may take longer than the pause before it. The loop therefore continues
    until half of the planned kills were made.
    """
    dice, ends, kills = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < ends or kills < seconds / every_s / 2:
        time.sleep(every_s * dice.uniform(0.8, 1.2))
        kill(dice)
        kills += 1
    return kills


def overlaps(folder: Path, killed: dict[int, int]) -> list[str]:
    """Return the hosts to which two requests were made concurrently, by any processes."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for path in folder.glob("*.requests"):
        begun: dict[str, int] = {}
        for line in path.read_text().splitlines():
            what, host, at = line.split()
            if what == "begin":
                begun[host] = int(at)
            else:
                spans.setdefault(host, []).append((begun.pop(host), int(at)))
        for host, start in begun.items():
            spans.setdefault(host, []).append((start, killed[int(path.stem)]))
    return [
        host
        for host, known in spans.items()
        for (_, before), (after, _) in zip(sorted(known), sorted(known)[1:], strict=False)
        if after < before
    ]
