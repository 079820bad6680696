"""A process that has imported the service and forks commands from itself.

Importing the service takes two seconds of a core, and tests start hundreds of commands. `command`
returns the command line to run instead of `tollgauge`: a separate process with its own streams,
which receives signals (launcher.py). A few tests start the installed program.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import random
import runpy
import selectors
import shlex
import signal
import socket
import sys
import threading
import traceback
import types
import warnings
from pathlib import Path
from typing import Final, NoReturn

from tests.support.processes import end_with_parent

from tollgauge import cli

LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
ADDRESSES: Final[list[str]] = []
"""The address of the command server, after `start`."""
QUIET: Final = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python ignores by default."""


def command(*words: str) -> list[str]:
    """Return the command to start for `tollgauge …`, `-m MODULE …` or `-c PROGRAM …`."""
    return [sys.executable, "-I", "-S", LAUNCHER, ADDRESSES[0], *words]


def program(folder: Path, name: str = "tollgauge", *words: str) -> Path:
    """Write an executable file that starts a command, for programs that search the path.

    `words` are the arguments of `command`. Default: the file's name.
    """
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command(*(words or (name,))))} "$@"\n')
    file.chmod(0o755)
    return file


def start() -> int:
    """Fork the command server and return its process ID. It ends with this process."""
    address = f"tollgauge-tests-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + address)
    listener.listen(64)
    ADDRESSES[:] = [address]
    process = os.fork()
    if process == 0:
        end_with_parent()
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        CommandServer(listener).serve()
    listener.close()
    return process


class CommandServer:
    """Waits for requests and for the end of its children."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting = selectors.DefaultSelector()
        self._processes: dict[int, tuple[int, socket.socket]] = {}
        """Process ID and connection of each child, by its pidfd."""

    def serve(self) -> NoReturn:
        self._waiting.register(self._listener, selectors.EVENT_READ, self._fork)
        while True:
            for key, _ in self._waiting.select():
                # it may have been removed together with the other descriptor of its child
                if key.fileobj in self._waiting.get_map():
                    key.data()

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        order = receive_order(connection)
        if order is None:
            connection.close()
            return
        process = os.fork()
        if process == 0:
            end_with_parent()
            self._listener.close()
            run_command(*order)
        for number in order[-1]:
            os.close(number)
        ending = os.pidfd_open(process)
        self._processes[ending] = (process, connection)
        self._waiting.register(ending, selectors.EVENT_READ, lambda: self._count_end(ending))
        self._waiting.register(connection, selectors.EVENT_READ, lambda: self._kill(ending))
        with contextlib.suppress(OSError):
            connection.sendall(process.to_bytes(4, "big"))

    def _kill(self, ending: int) -> None:
        """Kill a child whose launcher has ended."""
        process, connection = self._processes[ending]
        self._waiting.unregister(connection)
        os.kill(process, signal.SIGKILL)

    def _count_end(self, ending: int) -> None:
        process, connection = self._processes.pop(ending)
        _, status = os.waitpid(process, 0)
        self._waiting.unregister(ending)
        os.close(ending)
        if connection in self._waiting.get_map():
            self._waiting.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(4, "big"))
        connection.close()


Order = tuple[list[str], str, dict[bytes, bytes], list[int]]
"""The arguments of a command, its folder, its environment and its three streams."""


def receive_order(connection: socket.socket) -> Order | None:
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    if not head:
        return None
    body = b""
    length = int.from_bytes(head, "big")
    while len(body) < length:
        body += connection.recv(length - len(body))
    words, folder, environment = marshal.loads(body)
    return words, folder, environment, streams


def run_command(
    words: list[str], folder: str, environment: dict[bytes, bytes], streams: list[int]
) -> NoReturn:
    """Run a command as if Python had just started, and end with its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - open to the end
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - open to the end
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - open to the end
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.resetwarnings()
    for category in QUIET:
        warnings.simplefilter("ignore", category)
    logging.root.handlers.clear()
    random.seed()
    code = 1
    try:
        code = exit_code(words)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an end does
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def exit_code(words: list[str]) -> int:
    """Run a command to its end; return its exit code."""
    kind, *more = words
    try:
        if kind == "tollgauge":
            sys.argv = words
            cli.main()
        elif kind == "-m":
            sys.argv = more
            runpy.run_module(more[0], run_name="__main__", alter_sys=True)
        else:
            program, sys.argv = more[0], ["-c", *more[1:]]
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), vars(module))
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code + "\n")
            return 1
        return ended.code or 0
    return 0
