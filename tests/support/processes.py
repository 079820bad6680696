"""Child processes that end with their parent, and free ports for them."""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import socket
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """In a child: get this signal when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


CHOICE: Final = range(10_000, 32_768)
"""Below those that Linux gives to sockets that name none: a test beside this one asks for such a
one many times a second, and would get the port before the server that it is meant for.
"""


def free_port() -> int:
    """A port that nobody has now."""
    dice = random.SystemRandom()  # other processes must not choose the same
    while True:
        port = dice.choice(CHOICE)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
