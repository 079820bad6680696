"""The wheel in its own environment, the Containerfile, and an npm registry on this machine."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]


def make_environment(folder: Path) -> Path:
    """Create an empty virtual environment that finds the dependencies of the tests; return its
    Python.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


Stage = list[tuple[str, str]]
"""The instructions of a stage: the keyword in upper case, and its arguments."""


def stages(path: Path) -> list[Stage]:
    """Return the stages of a file without comments. A continued line is one instruction."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    result: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            result.append([])
        if word:
            result[-1].append((word.upper(), rest.strip()))
    return result


def values(stage: Stage, word: str) -> list[str]:
    """Return the arguments of each instruction of a kind."""
    return [rest for name, rest in stage if name == word]


SCOPE = "@foundry-rs"


def tarball(name: str, version: str, program: Path) -> bytes:
    """Return a package that contains one program, `bin/anvil`."""
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
    """Serve packages of SCOPE, by name: a version and its program. Yields the URL."""
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
            """Log nothing."""

    return Handler
