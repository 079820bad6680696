"""What `/readyz` answers, one try after the other."""

from __future__ import annotations

from tests.support.http_service import Running

from tollgauge.web.edge.health import CAUSES, EVERY_MS

FORBIDDEN = ("sqlite", "SQLSTATE", "asyncpg", "Error", "/tmp", "tollgauge.db", "Traceback")


async def ready(running: Running) -> str:
    """`ready`, or the cause why it is not. Each call is five seconds after the last."""
    running.clock.now += EVERY_MS
    answer = await running.get("/readyz")
    body = answer.json()
    if answer.status_code == 200:
        return str(body["status"])
    assert (answer.status_code, body["code"]) == (503, "store-unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert body["detail"] in CAUSES.values()
    for word in FORBIDDEN:
        assert word not in answer.text, word
    return str(body["cause"])
