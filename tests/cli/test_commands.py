"""Results, exit codes and messages of the command line; no traceback is ever printed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.command_line import TOLLGAUGE, Command, captured_exchange
from tests.support.command_server import command as prepared_command
from tests.support.rated_endpoints import whole_report
from typer.main import get_command

from tollgauge.cli import app
from tollgauge.cli.serve import selectors


def test_unknown_loop_is_named(tollgauge: Command) -> None:
    for only, named in (("probe,nope", "nope"), ("discover", "discover")):
        done = tollgauge("work", "--only", only, DATABASE_URL="sqlite://")
        assert done.code == 2
        assert f"There is no loop named {named}." in done.err
        assert all(loop in done.err for loop in ("probe", "score", "prune"))


def test_name_index_selects_the_loops_of_all_chains() -> None:
    assert selectors("index-137") == {"index-137", "index"}
    assert selectors("probe") == {"probe"}
    assert selectors("seller-files") == {"seller-files"}


def test_unknown_command_exits_2(tollgauge: Command) -> None:
    for words in (
        ("nonsense",),
        ("lint",),
        ("demo", "--history-days", "91"),
        ("work", "--on", "x"),
    ):
        assert tollgauge(*words).code == 2


def test_help_lists_every_command(tollgauge: Command) -> None:
    done = tollgauge("--help")
    assert done.code == 0
    for name in (
        *("run", "serve", "work", "demo", "probe", "lint", "score", "discover", "migrate"),
        *("trace", "mcp", "backup", "restore", "config", "bench", "payments", "watch"),
        *("buy", "init", "status"),
    ):
        assert f" {name} " in done.out


def silent_parts(command: Any, name: str) -> list[str]:
    """Return the arguments and options of a command and its subcommands that have no help."""
    inner = getattr(command, "commands", {}).items()
    parts = [f"{name} {part.name}" for part in command.params if not getattr(part, "help", "")]
    return parts + [part for sub, inside in inner for part in silent_parts(inside, f"{name} {sub}")]


def test_every_argument_and_option_has_help() -> None:
    assert silent_parts(get_command(app), "tollgauge") == []


def test_version_is_that_of_the_package(tollgauge: Command) -> None:
    done = tollgauge("--version")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"tollgauge {version('tollgauge')}\n"


def test_shell_completes_commands_and_options(tmp_path: Path) -> None:
    """Bash reads the lines that --install-completion adds to its profile."""
    typed = """
eval "$(tollgauge --show-completion)"
completed() {  # as bash calls the function of `complete -F`
  read -r _ _ _ _ function _ < <(complete -p tollgauge)
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "$function" tollgauge; echo "${COMPREPLY[@]}"
}
completed tollgauge con
completed tollgauge config ch
completed tollgauge backup --fo
"""
    path = f"{Path(TOLLGAUGE).parent}:{os.environ['PATH']}"
    bash = ["bash", "--norc", "-c", typed]
    done = subprocess.run(
        bash, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["config", "check", "--force"], done.stderr


def test_trace_names_the_missing_variable(tollgauge: Command) -> None:
    for network, named in (
        ("base-mainnet", "TOLLGAUGE_CHAINS_8453_NODES to"),
        ("polygon-mainnet", "TOLLGAUGE_CHAINS_137_NODES to"),
    ):
        done = tollgauge("trace", "0x" + "ab" * 32, "--network", network)
        assert (done.code, done.out) == (2, "")
        assert f"No node of {network} is configured" in done.err
        assert named in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("mcp",),
        ("payments",),
        ("payments", "--books", "--json"),
        ("watch", "list"),
        ("watch", "show", "wat_1"),
        ("watch", "resend", "dlv_1"),
        ("backup", "copy.sqlite"),
    ],
)
def test_reading_command_does_not_create_a_database(
    tollgauge: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = tollgauge(*words)
    assert (done.code, done.out) == (2, "")
    assert "The database tollgauge.sqlite does not exist" in done.err
    assert "store.url" in done.err
    named = tollgauge(*words, DATABASE_URL=f"sqlite:///{tmp_path}/far/away.db")
    assert (named.code, named.out) == (2, "")
    assert f"The database {tmp_path}/far/away.db does not exist" in named.err
    assert list(tmp_path.iterdir()) == []


def result_commands(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Return every command that prints a result without a remote service."""
    (tmp_path / "exchange.json").write_text(json.dumps(captured_exchange()))
    (tmp_path / "report.json").write_bytes(orjson.dumps(whole_report()))
    (tmp_path / "tx.json").write_text('{"hash": "0x' + "ab" * 32 + '", "input": "0xa9059cbb"}')
    (tmp_path / "list.json").write_text('["https://api.example.com/paid"]')
    return {
        "migrate": ("migrate",),
        "lint": ("lint", "exchange.json"),
        "score": ("score", "report.json"),
        "trace": ("trace", "--tx", "tx.json"),
        "discover": ("discover", "list.json", "--name", "x"),
        "payments": ("payments",),
        "books": ("payments", "--books"),
        "watches": ("watch", "list"),
        "dead": ("watch", "list", "--dead"),
        "resend": ("watch", "resend", "dlv_1"),
        "config": ("config", "check"),
        "backup": ("backup", "copy.sqlite", "--force"),
        "restore": ("restore", "copy.sqlite"),
    }


def test_every_command_prints_text_by_default_and_json_on_request(
    tollgauge: Command, tmp_path: Path
) -> None:
    database = {"DATABASE_URL": f"sqlite:///{tmp_path}/t.sqlite"}
    for name, words in result_commands(tmp_path).items():
        done = tollgauge(*words, **database)
        assert done.out, name
        assert done.out[0] not in "{[", name
        for kept in tmp_path.glob("*.replaced-*"):
            kept.unlink()  # a second restore within one second would not replace it
        asked = tollgauge(*words, "--json", **database)
        assert isinstance(asked.json, dict), name
        assert done.code in (0, 1), done.err
        assert (asked.code, asked.err) == (done.code, ""), name


def on_a_terminal(command: list[str], stream: str, **how: Any) -> bytes:
    """Run a command with one of its streams on a terminal; return its output."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(command, **{"stdout": subprocess.DEVNULL} | how | {stream: theirs})
    os.close(theirs)
    seen = b""
    # on Linux, reading fails with EIO once the other end is closed
    with contextlib.suppress(OSError):
        # drain it: the buffer is small, and the command blocks when it is full
        while part := os.read(ours, 65_536):
            seen += part
    os.close(ours)
    assert process.wait() == 0
    return seen


def test_progress_is_shown_only_on_a_terminal(tmp_path: Path) -> None:
    settings = {"PATH": os.environ["PATH"], "TERM": "xterm", "DATABASE_URL": "sqlite://"}
    command = prepared_command("tollgauge", "migrate")
    seen = on_a_terminal(command, "stderr", cwd=tmp_path, env=settings)
    assert b"migrating the database" in seen
    piped = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, check=True)
    assert piped.stderr == b""


def test_output_is_the_same_on_a_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "exchange.json").write_text(json.dumps(captured_exchange()))
    for more in ((), ("--json",)):
        command = prepared_command("tollgauge", "lint", "exchange.json", *more)
        piped = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
        seen = on_a_terminal(command, "stdout", cwd=tmp_path)
        assert seen.replace(b"\r\n", b"\n") == piped
        assert seen.startswith(b"{") is bool(more)
