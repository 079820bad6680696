"""`tollgauge bench watch`: ten thousand watches, one destination in a hundred broken.

The alert loop runs on an SQLite file and delivers over TLS to receivers in another process. Each
watch gets one alert; the changes are spread over a minute, as if a thousand endpoints changed in a
bad minute. Half of the broken destinations return 500; the others never respond. The delay is the
time from the detected change to the receiver's response.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import trustme
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from bench import CHECKOUT
from bench.database import open_store
from bench.measurement import Measurement, Report, peak_mb
from tollgauge.app import now_ms
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.webhooks import WatchSettings, destination_context, watch_context
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.watch.changes import delisting
from tollgauge.core.watch.watch_rules import PERIOD_MS, DestinationKind, WatchState
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.jobs import alert
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.watches import outbox, watch_payments, watches
from tollgauge.store.watches.watches import Destination, Watch, destination

WATCHES: Final = 10_000
ENDPOINTS: Final = 1_000
FAILING: Final = 100
"""One destination in FAILING is broken."""
SPREAD_S: Final = 60
GOOD, BAD, STUCK = "good.receivers.example", "bad.receivers.example", "stuck.receivers.example"


def run(count: int = WATCHES, endpoint_count: int = ENDPOINTS, spread_s: int = SPREAD_S) -> Report:
    """Measure `count` watches of `endpoint_count` endpoints."""
    details = asyncio.run(measure(count, endpoint_count, spread_s))
    delay, growth, left = details["delay_s"]["p95"], details["growth_mb"], details["healthy_left"]
    return Report(
        measurements=(
            Measurement(name="delay p95", figure=delay, unit="s", goal=10),
            Measurement(name="growth", figure=growth, unit="MB", goal=64),
            Measurement(name="healthy left", figure=left, unit="destinations", goal=0),
        ),
        details=details,
    )


async def measure(count: int, endpoint_count: int, spread_s: int) -> dict[str, Any]:
    """Create the watches and changes, and deliver until every healthy destination has its alert."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with run_receivers(folder) as (port, ca_file), open_store(folder) as store:
            settings = WatchSettings(key="a key for one measurement on this machine")
            await store.writing(insert_watches, settings, count, endpoint_count)
            egress = Egress(
                EgressSettings(
                    mapped=dict.fromkeys((GOOD, BAD, STUCK), ("127.0.0.1", port)),
                    ca_file=str(ca_file),
                )
            )
            egress.start()
            alerts = alert.Alerts(
                store=store,
                egress=egress,
                settings=settings,
                sealer=settings.sealer,
                base_url="https://trust.example.com",
                clock=now_ms,
                owner="bench",
            )
            try:
                return await run_loop(alerts, endpoint_count, spread_s)
            finally:
                await egress.close()


