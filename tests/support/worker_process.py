"""A worker that makes one wave and prints the recorded results: a separate process that tests stop.

Arguments: the endpoint's URL, the port that its host is mapped to, the file of trust anchors, the
deadline of a probe in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from tollgauge.app import now_ms
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes


async def main(url: str, port: int, ca_file: str, deadline_ms: int) -> None:
    """Print the process ID, probe once with a store in memory, and print the result as JSON."""
    print(os.getpid(), flush=True)  # noqa: T201 - the test that started it reads this
    host, now = url.split("/")[2], now_ms()
    known = Endpoint(id=endpoint_id(url), resource=url, host=host, first_seen=now, last_seen=now)
    store = Store.open("sqlite://")
    await store.migrate()
    await store.writing(endpoints.insert, known)
    mapped = {host: ("127.0.0.1", port)}
    egress = Egress(EgressSettings(mapped=mapped, ca_file=ca_file, deadline_ms=deadline_ms))
    egress.start()
    settings = ProbeSettings()
    prober = Prober(store=store, egress=egress, clock=now_ms, cadence=settings.cadence)
    await probe.run(prober, settings=settings, owner="worker")
    (result,) = await store.reading(probes.history, known.id, since=now - 1, until=now_ms())
    await egress.close()
    await store.close()
    document = {
        "outcome": result.outcome,
        "attribution": result.attribution,
        "reason": result.reason,
    }
    sys.stdout.write(json.dumps(document | {"total": result.timings.total}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
