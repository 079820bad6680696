"""The command `try`: a purchase and a refusal on this machine, without a service or a chain."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from x402 import x402Client

from tollgauge_guard import open_guard
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.refusal import PaymentRefusedError
from tollgauge_guard.signature import TYPE, encode_base64url, read_jwk
from tollgauge_guard.units import dollars

_BASE: Final = "eip155:8453"
_USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
_KNOWN: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
_OTHER: Final = "0x8ba1f109551bd432803012645ac136ddd64dba72"
_AMOUNT: Final = "5000"


def run() -> int:
    """Pay a good seller, be refused at a bad one, and print both. Returns an exit code."""
    try:
        from eth_account import Account
        from x402.mechanisms.evm.exact.register import register_exact_evm_client
    except ImportError as error:
        raise GuardError(
            "`try` needs a wallet.", hint="pip install 'x402[evm]' eth-account coincurve"
        ) from error
    with _run_sellers() as origin:
        guard = open_guard(**_signed_bundle(origin), journal=MEMORY)
        wallet = Account.create()
        payer = register_exact_evm_client(x402Client(), wallet)
        return asyncio.run(_shop(guard, payer, origin))


async def _shop(guard: Guard, payer: x402Client, origin: str) -> int:
    async with GuardedClient(guard, payer, trust_env=False) as http:
        good = await http.get(f"{origin}/good")
        print(f"good seller: {good.status_code} {good.text}")
        for payment in guard.journal.payments():
            print(f"  paid {dollars(payment.exposure)} to {payment.pay_to}: {payment.state}")
        try:
            await http.get(f"{origin}/bad")
        except PaymentRefusedError as error:
            print(f"bad seller: {error}")
            return 0 if good.is_success else 1
    print("bad seller: it was paid, which must not happen.")
    return 1


def _signed_bundle(origin: str) -> dict[str, Any]:
    """Return a bundle that knows both sellers at the same payTo, and its key."""
    now = int(time.time())
    record = ["proceed", "A", 95.0, [[_BASE, "exact", 0, _AMOUNT]], [], None, None, now]
    rows = sorted([_key(f"{origin}/{name}"), *record] for name in ("good", "bad"))
    header: dict[str, object] = {"format": 2, "policyVersion": 3, "asOf": now, "count": len(rows)}
    header |= {"variant": "all", "payTo": [_KNOWN]}
    lines = "".join(f"{_compact(line)}\n" for line in [header, *rows])
    body = zstandard.ZstdCompressor().compress(lines.encode())
    key = Ed25519PrivateKey.generate()
    x = encode_base64url(key.public_key().public_bytes_raw())
    jwk: dict[str, object] = {"kty": "OKP", "crv": "Ed25519", "x": x}
    protected = {"alg": "EdDSA", "b64": False, "crit": ["b64"], "typ": TYPE}
    named = encode_base64url(_compact(protected | {"kid": read_jwk(jwk).fingerprint}).encode())
    mark = key.sign(named.encode() + b"." + hashlib.sha256(body).digest())
    return {"bundle": (body, f"{named}..{encode_base64url(mark)}"), "key": jwk}


def _key(url: str) -> str:
    # The bundle knows no `http`: a resource that is requested by it is looked up by its own port.
    return encode_base64url(hashlib.sha256(f"tollgauge:v2:{url}".encode()).digest()[:16])


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


@contextmanager
def _run_sellers() -> Iterator[str]:
    """Run two sellers on a port of 127.0.0.1; `/bad` asks for another payTo than the bundle."""

    class Seller(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_paid = self.headers.get("PAYMENT-SIGNATURE") is not None
            host = self.headers["Host"]
            status, name, document = 402, "PAYMENT-REQUIRED", _build_402(host, self.path)
            if is_paid:
                receipt = {"success": True, "transaction": "0x" + "ab" * 32, "network": _BASE}
                status, name, document = 200, "PAYMENT-RESPONSE", receipt
            body = b"sunny, 21 degrees" if is_paid else b"{}"
            self.send_response(status)
            self.send_header(name, base64.b64encode(_compact(document).encode()).decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Seller)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _build_402(host: str, path: str) -> dict[str, object]:
    offer = {
        "scheme": "exact",
        "network": _BASE,
        "asset": _USDC,
        "amount": _AMOUNT,
        "payTo": _KNOWN if path == "/good" else _OTHER,
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    }
    return {"x402Version": 2, "resource": {"url": f"http://{host}{path}"}, "accepts": [offer]}
