"""HTML pages of reports, as pure functions of their arguments.

The pages need no script, inline style or external file, so that a strict Content-Security-Policy
applies. Text of providers is escaped, marked as unverified, and never becomes a link. While the
demo loads its history, pages show `loading` and refresh themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import orjson

from tollgauge.core.base.units import WINDOW_MS, day_of, dollars, known_asset
from tollgauge.core.directory.search_text import with_scheme
from tollgauge.core.endpoint.identity import (
    ID_PATTERN,
    Perimeter,
    Resource,
    ResourceError,
    parse_resource,
)
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.sale.payment import Offer
from tollgauge.core.score.evidence import Anchor
from tollgauge.core.score.evidence_document import anchors_digest
from tollgauge.core.score.flag import Flag, FlagRule
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.scoring import FLAG_RULES
from tollgauge.monitor.reports.endpoint import MIN_DAYS, EndpointView
from tollgauge.monitor.reports.snapshots import Snapshot
from tollgauge.web.pages import labels, snippets
from tollgauge.web.pages.overview_pages import group_changes
from tollgauge.web.pages.render import render
from tollgauge.web.paid.products import similar, trust
from tollgauge.web.settings import WALLET_RDNS, DemoSettings

EVENT_ROWS: Final = 12
"""Number of changes listed on an endpoint's page; the timeline above the list shows all."""

_CHAINS: Final[dict[str, Any]] = orjson.loads(
    resources.files(__package__).joinpath("chains.json").read_bytes()
)
"""Parameters for wallets to add a network (EIP-3085, `wallet_addEthereumChain`), as published by
the networks. Every wallet includes Ethereum itself.
"""


def endpoint_html(
    view: EndpointView,
    *,
    now: int,
    base_url: str,
    report_micro_usd: int | None,
    similar_micro_usd: int | None = None,
    loading: str = "",
) -> bytes:
    """Render the snapshot of an endpoint with its charts.

    Args:
        view: The endpoint's data.
        now: The current time in milliseconds, for the age of the snapshot.
        base_url: The public address of the service.
        report_micro_usd: The price of a live report; None if sales are not configured.
        similar_micro_usd: The price of the list of alternatives; None if not for sale.
        loading: The message to show while the demo loads.
    """
    snapshot = view.snapshot
    last_day = view.days[-1].day if view.days else day_of(snapshot.computed_at)
    first_day = view.days[0].day if view.days else last_day - day_of(WINDOW_MS) + 1
    return render(
        "endpoint.html",
        base_url,
        loading=loading,
        view=view,
        snapshot=snapshot,
        now=now,
        simulated=snapshot.simulated,
        grades=_grades(POLICY),
        first_day=first_day,
        last_day=last_day,
        scored_since=next((bar.day for bar in view.days if bar.score), None),
        total=sum(part.weight * part.tenths for part in view.components),
        flags=sorted(view.flags, key=_worst_first),
        events=group_changes((event.at, event.kind, event) for event in view.events[-EVENT_ROWS:]),
        event_rows=EVENT_ROWS,
        report_price=None if report_micro_usd is None else dollars(report_micro_usd),
        command=snippets.post(
            f"{base_url.rstrip('/')}{trust.PRODUCT.path}", {"resource": snapshot.resource}
        ),
        similar_price=None if similar_micro_usd is None else dollars(similar_micro_usd),
        similar_command=snippets.post(
            f"{base_url.rstrip('/')}{similar.PRODUCT.path}", {"resource": snapshot.resource}
        ),
    )


def methodology_html(anchors: Sequence[Anchor] | None = (), *, base_url: str) -> bytes:
    """Render the methodology from the policy and its flag rules; anchors are None if they cannot be
    read now.
    """
    policy = POLICY
    return render(
        "methodology.html",
        base_url,
        policy=policy,
        anchors=anchors,
        anchors_digest=anchors_digest(anchors or ()),
        grades=_grades(policy),
        caps=[*policy.caps, *(rule.cap for rule in policy.forecast_caps)],
        flags=sorted(FLAG_RULES, key=_worst_first),
        tables=(
            ("Latency: median in milliseconds", policy.latency),
            ("Age: days since first seen", policy.age),
            ("Activity P: sum of the payers' weights", policy.payers),
        ),
    )


FIELDS: Final = ("a", "b", "c", "d")
"""The query parameters of `/compare`, in the order of its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One requested endpoint; without an ID, `problem` states why the text is invalid."""

    text: str
    id: str | None = None
    problem: str = ""


