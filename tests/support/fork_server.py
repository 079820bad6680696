"""Client of the process that forks servers (tests/support/ledger_process.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.command_server import command as prepared_command

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass
class ForkServer:
    """The process that forks servers."""

    process: subprocess.Popen[str]
    born: list[int] = field(default_factory=list)

    def fork(self, **order: str) -> str:
        """Fork a server and return its address. Its process ID is the last of `born`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        child = json.loads(self.process.stdout.readline())
        self.born.append(child["pid"])
        return f"http://127.0.0.1:{child['port']}"

    def end_servers(self) -> None:
        for pid in self.born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.born.clear()


@contextlib.contextmanager
def start_fork_server(module: str) -> Iterator[ForkServer]:
    """Run a module that is a fork server until the end of the block."""
    process = subprocess.Popen(
        prepared_command("-m", module),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    fork_server = ForkServer(process)
    try:
        yield fork_server
    finally:
        fork_server.end_servers()
        process.communicate(timeout=60)


def state_of(pid: int) -> str:
    """Return the state letter of a process (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def until_stopped(pid: int, request: asyncio.Task[Any]) -> bool:
    """Wait until the process is stopped. Return False if it responded without reaching its
    point.
    """
    while not request.done():
        if state_of(pid) == "T":
            return True
        await asyncio.sleep(0.02)
    return False
