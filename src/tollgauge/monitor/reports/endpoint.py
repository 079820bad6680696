"""Read the figures of one endpoint's page, and the lint findings of its last probe.

A probe stores the findings and the price, not the response itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs
from sqlalchemy import Connection

from tollgauge.core.base.units import ASSETS, WINDOW_MS, day_of, dollars
from tollgauge.core.chain.shared_pay_to import SharedPayTo
from tollgauge.core.directory.discovery import PRICE_CHANGED
from tollgauge.core.endpoint.terms import Terms
from tollgauge.core.lint.transport import no_answer
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.probe.attribution import VantageState
from tollgauge.core.probe.exchange import NOT_EVALUATED, Lint
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.rollup import Rollup, percentiles
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import Cap
from tollgauge.core.score.score import Component, Score, Settlement, ShownDemand, score_from_json
from tollgauge.core.score.window import DayScore, with_silent_days
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.monitor import directories
from tollgauge.monitor.directories import DirectoryEntry
from tollgauge.monitor.reports.snapshots import (
    Pace,
    Snapshot,
    find_improvements,
    pace,
    read_snapshot,
)
from tollgauge.store.chain import shared_pay_tos
from tollgauge.store.endpoints import listings, rated_endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.store.probes import probes, vantages, window
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import scores

PAGE_DAYS: Final = RAW_DAYS  # days shown of an endpoint that is at least as old
MIN_DAYS: Final = 30  # days shown of a newer one
Uptimes = Mapping[str, tuple[int | None, ...]]
"""The uptime of endpoints, by ID, on each of the MIN_DAYS UTC days before today, oldest first: in
permille, None without data.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """One UTC day of an endpoint: milliseconds up and down, scored and up probes, and latency
    percentiles of the up ones. `score` is the one at the end of the day, today the latest; None if
    not stored.
    """

    day: int
    up_ms: int
    down_ms: int
    scored: int
    up: int
    excluded: int
    p50_ms: int | None
    p95_ms: int | None
    score: DayScore | None = None

    @property
    def spoken_ms(self) -> int:
        """Milliseconds of the day that are covered by probes."""
        return self.up_ms + self.down_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """All figures of the endpoint's page.

    - `days` has one entry per UTC day, oldest first, with zeros for days without probes: 30 days,
      or up to 90 for an endpoint that has been known longer.
    - `events` are changes of the listing and the terms, with amounts in dollars if the asset is
      known.
    - `low_tenths` and `high_tenths` are the score's range; `demand` describes the seller's payers.
    - `pace` is set if the endpoint is probed less often than usual.
    - `vantages` contains the last result of each vantage, if there are several.
    - `settlement` covers payments to its payTo, and `shared_pay_to` those of other endpoints with
      the same one; `seller_file` is the seller's own statement.
    - `entries` are those in directories, empty in a comparison.
    """

    snapshot: Snapshot
    components: tuple[Component, ...]
    flags: tuple[Flag, ...]
    caps: tuple[Cap, ...]
    low_tenths: int | None
    high_tenths: int | None
    demand: ShownDemand | None = None
    pace: Pace | None = None
    days: tuple[DayBar, ...]
    events: tuple[TermChange, ...]
    vantages: tuple[VantageState, ...] = ()
    settlement: Settlement | None = None
    shared_pay_to: SharedPayTo | None = None
    seller_file: StoredSellerFile | None = None
    entries: tuple[DirectoryEntry, ...] = ()


def view(tx: Connection, endpoint_id: str, *, now: int) -> EndpointView | None:
    """Read the endpoint's page; None if the endpoint is unknown or not public."""
    return _view(tx, endpoint_id, now=now, is_page=True)


def _view(
    tx: Connection, endpoint_id: str, *, now: int, is_page: bool = False
) -> EndpointView | None:
    endpoint = rated_endpoints.get_public(tx, endpoint_id)
    if endpoint is None:
        return None
    row = scores.get(tx, endpoint_id)
    score = None if row is None else score_from_json(row.result)
    events = listings.events(tx, endpoint_id, since=now - 3 * WINDOW_MS, until=now)
    states = vantages.states(tx, (endpoint_id,)).get(endpoint_id, ())
    snapshot = read_snapshot(tx, endpoint, score, states, now=now)
    if is_page:
        snapshot = structs.replace(snapshot, improvements=find_improvements(row, score))
    return EndpointView(
        snapshot=snapshot,
        components=() if score is None else score.components,
        flags=() if score is None else score.flags,
        caps=() if score is None else score.caps,
        low_tenths=None if score is None else score.low_tenths,
        high_tenths=None if score is None else score.high_tenths,
        demand=None if score is None else score.demand,
        pace=pace(hosts.get(tx, endpoint.host), row),
        days=_days(tx, endpoint, score, now=now),
        events=tuple(_with_dollars(event) for event in events),
        vantages=states,
        settlement=None if score is None else score.settlement,
        shared_pay_to=shared_pay_tos.get(tx, endpoint_id, endpoint.quote),
        seller_file=seller_files.get(tx, endpoint.host),
        entries=directories.load_entries(tx, endpoint_id) if is_page else (),
    )


