"""Announced changes of payTo on real databases: the event, the score and the severity."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from tests.support.crawls import finish_crawl, term_changes
from tests.support.databases import on_both, on_sqlite
from tests.support.seller_files import HOST, NETWORK, NEW, OLD, announcement

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.directory.seller_file import ANNOUNCED_MS, VARIES, Announcement, SellerFile
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch.changes import PAYTO, Change
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, seller_files, terms
from tollgauge.monitor import watched_changes as changes
from tollgauge.store import tables
from tollgauge.store.endpoints import crawls, listings
from tollgauge.store.endpoints import seller_file_states as rows
from tollgauge.store.schedule import hosts

pytestmark = on_sqlite

AT = 1_795_000_000_000
"""The time that the announcement names."""
NOW = AT - 2 * DAY_MS
RESOURCE = parse_resource(f"https://{HOST}/v1/quote")
QUOTE = Quote(network=NETWORK, asset="0xaa", amount=5_000, pay_to=OLD.address.lower())
MOVED = replace(QUOTE, pay_to=NEW.address.lower())
FILE = SellerFile(statement="We move.", contact="ops@seller.dev")


def probe_result(quote: Quote, at: int) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        status=402,
        timings=Timings(total=80),
        payable=True,
        quote=quote,
    )


async def record_probe_of(store: Store, quote: Quote, at: int) -> list[Change]:
    """Return the changes of payTo that a probe detects, as both kinds of event."""
    endpoint = await insert_endpoint(store)
    changed = await store.writing(changes.observe_each, [(endpoint, probe_result(quote, at))])
    await store.writing(terms.observe_quotes, {endpoint.id: (quote, at)})
    return [change for change in changed if change.type == PAYTO]


async def insert_endpoint(store: Store) -> Endpoint:
    return await store.writing(discovery.adopt, RESOURCE, source="request", now=NOW)


async def announce(store: Store, *items: Announcement, now: int = NOW) -> None:
    await store.writing(seller_files.record, HOST, FILE, items, now=now)


async def events(store: Store) -> list[bool]:
    events = await store.reading(listings.events, RESOURCE.id, since=0, until=AT * 2)
    return [event.announced for event in events if event.kind == "payto-changed"]


async def test_announced_change_is_informational(store: Store) -> None:
    await record_probe_of(store, QUOTE, NOW)
    await announce(store, announcement())
    (change,) = await record_probe_of(store, MOVED, AT + MINUTE_MS)
    assert change.severity is Severity.INFO
    assert change.evidence["announced"] is True
    assert "announced" in change.reason
    assert await events(store) == [True]


async def test_unannounced_change_is_an_error(store: Store) -> None:
    await record_probe_of(store, QUOTE, NOW)
    (change,) = await record_probe_of(store, MOVED, AT + MINUTE_MS)
    assert change.severity is Severity.ERROR
    assert "announced" not in change.evidence
    assert await events(store) == [False]


@pytest.mark.parametrize(
    "other",
    [
        {"host": "other.seller.dev"},
        {"network": "eip155:137"},
        {"after": "0x" + "3" * 40},
        {"before": "0x" + "4" * 40},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_announcement_of_other_terms_does_not_count(
    store: Store, other: dict[str, str]
) -> None:
    await record_probe_of(store, QUOTE, NOW)
    await announce(store, announcement(**other))
    (change,) = await record_probe_of(store, MOVED, AT + MINUTE_MS)
    assert change.severity is Severity.ERROR
    assert await events(store) == [False]


async def test_announcement_read_after_its_time_does_not_count(store: Store) -> None:
    await record_probe_of(store, QUOTE, NOW)
    await announce(store, announcement(), now=AT + 1)
    (change,) = await record_probe_of(store, MOVED, AT + MINUTE_MS)
    assert change.severity is Severity.ERROR


async def test_announcement_after_the_change_does_not_count(store: Store) -> None:
    await record_probe_of(store, QUOTE, NOW)
    (change,) = await record_probe_of(store, MOVED, NOW + HOUR_MS)
    await announce(store, announcement(), now=NOW + 2 * HOUR_MS)
    assert change.severity is Severity.ERROR
    assert await events(store) == [False]


async def test_change_before_or_long_after_the_announced_time_is_an_error(store: Store) -> None:
    await announce(store, announcement())
    await record_probe_of(store, QUOTE, NOW)
    (early,) = await record_probe_of(store, MOVED, AT - 1)
    await record_probe_of(store, QUOTE, AT + DAY_MS)
    (late,) = await record_probe_of(store, MOVED, AT + ANNOUNCED_MS + 1)
    assert [early.severity, late.severity] == [Severity.ERROR, Severity.ERROR]


async def test_announcement_is_not_reused_after_the_payto_changed_back(store: Store) -> None:
    await announce(store, announcement())
    await record_probe_of(store, QUOTE, NOW)
    (first,) = await record_probe_of(store, MOVED, AT + HOUR_MS)
    (back,) = await record_probe_of(store, QUOTE, AT + DAY_MS)
    (replayed,) = await record_probe_of(store, MOVED, AT + 3 * DAY_MS)
    severities = [first.severity, back.severity, replayed.severity]
    assert severities == [Severity.INFO, Severity.ERROR, Severity.ERROR]
    assert await events(store) == [True, False, False]


@on_both
async def test_directory_and_probe_see_one_announced_change_each(store: Store) -> None:
    await announce(store, announcement())

    async def crawl_quote(quote: Quote, now: int) -> None:
        crawl = await store.writing(crawls.begin_crawl, "cdp", now=now)
        item = ListedItem(resource=RESOURCE, quote=quote)
        await store.writing(discovery.record_page, crawl, [item], next_offset=1, now=now)
        await store.writing(finish_crawl, crawl, complete=True, now=now)

    await crawl_quote(QUOTE, NOW)
    await record_probe_of(store, QUOTE, NOW)
    await crawl_quote(MOVED, AT + MINUTE_MS)
    (change,) = await record_probe_of(store, MOVED, AT + HOUR_MS)
    assert change.severity is Severity.INFO
    assert await events(store) == [True, True]
    changed = await term_changes(store, RESOURCE.id, since=0, until=AT * 2)
    assert [item.announced for item in changed] == [True]


async def test_host_is_queried_daily_and_soon_after_its_payto_changed(store: Store) -> None:
    await insert_endpoint(store)

    async def due(now: int) -> tuple[str, ...]:
        claimed = await store.writing(
            seller_files.claim, owner="me", now=now, limit=9, lease_ms=MINUTE_MS
        )
        for host in claimed:
            await store.writing(seller_files.record, host, None, now=now, gone=True)
            await store.writing(hosts.release, {host: now}, owner="me", now=now)
        return claimed

    assert await due(NOW) == ()  # the host has a row now, with its time of day
    assert await due(NOW + DAY_MS) == (HOST,)
    begin = NOW + DAY_MS
    assert await due(begin + DAY_MS - 1) == ()
    assert await due(begin + DAY_MS + DAY_MS // 10) == (HOST,)
    begin += DAY_MS + DAY_MS // 10
    await record_probe_of(store, QUOTE, begin + 1)
    await record_probe_of(store, MOVED, begin + MINUTE_MS)
    assert await due(begin + HOUR_MS - 1) == ()
    assert await due(begin + HOUR_MS) == (HOST,)


async def test_host_that_is_being_probed_waits(store: Store) -> None:
    await insert_endpoint(store)
    claim = partial(seller_files.claim, owner="me", limit=9, lease_ms=MINUTE_MS)
    await store.writing(claim, now=NOW)
    later = NOW + DAY_MS
    assert await store.writing(hosts.claim, HOST, owner="probe", now=later, lease_ms=HOUR_MS)
    assert await store.writing(claim, now=later) == ()
    await store.writing(hosts.release, {HOST: later}, owner="probe", now=later)
    assert await store.writing(claim, now=later + MINUTE_MS) == (HOST,)


@on_both
async def test_unreadable_file_is_kept_and_missing_file_is_removed(store: Store) -> None:
    await announce(store, announcement())
    await store.writing(seller_files.record, HOST, None, now=NOW + 1)
    kept = await store.reading(rows.get, HOST)
    assert kept is not None
    assert (kept.statement, kept.read_at) == ("We move.", NOW)
    assert kept.announcements == (announcement(),)
    await store.writing(seller_files.record, HOST, None, now=NOW + 2, gone=True)
    assert await store.reading(rows.get, HOST) is None


async def test_old_announcements_are_deleted(store: Store) -> None:
    await announce(store, announcement())
    late = AT + 90 * DAY_MS
    assert await store.writing(rows.forget, now=late, limit=9) == 0
    assert await store.writing(rows.forget, now=late + 1_000, limit=9) == 1
    assert await store.writing(rows.forget, now=late + 1_000, limit=9) == 0


async def test_file_of_a_host_that_never_sold_is_deleted_with_it(store: Store) -> None:
    await insert_endpoint(store)
    await announce(store)
    assert await store.writing(tables.forget_never_public, now=NOW + 8 * DAY_MS, limit=9) == 1
    assert await store.reading(rows.get, HOST) is None


@pytest.mark.parametrize("is_owner", [True, False])
async def test_only_the_settled_payto_may_announce_varying_payees(
    store: Store, is_owner: bool
) -> None:
    since = NOW - 8 * DAY_MS
    await record_probe_of(store, QUOTE, since)
    await record_probe_of(store, replace(QUOTE, amount=6_000), NOW)
    before = QUOTE
    if not is_owner:
        before = MOVED
        await record_probe_of(store, MOVED, NOW + MINUTE_MS)
    varies = Announcement(
        host=HOST, network=NETWORK, before=before.pay_to, after=VARIES, not_before=AT // SECOND_MS
    )
    await announce(store, varies)
    await record_probe_of(store, replace(QUOTE, pay_to="0x" + "7" * 40), AT + MINUTE_MS)
    assert (await insert_endpoint(store)).pay_to_varies is is_owner