async def run_loop(alerts: alert.Alerts, endpoint_count: int, spread_s: int) -> dict[str, Any]:
    """Run the alert loop while each endpoint changes once, until all healthy deliveries are
    done.
    """
    before, began = peak_mb(), time.monotonic()
    inserting = asyncio.create_task(insert_changes(alerts.store, endpoint_count, spread_s))
    while True:
        await alert.run(alerts)
        queued = (await alerts.store.reading(outbox.depth)).queued
        left = await alerts.store.reading(healthy_left)
        if inserting.done() and not left:
            break
        if time.monotonic() - began > 10 * spread_s + 120:
            break
        await asyncio.sleep(0.1)
    await inserting
    delays = await alerts.store.reading(delays_ms)
    return {
        "delivered": len(delays),
        "healthy_left": left,
        "still_queued": queued,
        "seconds": round(time.monotonic() - began, 1),
        "delay_s": {
            name: round(delays[min(len(delays) * part // 100, len(delays) - 1)] / 1000, 2)
            for name, part in (("p50", 50), ("p95", 95), ("p99", 99), ("max", 100))
        },
        "growth_mb": round(peak_mb() - before, 1),
    }


async def insert_changes(store: Store, count: int, spread_s: int) -> None:
    """Insert one change per endpoint, evenly spread over `spread_s` seconds."""
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number * spread_s / count - time.monotonic()))
        new = (_id(number), delisting(at=now_ms(), source="bench"))
        await store.writing(changes.add, [new])


def insert_watches(
    tx: Connection, settings: WatchSettings, count: int, endpoint_count: int
) -> None:
    """Insert the endpoints and active watches."""
    now = now_ms() - DAY_MS
    sealer = settings.sealer
    for number in range(endpoint_count):
        url = _url(number)
        endpoint = Endpoint(
            id=endpoint_id(url),
            resource=url,
            host=f"h{number}.example.com",
            first_seen=now,
            last_seen=now,
        )
        endpoints.insert(tx, endpoint)
    for number in range(count):
        id_ = f"wat_{number:024x}"
        watch = Watch(
            id=id_,
            secret_hash=f"{number:064x}",
            endpoint_id=_id(number % endpoint_count),
            created_at=now,
            expires_at=now + PERIOD_MS,
            sealed_key=sealer.seal(bytes(32), context=watch_context(id_)),
        )
        host = GOOD if number % FAILING else (BAD if number // FAILING % 2 else STUCK)
        target = f"dst_{number}"
        sealed = sealer.seal(
            f"https://{host}/{number}".encode(), context=destination_context(target)
        )
        row = Destination(
            id=target,
            watch_id=id_,
            kind=DestinationKind.JSON,
            sealed_url=sealed,
            masked=f"https://{host}/…",
            created_at=now,
        )
        watch_payments.create(tx, watch, [row], payment_id=f"pay_{number}")
    tx.execute(watches.watch.update().values(state=WatchState.ACTIVE.value))
    tx.execute(watch_payments.watch_payment.update().values(applied=True))


def healthy_left(tx: Connection) -> int:
    """Return the number of pending changes and of pending deliveries to healthy destinations."""
    delivery, target = outbox.delivery, destination
    good = target.c.masked == f"https://{GOOD}/…"
    query = (
        sa.select(sa.func.count())
        .select_from(delivery.join(target, target.c.id == delivery.c.destination_id))
        .where(delivery.c.state == outbox.QUEUED, good)
    )
    waiting: int = tx.execute(query).scalar_one()
    return waiting + changes.has_undispatched(tx)


def delays_ms(tx: Connection) -> list[int]:
    """Return the sorted delays between change and acceptance at healthy destinations."""
    delivery, watch, change = outbox.delivery, watches.watch, changes.change
    joined = delivery.join(watch, watch.c.id == delivery.c.watch_id).join(
        change, change.c.endpoint_id == watch.c.endpoint_id
    )
    query = sa.select(delivery.c.done_at - change.c.at).select_from(joined)
    rows = tx.execute(query.where(delivery.c.state == outbox.SENT))
    return sorted(rows.scalars())


@contextlib.asynccontextmanager
async def run_receivers(folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """Run the receivers in a separate process; yield their port and the authority's file."""
    authority = trustme.CA()
    ca_file, key_file = folder / "ca.pem", folder / "server.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    leaf = authority.issue_cert(GOOD, BAD, STUCK)
    leaf.private_key_and_cert_chain_pem.write_to_path(str(key_file))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(key_file)), cwd=CHECKOUT, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None  # noqa: S101 - PIPE was requested
        yield int(await process.stdout.readline()), ca_file
    finally:
        process.kill()
        await process.wait()


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Respond as the receiver of this name."""
    request = Request(scope, receive)
    host = request.headers["host"].split(":")[0]
    await request.body()
    if host == STUCK:
        await asyncio.sleep(60)
    status = 500 if host == BAD else 204
    await Response(status_code=status)(scope, receive, send)


async def serve_receivers(key_file: str) -> None:
    """Print the port and serve the receivers until this process is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_file)
    async with serve(answer, tls=context) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _url(number: int) -> str:
    return f"https://h{number}.example.com/v1/item"


def _id(number: int) -> str:
    return endpoint_id(_url(number))


if __name__ == "__main__":
    asyncio.run(serve_receivers(sys.argv[1]))
