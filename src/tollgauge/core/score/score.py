"""Score: the outcome of scoring, in the integers that are published.

Every figure is an integer in the unit its name says; nothing here is computed from another
rounded figure. A score is stored as JSON of integers, texts and nulls. core/score/scoring computes
it; turning it into answers and pages is the work of web/.

The classes of a score, flags and caps among them, have no slots: orjson writes those with slots
four times as slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import dollars, minute
from tollgauge.core.endpoint.terms import FormReading
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import Cap


class ScoreError(TollgaugeError):
    """A stored text is not a score, or names a policy that this version does not have."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One row of the breakdown: its name, weight in points and subscore in tenths (0..1000)."""

    name: str
    weight: int
    tenths: int


@dataclass(frozen=True, kw_only=True)
class Stats:
    """The 30-day figures that the score rests on.

    `uptime_tenths`, `compliant_tenths` and `payable_tenths` are tenths of a percent of the scored
    probes, None without any. Latencies are milliseconds of up, scored probes: the exact mean
    rounded half up, and percentiles; None when never up. `excluded` counts unscored probes by
    reason. `observed_days` is whole days since first seen, `last_probed` the time of the latest
    scored probe (`Endpoint.last_probed` is that of the latest of all). `verdict` is the wording
    class of the uptime, None without a scored probe.
    """

    probes: int
    scored: int
    up: int
    compliant: int
    payable: int
    excluded: tuple[tuple[str, int], ...]
    uptime_tenths: int | None
    compliant_tenths: int | None
    payable_tenths: int | None
    avg_latency_ms: int | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    price_changes: int
    payto_changes: int
    first_seen: int
    last_probed: int | None
    observed_days: int
    verdict: str | None


@dataclass(frozen=True, kw_only=True)
class AddressSettlements:
    """Settlements to a payTo on a network in the window; `volume` in atomic USDC, including
    payments of the seller to itself. `shared_hosts` monitored hosts name the payTo.
    """

    network: str
    pay_to: str
    volume: int
    transfers: int
    distinct_payers: int
    shared_hosts: int
    indexed_to_block: int | None
    indexed_to: int | None

    @property
    def level(self) -> str:
        """`wallet` if several monitored hosts name the payTo, otherwise `endpoint`."""
        return "wallet" if self.shared_hosts > 1 else "endpoint"


@dataclass(frozen=True, kw_only=True)
class Settlement(AddressSettlements):
    """Settlements to the payTo of the quote, and to the `others` that the endpoint offers on
    indexed networks. `not_measured` are the offered forms of payment whose settlements are not
    read, as text.
    """

    others: tuple[AddressSettlements, ...] = ()
    not_measured: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShownDemand:
    """The payers of a seller in the window and their volume (atomic USDC), and those of them that
    also buy from established sellers. `measured` is False without anchors to prove payers.
    """

    payers: int
    volume: int
    proven_payers: int
    proven_volume: int
    measured: bool = True

    @property
    def text(self) -> str:
        """The demand in one sentence."""
        if not self.payers:
            return "No wallet paid it in 30 days."
        wallets = "1 wallet" if self.payers == 1 else f"{self.payers:,} wallets"
        paid = f"{wallets} paid {dollars(self.volume)} in 30 days"
        if not self.measured:
            return f"{paid}; whether they also buy from established sellers is not measured here."
        if self.payers == 1:
            proven = "it also buys" if self.proven_payers else "it does not buy"
            return f"{paid}; {proven} from established sellers."
        verb = "buys" if self.proven_payers == 1 else "buy"
        number = f"{self.proven_payers:,}" if self.proven_payers else "none"
        return f"{paid}; {number} of them also {verb} from established sellers."


@dataclass(frozen=True, kw_only=True)
class Down:
    """An outage that had not ended at the last check. `since` is its first failure (ms UTC),
    `reason` the result of the last check, as a clause without a period. `confirmed` is False only
    while the first failure of an endpoint that was payable is being checked again.
    """

    since: int
    reason: str
    confirmed: bool

    @property
    def text(self) -> str:
        """The outage in one sentence, for people and agents."""
        if self.confirmed:
            return f"Down since {minute(self.since)}: {self.reason}."
        return f"Failed once at {minute(self.since)}, being confirmed: {self.reason}."


@dataclass(frozen=True, kw_only=True)
class Score:
    """One endpoint's score under one policy as of a moment.

    Without a scored probe `score_tenths`, `low_tenths`, `high_tenths` and `grade` are None and
    `components` is empty: nothing was measured. The same is true of an endpoint whose offers cannot
    be evaluated, although its uptime and its chances are known.
    `low_tenths <= score_tenths <= high_tenths` otherwise. `caps` are those that applied, lowest
    first. Flags are in order of severity, then code. `economic_hundredths` is the share of the
    window that is indexed on chain. `coverage` states by network and form of payment whether the
    settlements are read (core/endpoint/terms).

    `reason` states in one sentence why the recommendation is what it is; `payable_now_permille` and
    `payable_24h_permille` are the chances that a probe in half an hour and in 24 hours finds it
    payable, None before anything was measured; `demand` is None where settlements are not known.
    `down` is None unless the endpoint is down.
    """

    policy_version: int
    as_of: int
    score_tenths: int | None
    grade: str | None
    low_tenths: int | None
    high_tenths: int | None
    recommendation: str
    confidence_hundredths: int
    economic_hundredths: int
    components: tuple[Component, ...]
    flags: tuple[Flag, ...]
    caps: tuple[Cap, ...]
    stats: Stats
    settlement: Settlement | None = None
    reason: str = ""
    payable_now_permille: int | None = None
    payable_24h_permille: int | None = None
    demand: ShownDemand | None = None
    down: Down | None = None
    coverage: Mapping[str, Mapping[str, FormReading]] = field(default_factory=dict)

    @property
    def is_activity_partial(self) -> bool:
        """Whether activity lacks payments of a form that is not read, or not reliably."""
        readings = (one for forms in self.coverage.values() for one in forms.values())
        return any(reading is not FormReading.READ for reading in readings)

    @property
    def settled_volume(self) -> int:
        """The settled volume on all networks in atomic USDC."""
        first = self.settlement
        return 0 if first is None else sum(one.volume for one in (first, *first.others))

    @property
    def is_payable(self) -> bool | None:
        """Whether it could be paid at the last check, None while nothing was measured."""
        if self.score_tenths is None and self.payable_now_permille is None:
            return None
        return all(flag.code != "down-now" for flag in self.flags)


_FORM: Final = TypeAdapter(Score)


def score_to_json(score: Score) -> bytes:
    """The score as JSON text, in the order of its fields."""
    return orjson.dumps(score)


def score_from_json(text: bytes) -> Score:
    """The score of a JSON text. Raises ScoreError for anything else."""
    try:
        return _FORM.validate_json(text)
    except ValidationError as error:
        raise _not_stored() from error


def flag_codes(text: bytes) -> tuple[str, ...]:
    """Read the codes of a stored score's flags without the rest of it, which takes ten times as
    long. Raises ScoreError for a text that is not a score.
    """
    try:
        return tuple(flag["code"] for flag in orjson.loads(text)["flags"])
    except (ValueError, TypeError, KeyError) as error:
        raise _not_stored() from error


def _not_stored() -> ScoreError:
    return ScoreError(
        "This is not a stored score.", hint="Score the endpoint again from its evidence."
    )
