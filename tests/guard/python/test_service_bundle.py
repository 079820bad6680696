"""The guard and the service together: the bundle that the service builds, signs and serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.bundles import add, priced_endpoint, set_score
from tests.support.http_service import Clock, configuration, open_service
from tests.support.score_rows import NOW
from tests.support.signing import KEY

from tollgauge.demo.serving import serve
from tollgauge.jobs import score as job
from tollgauge.jobs.loop_settings import BundleSettings
from tollgauge_guard.bundle_source import RemoteBundle
from tollgauge_guard.resource import parse
from tollgauge_guard.signature import pin_keys


async def test_guard_reads_bundle_of_running_service(tmp_path: Path) -> None:
    async with open_service(configuration()) as running:
        store = running.service.store
        await add(
            store,
            good := priced_endpoint("/1"),
            bad := priced_endpoint("/2"),
            new := priced_endpoint("/3"),
        )
        await set_score(store, "/1", 914)
        await set_score(store, "/2", 120, recommendation="avoid")
        await job.build_bundles(store, settings=BundleSettings(), key=KEY, clock=Clock(NOW))
        async with serve(running.app) as port:
            address = f"http://127.0.0.1:{port}/trust/bundle"
            sources = [
                RemoteBundle(url, pin_keys(KEY.fingerprint), cache=tmp_path, verify=False)
                for url in (address, f"{address}/avoid")
            ]
            for source in sources:
                await asyncio.to_thread(source.refresh)
                await asyncio.to_thread(source.refresh)  # 304 by now
    whole, avoided = (source.current() for source in sources)
    assert whole is not None
    assert avoided is not None
    assert whole.as_of == NOW // 1_000
    records = [whole.record(parse(endpoint.resource)) for endpoint in (good, bad, new)]
    assert [record and record.recommendation for record in records] == [
        *("proceed", "avoid", "unverified")
    ]
    assert records[0] is not None
    assert [(offer.amount, offer.pay_to) for offer in records[0].offers] == [(10_000, "0xa")]
    assert avoided.record(parse(bad.resource)) is not None
    assert avoided.record(parse(good.resource)) is None
