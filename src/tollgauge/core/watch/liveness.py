"""Liveness: up, down or flapping, for a watch with a sensitivity of N misses.

Rules (docs/watching.md):
- N misses in a row: down; HITS answers in a row after that: recovered;
- down again before it was steady, or up and down in turns: flapping, reported once; then nothing
  until STEADY results in a row are the same, which is reported as recovered or down;
- an endpoint that was never seen up is down, but that is not reported.

Only scored results count, so our own faults neither break nor extend a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tollgauge.core.watch import changes

HITS: Final = 2
"""Answers in a row that end an outage."""
STEADY: Final = 6
"""Equal results in a row that end flapping."""
RECENT: Final = 12
"""How many results are remembered."""
TURNS: Final = 6
"""Changes between up and down among the remembered results that are flapping."""
TURNS_N_MAX: Final = 3
"""A watch that waits for more misses than this is not alerted to up and down in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The state machine of one sensitivity, `n` misses. `calm` counts results since the last
    recovery, up to STEADY; `began` is the start of the current outage in ms UTC.
    """

    n: int
    down: bool = False
    flapping: bool = False
    calm: int = STEADY
    began: int | None = None


def step(
    machine: Liveness, *, recent: str, since: int | None, seen_up: bool
) -> tuple[Liveness, str | None]:
    """The machine after the newest of `recent` results (`1` up, `0` not, newest last), and the
    type of the change, if any. `since` is the first miss of the current run of misses.
    """
    up, run = recent[-1] == "1", run_length(recent)
    calm = min(machine.calm + 1, STEADY)
    if machine.flapping:
        return _steadied(machine, up=up, run=run, since=since)
    if machine.n <= TURNS_N_MAX and turns(recent) >= TURNS and seen_up:
        began = machine.began if machine.down else since
        return replace(machine, flapping=True, began=began), changes.FLAPPING
    if machine.down and up and run >= HITS:
        return replace(machine, down=False, calm=0), changes.RECOVERED
    if not machine.down and not up and run >= machine.n:
        if not seen_up:
            return replace(machine, down=True, began=since), None
        if machine.calm < STEADY:
            return replace(machine, flapping=True, down=True, began=since), changes.FLAPPING
        return replace(machine, down=True, began=since), changes.DOWN
    return (machine if machine.calm == calm else replace(machine, calm=calm)), None


def _steadied(
    machine: Liveness, *, up: bool, run: int, since: int | None
) -> tuple[Liveness, str | None]:
    """A flapping machine after a result that is the same as `run` - 1 before it."""
    if run < max(STEADY, 0 if up else machine.n):
        return machine, None
    if up:
        return replace(machine, flapping=False, down=False, calm=STEADY), changes.RECOVERED
    return replace(machine, flapping=False, down=True, began=since), changes.DOWN


def run_length(recent: str) -> int:
    """How many of the newest results are equal."""
    last = recent[-1]
    return len(recent) - len(recent.rstrip(last))


def turns(recent: str) -> int:
    """How often the results changed between up and down since they were last steady."""
    if run_length(recent) == len(recent):
        return 0
    starts = range(len(recent) - STEADY, -1, -1)
    steady = (at for at in starts if len(set(recent[at : at + STEADY])) == 1)
    moving = recent[next((at + STEADY - 1 for at in steady), 0) :]
    return sum(a != b for a, b in pairwise(moving))