def parse_columns(texts: Sequence[str | None], perimeter: Perimeter) -> tuple[Column, ...]:
    """Parse the parameters; empty texts and duplicates are skipped."""
    columns: dict[str, Column] = {}
    for text in texts:
        stripped = (text or "").strip()
        if stripped:
            column = _parse_column(stripped, perimeter)
            columns.setdefault(column.id or column.text, column)
    return tuple(columns.values())


def _parse_column(text: str, perimeter: Perimeter) -> Column:
    if ID_PATTERN.fullmatch(text):
        return Column(text=text, id=text)
    try:
        return Column(text=text, id=parse_resource(with_scheme(text), perimeter).id)
    except ResourceError as error:
        return Column(text=text, problem=str(error))


def compare_html(
    asked: Sequence[Column], views: Mapping[str, EndpointView], *, base_url: str
) -> bytes:
    """Render the page; `views` holds the monitored endpoints by ID."""
    shown = [(one, views.get(one.id or "")) for one in asked]
    known = [view for _, view in shown if view is not None]
    texts = (*(one.text for one in asked), *("" for _ in FIELDS[len(asked) :]))
    return render(
        "compare.html",
        base_url,
        simulated=any(view.snapshot.simulated for view in known),
        columns=shown,
        min_days=MIN_DAYS,
        fields=list(zip(FIELDS, texts, strict=True)),
        best=_best(known),
    )


def _best(views: Sequence[EndpointView]) -> dict[str, set[str]]:
    """Return, for each figure in which they differ, the IDs of the best endpoints.

    Endpoints that are down are never the best.
    """
    snapshots = [view.snapshot for view in views if view.snapshot.down is None]
    best: dict[str, set[str]] = {}
    for name, sign in (
        ("score_tenths", 1),
        ("uptime_tenths", 1),
        ("payable_24h_permille", 1),
        ("latency_ms", -1),
        ("price_micro_usd", -1),
    ):
        values = {
            snapshot.id: sign * value
            for snapshot in snapshots
            if (value := getattr(snapshot, name)) is not None
        }
        top = max(values.values(), default=0)
        winners = {id_ for id_, value in values.items() if value == top}
        if len(winners) < len(snapshots):
            best[name] = winners
    return best


def upgrade_html(
    sold: Snapshot | Resource,
    offer: Offer | None,
    *,
    base_url: str,
    demo: DemoSettings = DemoSettings(),  # noqa: B008 - frozen
) -> bytes:
    """Render the wallet page of an endpoint or of an unmonitored resource.

    Its script (static/upgrade.js) buys `POST /v1/x402-trust` with the same 402 flow as any other
    client. It receives the displayed terms from the page, and refuses a 402 response with
    different terms. `offer` is None if sales are not configured. In the demo, only the demo wallet
    can pay.
    """
    snapshot: RatedEndpoint = (
        RatedEndpoint(id=sold.id, resource=sold.url, host=sold.host, first_seen=0)
        if isinstance(sold, Resource)
        else sold
    )
    return render(
        "upgrade.html",
        base_url,
        snapshot=snapshot,
        known=sold is snapshot,
        simulated=snapshot.simulated,
        offer=offer,
        network=offer and (demo.chain_name or labels.network_title(offer.network)),
        price=offer and dollars(offer.amount),
        deal=offer and orjson.dumps(_deal(snapshot, offer) | _demo_deal(demo)).decode(),
        demo_wallet=WALLET_RDNS if demo.buyer_key else None,
        recommendation_meanings=orjson.dumps(labels.RECOMMENDATIONS).decode(),
    )


def _deal(snapshot: RatedEndpoint, offer: Offer) -> dict[str, Any]:
    """Return the only terms that the script may sign."""
    asset = known_asset(offer.network, offer.asset)
    return {
        "endpoint": snapshot.id,
        "resource": snapshot.resource,
        "network": offer.network,
        "networkName": labels.network_title(offer.network),
        "asset": offer.asset.lower(),
        "decimals": asset.decimals if asset else 6,
        "amount": str(offer.amount),
        "payTo": offer.pay_to.lower(),
        "seconds": offer.timeout_seconds,
        "chain": _CHAINS.get(offer.network),
    }


def _demo_deal(demo: DemoSettings) -> dict[str, Any]:
    """Restrict payment to the demo wallet; other wallets do not know the demo's chain."""
    if not demo.buyer_key:
        return {}
    return {"wallet": WALLET_RDNS, "networkName": demo.chain_name, "chain": None}


def _grades(policy: Policy) -> tuple[tuple[str, int], ...]:
    """Return (letter, minimum in tenths), best first, including F."""
    return (*((letter, least * 10) for letter, least in policy.grades), ("F", 0))


def _worst_first(flag: Flag | FlagRule) -> tuple[int, str]:
    return (flag.severity.rank, flag.code)
