"""Changes of an endpoint: one rule per type of event.

Rules (docs/watching.md):
- a change has a before, an after, its evidence and a readable reason;
- only scored probes are compared: a failure of this service says nothing about an endpoint;
- terms that vary from response to response are reported once, as a warning: immediately for a
  templated endpoint, whose price may depend on the item, otherwise at the third change in a day.

Each rule is a pure function of the old and the new state that returns a Change or None. Times are
ms UTC. core/watch/change_state keeps the state between two probes, so that one change is reported
once; store/probes/change_rows stores changes, and jobs/alert sends alerts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tollgauge.core.base.units import dollars
from tollgauge.core.directory.discovery import is_same_asset
from tollgauge.core.directory.entry_record import DROP_TEXTS, EntryStatement, explain_drop
from tollgauge.core.endpoint.terms import Advertised, Quote
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.probe import ProbeResult

PAYTO: Final = "payto_change"
PRICE: Final = "price_change"
ASSET_NETWORK: Final = "asset_network_change"
SPEC: Final = "spec_regression"
DELISTING: Final = "delisting"
LISTED: Final = "listed"
DELISTED: Final = "delisted"
DOWN: Final = "liveness_down"
RECOVERED: Final = "liveness_recovered"
FLAPPING: Final = "liveness_flapping"
LATENCY: Final = "latency_regression"
EVENTS: Final = (
    *(PAYTO, PRICE, ASSET_NETWORK, SPEC, DELISTING, LISTED, DELISTED),
    *(DOWN, RECOVERED, FLAPPING, LATENCY),
)
"""Every type of event; clients compare these names exactly (docs/watching.md)."""

SLOW_MS: Final = 300
"""A response within this of the median is not slow: networks vary by that much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of an endpoint, or an event of a watch itself (core/watch/watch_rules).

    Attributes:
        at: Milliseconds UTC.
        before, after, evidence: Small JSON objects.
        sensitivity: For a liveness change, the watches that it concerns: those that wait for this
            number of misses. None for every other type.
    """

    type: str
    at: int
    severity: Severity
    reason: str
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    sensitivity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The usual latency of an endpoint: median and 95th percentile of `count` responses, in whole
    milliseconds, computed at `at` (ms UTC).
    """

    p50: int
    p95: int
    count: int
    at: int


def payto_change(before: Advertised, after: Advertised, *, at: int, source: str) -> Change | None:
    """The payTo changed, with or without an amount."""
    if before.pay_to == after.pay_to:
        return None
    return Change(
        type=PAYTO,
        at=at,
        severity=Severity.ERROR,
        reason="Payments go to another address than before.",
        before={"payTo": before.pay_to},
        after={"payTo": after.pay_to},
        evidence=_describe_terms(after, source),
    )


def mark_announced(change: Change) -> Change:
    """Return a change of payTo as information: the seller announced it, signed by the old
    address.
    """
    return replace(
        change,
        severity=Severity.INFO,
        reason="Payments go to another address, as announced and signed by the old one.",
        evidence={**change.evidence, "announced": True},
    )


def price_change(before: Quote, after: Quote, *, at: int, source: str) -> Change | None:
    """The price in the same asset changed. A rise is an error, a fall a warning.

    The same dollar on another network is the same asset (core/directory/discovery).
    """
    if before.amount == after.amount or not is_same_asset(before, after):
        return None
    rose = after.amount > before.amount
    return Change(
        type=PRICE,
        at=at,
        severity=Severity.ERROR if rose else Severity.WARN,
        reason=f"The price {'rose' if rose else 'fell'} from {_price(before)} to {_price(after)}.",
        before=_describe_amount(before),
        after=_describe_amount(after),
        evidence=_describe_terms(after, source),
    )


def asset_network_change(before: Quote, after: Quote, *, at: int, source: str) -> Change | None:
    """The price is in another token or on another network."""
    if (before.network, before.asset) == (after.network, after.asset):
        return None
    place = "on another network" if before.network != after.network else "in another token"
    return Change(
        type=ASSET_NETWORK,
        at=at,
        severity=Severity.ERROR,
        reason=f"The price is {place} than before.",
        before={"network": before.network, "asset": before.asset},
        after={"network": after.network, "asset": after.asset},
        evidence=_describe_terms(after, source),
    )


def spec_regression(
    broken: Sequence[str], result: ProbeResult, *, known: Sequence[str]
) -> Change | None:
    """The envelope breaks rules of the linter that it complied with before.

    `broken` are the new ones, confirmed by two responses in a row; `known` were already broken.
    """
    if not broken:
        return None
    findings = [finding for finding in result.findings if finding.rule in broken]
    names = ", ".join(broken)
    cannot = "" if result.payable else " A stock client can no longer pay."
    return Change(
        type=SPEC,
        at=result.at,
        severity=Severity.WARN if result.payable else Severity.ERROR,
        reason=f"The payment envelope breaks {names}, which it complied with before.{cannot}",
        before={"brokenRules": list(known)},
        after={"brokenRules": sorted({*known, *broken})},
        evidence={
            "rules": [
                {"rule": item.rule, "severity": item.severity.value, "message": item.message}
                for item in findings[:10]
            ],
            "payable": result.payable,
            **_describe_probe(result),
        },
    )


def delisting(*, at: int, source: str) -> Change:
    """No directory lists the endpoint any more: a complete crawl of the last one did not contain
    it.
    """
    return Change(
        type=DELISTING,
        at=at,
        severity=Severity.WARN,
        reason="No directory lists this endpoint any more.",
        before={"status": "listed"},
        after={"status": "delisted"},
        evidence={"source": source},
    )


