"""`run`, `serve`, `work` and `demo` at an unavailable address."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import TOLLGAUGE, Command
from tests.support.command_server import command as prepared_command

CAP_NET_BIND_SERVICE = 10
PR_CAPBSET_DROP = 24
FREE_PORTS = {"TOLLGAUGE_SERVER_PORT": "0", "TOLLGAUGE_SERVER_ADMIN_PORT": "0"}


def without_privileges() -> None:
    """Run in the child: forbid root to bind privileged ports."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE)


@pytest.fixture
def taken_port() -> Iterator[str]:
    """Listen on a port, as another program would."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("setting", ["port", "admin_port"])
def test_port_in_use_is_one_line_and_creates_nothing(
    tollgauge: Command, tmp_path: Path, taken_port: str, command: str, setting: str
) -> None:
    done = tollgauge(command, **FREE_PORTS | {f"TOLLGAUGE_SERVER_{setting.upper()}": taken_port})
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"tollgauge: Cannot listen on 127.0.0.1, port {taken_port}: another program listens "
        f"there; stop it, or set server.{setting} to another port.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_demo_reports_port_in_use_before_it_starts(
    tollgauge: Command, tmp_path: Path, taken_port: str
) -> None:
    done = tollgauge("demo", "--port", taken_port, "--folder", ".")
    assert (done.code, done.out) == (2, "")
    assert "another program listens there; stop it, or set --port to another port" in done.err
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_work_lists_its_loops_and_continues_without_its_metrics_port(
    tmp_path: Path, taken_port: str
) -> None:
    process = subprocess.Popen(
        prepared_command("tollgauge", "work", "--only", "score,prune"),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "TOLLGAUGE_SERVER_ADMIN_PORT": taken_port},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        while "tollgauge works: score, prune\n" not in said:
            line = process.stderr.readline()
            assert line, said
            said.append(line)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    (warning,) = (line for line in said if "metrics.off" in line)
    assert f"port {taken_port}: another program listens there" in warning
    assert "server.admin_port" in warning


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("192.0.2.1", "this machine has no such address"),
        ("no.such.invalid", "this name has no address"),
    ],
)
def test_unavailable_address_is_one_line(
    tollgauge: Command, tmp_path: Path, host: str, message: str
) -> None:
    done = tollgauge("serve", **FREE_PORTS, TOLLGAUGE_SERVER_HOST=host)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "server." in done.err
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_privileged_port_is_one_line(tmp_path: Path) -> None:
    free_for_all = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if int(free_for_all.read_text()) <= 443:
        pytest.skip("on this machine, any user may listen on port 443")
    process = subprocess.Popen(
        [TOLLGAUGE, "serve"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]} | FREE_PORTS | {"TOLLGAUGE_SERVER_PORT": "443"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=without_privileges,
    )
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (2, "")
    assert "ports below 1024 need a privilege" in err
    assert "server." in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "serve"])
def test_secondary_vantage_does_not_serve(tollgauge: Command, command: str) -> None:
    done = tollgauge(
        command,
        TOLLGAUGE_PROBE_VANTAGE="us-iad",
        TOLLGAUGE_PROBE_VANTAGES="eu-fra,us-iad",
        TOLLGAUGE_SERVER_PORT="0",
        TOLLGAUGE_SERVER_ADMIN_PORT="0",
    )
    assert (done.code, done.out) == (2, "")
    assert "The vantage 'us-iad' only probes. Reports are served by 'eu-fra'." in done.err
    assert "tollgauge work" in done.err
