"""One purchase with a guard by others: `python guards.py NAME`.

The caller retries up to twice after an error or a response that is not a success. Checks by hosted
services are switched off: there is no network during a measurement.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

URL, TIMEOUT_S = os.environ["URL"], float(os.environ["TIMEOUT_S"])
KEY, NODE_URL = os.environ["PRIVATE_KEY"], os.environ["NODE_URL"]
TRIES, PAUSE_S = 3, 0.3
Result = tuple[bool, str]


def retry(buy: Callable[[], Result]) -> str:
    """Return the text of the response, or of the last error."""
    text = ""
    for _ in range(TRIES):
        try:
            is_good, text = buy()
            if is_good:
                break
        except Exception as error:  # noqa: BLE001 - a caller that retries after anything
            text = repr(error)
        time.sleep(PAUSE_S)
    return text


def buy_with_session(install: Callable[[Any], None]) -> str:
    """Buy with httpx and the official client, on which a guard installs its hooks."""
    return asyncio.run(_buy_with_session(install))


async def _buy_with_session(install: Callable[[Any], None]) -> str:
    x402, httpx = import_module("x402"), import_module("httpx")
    client = _register(x402.x402Client())
    http_client = import_module("x402.http.x402_http_client").x402HTTPClient(client)
    install(http_client)
    transport = import_module("x402.http.clients.httpx").x402_httpx_transport(http_client)
    async with httpx.AsyncClient(transport=transport, follow_redirects=True) as http:
        text = ""
        for _ in range(TRIES):
            try:
                answer = await http.get(URL, timeout=TIMEOUT_S)
                text = answer.text
                if answer.is_success:
                    break
            except Exception as error:  # noqa: BLE001 - a caller that retries after anything
                text = repr(error)
            await asyncio.sleep(PAUSE_S)
        return text


def _register(client: Any) -> Any:
    account = import_module("eth_account").Account.from_key(KEY)
    register = import_module("x402.mechanisms.evm.exact.register").register_exact_evm_client
    return register(client, account)


def botsrated() -> str:
    """PaymentGuard, with the key of one operation for all tries."""
    guard = import_module("botsrated").PaymentGuard(hosted=False, onchain=False)
    with guard.operation("order"), guard.request(URL):
        return buy_with_session(lambda http: guard.install(_core(http)))


def agoranome() -> str:
    """Policy `any`: price and payee."""
    policy = import_module("agoranome_policy").Policy("any", max_price_usd=0.05)
    install = import_module("agoranome_policy.x402").install
    return buy_with_session(lambda http: install(_core(http), policy))


def settled() -> str:
    """settled_guard with limits; its service cannot be reached."""

    def fetch(*_arguments: object, **_options: object) -> None:
        raise OSError("no network")

    guard = import_module("settled_x402").settled_guard
    return buy_with_session(
        lambda http: guard(http, max_usd_per_call=1, daily_budget_usd=5, fetch=fetch)
    )


def x402_guard() -> str:
    """GuardedClient, which sends POST, without its hosted stages."""
    module, httpx = import_module("x402_guard"), import_module("httpx")
    off = {"settled_enabled": False, "drift_enabled": False, "route_verdict_enabled": False}
    config = module.GuardConfig(**off, global_daily_cap_units=1_000_000)
    account = import_module("eth_account").Account.from_key(KEY)
    guard = module.GuardedClient(
        account=account, config=config, http=httpx.Client(timeout=TIMEOUT_S)
    )

    def buy() -> Result:
        result = guard.pay(URL, {})
        return result.outcome is not None, json.dumps(getattr(result.outcome, "response", None))

    return retry(buy)


def tx402() -> str:
    """Tx402Client, whose node is the bench's."""
    module = import_module("tx402")
    signer = import_module("tx402.signers").private_key_to_evm_signer(KEY)
    client = module.Tx402Client(
        evm_signer=signer,
        policy=module.Policy(max_per_request="0.50 USDC", max_per_hour="10.00 USDC"),
        routing=module.RoutingPolicy(rpc_overrides={"eip155:8453": (NODE_URL,)}),
        allow_insecure_localhost=True,
        initial_request_timeout_ms=int(TIMEOUT_S * 1_000),
        payment_retry_timeout_ms=int(TIMEOUT_S * 1_000),
    )

    def buy() -> Result:
        answer = client.get(URL)
        return bool(answer.is_success), answer.text

    return retry(buy)


def _core(http: Any) -> Any:
    """Return the x402Client of an x402HTTPClient."""
    return http._client  # noqa: SLF001 - the SDK has no public name for it


GUARDS: dict[str, Callable[[], str]] = {
    "botsrated": botsrated,
    "agoranome-policy": agoranome,
    "settled-x402": settled,
    "x402-guard": x402_guard,
    "tx402": tx402,
}

if __name__ == "__main__":
    print(GUARDS[sys.argv[1]]())
