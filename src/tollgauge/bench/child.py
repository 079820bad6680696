"""Child: a process of a measurement that obeys lines."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path


class Child:
    """A process that obeys lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> bytes:
        """Its next line. Raises RuntimeError when it ended."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        found = await self._process.stdout.readline()
        if not found:
            raise RuntimeError("a process of the measurement ended: see its messages above")
        return found

    async def obey(self, order: str) -> bytes:
        """Give an order; what it says."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(f"{order}\n".encode())
        return await self.line()


@contextlib.asynccontextmanager
async def started(command: list[str], log: Path) -> AsyncIterator[Child]:
    """A process whose messages go to `log`; ended, by force where it must be."""
    with log.open("wb") as messages:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages
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
