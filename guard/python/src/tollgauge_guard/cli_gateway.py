"""The command `gateway`: pay for programs on this machine that cannot pay themselves."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
from typing import Final

import httpx
from x402 import x402Client

from tollgauge_guard.cli_journal import PAYER_KEY
from tollgauge_guard.errors import GuardError
from tollgauge_guard.gateway import SELLER_TIMEOUT_S, Gateway
from tollgauge_guard.guard import Guard
from tollgauge_guard.httpx_client import GuardedClient

TOKEN: Final = "TOLLGAUGE_GUARD_GATEWAY_TOKEN"  # noqa: S105  # the name of a variable


def listen_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT of an option."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not HOST:PORT, such as 127.0.0.1:8403")
    return host, int(port)


def run_gateway(guard: Guard, listen: tuple[str, int]) -> int:
    """Serve until the process is interrupted. Returns the exit code. Raises GuardError."""
    given = os.environ.get(TOKEN, "")
    gateway = Gateway(_open_client(guard), given or secrets.token_urlsafe(32), *listen)
    try:
        asyncio.run(_serve(gateway, given))
    except OSError as error:
        raise GuardError(f"{listen[0]}:{listen[1]} cannot be used ({error.strerror}).") from error
    return 0


async def _serve(gateway: Gateway, given: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with gateway.serve() as url:
        print(f"{url}/https/HOST/PATH", flush=True)
        if not given:
            print(f"Authorization: Bearer {gateway.token}", flush=True)
        await stopped.wait()


def _open_client(guard: Guard) -> GuardedClient:
    """Return a client with the wallet of the environment. Raises GuardError."""
    secret = os.environ.get(PAYER_KEY, "")
    if not secret:
        raise GuardError("No wallet was named.", hint=f"Set {PAYER_KEY} to its private key.")
    try:
        from eth_account import Account
        from x402.mechanisms.evm.exact.register import register_exact_evm_client
    except ImportError as error:
        raise GuardError(
            "The gateway needs a wallet.", hint="pip install 'x402[evm]' eth-account coincurve"
        ) from error
    try:
        wallet = Account.from_key(secret)
    except Exception as error:
        raise GuardError(f"{PAYER_KEY} is not a private key.") from error
    payer = register_exact_evm_client(x402Client(), wallet)
    return GuardedClient(guard, payer, timeout=httpx.Timeout(SELLER_TIMEOUT_S, connect=10))