def views(tx: Connection, endpoint_ids: Sequence[str], *, now: int) -> dict[str, EndpointView]:
    """Read the pages of several endpoints by ID, without improvements. Endpoints that are not
    public are left out.
    """
    seen = {id_: _view(tx, id_, now=now) for id_ in endpoint_ids}
    return {id_: shown for id_, shown in seen.items() if shown is not None}


def _days(
    tx: Connection, endpoint: RatedEndpoint, score: Score | None, *, now: int
) -> tuple[DayBar, ...]:
    """Return one bar per UTC day, with zeros for days without probes."""
    today = day_of(now)
    first = max(today - PAGE_DAYS + 1, min(day_of(endpoint.first_seen), today - MIN_DAYS + 1))
    days = with_silent_days(window.all_days(tx, endpoint.id), until=today)
    bars = {one.day: build_day_bar(one.sums, one.score) for one in days}
    for sums in window.read(tx, endpoint.id, as_of=now).days:
        before = bars.get(sums.day)
        bars[sums.day] = build_day_bar(sums, before.score if before else None)
    if score is not None and score.score_tenths is not None:
        latest = bars.get(today) or build_day_bar(Rollup(day=today))
        bars[today] = replace(latest, score=DayScore(score.score_tenths, score.policy_version))
    return tuple(bars.get(day) or build_day_bar(Rollup(day=day)) for day in range(first, today + 1))


def read_uptimes(tx: Connection, endpoint_ids: Sequence[str], *, now: int) -> Uptimes:
    """Read the uptimes by day of the endpoints in a list; those without a closed day are left out.

    Today is not included: its probes are single rows, which take ten times as long to read.
    """
    today = day_of(now)
    uptimes = {}
    for id_, closed in window.recent_days(tx, endpoint_ids).items():
        shares = {
            one.day: one.sums.spans.up * 1_000 // measured
            for one in with_silent_days(closed.days, until=today)
            if (measured := one.sums.spans.up + one.sums.spans.down)
        }
        uptimes[id_] = tuple(shares.get(day) for day in range(today - MIN_DAYS, today))
    return uptimes


def build_day_bar(sums: Rollup, score: DayScore | None = None) -> DayBar:
    """Return the chart values of a day."""
    p50, p95 = percentiles(sums.histogram, (50, 95))
    return DayBar(
        day=sums.day,
        up_ms=sums.spans.up,
        down_ms=sums.spans.down,
        scored=sums.scored,
        up=sums.up,
        excluded=sums.probes - sums.scored,
        p50_ms=p50,
        p95_ms=p95,
        score=score,
    )


def _with_dollars(event: TermChange) -> TermChange:
    """Return the event with amounts in dollars, if the asset is known."""
    if event.kind != PRICE_CHANGED:
        return event
    return replace(event, before=_dollars(event.before), after=_dollars(event.after))


def _dollars(text: str) -> str:
    """Format the atomic amount of a price event as dollars.

    The text contains the asset only if that changed. A bare amount has the six decimals of USDC;
    the amount of an unknown token is returned unchanged.
    """
    amount, _, asset = text.partition(" ")
    decimals = next((known.decimals for known in ASSETS.values() if known.address == asset), None)
    has_decimals = decimals is not None or not asset
    return dollars(int(amount), decimals or 6) if has_decimals and amount.isdigit() else text


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLint:
    """Findings of a public endpoint's last probe at `at` (ms UTC); both are None before the first
    probe. `terms` contains the price without its scheme, which is not stored.
    """

    resource: str
    at: int | None
    lint: Lint | None


def stored_lint(tx: Connection, endpoint_id: str) -> StoredLint | None:
    """Read the findings of an endpoint's last probe; None if it is unknown or not public."""
    known = rated_endpoints.get_whole(tx, endpoint_id)
    if known is None or not known[1].public:
        return None
    endpoint = known[0]
    at = endpoint.last_probed
    last = probes.history(tx, endpoint_id, since=at - 1, until=at) if at is not None else ()
    if not last:
        return StoredLint(resource=endpoint.resource, at=None, lint=None)
    return StoredLint(
        resource=endpoint.resource, at=last[-1].at, lint=_lint(last[-1], endpoint.extensions)
    )


def _lint(probe: ProbeResult, extensions: tuple[str, ...]) -> Lint:
    rules = {finding.rule for finding in probe.findings}
    # A probe whose offers cannot be evaluated counts as payable (core/probe/probe).
    unknown_scheme = NOT_EVALUATED in rules and "network-not-evaluated" not in rules
    return Lint(
        payable=probe.payable and not (unknown_scheme and probe.compliance == 0),
        payable_by=probe.payable_by,
        compliant=probe.compliant,
        version=probe.version,
        accepts=probe.accepts,
        # The linter reports one finding about a missing response, which is stored without any.
        findings=(no_answer.finding("status"),) if probe.status is None else probe.findings,
        terms=_terms(probe),
        extensions=extensions if probe.version is not None else (),
    )


def _terms(probe: ProbeResult) -> tuple[Terms, ...]:
    quote = probe.quote
    if quote is None:
        return ()
    return (
        Terms(
            version=probe.version or 0,
            scheme="",
            network=quote.network,
            asset=quote.asset,
            amount=quote.amount,
            pay_to=quote.pay_to,
        ),
    )
