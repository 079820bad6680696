"""Commands import little before their first check, so that errors appear quickly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import free_port

HEAVY = frozenset({"web3", "eth_account", "fastapi", "uvicorn", "numpy", "tollgauge.app"})
RUN = """
import json, sys
from tollgauge.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def run_and_list_imports(*words: str, folder: Path, **env: str) -> tuple[set[str], str]:
    """Run a command; return the modules that it imported and its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )
    *said, modules = done.stderr.splitlines()
    return set(json.loads(modules)), "\n".join(said)


@pytest.mark.parametrize("command", ["run", "serve", "demo"])
def test_port_in_use_is_detected_before_the_service_is_imported(
    command: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        words = (command, "--port", port) if command == "demo" else (command,)
        env = {"TOLLGAUGE_SERVER_PORT": port, "TOLLGAUGE_SERVER_ADMIN_PORT": str(free_port())}
        modules, said = run_and_list_imports(*words, folder=tmp_path, **env)
    assert f"Cannot listen on 127.0.0.1, port {port}" in said
    assert modules & HEAVY == set()
    assert list(tmp_path.iterdir()) == [], "no file may be created"


def test_buy_imports_a_signer_only_when_needed_and_no_service(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    env = {"TOLLGAUGE_URL": url, "TOLLGAUGE_BUYER_KEY": "0x" + "11" * 32}
    modules, said = run_and_list_imports("buy", "https://a.example/x", folder=tmp_path, **env)
    assert "No service responds" in said
    assert modules & {*HEAVY, "sqlalchemy", "tollgauge.web.paid"} == set()


@pytest.mark.parametrize("command", ["score", "verify"])
def test_score_and_verify_import_no_database_and_no_signer(command: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"score": 1}')
    (tmp_path / "report.json.jws").write_text("a.b.c")
    url = f"http://127.0.0.1:{free_port()}"
    modules, said = run_and_list_imports(command, "report.json", folder=tmp_path, TOLLGAUGE_URL=url)
    assert said
    assert modules & {*HEAVY, "sqlalchemy"} == set()
