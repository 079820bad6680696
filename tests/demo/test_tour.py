"""The commands that the demo prints are those of the README, and they work when pasted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest
from tests.support.command_server import command, program
from tests.support.processes import free_port

from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.tour import tour

ROOT = Path(__file__).resolve().parents[2]
START_S: Final = 120
COMMANDS_S: Final = 240
WITHOUT_TOLLGAUGE = os.pathsep.join(
    folder
    for folder in os.environ["PATH"].split(os.pathsep)
    if not (Path(folder) / "tollgauge").exists()
)


@pytest.fixture
def printed(anvil: Path, tmp_path: Path) -> Iterator[str]:
    """Run a demo on a free port and yield its output. `tollgauge` is not on the path."""
    output = tmp_path / "printed"
    with output.open("wb") as file:
        demo = subprocess.Popen(
            command("tollgauge", "demo", "--port", str(free_port())),
            cwd=program(tmp_path / "bin").parent,
            stdout=file,
            stderr=subprocess.PIPE,
            env=os.environ | {"PATH": WITHOUT_TOLLGAUGE},
        )
    try:
        until = time.monotonic() + START_S
        while "Ctrl-C stops the demo." not in output.read_text():
            assert demo.poll() is None, demo.stderr and demo.stderr.read().decode()
            assert time.monotonic() < until, "the demo did not start"
            time.sleep(0.2)
        yield output.read_text()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)


def test_readme_shows_the_commands_that_the_demo_prints() -> None:
    block = f"```sh\n{tour(SELLERS[0], folder='$PWD/.venv/bin')}\n```"
    assert block in (ROOT / "README.md").read_text()


def test_readme_states_the_number_of_sellers() -> None:
    sellers = len({seller.host for seller in SELLERS})
    assert f"{sellers} sellers" in (ROOT / "README.md").read_text()


def test_commands_adapt_to_other_ports_and_to_no_folder() -> None:
    usual = tour(SELLERS[0], folder="").splitlines()
    other = tour(SELLERS[0], folder="/opt/bin", service=9_000, control=9_001).splitlines()
    assert usual[0].startswith("tollgauge buy ")
    assert other[:2] == [
        'export PATH="/opt/bin:$PATH"',
        "export TOLLGAUGE_URL=http://127.0.0.1:9000",
    ]
    assert other[-1].endswith("down off")  # found by TOLLGAUGE_URL
    elsewhere = tour(SELLERS[0], folder="", service=9_000, control=9_007).splitlines()
    assert elsewhere[-1].endswith("off --port 9007")
    assert not any("8402" in line or "8403" in line for line in other)


@pytest.mark.node
def test_commands_work_when_pasted_into_a_shell(printed: str, tmp_path: Path) -> None:
    block = printed.partition("Paste into another terminal:\n\n")[2].partition("\n\n")[0]
    folder = tmp_path / "somewhere"
    folder.mkdir()
    shell = subprocess.run(
        ["sh", "-eu"],
        input=block,
        cwd=folder,
        env=os.environ | {"PATH": WITHOUT_TOLLGAUGE},
        capture_output=True,
        text=True,
        timeout=COMMANDS_S,
        check=False,
    )
    assert shell.returncode == 0, shell.stderr
    report = orjson.loads((folder / "report.json").read_bytes())
    assert report["resource"] == SELLERS[0].url
    for words in (
        f"score {report['score']}, grade {report['grade']}",
        "they agree",
        "payable   yes",
        f"watches {SELLERS[0].url} until",
        "on at weather: down",
        "liveness_down (error)",
        "no fault is on",
    ):
        assert words in shell.stdout