def directory_listing(*, at: int, source: str) -> Change:
    """A directory lists the endpoint for the first time or again."""
    return Change(
        type=LISTED,
        at=at,
        severity=Severity.INFO,
        reason=f"The directory {source} lists this endpoint.",
        before={"listed": False},
        after={"listed": True},
        evidence={"source": source},
    )


def directory_delisting(statement: EntryStatement | None, *, at: int, source: str) -> Change:
    """A complete crawl of a directory did not contain the endpoint, which it listed before.

    `statement` is the directory's last one about the endpoint.
    """
    reason = explain_drop(statement, at)
    text = "" if reason is None else f" {DROP_TEXTS[reason]}"
    return Change(
        type=DELISTED,
        at=at,
        severity=Severity.WARN,
        reason=f"The directory {source} no longer lists this endpoint.{text}",
        before={"listed": True},
        after={"listed": False},
        evidence={"source": source, "dropReason": reason and reason.value},
    )


def liveness_down(result: ProbeResult, *, n: int, since: int, last_good: int | None) -> Change:
    """`n` scored probes in a row failed: the first at `since`, the last success at `last_good` (ms
    UTC).
    """
    return Change(
        type=DOWN,
        at=result.at,
        severity=Severity.ERROR,
        reason=f"Down: {n} check{'s' if n > 1 else ''} in a row failed ({_describe(result)}).",
        before={"up": True, "lastGoodAt": last_good},
        after={"up": False, "since": since},
        evidence={"misses": n, **_describe_probe(result)},
        sensitivity=n,
    )


def liveness_recovered(result: ProbeResult, *, n: int, since: int | None, hits: int) -> Change:
    """`hits` scored probes in a row succeeded after an outage that began at `since`."""
    return Change(
        type=RECOVERED,
        at=result.at,
        severity=Severity.INFO,
        reason=f"Up again: {hits} checks in a row succeeded.",
        before={"up": False, "since": since},
        after={"up": True},
        evidence={"hits": hits, **_describe_probe(result)},
        sensitivity=n,
    )


def liveness_flapping(result: ProbeResult, *, n: int, recent: str, last_good: int | None) -> Change:
    """The endpoint alternates between up and down; nothing more is reported until it is steady.

    `recent` are the last results as `1` and `0`, newest last.
    """
    return Change(
        type=FLAPPING,
        at=result.at,
        severity=Severity.WARN,
        reason=f"Flapping: {recent.count('0')} of the last {len(recent)} checks failed, with "
        "successes in between. The next alert follows when it is steady.",
        before={"up": True, "lastGoodAt": last_good},
        after={"up": None, "recent": recent},
        evidence={"recent": recent, **_describe_probe(result)},
        sensitivity=n,
    )


def latency_regression(slow_ms: Sequence[int], result: ProbeResult, baseline: Baseline) -> Change:
    """Responses in a row were slow compared with the endpoint's history.

    `slow_ms` are their latencies, oldest first; the last one is that of `result`.
    """
    return Change(
        type=LATENCY,
        at=result.at,
        severity=Severity.WARN,
        reason=f"Responses take {result.timings.total} ms; half of them took {baseline.p50} ms or "
        f"less before, and 95% {baseline.p95} ms or less.",
        before={"p50LatencyMs": baseline.p50, "p95LatencyMs": baseline.p95},
        after={"latencyMs": result.timings.total},
        evidence={
            "baselineAnswers": baseline.count,
            "latenciesMs": list(slow_ms),
            **_describe_probe(result),
        },
    )


def is_slow(result: ProbeResult, baseline: Baseline) -> bool:
    """Return whether a response took far longer than usual for the endpoint."""
    limit = max(2 * baseline.p95, 3 * baseline.p50, baseline.p50 + SLOW_MS)
    return result.up and result.timings.total > limit


def is_calm(result: ProbeResult, baseline: Baseline) -> bool:
    """Return whether a response is as fast as usual again; one between slow and calm changes
    nothing.
    """
    limit = max(3 * baseline.p95 // 2, 2 * baseline.p50, baseline.p50 + SLOW_MS // 2)
    return result.up and result.timings.total <= limit


def term_changes(
    before: Advertised, after: Advertised, *, at: int, source: str, announced: bool = False
) -> tuple[Change, ...]:
    """Return the changes from one entry's terms to the next.

    These are the payTo, which may be `announced`, and, if both sides have an amount, the price and
    the asset or network.
    """
    payto = payto_change(before, after, at=at, source=source)
    candidates = [mark_announced(payto) if payto is not None and announced else payto]
    if isinstance(before, Quote) and isinstance(after, Quote):
        candidates += [
            price_change(before, after, at=at, source=source),
            asset_network_change(before, after, at=at, source=source),
        ]
    return tuple(change for change in candidates if change is not None)


def _describe_terms(after: Advertised, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "payTo": after.pay_to,
        "network": after.network,
        "asset": after.asset,
        **(_describe_amount(after) if isinstance(after, Quote) else {}),
    }


def _describe_amount(quote: Quote) -> dict[str, Any]:
    micro = quote.micro_usd
    usd = {} if micro is None else {"amountUsd": micro / 10**6}
    return {"amount": str(quote.amount), **usd}


def _price(quote: Quote) -> str:
    if quote.decimals is None:
        return f"{quote.amount} units"
    return dollars(quote.amount, quote.decimals)


def _describe(result: ProbeResult) -> str:
    """Return the status or the outcome of a probe."""
    return f"HTTP {result.status}" if result.status is not None else result.outcome.value


def _describe_probe(result: ProbeResult) -> dict[str, Any]:
    return {
        "probeAt": result.at,
        "outcome": result.outcome.value,
        "status": result.status,
        "latencyMs": result.timings.total,
    }
