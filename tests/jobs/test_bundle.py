"""The bundle loop: its schedule, and the stored and signed bundles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from tests.support.bundles import add, content, priced_endpoint, set_score
from tests.support.databases import on_both, on_sqlite
from tests.support.http_service import Clock
from tests.support.score_rows import NOW
from tests.support.signing import KEY, OTHER_KEY, THUMBPRINT, verify
from tests.support.statements import execute

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.guard.bundle import Variant
from tollgauge.core.sale.signature import SigningKey
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import BundleSettings
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle

pytestmark = on_sqlite


async def run(store: Store, now: int = NOW, key: SigningKey | None = None) -> bool:
    """Run one round; return whether it built the bundles."""
    tally = await score.build_bundles(store, settings=BundleSettings(), key=key, clock=Clock(now))
    return bool(tally)


async def load_stored(store: Store, variant: Variant = Variant.ALL) -> tuple[StoredBundle, bytes]:
    newest = await store.reading(trust_records.load_bundle, variant)
    assert newest is not None
    return newest


async def test_both_variants_are_stored_with_their_metadata(store: Store) -> None:
    await add(store, priced_endpoint("/1"), priced_endpoint("/2"))
    await set_score(store, "/1", 120, recommendation="avoid")
    tally = await score.build_bundles(store, settings=BundleSettings(), key=None, clock=Clock(NOW))
    said, body = await load_stored(store)
    assert tally == {"records": 2, "bytes": len(body)}
    assert (said.as_of, said.records, said.scored, said.size) == (NOW, 2, 1, len(body))
    assert said == await store.reading(trust_records.newest_bundle)
    avoided, of_avoided = await load_stored(store, Variant.AVOID)
    assert (avoided.as_of, avoided.records) == (NOW, 1)
    assert content(body)[0]["payTo"] == content(of_avoided)[0]["payTo"]


async def test_nothing_is_stored_before_the_first_endpoint_is_listed(store: Store) -> None:
    assert not await run(store)
    assert await store.reading(trust_records.newest_bundle) is None
    await add(store, priced_endpoint("/1"))
    assert await run(store)


@on_both
async def test_bundle_becomes_empty_if_no_endpoint_is_listed(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    await run(store)
    assert await run(store, NOW + HOUR_MS)
    await execute(store, schema.endpoint.update().values(status=Listing.DELISTED.value))
    assert await run(store, NOW + 91 * DAY_MS)
    assert (await load_stored(store))[0].records == 0


async def test_bundle_is_built_once_per_hour(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    assert await run(store)
    assert not await run(store, NOW + HOUR_MS - 1)
    assert await run(store, NOW + HOUR_MS)


async def test_bundle_is_built_sooner_while_a_new_service_scores_its_first_endpoints(
    store: Store,
) -> None:
    await add(store, *(priced_endpoint(f"/{number}") for number in range(5)))
    assert await run(store)
    for number in range(2):
        await set_score(store, f"/{number}", 900)
    assert not await run(store, NOW + 5 * MINUTE_MS - 1)
    assert await run(store, NOW + 5 * MINUTE_MS)
    await set_score(store, "/2", 900)
    assert not await run(store, NOW + 20 * MINUTE_MS)
    await set_score(store, "/3", 900)
    assert await run(store, NOW + 20 * MINUTE_MS)


async def test_bundle_is_signed_over_its_bytes_with_the_key_of_the_service(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    assert await run(store, key=KEY)
    for variant in Variant:
        said, body = await load_stored(store, variant)
        assert said.signature is not None
        signature = verify(said.signature, body, "tollgauge-bundle", [KEY.public])
        assert (signature.kid, said.key_id) == (THUMBPRINT, THUMBPRINT)
        assert signature.iat == NOW // 1_000


@pytest.mark.parametrize(("first", "then"), [(None, KEY), (KEY, OTHER_KEY), (KEY, None)])
async def test_new_key_signs_in_the_next_round(
    store: Store, first: SigningKey | None, then: SigningKey | None
) -> None:
    await add(store, priced_endpoint("/1"))
    assert await run(store, key=first)
    assert not await run(store, NOW + MINUTE_MS, key=first)
    assert await run(store, NOW + MINUTE_MS, key=then)
    said, _ = await load_stored(store)
    assert said.key_id == (then.fingerprint if then else None)


async def test_bundle_of_another_policy_or_of_the_future_is_rebuilt(store: Store) -> None:
    await add(store, priced_endpoint("/1"))
    await run(store)
    said, body = await load_stored(store)
    for wrong in (replace(said, policy_version=1), replace(said, as_of=NOW + DAY_MS)):
        await store.writing(trust_records.save_bundles, [(wrong, body)])
        assert await run(store, NOW + 1)


def test_interval_is_at_most_an_hour() -> None:
    assert BundleSettings(every_ms=HOUR_MS).every_ms == HOUR_MS
    with pytest.raises(ValidationError):
        BundleSettings(every_ms=HOUR_MS + 1)
