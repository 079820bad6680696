"""A directory of endpoints on loopback, over TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

from tollgauge.clients.directories import file
from tollgauge.core.listing import ListedItem, read_item

HOST = "directory.test"
NOW = 1_766_283_370_973

Reply = tuple[int, dict[str, str], bytes]


class Directory:
    """A directory on loopback: `answer` decides every reply, `asked` remembers the URLs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[str], Reply] = lambda _: (404, {}, b"")

    def serve(self, ca: trustme.CA) -> ThreadingHTTPServer:
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                world.asked.append(self.path)
                status, headers, body = world.answer(self.path)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(HOST).configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(path: Path) -> list[str]:
    found = [read_item(item) for item in file.read(path).items]
    return [i.resource.url if isinstance(i, ListedItem) else i.reason for i in found]
