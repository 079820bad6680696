"""An HTTP server on loopback that gives documents by their paths, and 404 for any other path."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def serving(documents: Mapping[str, bytes]) -> Iterator[str]:
    """The server's URL. Documents may be changed while it serves."""
    with answering(lambda path, _: documents.get(path)) as url:
        yield url


@contextlib.contextmanager
def answering(document_of: Callable[[str, bytes], bytes | None]) -> Iterator[str]:
    """The URL of a server that asks for the document of a path and of the body that was sent there;
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
            """Nothing: the output is the command's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
