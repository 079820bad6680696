"""Ports of loopback for servers that are told theirs before they listen."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

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
