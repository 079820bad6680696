"""Process: which process of this machine wrote something down, and whether it still runs."""

from __future__ import annotations

import os
import secrets
from typing import Final

_BITS: Final = 22
"""Numbers of processes are below 2**22 (Linux, PID_MAX_LIMIT)."""
_START: Final = secrets.randbits(40)
"""Tells this process from one that had its number before: in a container all have the same."""


def this_process() -> int:
    """A number of this process that no earlier one of this machine has had."""
    return _START << _BITS | os.getpid() % 2**_BITS


def is_alive(process: int) -> bool:
    """Whether a process of this machine is running; where that cannot be asked, yes."""
    number = process % 2**_BITS
    if number == this_process() % 2**_BITS:
        return process == this_process()
    try:
        if os.name == "posix":
            os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
