"""A guarded client in a separate process, which tests kill.

Its order is JSON in `argv[1]`: `{url, ca_file, account: {address, key}, setup, holds}`. With
`holds`, it stops immediately before it sends a payment, and prints a line.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
from tests.support.guarded_clients import Setup
from tests.support.paying_clients import payer_of
from tests.support.seller_world import HEADERS, ORDER

from tollgauge.demo.chain import TestAccount
from tollgauge_guard import guarded

HELD = "held"


class Holding(httpx.AsyncHTTPTransport):
    """Send everything except payments."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if any(name in request.headers for name in HEADERS):
            sys.stdout.write(f"{HELD}\n")
            sys.stdout.flush()
            await asyncio.sleep(60)
        return await super().handle_async_request(request)


async def main() -> None:
    order = json.loads(sys.argv[1])
    context = ssl.create_default_context(cafile=order["ca_file"])
    transport = Holding if order["holds"] else httpx.AsyncHTTPTransport
    files: dict[str, Any] = {name: Path(order["setup"].pop(name)) for name in ("journal", "cache")}
    setup = Setup(**order["setup"], **files)
    client = payer_of(TestAccount(**order["account"]))
    async with guarded(client, **setup.for_python(), transport=transport(verify=context)) as http:
        await http.get(order["url"], headers={ORDER: "killed"}, timeout=60)


if __name__ == "__main__":
    asyncio.run(main())
