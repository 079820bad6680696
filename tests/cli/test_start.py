"""Commands import little before their first check, so that errors appear quickly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.processes import free_port

HEAVY = frozenset({"web3", "eth_account", "fastapi", "uvicorn", "numpy", "mcp", "tollgauge.app"})
RUN = """
import json, sys
from tollgauge.cli import main
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
for words in json.loads(sys.argv[1]):
    sys.argv = ["tollgauge", *words]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 2, ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def run_and_list_imports(
    *commands: tuple[str, ...], folder: Path, **env: str
) -> tuple[set[str], list[str], set[str]]:
    """Run commands that fail, in one process.

    Returns the modules that all commands import, the lines on standard error, and the modules that
    were imported by the end.
    """
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *said, last = done.stderr.splitlines()
    return set(json.loads(first)), said, set(json.loads(last))


def test_port_in_use_is_detected_before_the_service_is_imported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        env = {"TOLLGAUGE_SERVER_PORT": port, "TOLLGAUGE_SERVER_ADMIN_PORT": str(free_port())}
        commands = ("run",), ("serve",), ("demo", "--port", port)
        _, said, modules = run_and_list_imports(*commands, folder=tmp_path, **env)
    taken = f"tollgauge: Cannot listen on 127.0.0.1, port {port}"
    assert sum(line.startswith(taken) for line in said) == len(commands)
    assert modules & HEAVY == set()
    assert list(tmp_path.iterdir()) == [], "no file may be created"


def test_clients_of_a_service_import_no_database_and_no_signer(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"score": 1}')
    (tmp_path / "report.json.jws").write_text("a.b.c")
    url = f"http://127.0.0.1:{free_port()}"
    env = {"TOLLGAUGE_URL": url, "TOLLGAUGE_BUYER_KEY": "0x" + "11" * 32}
    buy = ("buy", "https://a.example/x", "--output", "bought.json")
    commands = ("score", "report.json"), ("verify", "report.json"), buy
    first, said, modules = run_and_list_imports(*commands, folder=tmp_path, **env)
    assert first & {"asyncio", "rich", "httpx", "pycurl", "tollgauge.config"} == set()
    assert sum(line.startswith("tollgauge: ") for line in said) == len(commands)
    assert any("No service responds" in line for line in said)
    assert modules & {*HEAVY, "sqlalchemy", "tollgauge.web.paid"} == set()
