"""The peer of measurements of probing: prometheus-blackbox-exporter, as Debian packages it.

It makes the same exchange with the same seller (bench/seller): a new TLS connection, the
certificate verified with one authority, timed phases, and 402 as the expected status. With a
browser's list of authorities it parses more than a hundred certificates per probe and takes ten
times as long, which would not be a fair comparison. Only the CPU of the exporter counts, not that
of its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import orjson

from bench.seller import PATH, Seller, free_port, host, wait_until_listening

EXCHANGES: Final = 2_000
CONNECTIONS: Final = 4
"""Persistent connections over which probes are requested."""
_WARM_UP: Final = 50
_MODULE: Final = "x402"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackbox:
    """A running exporter: its process and port, and where its target listens."""

    pid: int
    port: int
    seller_port: int

    async def exchanges(self, count: int = EXCHANGES) -> float:
        """Request `count` exchanges and return the exporter's CPU seconds per exchange.

        Raises:
            RuntimeError: the exporter reports that an exchange failed.
        """
        await self._ask(_WARM_UP)
        before = cpu_seconds(self.pid)
        await self._ask(count)
        return (cpu_seconds(self.pid) - before) / count

    async def _ask(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            shares = [len(range(start, count, CONNECTIONS)) for start in range(CONNECTIONS)]
            await asyncio.gather(
                *(loop.run_in_executor(threads, self._probe, share) for share in shares)
            )

    def _probe(self, count: int) -> None:
        # Runs on a thread: probes one after the other on one connection.
        target = f"https://127.0.0.1:{self.seller_port}{PATH}"
        path = f"/probe?{urlencode({'target': target, 'module': _MODULE})}"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            for _ in range(count):
                connection.request("GET", path)
                if b"\nprobe_success 1\n" not in connection.getresponse().read():
                    raise RuntimeError("blackbox_exporter reports a correct exchange as a failure.")


@contextlib.asynccontextmanager
async def start(folder: Path, seller: Seller) -> AsyncIterator[Blackbox]:
    """Start the exporter in a separate process, configured for this seller."""
    settings = folder / "blackbox.yml"
    settings.write_bytes(orjson.dumps(_settings(seller)))  # JSON is YAML too
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus-blackbox-exporter",
        f"--config.file={settings}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    try:
        await wait_until_listening(port, process)
        yield Blackbox(pid=process.pid, port=port, seller_port=seller.port)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process (proc(5), utime and stime), to 0.01 s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _settings(seller: Seller) -> dict[str, object]:
    return {
        "modules": {
            _MODULE: {
                "prober": "http",
                "timeout": "10s",
                "http": {
                    "method": "GET",
                    "valid_status_codes": [402],
                    "follow_redirects": False,
                    "fail_if_not_ssl": True,
                    "preferred_ip_protocol": "ip4",
                    "tls_config": {"ca_file": str(seller.ca_file), "server_name": host(0)},
                },
            }
        }
    }
