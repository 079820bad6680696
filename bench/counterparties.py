"""Stubs in a separate process: a facilitator that accepts everything or never responds, and a
seller.

`python -m bench.counterparties KEYS` (a PEM file with the seller's key and certificates) prints the
two ports and then executes lines of standard input: `answer` (verify and settle accept immediately)
and `hole` (connections are accepted and requests read, but no response is sent). A change of mode
closes the hanging connections. The facilitator does not check or settle payments, because only the
service is measured. The seller accepts any host name.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import sys
from typing import Final

import orjson
import uvloop

NETWORK: Final = "eip155:8453"
ANSWER: Final = "answer"
HOLE: Final = "hole"
TERMS: Final = {
    "x402Version": 2,
    "error": "Payment required",
    "resource": {
        "url": "https://seller.example.com/",
        "description": "A product of the seller",
        "mimeType": "application/json",
    },
    "accepts": [
        {
            "scheme": "exact",
            "network": NETWORK,
            "amount": "5000",
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "payTo": "0x" + "cd" * 20,
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
}


class FacilitatorStub:
    """The state of all connections: the mode and the hanging connections."""

    def __init__(self) -> None:
        self.mode = ANSWER
        self._waiting: set[asyncio.StreamWriter] = set()

    def switch(self, mode: str) -> None:
        """Change the mode and close the hanging connections."""
        self.mode = mode
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until one side closes it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                body = await reader.readexactly(int(length))
                if self.mode == HOLE:
                    self._waiting.add(writer)
                    await reader.read()
                    break
                response = reply(head.split(b" ", 2)[1], body)
                kind = b"content-type: application/json\r\n"
                writer.write(
                    b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (kind, len(response))
                )
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        self._waiting.discard(writer)
        writer.close()


def reply(path: bytes, body: bytes) -> bytes:
    """Return an accepting x402 v2 response. A settlement's transaction is derived from the
    nonce.
    """
    signed = orjson.loads(body)["paymentPayload"]["payload"]["authorization"]
    if path.endswith(b"/verify"):
        return orjson.dumps({"isValid": True, "payer": signed["from"]})
    return orjson.dumps(
        {
            "success": True,
            "payer": signed["from"],
            "transaction": "0x" + hashlib.sha256(signed["nonce"].encode()).hexdigest(),
            "network": NETWORK,
        }
    )


async def sell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A seller that answers every request with the same 402."""
    try:
        await reader.readuntil(b"\r\n\r\n")
        header = base64.b64encode(orjson.dumps(TERMS))
        writer.write(
            b"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: %b\r\n"
            b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % header
        )
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client closed the connection
    writer.close()


async def serve_stubs(key_file: str) -> None:
    """Serve on free loopback ports until standard input ends."""
    facilitator = FacilitatorStub()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_file)
    servers = (
        await asyncio.start_server(facilitator.serve, "127.0.0.1", 0, backlog=2_048),
        await asyncio.start_server(sell, "127.0.0.1", 0, ssl=context),
    )
    _print_line(" ".join(str(server.sockets[0].getsockname()[1]) for server in servers))
    while line := await asyncio.to_thread(sys.stdin.readline):
        facilitator.switch(line.strip())
        _print_line("done")
    for server in servers:
        server.close()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_stubs(sys.argv[1]))
