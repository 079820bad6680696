"""ChangeState: the stored state of an endpoint from which the next probe's changes are detected.

`advance` takes the state and one scored probe, and returns the next state and the changes. The
first probe of an endpoint changes nothing. A state is small and stored as JSON; if nothing changed,
it is the same object as before. A state names the set of rules that the endpoint was linted by: the
first findings of another set are stored without a change.

Liveness of a watch with a sensitivity of N misses (docs/watching.md):
- N misses in a row: down; HITS successes in a row after that: recovered;
- down again before it was steady, or repeated changes between up and down: flapping, reported once;
  then nothing until STEADY results in a row are equal, reported as recovered or down;
- an endpoint that was never up is down, but that is not reported.

Only scored results count, so failures of this service neither break nor extend a run.
core/watch/changes defines changes and their texts; store/probes/change_rows stores the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.judge import ERROR_RULES
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch.changes import (
    DOWN,
    FLAPPING,
    RECOVERED,
    Baseline,
    Change,
    is_calm,
    is_slow,
    latency_regression,
    liveness_down,
    liveness_flapping,
    liveness_recovered,
    spec_regression,
    term_changes,
)

HITS: Final = 2
"""Successes in a row that end an outage."""
STEADY: Final = 6
"""Equal results in a row that end flapping."""
RECENT: Final = 12
"""Number of stored results."""
TURNS: Final = 6
"""Changes between up and down among the stored results that count as flapping."""
TURNS_N_MAX: Final = 3
"""Watches with a higher sensitivity receive no alerts about flapping."""
PUBLIC_N: Final = 2
"""The sensitivity of public incidents, and the default of a watch (docs/watching.md)."""
CONFIRM: Final = 2
"""Responses in a row that confirm a broken rule or a slow endpoint."""
HEAL: Final = 6
"""Responses in a row without a broken rule after which it counts as fixed."""
CALM: Final = 12
"""Calm responses in a row after which a slow endpoint may be reported again."""
VARIES: Final = 3
"""Changes within a day at which terms count as varying; for a templated endpoint, the first
does.
"""
_VARIES_TEXT: Final = "It varies: more changes are not reported until it has been stable for a day."
BASELINE_MIN: Final = 48
"""Minimum number of responses in a baseline."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeState:
    """The stored state.

    Attributes:
        recent: The last scored results as `1` and `0`.
        since: The first miss of the current run.
        last_good: The last success before it.
        changes: The times of the day's changes by type.
        rules: ID of the set of rules that the last 402 was linted by; None if it is not stored.
        broken: Rules known to be broken, with the number of responses in a row that complied since.
        suspects: Rules that only the last response broke.
        slow: Milliseconds of the slow responses in a row.
        calm: Calm responses since a regression was reported; None if none was.
    """

    recent: str = ""
    since: int | None = None
    last_good: int | None = None
    seen_up: bool = False
    machines: tuple[Liveness, ...] = ()
    quote: Quote | None = None
    changes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    judged: bool = False
    rules: str | None = None
    broken: Mapping[str, int] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    baseline: Baseline | None = None
    slow: tuple[int, ...] = ()
    calm: int | None = None

    def machine(self, n: int) -> Liveness:
        """Return the liveness of a sensitivity; a new one starts as a copy of the public one."""
        machines = {machine.n: machine for machine in self.machines}
        public = machines.get(PUBLIC_N, Liveness(n=PUBLIC_N))
        return machines.get(n) or replace(public, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredProbe:
    """A scored probe with the data that it is compared with.

    Attributes:
        sensitivities: Those of the endpoint's watches.
        last_good: Time of the last success before this probe.
        slow_here: Unrelated endpoints were slow at the same time, so the cause is local.
        rules: The ID of the set of rules that linted this probe.
        announced: The seller announced that the payTo would change to that of this probe.
    """

    result: ProbeResult
    sensitivities: frozenset[int] = frozenset()
    templated: bool = False
    last_good: int | None = None
    slow_here: bool = False
    rules: str = ERROR_RULES
    announced: bool = False


def advance(state: ChangeState, probed: ScoredProbe) -> tuple[ChangeState, tuple[Change, ...]]:
    """Return the state after a scored probe, and the changes that the probe shows."""
    changes: list[Change] = []
    for detect in (_detect_liveness, _detect_terms, _detect_broken_rules, _detect_latency):
        state, new = detect(state, probed)
        changes += new
    return state, tuple(changes)


def _detect_liveness(state: ChangeState, probed: ScoredProbe) -> tuple[ChangeState, list[Change]]:
    """Advance one state machine per sensitivity, all on the same recent results."""
    result = probed.result
    recent = (state.recent + ("1" if result.up else "0"))[-RECENT:]
    began = not result.up and run_length(recent) == 1
    since = result.at if began else state.since
    last_good = probed.last_good if began else state.last_good
    seen_up = state.seen_up or result.up
    machines: list[Liveness] = []
    changes: list[Change] = []
    for n in sorted({PUBLIC_N} | probed.sensitivities):
        before = state.machine(n)
        after, kind = advance_machine(before, recent=recent, since=since, seen_up=seen_up)
        machines.append(after)
        if kind == DOWN:
            changes.append(
                liveness_down(result, n=n, since=since or result.at, last_good=last_good)
            )
        elif kind == RECOVERED:
            hits = HITS if before.down and not before.flapping else run_length(recent)
            changes.append(liveness_recovered(result, n=n, since=after.began, hits=hits))
        elif kind == FLAPPING:
            changes.append(liveness_flapping(result, n=n, recent=recent, last_good=last_good))
    next_state = replace(
        state,
        recent=recent,
        since=since,
        last_good=last_good,
        seen_up=seen_up,
        machines=tuple(machines),
    )
    return next_state, changes


def advance_machine(
    machine: Liveness, *, recent: str, since: int | None, seen_up: bool
) -> tuple[Liveness, str | None]:
    """Return the next state of a machine, and the type of the change, if any.

    `recent` are results (`1` up, `0` not, newest last); `since` is the first miss of the current
    run of misses.
    """
    up, run = recent[-1] == "1", run_length(recent)
    calm = min(machine.calm + 1, STEADY)
    if machine.flapping:
        return _end_flapping(machine, up=up, run=run, since=since)
    if machine.n <= TURNS_N_MAX and count_turns(recent) >= TURNS and seen_up:
        began = machine.began if machine.down else since
        return replace(machine, flapping=True, began=began), FLAPPING
    if machine.down and up and run >= HITS:
        return replace(machine, down=False, calm=0), RECOVERED
    if not machine.down and not up and run >= machine.n:
        if not seen_up:
            return replace(machine, down=True, began=since), None
        if machine.calm < STEADY:
            return replace(machine, flapping=True, down=True, began=since), FLAPPING
        return replace(machine, down=True, began=since), DOWN
    return replace(machine, calm=calm), None


def _end_flapping(
    machine: Liveness, *, up: bool, run: int, since: int | None
) -> tuple[Liveness, str | None]:
    """Return a flapping machine after a result that equals the `run` - 1 results before it."""
    if run < max(STEADY, 0 if up else machine.n):
        return machine, None
    if up:
        return replace(machine, flapping=False, down=False, calm=STEADY), RECOVERED
    return replace(machine, flapping=False, down=True, began=since), DOWN


def run_length(recent: str) -> int:
    """Return the number of equal newest results."""
    last = recent[-1]
    return len(recent) - len(recent.rstrip(last))


def count_turns(recent: str) -> int:
    """Return the number of changes between up and down since the results were last steady."""
    if run_length(recent) == len(recent):
        return 0
    starts = range(len(recent) - STEADY, -1, -1)
    steady = (at for at in starts if len(set(recent[at : at + STEADY])) == 1)
    moving = recent[next((at + STEADY - 1 for at in steady), 0) :]
    return sum(a != b for a, b in pairwise(moving))


def _detect_terms(state: ChangeState, probed: ScoredProbe) -> tuple[ChangeState, list[Change]]:
    """Detect changes of price, payTo, asset and network; those that recur too often are reported
    once.
    """
    result = probed.result
    if result.quote is None:
        return state, []
    if state.quote is None:
        return replace(state, quote=result.quote), []
    announced = probed.announced
    new = term_changes(state.quote, result.quote, at=result.at, source="probe", announced=announced)
    limit = 1 if probed.templated else VARIES
    reported: list[Change] = []
    times = dict(state.changes)
    for change in new:
        last_day = [at for at in times.get(change.type, ()) if at > result.at - DAY_MS]
        number = len(last_day) + 1
        times[change.type] = (*last_day, result.at)[-VARIES:]
        if number < limit:
            reported.append(change)
        elif number == limit:
            reason = f"{change.reason} {_VARIES_TEXT}"
            reported.append(replace(change, severity=Severity.WARN, reason=reason))
    return replace(state, quote=result.quote, changes=times), reported


def _detect_broken_rules(
    state: ChangeState, probed: ScoredProbe
) -> tuple[ChangeState, list[Change]]:
    """Detect newly broken rules, once a second response confirms them. An outage breaks no rule."""
    result = probed.result
    if not result.up:
        return state, []
    errors = {finding.rule for finding in result.findings if finding.severity is Severity.ERROR}
    if not state.judged:
        broken = dict.fromkeys(sorted(errors), 0)
        return replace(state, judged=True, rules=probed.rules, broken=broken), []
    rules = probed.rules if result.outcome is Outcome.PAYMENT_REQUIRED else state.rules
    clean_responses = {rule: 0 if rule in errors else n + 1 for rule, n in state.broken.items()}
    known = {rule: n for rule, n in clean_responses.items() if n < HEAL}
    unknown = errors - known.keys()
    if state.rules != probed.rules:
        # Another set of rules may find old defects. Suspects were checked by both sets.
        known |= dict.fromkeys(sorted(unknown - {*state.suspects}), 0)
    new = sorted(unknown - known.keys())
    confirmed = [rule for rule in new if rule in state.suspects]
    change = spec_regression(confirmed, result, known=sorted(known))
    after = replace(
        state,
        rules=rules,
        broken=known | dict.fromkeys(confirmed, 0),
        suspects=tuple(rule for rule in new if rule not in confirmed),
    )
    return after, [change] if change else []


def _detect_latency(state: ChangeState, probed: ScoredProbe) -> tuple[ChangeState, list[Change]]:
    """Detect slow responses in a row, compared with a baseline, which only watched endpoints have.

    Responses while this machine was slow do not count.
    """
    result, baseline = probed.result, state.baseline
    if baseline is None or not result.up or baseline.count < BASELINE_MIN or probed.slow_here:
        return state, []
    if state.calm is not None:
        calm = state.calm + 1 if is_calm(result, baseline) else 0
        return replace(state, calm=None if calm >= CALM else calm), []
    if not is_slow(result, baseline):
        return replace(state, slow=()), []
    slow = (*state.slow, result.timings.total)
    if len(slow) < CONFIRM:
        return replace(state, slow=slow), []
    change = latency_regression(slow, result, baseline)
    return replace(state, slow=(), calm=0), [change]
