"""A registry of npm packages on this machine (github.com/npm/registry, Public Registry API)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

SCOPE = "@foundry-rs"


def tarball(name: str, version: str, program: Path) -> bytes:
    """A package that holds one program, `bin/anvil`."""
    manifest = json.dumps({"name": name, "version": version}).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
        archive.add(program.resolve(), "package/bin/anvil")
    return packed.getvalue()


@contextlib.contextmanager
def registry(packages: Mapping[str, tuple[str, Path]]) -> Iterator[str]:
    """Serves packages of SCOPE, by name: a version and the program in it. Yields its URL."""
    answers: dict[str, tuple[str, bytes]] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers))
    url = f"http://127.0.0.1:{server.server_address[1]}"
    for short, (version, program) in packages.items():
        name, data = f"{SCOPE}/{short}", tarball(f"{SCOPE}/{short}", version, program)
        path = f"/{name}/-/{short}-{version}.tgz"
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": url + path, "integrity": f"sha512-{digest}"}
        document = {
            "name": name,
            "dist-tags": {"latest": version},
            "versions": {version: {"name": name, "version": version, "dist": dist}},
        }
        answers[f"/{name}"] = ("application/json", json.dumps(document).encode())
        answers[path] = ("application/octet-stream", data)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(answers: Mapping[str, tuple[str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = answers.get(unquote(self.path), ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler
