"""One purchase with an official Python client: `python official.py httpx|requests [guard]`.

The caller retries up to twice after an error or a response that is not a success.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import httpx
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

URL, TIMEOUT_S = os.environ["URL"], float(os.environ["TIMEOUT_S"])
TRIES, PAUSE_S = 3, 0.3
ACCOUNT = Account.from_key(os.environ["PRIVATE_KEY"])


async def buy_with_httpx(*, is_guarded: bool) -> str:
    """Return the text of the response, or of the last error."""
    client = register_exact_evm_client(x402Client(), ACCOUNT)
    async with _guard(client) if is_guarded else _plain_httpx(client) as http:
        text = ""
        for _ in range(TRIES):
            try:
                answer = await http.get(URL, timeout=TIMEOUT_S, follow_redirects=True)
                text = answer.text
                if answer.is_success:
                    break
            except Exception as error:  # noqa: BLE001  # a caller that retries after anything
                text = repr(error)
            await asyncio.sleep(PAUSE_S)
        return text


def buy_with_requests(*, is_guarded: bool) -> str:
    """Return the text of the response, or of the last error."""
    from x402.http.clients.requests import x402_requests

    client = register_exact_evm_client(x402ClientSync(), ACCOUNT)
    session = _guard(client) if is_guarded else x402_requests(client)
    text = ""
    for _ in range(TRIES):
        try:
            answer = session.get(URL, timeout=TIMEOUT_S)
            text = answer.text
            if answer.ok:
                break
        except Exception as error:  # noqa: BLE001  # a caller that retries after anything
            text = repr(error)
        time.sleep(PAUSE_S)
    return text


def _plain_httpx(client: x402Client) -> httpx.AsyncClient:
    from x402.http.clients.httpx import x402_httpx_transport

    return httpx.AsyncClient(transport=x402_httpx_transport(client))


def _guard(client: Any) -> Any:
    from tollgauge_guard import guarded

    bundle, key = os.environ["TOLLGAUGE_GUARD_BUNDLE"], os.environ["TOLLGAUGE_GUARD_KEY"]
    return guarded(client, bundle=bundle, key=key, nodes={"eip155:8453": os.environ["NODE_URL"]})


if __name__ == "__main__":
    library, *rest = sys.argv[1:]
    has_guard = rest == ["guard"]
    if library == "httpx":
        print(asyncio.run(buy_with_httpx(is_guarded=has_guard)))
    else:
        print(buy_with_requests(is_guarded=has_guard))
