"""`tollgauge demo` as a process: its pages, its files for other commands, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.support.bundles import content
from tests.support.command_server import command
from tests.support.processes import free_port
from tests.support.signing import verify

from tollgauge.clients.peer import public_authorities
from tollgauge.core.sale.signature import PublicKey

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("anvil")]
WEATHER = "https://weather.example/v1/current"
NO_ENVIRONMENT = {"PATH": os.environ["PATH"]}


@dataclass(frozen=True)
class RunningDemo:
    """A demo that was started in a folder."""

    process: subprocess.Popen[str]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response:
        authorities = public_authorities()  # reading them again takes 20 ms
        return httpx.get(f"{self.url}{path}", timeout=30, trust_env=False, verify=authorities)

    def loading_percent(self) -> int | None:
        """Return the loading progress, or None once everything is loaded."""
        percent: int | None = self.get("/readyz").json().get("loadingPercent")
        return percent

    def wait_for_pages(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                pytest.fail(f"the demo ended: {self.process.stderr and self.process.stderr.read()}")
            try:
                self.get("/healthz")
            except httpx.ConnectError:
                time.sleep(0.1)
            except httpx.TimeoutException:
                continue
            else:
                return
        pytest.fail("the demo did not answer")

    def wait_for_all(self) -> None:
        deadline = time.monotonic() + 200
        while self.loading_percent() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def get_once_ready(self, path: str) -> httpx.Response:
        """Return the first response that is not a 503."""
        deadline = time.monotonic() + 60
        while (answer := self.get(path)).status_code == 503:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return answer

    def do(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the demo's folder without environment variables."""
        return subprocess.run(
            command("tollgauge", *words),
            cwd=self.folder,
            env=NO_ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def interrupt(self) -> tuple[int, str, str]:
        """Send SIGINT; return the exit code and the output of the demo."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextlib.contextmanager
def start_demo(folder: Path, *, history_days: int = 0) -> Iterator[RunningDemo]:
    """Start a demo in a folder on a free port."""
    port = free_port()
    days = ("--history-days", str(history_days))
    words = ("demo", *days, "--port", str(port), "--folder", str(folder))
    process = subprocess.Popen(
        command("tollgauge", *words),
        cwd=folder,
        env=NO_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield RunningDemo(process, folder, port)
        finally:
            process.kill()


def test_pages_answer_while_history_is_loading_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    with start_demo(tmp_path, history_days=2) as demo:
        demo.wait_for_pages()
        page = demo.get("/").text
        assert re.search(r"The demo is loading 2 days of history: \d+%\.", page)
        code, out, err = demo.interrupt()
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert "Exception" not in err
    assert f"tollgauge serves {demo.url}/; it is loading 2 days of history" in err
    assert f"--config {demo.folder}/tollgauge.toml" in err


def test_other_commands_find_the_demo_from_its_folder_and_the_next_demo_starts_over(
    tmp_path: Path,
) -> None:
    with start_demo(tmp_path, history_days=1) as demo:
        key = check_other_commands(demo)
        demo.process.kill()
        demo.process.communicate(timeout=60)
    check_that_another_starts_over(tmp_path, key)


def check_other_commands(demo: RunningDemo) -> object:
    """Run commands in the demo's folder; return the keys of the service."""
    demo.wait_for_pages()
    demo.wait_for_all()
    assert "loading" not in demo.get("/").text
    probed = demo.do("probe", WEATHER, "--json")
    assert (probed.returncode, json.loads(probed.stdout)["outcome"]) == (0, "payment-required")
    linted = demo.do("lint", WEATHER, "--json")
    assert (linted.returncode, json.loads(linted.stdout)["payable"]) == (0, True)
    snapshot = demo.get(f"/trust/snapshot?resource={WEATHER}")
    (demo.folder / "snapshot.json").write_bytes(snapshot.content)
    signature = snapshot.headers["Tollgauge-Signature"]
    verified = demo.do("verify", "snapshot.json", "--signature", signature)
    assert (verified.returncode, "is authentic" in verified.stdout) == (0, True)
    assert (demo.folder / "tollgauge.toml").stat().st_mode & 0o777 == 0o600
    sold = json.loads(demo.do("payments", "--json").stdout)["payments"]
    assert "settled" in {payment["state"] for payment in sold}
    watched = json.loads(demo.do("watch", "list", "--json").stdout)["watches"]
    assert [watch["resource"] for watch in watched] in ([], [WEATHER])
    checked = demo.do("config", "check", "--json")
    assert json.loads(checked.stdout)["serves"] == demo.url
    bundle = demo.get_once_ready("/trust/bundle")
    (jwk,) = demo.get("/.well-known/jwks.json").json()["keys"]
    signature = bundle.headers["Tollgauge-Signature"]
    verify(signature, bundle.content, "tollgauge-bundle", [PublicKey.of(jwk)])
    assert content(bundle.content)[0]["count"] > 80
    status = json.loads(demo.do("status", "--json").stdout)
    assert status["probes"]["monitored"] > 80
    assert len(status["chains"]) == 2
    assert all(chain["lagSeconds"] < 600 for chain in status["chains"])

    for words in ((), ("--service", demo.url)):
        switched = demo.do("demo", "fault", "weather", "down", "on", *words, "--json")
        assert (switched.returncode, json.loads(switched.stdout)["on"]) == (
            0,
            {"weather": ["down"]},
        )
        switched = demo.do("demo", "fault", "weather", "down", "off", *words, "--json")
        assert (switched.returncode, json.loads(switched.stdout)["on"]) == (0, {})

    beside = demo.do("demo", "--port", "0", "--folder", str(demo.folder))
    assert (beside.returncode, beside.stdout) == (2, "")
    assert f"A demo already runs in {demo.folder}." in beside.stderr
    second = demo.do("demo", "--port", str(demo.port))
    assert second.returncode == 2
    assert f"port {demo.port}: another program listens there" in second.stderr
    assert "Traceback" not in second.stderr

    return demo.get("/.well-known/jwks.json").json()


def check_that_another_starts_over(folder: Path, key: object) -> None:
    """In the folder of a killed demo.

    Its chain is gone, so its pending payments would all be found unpaid. The next demo therefore
    has a new chain and a new database.
    """
    with start_demo(folder) as second:
        wait_for_a_sale(second)
        assert second.get("/.well-known/jwks.json").json() == key
        status = json.loads(second.do("status", "--json").stdout)
        assert [words for words in status["problems"] if "payment" in words.lower()] == []
        code, out, err = second.interrupt()
    assert "This one has a new chain and a new database" in " ".join(err.split())
    assert code == 0
    assert "Ctrl-C stops the demo." in out
    assert "Traceback" not in err


def states(demo: RunningDemo) -> set[str]:
    """Return the states of the payments in a demo's ledger."""
    return {row["state"] for row in json.loads(demo.do("payments", "--json").stdout)["payments"]}


def wait_for_a_sale(demo: RunningDemo) -> None:
    demo.wait_for_pages()
    demo.wait_for_all()
    deadline = time.monotonic() + 60
    while states(demo) != {"settled"}:  # there is another state while a payment settles
        assert time.monotonic() < deadline
        time.sleep(0.5)
