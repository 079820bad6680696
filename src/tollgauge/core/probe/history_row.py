"""HistoryRow: what a history says of a probe, without what only a score needs."""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.outcome import Attribution, Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """What many probes of a day have in common, in the words of ProbeResult. Compared by identity,
    so that it is a quick key for what is computed from it.
    """

    outcome: Outcome
    attribution: Attribution
    up: bool
    compliant: bool
    status: int | None
    quote: Quote | None
    confirms: bool = False


HistoryRow = tuple[int, int, Judgement]
"""The instant of a probe (ms UTC), how long it took in all (ms), and its judgement. A plain tuple,
because an answer has tens of thousands.
"""
