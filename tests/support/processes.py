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
    """In a child: receive this signal when the parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


CHOICE: Final = range(10_000, 32_768)
"""Upper bound of free ports: below those that Linux assigns to sockets without a port. Concurrent
tests request such ports many times per second, and could get the port before its server does.
"""


def free_port() -> int:
    """Return a port that is not in use."""
    dice = random.SystemRandom()  # other processes must not choose the same
    while True:
        port = dice.choice(CHOICE)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
