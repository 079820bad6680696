"""A process that pays, and its fork, which pays before and after the first process has closed the
journal: `python -m tests.support.forked_payer JOURNAL`.
"""

from __future__ import annotations

import os
import sys
import time

from tests.support.guard_payments import pay

from tollgauge_guard.journal import Journal
from tollgauge_guard.policy import Policy

POLICY = Policy()


def main(path: str) -> None:
    """Write payment 1 in this process, and payments 2 and 3 in the fork."""
    journal, now = Journal(path), int(time.time())
    pay(journal, 1, POLICY, now, path="/1")
    paid_reader, paid = os.pipe()
    closed_reader, closed = os.pipe()
    fork = os.fork()
    if not fork:
        pay(journal, 2, POLICY, now, path="/2")
        os.write(paid, b".")
        os.read(closed_reader, 1)
        pay(journal, 3, POLICY, now, path="/3")
        os._exit(0)
    os.read(paid_reader, 1)
    journal.close()
    os.write(closed, b".")
    os.waitpid(fork, 0)


if __name__ == "__main__":
    main(sys.argv[1])
