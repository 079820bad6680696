"""TypeScript programs of the documents, run in one process that loads the locked packages once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.support.paying_clients import node

ROOT = Path(__file__).resolve().parents[2]
IMPORT_EACH = Path(__file__).with_name("import_each.mjs")
Run = Callable[[str], Awaitable[str]]


@contextlib.asynccontextmanager
async def open_node(folder: Path, **environment: str) -> AsyncIterator[Run]:
    """A function that runs a program and returns its output. Files are written to `folder`."""
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    process = await asyncio.create_subprocess_exec(
        *(node(), str(IMPORT_EACH)), env=os.environ | environment, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to_node, from_node = process.stdin, process.stdout
    numbers = itertools.count()

    async def run(program: str) -> str:
        file = folder / f"{next(numbers)}.mjs"
        file.write_text(program)
        to_node.write(f"{file}\n".encode())
        printed = await asyncio.wait_for(from_node.readuntil(b"\0"), 60)
        return printed.removesuffix(b"\0").decode()

    yield run
    to_node.close()
    assert await asyncio.wait_for(process.wait(), 60) == 0
