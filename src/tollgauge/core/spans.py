"""Spans: for how much of a day an endpoint was up, payable and down.

A probe speaks from its instant to the next probe that speaks, at most for as long as it `holds`:
HOLDS_MIN_MS if it was payable, else one and a half times the time to the endpoint's next probe,
so a target that answers 503 and asks for six hours of silence is down for those hours. The time
after that is in no sum, so that a stop of our own counts neither way.

Which probes speak (docs/methodology.md, *time, not probe counts*):
- every scored probe, and a 429, which is in no count of probes but says that nobody was served;
- the probes that confirm a failure (`ProbeResult.confirms`), which are in no count either;
- no other: a result that is ours or unknown says nothing of the target.

Sums are integers of milliseconds and split at midnight UTC, so those of closed days never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le, sub
from typing import Final, NamedTuple

from tollgauge.core.probe import HOLDS_MIN_MS, Attribution, Outcome, ProbeResult
from tollgauge.core.record import record
from tollgauge.core.units import DAY_MS, HOUR_MS

HOLDS_MAX_MS: Final = 24 * HOUR_MS
"""How long any probe speaks at most."""
REFUSALS: Final = frozenset({Outcome.THROTTLED, Outcome.FORBIDDEN})
"""Refusals: their time is not up, although a 401 or 403 counts as a probe that was up."""

_MANY: Final = 4
"""From how many statements on it pays to look whether they amount to one."""


class Statement(NamedTuple):
    """What a probe says of the endpoint from `at` (ms UTC) on, for `holds` milliseconds at most.
    `compliance` is 0..100.
    """

    at: int
    holds: int
    up: bool
    payable: bool
    compliance: int


Said = tuple[int, int, bool, bool, int]
"""The values of a statement: (at, holds, up, payable, compliance)."""


@record(frozen=True, slots=True, kw_only=True)
class Spans:
    """Milliseconds `up`, `payable` and `down` (up + down is all that was spoken of), the sum of
    compliance x milliseconds, and how many failures and repairs began: changes from payable to
    not payable and back.
    """

    up: int = 0
    payable: int = 0
    down: int = 0
    compliance: int = 0
    failures: int = 0
    repairs: int = 0

    def __add__(self, other: Spans) -> Spans:
        """The sums of two that share no time."""
        return Spans(
            up=self.up + other.up,
            payable=self.payable + other.payable,
            down=self.down + other.down,
            compliance=self.compliance + other.compliance,
            failures=self.failures + other.failures,
            repairs=self.repairs + other.repairs,
        )


NO_SPANS: Final = Spans()


def spans_sum(parts: Iterable[tuple[Spans, int]]) -> Spans:
    """The sum of spans, each times a weight."""
    up = payable = down = compliance = failures = repairs = 0
    for part, weight in parts:
        up += weight * part.up
        payable += weight * part.payable
        down += weight * part.down
        compliance += weight * part.compliance
        failures += weight * part.failures
        repairs += weight * part.repairs
    return Spans(
        up=up,
        payable=payable,
        down=down,
        compliance=compliance,
        failures=failures,
        repairs=repairs,
    )


def holds_ms(*, payable: bool, interval_ms: int) -> int:
    """How long a probe speaks at most, when the next one is due after `interval_ms`."""
    if payable:
        return HOLDS_MIN_MS
    return min(max(interval_ms * 3 // 2, HOLDS_MIN_MS), HOLDS_MAX_MS)


def statement(result: ProbeResult) -> Statement | None:
    """What a result, or a row of one, says; None if it says nothing of the target."""
    refused = result.outcome in REFUSALS
    if result.attribution != Attribution.THEIRS and result.outcome != Outcome.THROTTLED:
        return None
    return Statement(
        at=result.at,
        holds=result.holds,
        up=result.up and not refused,
        payable=result.payable,
        compliance=result.compliance,
    )


def spans(day: int, statements: Iterable[Said], *, before: Said | None, until: int) -> Spans:
    """The spans of a UTC day up to `until` (ms UTC), from its statements in any order.

    `before` is the last statement of the day before. Older ones are not known: the first statement
    after a day of silence begins neither a failure nor a repair.
    """
    begin, end = day * DAY_MS, min((day + 1) * DAY_MS, until)
    ordered = sorted(statements)
    known = [before, *ordered] if before is not None else ordered
    up = payable = down = compliance = failures = repairs = 0
    following_at, following_payable = end, None
    for at, holds, is_up, is_payable, worth in reversed(_as_one(known)):
        stop = at + holds
        stop = stop if stop < following_at else following_at
        spoken = (stop if stop < end else end) - (at if at > begin else begin)
        if spoken > 0:
            up += spoken if is_up else 0
            down += 0 if is_up else spoken
            payable += spoken if is_payable else 0
            compliance += worth * spoken
        if following_payable is not None and bool(is_payable) is not following_payable:
            failures += not following_payable
            repairs += following_payable
        following_at, following_payable = at, bool(is_payable)
    return Spans(
        up=up,
        payable=payable,
        down=down,
        compliance=compliance,
        failures=failures,
        repairs=repairs,
    )


def _as_one(statements: Sequence[Said]) -> Sequence[Said]:
    """Statements as the one that they amount to, if all say the same and each speaks until the
    next, which most days are: to look at them one by one takes six times as long, unless they are
    few.
    """
    if len(statements) < _MANY:
        return statements
    instants, holds, *columns = zip(*statements, strict=True)
    if max(map(len, map(set, columns))) > 1:
        return statements
    if not all(map(le, map(sub, instants[1:], instants), holds)):
        return statements
    _, _, *says = statements[0]
    return [(instants[0], instants[-1] + holds[-1] - instants[0], *says)]
