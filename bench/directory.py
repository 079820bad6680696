"""An invented directory with realistic entries, as a file and page by page.

`python -m bench.directory KEYS LINES` (a PEM file with key and certificates, a file with one entry
per line) serves the entries over TLS as a Bazaar does, in a separate process. It prints its port;
each line of its standard input names another file to serve.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import ssl
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from bench.catalogue import Offer, catalogue

HOST: Final = "directory.example"
_UPDATED: Final = "2026-01-01T00:00:00Z"
_COPIES: Final = ("first", "second")
_ASSET: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"


@dataclass(frozen=True, slots=True)
class Copy:
    """A directory at the time of one crawl: a JSON file, and a file with one entry per line."""

    crawl: Path
    lines: Path


def write(folder: Path, size: int, *, changed_every: int) -> tuple[Copy, Copy]:
    """Write two copies of a directory. In the second, one entry in `changed_every` has a new
    price.
    """
    copies = [Copy(folder / f"{name}.json", folder / f"{name}.lines") for name in _COPIES]
    with contextlib.ExitStack() as stack:
        crawls = [stack.enter_context(copy.crawl.open("w")) for copy in copies]
        lines = [stack.enter_context(copy.lines.open("w")) for copy in copies]
        for crawl in crawls:
            crawl.write(f'{{"facilitatorUrl":"https://{HOST}/","partial":false,"resources":[\n')
        for number, offer in enumerate(catalogue(size)):
            changed = number % changed_every == 0
            for nth, extra in enumerate((0, 7 if changed else 0)):
                entry = json.dumps(_entry(offer, extra=extra))
                crawls[nth].write(f"{',' if number else ''}{entry}\n")
                lines[nth].write(f"{entry}\n")
        for crawl in crawls:
            crawl.write(f'],"total":{size}}}\n')
    return copies[0], copies[1]


def _entry(offer: Offer, *, extra: int) -> dict[str, Any]:
    endpoint = offer.endpoint
    quote = endpoint.quote
    assert quote is not None  # noqa: S101 - every offer has one
    city = {"type": "string", "description": "Name of the city", "required": True}
    days = {"type": "integer", "description": "How many days", "default": 3}
    terms = {
        "scheme": "exact",
        "network": "base",
        "maxAmountRequired": str(quote.amount + extra),
        "asset": _ASSET,
        "payTo": quote.pay_to,
        "maxTimeoutSeconds": 60,
        "mimeType": "application/json",
        "resource": endpoint.resource,
        "description": endpoint.description,
        "extra": {"name": "USD Coin", "version": "2"},
        "outputSchema": {
            "input": {
                "type": "http",
                "method": "GET",
                "discoverable": True,
                "queryParams": {"city": city, "days": days},
            },
            "output": {"temperature": "number", "unit": "string", "at": "string"},
        },
    }
    return {
        "resource": endpoint.resource,
        "type": "http",
        "x402Version": 1,
        "lastUpdated": _UPDATED,
        "metadata": {"serviceName": endpoint.service_name, "tags": list(endpoint.tags)},
        "accepts": [terms],
    }


class _Handler(BaseHTTPRequestHandler):
    """Serves pages of the current entries."""

    served: list[str]

    def do_GET(self) -> None:
        """Send one page."""
        query = parse_qs(urlsplit(self.path).query)
        limit, offset = int(query["limit"][0]), int(query["offset"][0])
        page = ",".join(itertools.islice(self.served, offset, offset + limit))
        paging = json.dumps({"limit": limit, "offset": offset, "total": len(self.served)})
        body = f'{{"x402Version":2,"items":[{page}],"pagination":{paging}}}'.encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Do not log."""


def main(keys: str, lines: str) -> None:
    """Serve until standard input ends."""
    _Handler.served = Path(lines).read_text().splitlines()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        _Handler.served = Path(line.strip()).read_text().splitlines()
        sys.stdout.write("served\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
