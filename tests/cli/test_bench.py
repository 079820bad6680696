"""`tollgauge bench` in a checkout and from an installed package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_line import Command

import tollgauge as package
from bench import BENCHES, document, pay_twice
from bench.pay_twice import Outcome, Results
from bench.pay_twice_world import Fault

SOURCE = Path(package.__file__).resolve().parent
COMMAND = (sys.executable, "-c", "from tollgauge.cli import main; main()", "bench")


def bench(
    *words: str, folder: Path, source: Path = SOURCE.parent
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_unknown_benchmark_is_rejected_with_available_names(tollgauge: Command) -> None:
    done = tollgauge("bench", "nothing")
    assert done.code == 2
    assert "There is no measurement 'nothing'." in done.err
    assert ", ".join(BENCHES) in " ".join(done.err.split())


def test_installed_package_explains_that_benchmarks_need_a_checkout(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    shutil.copytree(SOURCE, installed / "tollgauge", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (("paid", "--json"), ("replay", "series.jsonl")):
        done = bench(*words, folder=tmp_path, source=installed)
        assert (done.returncode, done.stdout) == (2, "")
        assert "not part of the installed package" in done.stderr
        assert "from a checkout" in done.stderr


def test_benchmark_processes_start_from_any_folder(tmp_path: Path) -> None:
    # The child inherits no path to the checkout: it starts in the checkout itself.
    program = (
        "import asyncio, json, pathlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from bench.child import start_child\n"
        "async def main():\n"
        "    world = json.dumps(dict(blocks=10, pairs=1, wallets=1, payers=1, began=0))\n"
        "    words = [sys.executable, '-m', 'bench.canned', world]\n"
        "    async with start_child(words, pathlib.Path('log')) as child:\n"
        "        print(int(await child.line()))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SOURCE.parent.parent)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) > 0


@pytest.mark.parametrize(("signed", "code"), [(1, 0), (2, 1)])
def test_command_fails_for_a_client_that_signs_twice(
    tollgauge: Command, monkeypatch: pytest.MonkeyPatch, signed: int, code: int
) -> None:
    bought = Outcome("pay", "fastapi", Fault.LOST_ANSWER, signed, settled=1, is_answered=True)
    monkeypatch.setattr(pay_twice, "measure", lambda _clients, _sellers: Results((bought,)))
    monkeypatch.setattr(document, "this_machine", lambda _at: "")  # it starts programs
    done = tollgauge("bench", "pay-twice", "--client", "pay")
    assert done.code == code
    assert f"1 purchases, signed twice {signed - 1}" in done.out


def test_unknown_seller_is_rejected(tollgauge: Command) -> None:
    done = tollgauge("bench", "pay-twice", "--seller", "django")
    assert done.code == 2
    assert "No such seller: django." in done.err
