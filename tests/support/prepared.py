"""A process that has imported everything and forks commands from itself.

To import the service takes two seconds of a core, which tests of commands would spend hundreds of
times. `command` names a program to start in place of one of ours; what runs is a process of its
own, with its own streams, which signals reach (launcher.py). A few tests start the installed
program itself.
"""

from __future__ import annotations

import contextlib
import gc
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
"""That of the prepared process of these tests, once it was started."""
QUIET: Final = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""What Python does not show unless it is asked."""


def command(*words: str) -> list[str]:
    """What to start for `tollgauge …`, `-m MODULE …` or `-c PROGRAM …`."""
    return [sys.executable, "-I", "-S", LAUNCHER, ADDRESSES[0], *words]


def program(folder: Path, name: str = "tollgauge", *words: str) -> Path:
    """A file in a folder, for commands that find it on the path; `words` are those of `command`
    where they are not the file's name.
    """
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command(*(words or (name,))))} "$@"\n')
    file.chmod(0o755)
    return file


def start() -> int:
    """Fork the prepared process, which ends with this one at the latest; its number."""
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
        Prepared(listener).serve()
    listener.close()
    return process


class Prepared:
    """Waits for orders and for the ends of what it forked."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting = selectors.DefaultSelector()
        self._processes: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor that tells of its end."""

    def serve(self) -> NoReturn:
        self._waiting.register(self._listener, selectors.EVENT_READ, self._fork)
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj in self._waiting.get_map():  # it may have gone with another
                    key.data()

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        order = received(connection)
        if order is None:
            connection.close()
            return
        process = os.fork()
        if process == 0:
            end_with_parent()
            self._listener.close()
            become(*order)
        for number in order[-1]:
            os.close(number)
        ending = os.pidfd_open(process)
        self._processes[ending] = (process, connection)
        self._waiting.register(ending, selectors.EVENT_READ, lambda: self._ended(ending))
        self._waiting.register(connection, selectors.EVENT_READ, lambda: self._kill(ending))
        with contextlib.suppress(OSError):
            connection.sendall(process.to_bytes(4, "big"))

    def _kill(self, ending: int) -> None:
        """Its launcher is gone."""
        process, connection = self._processes[ending]
        self._waiting.unregister(connection)
        os.kill(process, signal.SIGKILL)

    def _ended(self, ending: int) -> None:
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
"""The words of a command, its folder, its environment, and its three streams."""


def received(connection: socket.socket) -> Order | None:
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    if not head:
        return None
    body = b""
    length = int.from_bytes(head, "big")
    while len(body) < length:
        body += connection.recv(length - len(body))
    words, folder, environment = marshal.loads(body)
    return words, folder, environment, streams


def become(
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
    gc.unfreeze()
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
    """Run a command to its end."""
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
