"""A seller for measurements of probing: nginx, which returns a 402 of about 2 KB over TLS.

It accepts any host name and uses little CPU. Each host of the catalogue has a separate envelope
with its URL, price and payee, in the schema of the official SDKs. One host in ten adds a new ID to
each response, as some real sellers do, so that its responses always differ.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import trustme

from tollgauge.core.base.signature import add_checksum

HOSTS: Final = 1_000
"""Number of hosts with a separate envelope."""
DOMAIN: Final = "sellers.example"
PATH: Final = "/v1/item"
_EXAMPLE: Final = {
    "pair": "ETH-USD",
    "price": "3120.55",
    "volume": "18.2",
    "depth": [["3120.50", "4.1"], ["3120.40", "7.9"], ["3120.30", "2.2"]],
    "at": "2026-06-01T12:00:00Z",
}
_PATIENCE_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Seller:
    """Its loopback port, and the file with the authority of its certificates."""

    port: int
    ca_file: Path


def host(number: int) -> str:
    """Return the name of a host."""
    return f"h{number}.{DOMAIN}"


def url(number: int) -> str:
    """Return the resource of a host."""
    return f"https://{host(number)}{PATH}"


@contextlib.asynccontextmanager
async def run_seller(folder: Path, *, hosts: int = HOSTS) -> AsyncIterator[Seller]:
    """Run the seller in separate processes, with a certificate for every host."""
    ca_file, key_file = certificates(folder)
    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(_settings(folder, key_file, port=port, hosts=hosts))
    process = await asyncio.create_subprocess_exec(
        *("nginx", "-e", str(folder / "nginx.log"), "-p", str(folder), "-c", str(settings))
    )
    try:
        await wait_until_listening(port, process)
        yield Seller(port=port, ca_file=ca_file)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def certificates(folder: Path) -> tuple[Path, Path]:
    """Write PEM files with the authority, and with the key and certificates of every host."""
    authority = trustme.CA()
    ca_file, key_file = folder / "ca.pem", folder / "seller.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    leaf = authority.issue_cert(f"*.{DOMAIN}")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(key_file))
    return ca_file, key_file


async def wait_until_listening(port: int, process: asyncio.subprocess.Process) -> None:
    """Wait until a new process accepts connections on a loopback port.

    Raises:
        RuntimeError: the process ended.
        TimeoutError: it does not listen after _PATIENCE_S seconds.
    """
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if process.returncode is not None:
                raise RuntimeError("A process of the measurement ended.")
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.02)


def free_port() -> int:
    """Return a loopback port that is not in use."""
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def envelope(number: int) -> dict[str, Any]:
    """Return the payment terms of a host, with the Bazaar extension as the official SDKs write
    it.
    """
    return {
        "x402Version": 2,
        "error": "Payment required",
        "resource": {
            "url": url(number),
            "description": "Price, volume and depth of a trading pair, updated every second",
            "mimeType": "application/json",
            "serviceName": f"Market data {number}",
            "tags": ["markets", "prices"],
        },
        "accepts": [
            {
                "scheme": "exact",
                "network": "eip155:8453",
                "amount": str(1_000 + number),
                "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
                "payTo": add_checksum("0x" + hashlib.sha256(b"%d" % number).hexdigest()[:40]),
                "maxTimeoutSeconds": 60,
                "extra": {"name": "USD Coin", "version": "2"},
            }
        ],
        "extensions": {"bazaar": _bazaar(number)},
    }


def _bazaar(number: int) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "info": {
            "input": {
                "type": "http",
                "method": "GET",
                "queryParams": {"pair": "ETH-USD", "window": f"{number}s"},
            },
            "output": {"type": "json", "example": _EXAMPLE},
        },
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "input": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "const": "http"},
                        "method": {"type": "string", "enum": ["GET"]},
                        "queryParams": {
                            "type": "object",
                            "properties": {
                                "pair": text | {"description": "The pair, such as ETH-USD"},
                                "window": text | {"description": "How far back"},
                            },
                            "required": ["pair"],
                        },
                    },
                    "required": ["type", "method"],
                    "additionalProperties": False,
                },
                "output": {
                    "type": "object",
                    "properties": {"type": text, "example": {"type": "object"}},
                    "required": ["type"],
                },
            },
            "required": ["input"],
        },
    }


def _settings(folder: Path, key_file: Path, *, port: int, hosts: int) -> str:
    headers = "".join(f"    {host(number)} {header(number)};\n" for number in range(hosts))
    return f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_timeout 0;
  map_hash_max_size 65536;
  map_hash_bucket_size 4096;
  map $host $envelope {{
    default {header(0)};
{headers}  }}
  map $host $body {{
    default '{{}}';
    ~^h[0-9]*0[.] '{{"requestId":"$request_id"}}';
  }}
  server {{
    listen 127.0.0.1:{port} ssl backlog=4096;
    ssl_certificate {key_file};
    ssl_certificate_key {key_file};
    ssl_protocols TLSv1.3;
    default_type application/json;
    location / {{
      add_header PAYMENT-REQUIRED $envelope always;
      add_header Cache-Control no-store always;
      return 402 $body;
    }}
  }}
}}
"""


def header(number: int) -> str:
    """Return the PAYMENT-REQUIRED header of a host."""
    return base64.b64encode(orjson.dumps(envelope(number))).decode()
