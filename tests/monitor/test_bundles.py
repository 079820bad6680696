"""The record of each endpoint in a bundle, from rows of real databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection
from tests.support.bundles import (
    QUOTE,
    add,
    content,
    list_pay_to,
    observe_pay_to,
    priced_endpoint,
    records_of,
    save_pay_to,
    save_score,
    set_score,
)
from tests.support.databases import on_both, on_sqlite
from tests.support.score_rows import NOW, endpoint

from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.guard.bundle import LISTED_MS, Variant, key_of
from tollgauge.db.engine import Store
from tollgauge.monitor import trust_records

pytestmark = on_sqlite


async def records(store: Store, *, now: int = NOW) -> dict[str, list[Any]]:
    """Return the records of all endpoints, by key."""
    built = await trust_records.build(store, now=now)
    return {record[0]: record for record in records_of(built)}


def key(path: str) -> str:
    return key_of(endpoint(path).resource)


async def known_addresses(store: Store, path: str, *, now: int = NOW) -> list[str]:
    """Return the addresses in the offers of an endpoint's record."""
    header, _ = content((await trust_records.build(store, now=now))[0].body)
    offers = (await records(store, now=now))[key(path)][4]
    return [header["payTo"][index] for _, _, index, _ in offers]


async def test_record_contains_score_and_price(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    await set_score(store, "/1", 914, "no-settlements", "price-changed")
    assert (await records(store, now=NOW + 5_500))[key("/1")] == [
        *(key("/1"), "proceed", "A", 91.4),
        [[BASE, "exact", 0, "10000"]],
        ["no-settlements", "price-changed"],
        *(None, None),
        NOW // SECOND_MS,
    ]


async def test_endpoint_without_score_or_price_has_a_record(store: Store) -> None:
    await add(store, endpoint("/1"))
    record = (await records(store, now=NOW + HOUR_MS))[key("/1")]
    assert record[1:] == [
        *("unverified", None, None, [], [], None, None),
        (NOW + HOUR_MS) // SECOND_MS,
    ]


async def test_price_in_an_unknown_token_has_no_amount(store: Store) -> None:
    token = replace(QUOTE, asset="0x" + "77" * 20)
    await add(store, priced_endpoint("/1", quote=token))
    assert (await records(store))[key("/1")][4] == [[BASE, "exact", 0, None]]


async def test_offers_are_known_for_30_days_after_they_end(store: Store) -> None:
    await add(store, priced_endpoint("/1"), priced_endpoint("/2"))
    for path, hours in (("/1", 60), ("/2", 59)):
        await observe_pay_to(store, path, "0xa", at=NOW - hours * HOUR_MS)
    await observe_pay_to(store, "/1", "0xb", at=NOW - 20 * HOUR_MS)
    await observe_pay_to(store, "/1", "0xc", at=NOW - 2 * HOUR_MS)
    assert await known_addresses(store, "/1") == ["0xc", "0xb", "0xa"]
    assert await known_addresses(store, "/2") == ["0xa"]
    later = NOW + 30 * DAY_MS - 20 * HOUR_MS
    assert await known_addresses(store, "/1", now=later) == ["0xc", "0xb"]
    assert await known_addresses(store, "/1", now=later + 100 * DAY_MS) == ["0xc"]


async def test_listed_address_is_dropped_once_a_probe_saw_one(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    await store.writing(list_pay_to, "/1", "0xa", "0xevil", source="cdp", at=NOW - HOUR_MS)
    assert await known_addresses(store, "/1") == ["0xa"]
    await observe_pay_to(store, "/1", "0xb", at=NOW)
    assert await known_addresses(store, "/1") == ["0xb"]


async def test_endpoints_not_listed_for_90_days_are_omitted(store: Store) -> None:
    gone = NOW + HOUR_MS - LISTED_MS
    await add(
        store,
        priced_endpoint("/listed", last_seen=gone),
        priced_endpoint("/late", status=Listing.DELISTED, last_seen=gone + 1),
        priced_endpoint("/gone", status=Listing.DELISTED, last_seen=gone),
    )
    await add(store, priced_endpoint("/asked", status=Listing.UNLISTED), adopted=True)
    assert set(await records(store, now=NOW + HOUR_MS)) == {key("/listed"), key("/late")}


async def test_second_bundle_contains_only_endpoints_to_avoid(store: Store) -> None:
    paths = {"/1": "proceed", "/2": "avoid", "/3": "not-payable", "/4": "caution"}
    await add(store, *map(priced_endpoint, paths))
    for path, recommendation in paths.items():
        await set_score(store, path, 500, recommendation=recommendation)
    whole, avoided = await trust_records.build(store, now=NOW)
    assert (whole.variant, whole.records, whole.scored) == (Variant.ALL, 4, 4)
    assert (avoided.variant, avoided.records, avoided.scored) == (Variant.AVOID, 2, 2)
    header, of_avoided = content(avoided.body)
    assert (header["variant"], header["count"]) == ("avoid", 2)
    assert {record[0] for record in of_avoided} == {key("/2"), key("/3")}
    assert content(whole.body)[0]["payTo"] == header["payTo"]


@on_both
async def test_bundle_built_during_changes_is_consistent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_records, "BATCH", 3)
    paths = [f"/{number}" for number in range(12)]
    await add(store, *map(priced_endpoint, paths))

    def change(tx: Connection, path: str, number: int) -> None:
        save_pay_to(tx, path, f"0x{number}", at=NOW + number)
        save_score(tx, path, 100, f"round-{number}")

    async def change_all(numbers: Iterable[int]) -> None:
        for number in numbers:
            for path in paths:
                await store.writing(change, path, number)

    await change_all([0])
    changing = asyncio.create_task(change_all(range(1, 8)))
    built = []
    while not changing.done():
        built.append(await trust_records.build(store, now=NOW + HOUR_MS))
    await changing
    for bundle in built:
        addresses, records = content(bundle[0].body)[0]["payTo"], records_of(bundle)
        assert {record[0] for record in records} == {key(path) for path in paths}
        assert len(records) == len(paths)
        for record in records:
            pay_to = addresses[record[4][0][2]]
            assert record[5] == [pay_to.replace("0x", "round-")]
    assert any(len({record[5][0] for record in records_of(bundle)}) > 1 for bundle in built)


async def test_record_is_that_of_a_public_endpoint(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    await add(store, priced_endpoint("/2", status=Listing.UNLISTED), adopted=True)
    record = await store.reading(trust_records.record, endpoint("/1").id, now=NOW)
    assert record is not None
    assert (record.resource, record.pay_to) == (endpoint("/1").resource, ("0xa",))
    assert await store.reading(trust_records.record, endpoint("/2").id, now=NOW) is None
    assert await store.reading(trust_records.record, "0" * 16, now=NOW) is None
