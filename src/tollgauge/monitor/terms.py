"""Detect changes of price, payTo and network in what probes saw.

A probe's terms are compared only with those of earlier probes. Only such changes affect a score:
anyone can list an endpoint in a directory with different terms. monitor/discovery compares the
terms of directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory import discovery
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED, TERM_EVENTS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import PayToHistory, Quote
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.prices import Price, changed_price
from tollgauge.db.codec import clean_quote
from tollgauge.monitor.seller_files import ask_soon, is_announced, is_variation_announced
from tollgauge.store.endpoints import listings
from tollgauge.store.endpoints.listings import LockedEndpoint
from tollgauge.store.probes import probes
from tollgauge.store.probes.probes import PROBE

PRICE_HISTORY_MS: Final = 31 * DAY_MS  # time before a change that determines the usual price


def observe_quotes(
    tx: Connection, quotes: Mapping[str, tuple[Quote, int]]
) -> tuple[TermChange, ...]:
    """Store the terms that probes saw as the endpoints' prices, and return the changes.

    Probes older than the stored terms are ignored.

    `quotes`: by endpoint ID, the terms and the time of the probe (ms UTC).
    """
    quoted: list[LockedEndpoint] = []
    confirmed: list[LockedEndpoint] = []
    events: list[tuple[str, TermChange]] = []
    for id_, locked in listings.lock(tx, quotes).items():
        quote, at = quotes[id_]
        endpoint = locked.endpoint
        probed = locked.quote_source == PROBE
        if probed and endpoint.quote_at is not None and endpoint.quote_at >= at:
            continue
        after = clean_quote(quote)
        before = endpoint.quote if probed else None
        changed = discovery.find_changes(before, after)
        announced = is_announced(tx, endpoint, before, after, at=at, source=PROBE)
        if endpoint.pay_to_varies:  # every probe sees a different payTo
            changed = tuple(change for change in changed if change[0] != PAYTO_CHANGED)
        elif any(kind == PAYTO_CHANGED for kind, *_ in changed):
            ask_soon(tx, endpoint.host, now=at)
        price = None
        if before is not None and any(kind == PRICE_CHANGED for kind, *_ in changed):
            seen = probes.history(tx, id_, since=at - PRICE_HISTORY_MS, until=at)
            price = changed_price(before, after, seen, at=at)
        history = _payto_history(tx, endpoint, before, after, at=at, announced=announced)
        updated = replace(
            locked,
            endpoint=replace(endpoint, quote=after, quote_at=at, payto_history=history),
            quote_source=PROBE,
        )
        if after == endpoint.quote:
            confirmed.append(updated)
        else:
            quoted.append(updated.owing_score(at) if changed else updated)
        seen_events = term_events(changed, source=PROBE, at=at, announced=announced, price=price)
        events += [(id_, event) for event in seen_events]
    listings.save_quotes(tx, quoted)
    listings.save_confirmed(tx, confirmed)
    listings.add_events(tx, events)
    return tuple(event for _, event in events)


def _payto_history(
    tx: Connection,
    endpoint: Endpoint,
    before: Quote | None,
    after: Quote,
    *,
    at: int,
    announced: bool,
) -> PayToHistory:
    """Return the history of an endpoint's payTo after a probe; `before` is from the last probe."""
    history = endpoint.payto_history
    if before is None:
        return PayToHistory(at, at)
    if history is None:  # probes saw a payTo before its history was kept
        history = PayToHistory(endpoint.first_seen, endpoint.first_seen)
    if endpoint.templated or before.pay_to == after.pay_to:
        return history
    varies = announced and is_variation_announced(tx, endpoint, before, after, at=at)
    return history.add_change(
        before.pay_to,
        after.pay_to,
        at=at,
        last_seen=endpoint.quote_at or history.since,
        move_announced=announced,
        variation_announced=varies,
    )


def changes_among(events: Iterable[TermChange]) -> tuple[TermChange, ...]:
    """Return the changes of price, payTo and network that probes saw, oldest first."""
    return tuple(event for event in events if event.source == PROBE and event.kind in TERM_EVENTS)


def term_events(
    changes: Iterable[tuple[str, str, str]],
    *,
    source: str,
    at: int,
    announced: bool = False,
    price: Price | None = None,
) -> list[TermChange]:
    """Build the events of (kind, before, after) changes that a source saw at `at` (ms UTC).

    `announced` applies only to a change of payTo, `price` only to one of the price.
    """
    return [
        TermChange(
            at=at,
            kind=kind,
            source=source,
            before=before,
            after=after,
            announced=announced and kind == PAYTO_CHANGED,
            price=price if kind == PRICE_CHANGED else None,
        )
        for kind, before, after in changes
    ]
