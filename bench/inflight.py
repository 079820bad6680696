"""`tollgauge bench inflight`: many concurrent probes of a seller that waits for three seconds.

The probes, from the exchange to its classification (clients/x402, core/lint, core/probe/probe), and
the seller run in separate processes, so that the memory of the probes is measured. Each response
states the time for which the seller held it. A probe counts as delayed by our queueing if it waited
more than SLOW_MS longer, or is not payable, and its result does not report that this machine was
late (`ProbeResult.late_here`).

The processes are `python -m bench.inflight probe PORT CA_FILE PROBES` and
`python -m bench.inflight sell KEY_FILE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.child import print_json, start_child
from bench.measurement import Measurement, Report, peak_mb
from bench.seller import certificates, header, host, url
from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer
from tollgauge.core.probe.probe import judge
from tollgauge.core.watch.changes import SLOW_MS

PROBES: Final = 2_000
HOLD_S: Final = 3.0
SPREAD_S: Final = 2.5
"""Time in which all probes start: all are in flight while the first one is held."""
_HELD: Final = "x-held-ms"


def run(probes: int = PROBES) -> Report:
    """Measure `probes` concurrent probes."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(measure(probes))
    return Report(
        measurements=(
            Measurement(name="memory", figure=seen["peak_mb"], unit="MB", goal=300),
            Measurement(name="delayed by our queueing", figure=seen["slow"], unit="probes", goal=0),
            Measurement(
                name="concurrent",
                figure=seen["in_flight"],
                unit="probes",
                goal=probes,
                bound="least",
            ),
        ),
        details=seen,
    )


async def measure(probes: int) -> dict[str, Any]:
    """Return the report of the process that probes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ca_file, key_file = certificates(folder)
        this = [sys.executable, "-m", "bench.inflight"]
        async with start_child([*this, "sell", str(key_file)], folder / "seller") as seller:
            port = (await seller.line()).decode().strip()
            command = [*this, "probe", port, str(ca_file), str(probes)]
            async with start_child(command, folder / "prober") as prober:
                return await prober.document()


async def probe_all(port: int, ca_file: str, probes: int) -> dict[str, Any]:
    """Make concurrent probes and return their results and cost."""
    mapped = {host(number): ("127.0.0.1", port) for number in range(probes)}
    egress = Egress(EgressSettings(mapped=mapped, ca_file=ca_file, max_in_flight=probes))
    egress.start()
    before_mb, in_flight, most = round(peak_mb(), 1), 0, 0

    async def probe(number: int) -> tuple[bool, bool]:
        """Return whether our queueing delayed a probe, and whether its result reports a delay."""
        nonlocal in_flight, most
        await asyncio.sleep(number * SPREAD_S / probes)
        in_flight += 1
        most = max(most, in_flight)
        now = time.time_ns() // 1_000_000
        endpoint = Endpoint(
            id=endpoint_id(url(number)),
            resource=url(number),
            host=host(number),
            first_seen=now,
            last_seen=now,
        )
        exchange = (await x402.exchange(egress, endpoint, now=now)).exchange
        in_flight -= 1
        result = judge(exchange, lint(exchange))
        if not (result.payable and isinstance(exchange.result, Answer)):
            return not result.late_here, result.late_here
        held_ms = int(exchange.result.header(_HELD) or 0)
        waited_ms = exchange.timings.ttfb or 0
        return waited_ms - held_ms > SLOW_MS and not result.late_here, result.late_here

    cpu = time.process_time()
    try:
        results = await asyncio.gather(*(probe(number) for number in range(probes)))
    finally:
        await egress.close()
    return {
        "probes": probes,
        "in_flight": most,
        "slow": sum(slow for slow, _ in results),
        "late": sum(late for _, late in results),
        "peak_mb": round(peak_mb(), 1),
        "before_mb": before_mb,
        "cpu_ms_each": round((time.process_time() - cpu) * 1_000 / probes, 3),
    }


async def sell(key_file: str) -> None:
    """Print a free loopback port and serve it until standard input ends."""
    envelope = header(0).encode()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()  # the handshake has ended
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(HOLD_S)
            held = int((time.monotonic() - began) * 1_000)
            writer.write(
                b"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: %b\r\n%b: %d\r\n"
                b"content-length: 2\r\n\r\n{}" % (envelope, _HELD.encode(), held)
            )
            await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_file)
    server = await asyncio.start_server(client, "127.0.0.1", 0, ssl=context, backlog=4_096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def _main(role: str, *arguments: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if role == "sell":
            runner.run(sell(*arguments))
        else:
            port, ca_file, probes = arguments
            seen = runner.run(probe_all(int(port), ca_file, int(probes)))
            print_json(seen)


if __name__ == "__main__":
    _main(*sys.argv[1:])
