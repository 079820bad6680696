"""An alert loop that dies at a stage: `alert_process.py URL STAGE PORT CA NOW`.

It kills itself with SIGKILL, either once changes have become deliveries (`decided`), or once a
receiver has accepted one and the result is not written yet (`sent`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace

from tests.support import http_service
from tests.support.receivers import Receivers

from tollgauge import app as root
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.jobs import alert
from tollgauge.store.watches import delivery_queue

KEY = "a key of at least thirty-two characters"


async def main(url: str, stage: str, port: int, ca_file: str, now: int) -> None:
    world = Receivers(port=port, ca_file=ca_file)
    config = replace(
        http_service.configuration(store_url=url),
        egress=world.egress(),
        watch=WatchSettings(key=KEY),
    )
    async with root.open_resources(config, clock=lambda: now) as service:
        alerts = service.alerts()
        await alert.queue_alerts(alerts)
        if stage == "sent":
            (claimed,) = await service.store.writing(
                delivery_queue.claim, owner="killed", now=now, limit=1, failing=1, lease_ms=60_000
            )
            sent = await alert.attempt(alerts, claimed)
            assert sent.ok, sent
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
