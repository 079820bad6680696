"""An HTTPS server on loopback that answers GET as a test says, and an egress that reaches it."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme

from tollgauge.clients.egress.client import Egress, EgressSettings

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""
NOTHING: Final[Reply] = (404, {}, b"")


@dataclass
class TlsServer:
    """A server under the name `host`, with a certificate of the authority in `ca_file`. `answer` is
    the reply to every path, or a function of the path; `asked` are the paths as they came.
    """

    host: str
    port: int
    ca_file: str
    answer: Reply | Callable[[str], Reply] = NOTHING
    asked: list[str] = field(default_factory=list)

    def reset(self) -> None:
        """Begin anew for the next test."""
        self.answer = NOTHING
        self.asked = []

    @contextlib.asynccontextmanager
    async def reached(self, **settings: Any) -> AsyncIterator[Egress]:
        """An egress that finds the server under its name."""
        mapped = {self.host: ("127.0.0.1", self.port)}
        egress = Egress(EgressSettings(mapped=mapped, ca_file=self.ca_file, **settings))
        egress.start()
        yield egress
        await egress.close()


@contextlib.contextmanager
def tls_server(host: str, folder: Path) -> Iterator[TlsServer]:
    """A server on a free port, in a thread; its authority's certificate is in `folder`."""
    authority = trustme.CA()
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server = TlsServer(host, listener.server_port, str(ca_file))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            answer = server.answer
            status, headers, body = answer(self.path) if callable(answer) else answer
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    listener.RequestHandlerClass = Handler
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    listener.shutdown()
    listener.server_close()
