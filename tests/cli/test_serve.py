"""`run`, `serve` and `demo` at an address that cannot be had."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import TOLLGAUGE, Command

CAP_NET_BIND_SERVICE = 10
PR_CAPBSET_DROP = 24


def without_privileges() -> None:
    """In the child: root may then bind no more ports than anybody."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE)


def started(tmp_path: Path, *words: str, **changes: str) -> tuple[int, str, str]:
    """A command that should not come far: its exit code and what it printed."""
    folder = tmp_path / "-".join(words)
    folder.mkdir(exist_ok=True)
    settings = {"TOLLGAUGE_SERVER_PORT": "0", "TOLLGAUGE_SERVER_ADMIN_PORT": "0"}
    process = subprocess.Popen(
        [TOLLGAUGE, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"]} | settings | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=without_privileges,
    )
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert list(folder.iterdir()) == [], "nothing is made"
    return process.returncode, out, err


@pytest.fixture
def taken_port() -> Iterator[str]:
    """A port that another program listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("setting", ["port", "admin_port"])
def test_a_port_that_is_taken_is_one_line_and_nothing_is_made(
    tmp_path: Path, taken_port: str, command: str, setting: str
) -> None:
    code, out, err = started(
        tmp_path, command, **{f"TOLLGAUGE_SERVER_{setting.upper()}": taken_port}
    )
    assert (code, out) == (2, "")
    assert err == (
        f"tollgauge: Cannot listen on 127.0.0.1, port {taken_port}: another program listens "
        f"there; stop it, or set server.{setting} to another port.\n"
    )


def test_the_demo_says_that_its_port_is_taken_before_it_starts(
    tmp_path: Path, taken_port: str
) -> None:
    code, out, err = started(tmp_path, "demo", "--port", taken_port, "--folder", ".")
    assert (code, out) == (2, "")
    assert "another program listens there; stop it, or set --port to another port" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"TOLLGAUGE_SERVER_HOST": "192.0.2.1"}, "this machine has no such address"),
        ({"TOLLGAUGE_SERVER_HOST": "no.such.invalid"}, "this name has no address"),
        ({"TOLLGAUGE_SERVER_PORT": "443"}, "ports below 1024 need a privilege"),
    ],
)
def test_an_address_that_cannot_be_had_is_one_line(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    free_for_all = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if "TOLLGAUGE_SERVER_PORT" in changes and int(free_for_all.read_text()) <= 443:
        pytest.skip("on this machine everybody may listen on port 443")
    code, out, err = started(tmp_path, "serve", **changes)
    assert (code, out) == (2, "")
    assert message in err
    assert "server." in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_vantage_that_is_not_the_primary_one_serves_nothing(
    tollgauge: Command, command: str
) -> None:
    done = tollgauge(
        command,
        TOLLGAUGE_PROBE_VANTAGE="us-iad",
        TOLLGAUGE_PROBE_VANTAGES="eu-fra,us-iad",
        TOLLGAUGE_SERVER_PORT="0",
        TOLLGAUGE_SERVER_ADMIN_PORT="0",
    )
    assert (done.code, done.out) == (2, "")
    assert "The vantage 'us-iad' only probes: reports are made at 'eu-fra'." in done.err
    assert "tollgauge work" in done.err
