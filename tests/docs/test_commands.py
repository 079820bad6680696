"""The commands of the tutorial and the how-tos, run as a reader would run them.

Blocks of `sh` and `python` are run in order, page by page. Blocks of `text` are sample output or
commands that need the internet. Lines that the test must change are in `CHANGED`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from standardwebhooks import Webhook
from tests.support.command_server import command, program
from tests.support.postgres import Postgres
from tests.support.processes import free_port

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "first-hour.md", *sorted((DOCS / "how-to").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 180
CHANGED = {
    "first-hour": {"make demo": ""},
    "run": {
        "tollgauge run": "tollgauge run & trap 'kill %1; wait %1' EXIT; "
        "until curl -sf http://127.0.0.1:8402/healthz; do sleep 0.1; done",
    },
    "watch": {
        "tollgauge watch events --wait 120": "until tollgauge watch events | grep payto_change; "
        "do sleep 0.5; done",
    },
    "postgresql": {
        "systemctl stop tollgauge@run": "",
        "createdb tollgauge": "",
        'export DATABASE_URL="postgresql://tollgauge@db.example.com/tollgauge"': (
            'export DATABASE_URL="$EMPTY_DATABASE"'
        ),
    },
}
"""Replacements for lines that the test cannot run unchanged, by page:

- `make demo`: the test starts the same demo on free ports;
- `tollgauge run`: the reader uses a second terminal, the test a background process;
- `tollgauge watch events`: the watch may first receive an event that an earlier test caused;
- `systemctl`, `createdb` and the database's address: the test has its own PostgreSQL.
"""


@dataclass(frozen=True)
class Demo:
    """The ports of a running demo."""

    port: int
    control: int

    def do(self, page: str, folder: Path) -> str:
        """Run the commands of a page with this demo; return their output."""
        text = script(page, {"8402": self.port, "8403": self.control})
        return run(text, folder, TOLLGAUGE_URL=f"http://127.0.0.1:{self.port}")


def blocks(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [body for language, body in BLOCK.findall(text) if language in languages]


def script(name: str, ports: Mapping[str, int]) -> str:
    """Return the commands of a page as one script, with the demo's ports."""
    page = next(page for page in PAGES if page.stem == name)
    lines = "".join(blocks(page, "sh")).splitlines()
    text = "\n".join(CHANGED.get(name, {}).get(line, line) for line in lines)
    for port, other in ports.items():
        text = text.replace(port, str(other))
    if "8403" in ports:
        text = re.sub(r"(tollgauge demo fault .*)", rf"\1 --port {ports['8403']}", text)
    return text


def run(text: str, folder: Path, **environment: str) -> str:
    """Run a script in a folder, with tollgauge's programs on the path; return its output."""
    programs = program(folder / "bin").parent
    program(programs, "tollgauge-guard", "-m", "tollgauge_guard.cli")
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder)}
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=kept | environment | own,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(anvil: Path) -> Iterator[Demo]:
    with subprocess.Popen(
        command("tollgauge", "demo", "--json", "--port", "0"), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield running_demo(process)
        finally:
            process.terminate()


def running_demo(process: subprocess.Popen[str]) -> Demo:
    """Wait until a demo runs; return its ports from the JSON that it prints."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(next(process.stdout))
    links = json.loads("".join(lines))["links"]
    port, control = (
        int(links[name].split(":")[2].split("/")[0]) for name in ("leaderboard", "faults")
    )
    return Demo(port, control)


def test_every_block_is_run_or_an_example() -> None:
    for page in PAGES:
        languages = {language for language, _ in BLOCK.findall(page.read_text(encoding="utf-8"))}
        assert languages <= {"sh", "python", "text", "yaml"}, page
        for block in blocks(page, "yaml"):
            assert yaml.safe_load(block), page
    tested = {"first-hour", *CHANGED, *RUN_AS_THEY_STAND}
    assert {page.stem for page in PAGES if blocks(page, "sh")} == tested


def test_every_changed_line_is_on_its_page() -> None:
    for name, lines in CHANGED.items():
        page = next(page for page in PAGES if page.stem == name)
        shown = "".join(blocks(page, "sh")).splitlines()
        assert set(lines) <= set(shown), name


@pytest.mark.node
def test_first_hour_ends_with_an_alert(demo: Demo, tmp_path: Path) -> None:
    printed = demo.do("first-hour", tmp_path)
    for words in (
        '"resource":"https://weather.example/v1/current"',
        '"amount":"5000"',
        "paid $0.005 in USDC by 0x",
        "sale           payer 0x",
        "report.json is authentic",
        ": they agree",
        "report claims 99.9, evidence gives ",
        "exit 1: forged",
        "compliant yes",
        "warn  resource-http: ",
        "warn  resource-internal: ",
        "terms 5000 of 0x",
        "amount-form",
        "exit 1: no client can pay this",
        "payto-unknown: The endpoint did not ask to be paid at 0x1111",
        "exit 1: it would not be paid",
        "paid $0.20 in USDC by 0x",
        "liveness_down",
        "no fault is on",
    ):
        assert words in printed, words


@pytest.mark.node
def test_watch_reports_the_new_address(demo: Demo, tmp_path: Path) -> None:
    assert "payto_change" in demo.do("watch", tmp_path)


def test_service_runs_with_the_configuration_of_the_page(tmp_path: Path) -> None:
    ports = {"8402": free_port()}
    printed = run(
        script("run", ports),
        tmp_path,
        TOLLGAUGE_SERVER_ADMIN_PORT="0",
        TOLLGAUGE_SERVER_PORT=str(ports["8402"]),
    )
    assert "sells reports" in printed
    assert '"status":"ready"' in printed
    assert '"listed":0' in printed


@pytest.mark.postgres
def test_copy_is_restored_and_moved(tmp_path: Path, postgres: Postgres) -> None:
    postgres.sql("CREATE DATABASE from_docs")
    run(script("postgresql", {}), tmp_path, EMPTY_DATABASE=postgres.url("from_docs"))


RUN_AS_THEY_STAND = {
    "sell": ("compliant yes", "bazaar-absent"),
    "add-a-chain": ("good: ", '"network": "eip155:84532"'),
    "add-a-directory": ("2 listed", '"listed": 1'),
}
"""Pages whose commands need no demo, and their output."""


@pytest.mark.parametrize("name", RUN_AS_THEY_STAND)
def test_commands_of_the_page_work(name: str, tmp_path: Path) -> None:
    printed = run(script(name, {}), tmp_path)
    for words in RUN_AS_THEY_STAND[name]:
        assert words in printed, printed


def test_signal_of_the_page_passes_its_own_tests() -> None:
    page = next(page for page in PAGES if page.stem == "add-a-signal")
    names: dict[str, Any] = {"__name__": "signal"}
    exec("\n".join(blocks(page, "python")), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_receiver_of_the_page_accepts_only_signed_deliveries() -> None:
    page = next(page for page in PAGES if page.stem == "watch")
    names: dict[str, Any] = {}
    exec("\n".join(blocks(page, "python")), names)
    secret, at, body = "whsec_" + "YWJj" * 8, dt.datetime.now(dt.UTC), b'{"type":"liveness_down"}'
    signature = Webhook(secret).sign("evt_1", at, body.decode())
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
    assert names["event"](secret, body, headers) == {"type": "liveness_down"}
    with pytest.raises(Exception, match="signature"):
        names["event"](secret, body + b" ", headers)
