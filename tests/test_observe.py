"""Metrics of a worker without a server."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import httpx
from tests.support import http_service
from tests.support.processes import free_port

from tollgauge import app as root
from tollgauge import process
from tollgauge.clients.peer import public_authorities
from tollgauge.web.settings import listen


async def metrics_of_a_worker(port: int, *, patience_s: float) -> int | None:
    """Return the status of /metrics while a worker runs, or None if the worker has no port."""
    config = http_service.configuration()
    config = replace(config, server=replace(config.server, admin_port=port))
    stop, ready = asyncio.Event(), asyncio.Event()
    with listen(config.server, serve=False) as listeners:
        async with root.open_resources(config) as service:
            working = asyncio.create_task(
                process.run(service, listeners, stop=stop, on_ready=ready.set)
            )
            await ready.wait()
            try:
                async with httpx.AsyncClient(
                    timeout=patience_s, verify=public_authorities()
                ) as http:
                    return (await http.get(f"http://127.0.0.1:{port}/metrics")).status_code
            except httpx.TimeoutException:
                return None
            finally:
                stop.set()
                await working


async def test_worker_serves_its_metrics() -> None:
    assert await metrics_of_a_worker(free_port(), patience_s=30) == 200


async def test_worker_runs_without_metrics_if_the_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert await metrics_of_a_worker(taken.getsockname()[1], patience_s=1) is None
