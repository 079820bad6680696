"""Public addresses on a machine without a network: run under `unshare -n`, prints its observations.

In a separate network namespace, loopback has public addresses. The real path (lookup, check,
pinning, connecting) is therefore used without a packet leaving the machine.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trustme
from tests.support.hostile_replies import answer

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.clients.egress.resolve import ADDRESSES_MAX, Resolver
from tollgauge.core.probe.exchange import Exchange, Fault

NAME = "www.seller.com"
V4 = "93.184.215.14"
V6 = "2606:2800:21f:cb07::1"
DEAF = "93.184.215.15"
"""Routed, without a listener."""
NOWHERE_V4 = "9.9.9.9"
NOWHERE_V6 = "2620:fe::fe"


def network() -> None:
    """Add the addresses to loopback."""
    for command in (
        "ip link set lo up",
        f"ip addr add {V4}/32 dev lo",
        f"ip addr add {DEAF}/32 dev lo",
        f"ip -6 addr add {V6}/128 dev lo nodad",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    for number in range(20):
        subprocess.run(f"ip addr add 93.184.216.{number}/32 dev lo".split(), check=True)


def describe(exchange: Exchange) -> object:
    """Return the exchange in a form that fits into JSON."""
    if isinstance(exchange.result, Fault):
        return exchange.result.kind.value
    return [str(exchange.result.status), exchange.address]


async def ask(ca_file: str, resolver: Sequence[Sequence[str]], *, url: str) -> object:
    """Fetch once with the given DNS answers."""
    egress = Egress(
        EgressSettings(ca_file=ca_file, deadline_ms=3_000, resolver=lambda _host: resolver[0])
    )
    egress.start()
    exchange = await egress.fetch(Request(url=url))
    await egress.close()
    return describe(exchange)


async def main(folder: Path) -> dict[str, object]:
    """Return all observations."""
    authority = trustme.CA()
    ca_file = str(folder / "public-authority.pem")
    authority.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer())
        await writer.drain()
        writer.close()

    servers = [await asyncio.start_server(serve, host, 443, ssl=context) for host in (V4, V6)]
    url = f"https://{NAME}/x"
    seen: dict[str, object] = {}
    seen["answer"] = await ask(ca_file, [[V4]], url=url)
    seen["ipv6 answer"] = await ask(ca_file, [[V6]], url=url)
    seen["lookups"], seen["second answer is loopback"] = await rebind(ca_file, url)
    seen["no route"] = await ask(ca_file, [[NOWHERE_V4, NOWHERE_V6]], url=url)
    seen["an address without a route beside one with"] = await ask(
        ca_file, [[NOWHERE_V6, V4]], url=url
    )
    seen["refused beside one without a route"] = await ask(ca_file, [[DEAF, NOWHERE_V6]], url=url)
    many = [V4, *(f"93.184.216.{number % 20}" for number in range(999))]
    seen["a thousand addresses"] = await ask(ca_file, [many], url=url)
    usable = await Resolver(lambda _host: many, threads=1, timeout_ms=1_000).resolve(NAME)
    seen["tried of a thousand"] = 0 if isinstance(usable, Fault) else len(usable)
    assert ADDRESSES_MAX == 8
    seen["answers that differ at one time"] = await at_once(ca_file, url)
    seen["wrong name"] = await ask(ca_file, [[V4]], url="https://other.com/")
    for server in servers:
        server.close()
    return seen


async def at_once(ca_file: str, url: str) -> list[str]:
    """Concurrent attempts to one name whose lookups differ: each uses its own answer."""
    answers = iter([[V4], [V6]] * 10)
    egress = Egress(
        EgressSettings(ca_file=ca_file, deadline_ms=3_000, resolver=lambda _host: next(answers))
    )
    egress.start()
    exchanges = await asyncio.gather(*(egress.fetch(Request(url=url)) for _ in range(20)))
    await egress.close()
    return sorted({str(describe(item)) for item in exchanges})


async def rebind(ca_file: str, url: str) -> tuple[list[str], object]:
    """Two attempts of one egress client; the second lookup returns loopback."""
    asked: list[str] = []

    def turncoat(host: str) -> Sequence[str]:
        asked.append(host)
        return [V4] if len(asked) == 1 else ["127.0.0.1"]

    egress = Egress(EgressSettings(ca_file=ca_file, deadline_ms=3_000, resolver=turncoat))
    egress.start()
    await egress.fetch(Request(url=url))
    second = await egress.fetch(Request(url=url))
    await egress.close()
    return asked, describe(second)


if __name__ == "__main__":
    network()
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
