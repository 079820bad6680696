"""Those whom the service deals with, in a process of their own, for measuring: a facilitator that
says yes or swallows everything, and a seller under any name.

`python -m bench.others KEYS` (a PEM file with the seller's key and certificates) prints
the two ports and then obeys lines of standard input: `answer` (verify and settle say yes at once),
`hole` (connections are accepted and requests read, nobody is ever answered). Changing over drops
the connections that hang. The facilitator judges nothing and settles nothing: what is measured is
the service in front of it.
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
        "description": "What a seller sells",
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


class Till:
    """What all connections share: how to answer, and who waits."""

    def __init__(self) -> None:
        self.mode = ANSWER
        self._waiting: set[asyncio.StreamWriter] = set()

    def turn(self, mode: str) -> None:
        """Change over."""
        self.mode = mode
        for each in self._waiting:
            each.close()
        self._waiting.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                body = await reader.readexactly(int(length))
                if self.mode == HOLE:
                    self._waiting.add(writer)
                    await reader.read()
                    break
                made = reply(head.split(b" ", 2)[1], body)
                kind = b"content-type: application/json\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (kind, len(made)))
                writer.write(made)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # they hung up
        self._waiting.discard(writer)
        writer.close()


def reply(path: bytes, body: bytes) -> bytes:
    """Yes, in the words of x402 v2; a settlement's transaction follows from the nonce."""
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
    """A seller's 402, whoever asks for whatever."""
    try:
        await reader.readuntil(b"\r\n\r\n")
        header = base64.b64encode(orjson.dumps(TERMS))
        writer.write(
            b"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: %b\r\n"
            b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % header
        )
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # they hung up
    writer.close()


async def stand(key_file: str) -> None:
    """Serve on free loopback ports until standard input ends."""
    till = Till()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_file)
    servers = (
        await asyncio.start_server(till.serve, "127.0.0.1", 0, backlog=2_048),
        await asyncio.start_server(sell, "127.0.0.1", 0, ssl=context),
    )
    _say(" ".join(str(server.sockets[0].getsockname()[1]) for server in servers))
    while line := await asyncio.to_thread(sys.stdin.readline):
        till.turn(line.strip())
        _say("done")
    for server in servers:
        server.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(stand(sys.argv[1]))
