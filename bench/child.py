"""A process of a measurement that executes commands, one per line of its standard input."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from bench import CHECKOUT


class Child:
    """A process that writes one line for each line it reads."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> bytes:
        """Return the next line of its output. Raises RuntimeError if the process ended."""
        assert self._process.stdout is not None  # noqa: S101 - PIPE was requested
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("A process of the measurement ended. Its messages are above.")
        return line

    async def obey(self, order: str) -> bytes:
        """Send a command and return the line that the process writes."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was requested
        self._process.stdin.write(f"{order}\n".encode())
        return await self.line()

    async def document(self) -> dict[str, Any]:
        """Return the JSON object that the process prints next."""
        document: dict[str, Any] = orjson.loads(await self.line())
        return document

    async def order(self, **command: object) -> dict[str, Any]:
        """Send a JSON object and return the object that the process prints."""
        answer: dict[str, Any] = orjson.loads(await self.obey(orjson.dumps(command).decode()))
        return answer


@contextlib.asynccontextmanager
async def start_child(command: list[str], log: Path) -> AsyncIterator[Child]:
    """Run a process with standard error in `log`. It is killed if it does not end by itself."""
    with log.open("wb") as messages:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        )
        try:
            yield Child(process)
        except RuntimeError:
            sys.stderr.write((await asyncio.to_thread(log.read_text))[-4_000:])
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
            if process.returncode is None:
                process.kill()
                await process.wait()


def print_json(document: object) -> None:
    """Write a line of JSON for the parent process."""
    sys.stdout.write(orjson.dumps(document).decode() + "\n")
    sys.stdout.flush()
