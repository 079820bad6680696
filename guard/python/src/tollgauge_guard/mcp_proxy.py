"""A stdio MCP server that guards the paid tools of another one.

It starts the other server and passes the messages of both sides on, except those that the gate
(mcp_gate) refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Final

from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.mcp_gate import ToolGate

LINE_MAX: Final = 16 * 2**20
"""Longest message in bytes."""


async def run(guard: Guard, command: Sequence[str], url: str | None = None) -> int:
    """Pass messages between the standard streams and a server, until one of them ends.

    Returns the exit code of the server. Raises GuardError if it cannot be started.
    """
    gate = ToolGate(guard, url)
    try:
        server = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_MAX
        )
    except OSError as error:
        raise GuardError(f"{command[0]} cannot be started ({error.strerror}).") from error
    try:
        await _passing_on(gate, server)
    except ValueError as error:  # raised by asyncio's streams for a line that is too long
        raise GuardError(f"A message is longer than {LINE_MAX >> 20} MB.") from error
    finally:
        gate.close()
        if server.returncode is None:
            server.terminate()
        code = await server.wait()
    return code


async def _passing_on(gate: ToolGate, server: asyncio.subprocess.Process) -> None:
    """Pass messages on until the server ends, or the client's messages cannot be read."""
    if server.stdin is None or server.stdout is None:
        raise GuardError("The server was started without its streams.")
    up = asyncio.create_task(_to_server(gate, await _standard_input(), server.stdin))
    down = asyncio.create_task(_to_client(gate, server.stdout))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if not down.done():
            up.result()  # the client has closed its side, or an error of reading it
            await down
        down.result()
    finally:
        up.cancel()
        down.cancel()


async def _to_client(gate: ToolGate, lines: asyncio.StreamReader) -> None:
    async for line in lines:
        if (message := _parse(line)) is not None:
            gate.to_client(message)
        _print(line)


async def _to_server(
    gate: ToolGate, lines: asyncio.StreamReader, server: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(ConnectionError):  # the server has gone, which its output tells
        async for line in lines:
            message = _parse(line)
            if message is None:
                continue
            answer = gate.to_server(message)
            if answer is not None:
                _print(json.dumps(answer).encode() + b"\n")
                continue
            # Written again: the server must read the message as the gate has read it.
            server.write(json.dumps(message).encode() + b"\n")
            await server.drain()
        server.close()


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _parse(line: bytes) -> object | None:
    """Return the message of a line, None without one."""
    try:
        return json.loads(line) if line.strip() else None
    except (ValueError, RecursionError):
        return None
