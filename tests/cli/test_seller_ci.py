"""What sellers use in their own CI: the GitHub Action's steps, and the hook for pre-commit."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.support.command_line import Command, captured_exchange
from tests.support.command_server import program

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALL, CHECK = (step for step in ACTION["runs"]["steps"] if "run" in step)
GOOD = orjson.dumps(captured_exchange()).decode()
BAD = orjson.dumps(captured_exchange(maxAmountRequired="0.01")).decode()


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Return a runner's temporary folder, with the command `tollgauge` as installed there."""
    installed = tmp_path / "runner" / "tollgauge"
    installed.mkdir(parents=True)
    program(installed / "bin")
    return installed.parent


def run_step(step: Any, runner: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub's runner does: bash -e, inputs replaced in its environment."""
    values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
    variables = {}
    for name, expression in step["env"].items():
        inner = expression.removeprefix("${{ ").removesuffix(" }}")
        variables[name] = str(ROOT) if inner == "github.action_path" else values[inner[7:]]
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, "RUNNER_TEMP": str(runner), **variables},
        cwd=runner.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_action_annotates_findings_and_fails_on_errors(runner: Path) -> None:
    (runner.parent / "good.json").write_text(GOOD)
    (runner.parent / "bad.json").write_text(BAD)
    good = run_step(CHECK, runner, sources="good.json")
    assert (good.returncode, good.stderr) == (0, "")
    bad = run_step(CHECK, runner, sources="good.json\nbad.json")
    assert bad.returncode == 1
    assert "::error file=bad.json,title=" in bad.stdout
    assert "bad.json: not payable" in bad.stdout


def test_action_writes_sarif_to_a_file(runner: Path) -> None:
    (runner.parent / "bad.json").write_text(BAD)
    done = run_step(
        CHECK,
        runner,
        sources="bad.json",
        format="sarif",
        output="out.sarif",
        **{"fail-on": "never"},
    )
    assert (done.returncode, done.stdout) == (0, "")
    document = orjson.loads((runner.parent / "out.sarif").read_bytes())
    assert document["runs"][0]["results"][0]["level"] == "error"


class Seller(BaseHTTPRequestHandler):
    """A seller whose every response is the 402 of `captured_exchange`."""

    def do_GET(self) -> None:
        exchange = captured_exchange()
        self.send_response(exchange["status"])
        for name, value in exchange["headers"].items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(exchange["body"].encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def seller() -> Iterator[HTTPServer]:
    """Run a seller on an http:// URL."""
    with HTTPServer(("127.0.0.1", 0), Seller) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_action_requests_a_server_of_the_same_job(runner: Path, seller: HTTPServer) -> None:
    done = run_step(CHECK, runner, sources=f"http://127.0.0.1:{seller.server_port}/weather")
    assert done.returncode == 0, done.stderr
    assert "response-0.http: payable" in done.stdout


def test_action_fails_if_the_server_does_not_respond(runner: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        done = run_step(CHECK, runner, sources=url)
    assert done.returncode == 1
    assert f"::error::{url} does not respond" in done.stdout


def test_action_does_not_run_commands_of_its_inputs(runner: Path) -> None:
    done = run_step(CHECK, runner, sources="$(touch${IFS}hacked) `id` ;x")
    assert done.returncode == 2
    assert not (runner.parent / "hacked").exists()


def test_action_installs_the_locked_packages(runner: Path) -> None:
    """The step's commands, with a `python` that records what it is asked to install."""
    programs = runner.parent / "programs"
    programs.mkdir()
    fake = programs / "python"
    fake.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
        f'echo "$@" >>{shlex.quote(str(runner / "log"))}\n'
    )
    fake.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", INSTALL["run"]],
        env={"PATH": path, "RUNNER_TEMP": str(runner), "SOURCE": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = (runner / "log").read_text()
    assert f"--require-hashes -r {ROOT}/requirements.lock" in asked
    assert f"--no-deps {ROOT}" in asked


def test_pre_commit_hook_checks_files_with_saved_responses(
    tollgauge: Command, tmp_path: Path
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    good, bad = tmp_path / "good.http", tmp_path / "bad.http"
    good.write_text(GOOD)
    bad.write_text(BAD)
    _, *arguments = shlex.split(hook["entry"])
    assert tollgauge(*arguments, str(good)).code == 0
    both = tollgauge(*arguments, str(good), str(bad))
    assert both.code == 1
    assert str(bad) in both.out
