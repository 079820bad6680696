"""The instructions of docs/signatures.md work with a running service."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import http_service
from tests.support.command_server import command
from tests.support.http_service import configuration, fill
from tests.support.processes import free_port
from tests.support.signing import KEY

from tollgauge.demo.serving import serve

PAGE = Path(__file__).resolve().parents[2] / "docs" / "signatures.md"


def blocks(kind: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [text for language, text in fenced if language == kind]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Start a service on a free port."""
    port = free_port()
    base_url, config = f"http://127.0.0.1:{port}", configuration()
    config = replace(config, server=replace(config.server, base_url=base_url))
    async with http_service.open_service(config) as running:
        await fill(running, days=1)
        await running.service.round("bundle")
        async with serve(running.app, port=port):
            yield base_url


async def run(folder: Path, url: str, *words: str) -> tuple[int, str]:
    """Run a program with `tollgauge` on the path; return its exit code and output."""
    program = folder / "tollgauge"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command("tollgauge"))} "$@"\n')
    program.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=os.environ | {"PATH": path, "TOLLGAUGE_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode()


async def test_commands_and_python_of_the_page_verify_a_real_response(
    tmp_path: Path, url: str
) -> None:
    save, keys = blocks("sh")
    (program,) = blocks("python")

    code, out = await run(tmp_path, url, "sh", "-ec", save + keys)
    assert "signature  yes of this tollgauge-report" in out, out
    assert "signature  yes of this tollgauge-bundle" in out, out
    code, out = await run(tmp_path, url, sys.executable, "-c", program)
    assert (code, f"signed by {KEY.fingerprint} at" in out) == (0, True), out

    preview = tmp_path / "preview.json"
    preview.write_text(preview.read_text().replace('"grade":"', '"grade":"X', 1))
    code, out = await run(tmp_path, url, sys.executable, "-c", program)
    assert code == 1
    assert "InvalidSignature" in out
