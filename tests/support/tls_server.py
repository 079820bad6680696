"""Servers on TLS with valid and invalid certificates, and one with fixed responses."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""
NOTHING: Final[Reply] = (404, {}, b"")


@dataclass
class TlsServer:
    """A server with the name `host` and a certificate of the authority in `ca_file`.

    `answer` is the response for every path, or a function of the path; `asked` are the requested
    paths.
    """

    host: str
    port: int
    ca_file: str
    answer: Reply | Callable[[str], Reply] = NOTHING
    asked: list[str] = field(default_factory=list)

    def reset(self) -> None:
        """Reset it for the next test."""
        self.answer = NOTHING
        self.asked = []

    @contextlib.asynccontextmanager
    async def open_egress(self, **settings: Any) -> AsyncIterator[Egress]:
        """Yield an egress client that finds the server by its name."""
        mapped = {self.host: ("127.0.0.1", self.port)}
        egress = Egress(EgressSettings(mapped=mapped, ca_file=self.ca_file, **settings))
        egress.start()
        yield egress
        await egress.close()


@contextlib.contextmanager
def tls_server(host: str, folder: Path) -> Iterator[TlsServer]:
    """Run a server on a free port, in a thread; its authority's certificate is in `folder`."""
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


ZONE: Final = "sellers.example"
NOT_AFTER: Final = dt.datetime(2031, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
CERTIFICATES: Final = frozenset(
    {"wrong", "nameless", "self-signed", "stranger", "strange-chain", "expired", "not-yet"}
)
"""Hosts whose certificate is not valid for them."""


@functools.cache
def issue_certificates(authority: trustme.CA) -> ssl.SSLContext:
    """Return a context that chooses its certificate by the requested name."""
    past = NOT_AFTER.replace(year=2020)
    stranger = trustme.CA()
    chain = stranger.create_child_ca()
    issued = {
        "good": authority.issue_cert(f"good.{ZONE}", not_after=NOT_AFTER),
        "wrong": authority.issue_cert("someone-else.example"),
        "stranger": stranger.issue_cert(f"stranger.{ZONE}"),
        "expired": authority.issue_cert(
            f"expired.{ZONE}", not_before=past.replace(year=2019), not_after=past
        ),
        "not-yet": authority.issue_cert(
            f"not-yet.{ZONE}",
            not_before=NOT_AFTER.replace(year=2090),
            not_after=NOT_AFTER.replace(year=2091),
        ),
        "strange-chain": chain.issue_cert(f"strange-chain.{ZONE}"),
    }
    contexts = {name: _context(leaf) for name, leaf in issued.items()}
    contexts["self-signed"] = _self_signed()
    contexts["nameless"] = _nameless()

    def choose(
        connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: object
    ) -> int | None:
        label = (name or "").split(".")[0]
        connection.context = contexts.get(label, contexts["good"])
        return (
            ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE if label == "alert" else None
        )

    contexts["good"].sni_callback = choose
    return contexts["good"]


def _context(leaf: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context


def _self_signed() -> ssl.SSLContext:
    """A self-signed certificate for the right name."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"self-signed.{ZONE}")])
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOT_AFTER.replace(year=2020))
        .not_valid_after(NOT_AFTER)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(f"self-signed.{ZONE}")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _load(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )


def _nameless() -> ssl.SSLContext:
    """An authority that serves its own certificate, which names no host."""
    lonely = trustme.CA()
    return _load(lonely.private_key_pem.bytes() + lonely.cert_pem.bytes())


def _load(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(pem).tempfile() as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def serve_documents(documents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the server's URL. Documents may be changed while it runs."""
    with serve_answers(lambda path, _: documents.get(path)) as url:
        yield url


@contextlib.contextmanager
def serve_answers(document_of: Callable[[str, bytes], bytes | None]) -> Iterator[str]:
    """Yield the URL of a server whose response is a function of the path and the received body;
    None is a 404.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            document = document_of(self.path, sent)
            self.send_response(200 if document is not None else 404)
            self.send_header("Content-Length", str(len(document or b"")))
            self.end_headers()
            self.wfile.write(document or b"")

        do_POST = do_GET  # noqa: N815 - its name there

        def log_message(self, *_: object) -> None:
            """Log nothing: the output is the command's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
