"""Spans: the time of a day for which an endpoint was up, payable and down.

A probe counts from its time to the next probe that counts, at most for `holds` milliseconds:
HOLDS_MIN_MS if it was payable, otherwise one and a half times the time to the endpoint's next
probe, so a target that answers 503 and asks for a pause of six hours is down for those hours. Later
time is in no sum, so a stop of this service counts neither way.

These probes count (docs/methodology.md, *time, not probe counts*):
- every scored probe;
- probes that confirm a failure (`ProbeResult.confirms`), which are in no count of probes.
A result whose cause is local or unknown does not describe the target and does not count.

Sums are integers of milliseconds and split at midnight UTC, so those of closed days never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.outcome import OUTCOMES
from tollgauge.core.probe.probe import HOLDS_MIN_MS, ProbeResult, describes_target

HOLDS_MAX_MS: Final = 24 * HOUR_MS
"""Maximum time that any probe counts for."""


class Statement(NamedTuple):
    """The state of the endpoint from `at` (ms UTC) on, for at most `holds` milliseconds.
    `compliance` is 0..100; `refused`: it answered without serving the prober.
    """

    at: int
    holds: int
    up: bool
    payable: bool
    compliance: int
    refused: bool = False


Said = tuple[int, int, bool, bool, int, bool]
"""The values of a statement: (at, holds, up, payable, compliance, refused)."""


class Spans(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Milliseconds `up`, `payable` and `down` (up + down is the observed time), the sum of
    compliance x milliseconds, and the numbers of failures and repairs: changes from payable to not
    payable and back. `refused` is the part of `down` with refusals.
    """

    up: int = 0
    payable: int = 0
    down: int = 0
    compliance: int = 0
    failures: int = 0
    repairs: int = 0
    refused: int = 0


NO_SPANS: Final = Spans()


def spans_sum(parts: Sequence[Spans]) -> Spans:
    """Return the sum of spans that do not overlap."""
    return Spans(
        up=sum([part.up for part in parts]),
        payable=sum([part.payable for part in parts]),
        down=sum([part.down for part in parts]),
        compliance=sum([part.compliance for part in parts]),
        failures=sum([part.failures for part in parts]),
        repairs=sum([part.repairs for part in parts]),
        refused=sum([part.refused for part in parts]),
    )


def holds_ms(*, payable: bool, interval_ms: int) -> int:
    """Return the maximum time that a probe counts for if the next one is due after
    `interval_ms`.
    """
    if payable:
        return HOLDS_MIN_MS
    return min(max(interval_ms * 3 // 2, HOLDS_MIN_MS), HOLDS_MAX_MS)


def statement(result: ProbeResult) -> Statement | None:
    """Return the statement of a result, or of a row of one; None if it does not describe the
    target.
    """
    if not describes_target(result):
        return None
    return Statement(
        at=result.at,
        holds=result.holds,
        up=result.up,
        payable=result.payable,
        compliance=result.compliance,
        refused=OUTCOMES[result.outcome].refusal,
    )


def spans(day: int, statements: Iterable[Said], *, before: Said | None, until: int) -> Spans:
    """Return the spans of a UTC day up to `until` (ms UTC), from its statements in any order.

    `before` is the last statement of the day before. Older ones are unknown: the first statement
    after a day without any begins neither a failure nor a repair.
    """
    begin, end = day * DAY_MS, min((day + 1) * DAY_MS, until)
    ordered = sorted(statements)
    known = [before, *ordered] if before is not None else ordered
    up = payable = down = compliance = failures = repairs = refused = 0
    following_at, following_payable = end, None
    for at, holds, is_up, is_payable, worth, is_refusal in reversed(known):
        stop = at + holds
        stop = stop if stop < following_at else following_at
        spoken = (stop if stop < end else end) - (at if at > begin else begin)
        if spoken > 0:
            up += spoken if is_up else 0
            down += 0 if is_up else spoken
            payable += spoken if is_payable else 0
            compliance += worth * spoken
            refused += spoken if is_refusal else 0
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
        refused=refused,
    )
