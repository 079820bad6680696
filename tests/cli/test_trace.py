"""`tollgauge trace` with captured files and a real node."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.trace_world import World

from tollgauge import cli
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC


@dataclass(frozen=True)
class Saved:
    """Files with a payment's transaction, receipt and call trace, and the node's URL."""

    folder: Path
    tx_hash: str
    rpc_url: str
    expected: dict[str, Any]

    def __getattr__(self, name: str) -> str:
        return str(self.folder / f"{name}.json")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        yield world


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def saved(world: World, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("captured")
    signed = world.sign("Receive", world.sender(2), 4_321)
    tx_hash = await world.send(USDC, signed.call("receive", "bytes"))
    for name, part in zip(("tx", "receipt", "calls"), await world.capture(tx_hash), strict=True):
        (folder / f"{name}.json").write_text(json.dumps(part))
    (folder / "other.json").write_text('{"hash": "0x' + "ab" * 32 + '", "input": "0xa9059cbb"}')
    (folder / "null.json").write_text("null")
    (folder / "broken.json").write_text("{")
    expected = {"payer": signed.payer.lower(), "payee": signed.payee.lower(), "amount": "4321"}
    return Saved(folder, tx_hash, world.chain.rpc_url, expected)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Run the command in this process; return its exit code and output."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["tollgauge", "trace", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), capfdbinary.readouterr().out.decode()

    return command


Run = Callable[..., tuple[int, str]]


def test_captured_files_need_no_node(saved: Saved, run: Run) -> None:
    for more in (
        (),
        ("--receipt", saved.receipt),
        ("--receipt", saved.receipt, "--model", "call-trace", "--calls", saved.calls),
        ("--model", "calldata"),
        ("--network", "base-mainnet"),
    ):
        code, text = run("--tx", saved.tx, *more, "--json")
        assert code == 0
        document = json.loads(text)
        assert {name: document[name] for name in saved.expected} == saved.expected
        assert document["payments"][0]["method"] == "receiveWithAuthorization"
        assert document["ledger"] is None


def test_text_output_has_the_same_facts(saved: Saved, run: Run) -> None:
    code, text = run("--tx", saved.tx, "--receipt", saved.receipt)
    assert code == 0
    assert "success, decoded from calldata" in text
    assert f"4321 atomic USDC from {saved.expected['payer']}" in text


def test_without_receipt_does_not_claim_that_money_moved(saved: Saved, run: Run) -> None:
    code, text = run("--tx", saved.tx)
    assert code == 0
    assert text.startswith("unknown, decoded from calldata\nasks for 4321 atomic USDC")
    assert "unknown whether money moved" in text
    shown = json.loads(run("--tx", saved.tx, "--json")[1])
    assert shown["status"] == "unknown"
    assert "unknown whether money moved" in shown["reason"]


def test_truncated_call_data_is_reported_as_incomplete(saved: Saved, run: Run) -> None:
    cut = json.loads(Path(saved.tx).read_text())
    cut["input"] = cut["input"][:200]
    path = saved.folder / "cut.json"
    path.write_text(json.dumps(cut))
    code, text = run("--tx", str(path))
    assert code == 1
    assert "is incomplete" in text
    assert "unknown whether money moved" in text


@pytest.mark.parametrize("name", ["other", "null"])
def test_transaction_without_payment_exits_1(saved: Saved, run: Run, name: str) -> None:
    code, text = run("--tx", str(saved.folder / f"{name}.json"), "--json")
    assert code == 1
    assert json.loads(text)["payments"] == []
    assert json.loads(text)["reason"]


def test_reads_transaction_from_standard_input(
    saved: Saved, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = io.TextIOWrapper(io.BytesIO(Path(saved.tx).read_bytes()))
    monkeypatch.setattr(sys, "stdin", held)
    assert run("--tx", "-", "--json")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("0x12",),
        ("0x" + "ab" * 32, "--network", "base"),
        ("0x" + "ab" * 32, "--model", "guess"),
        ("0x" + "ab" * 32, "--network", "polygon-mainnet"),
        ("0x" + "ab" * 32, "--tx", "{tx}"),
        ("0x" + "ab" * 32, "--receipt", "{receipt}"),
        ("--tx", "{tx}", "--model", "guess"),
        ("--tx", "{tx}", "--model", "call-trace"),
        ("--tx", "{tx}", "--network", "polygon-mainnet"),
        ("--tx", "{tx}", "--receipt", "{calls}", "--model", "receipt-logs"),
        ("--tx", "{broken}"),
        ("--tx", "{missing}"),
    ],
)
def test_invalid_arguments_exit_2_without_a_result(
    saved: Saved, run: Run, arguments: tuple[str, ...]
) -> None:
    names = ("tx", "receipt", "calls", "broken", "missing")
    filled = [
        argument.format(**{name: str(saved.folder / f"{name}.json") for name in names})
        for argument in arguments
    ]
    code, text = run(*filled, "--json", TOLLGAUGE_CHAINS_8453_NODES=saved.rpc_url)
    assert (code, text) == (2, "")


def test_queries_node_by_hash(saved: Saved, run: Run) -> None:
    code, text = run(saved.tx_hash, "--json", TOLLGAUGE_CHAINS_8453_NODES=saved.rpc_url)
    document = json.loads(text)
    assert code == 0
    assert {key: document[key] for key in saved.expected} == saved.expected
    assert (document["status"], document["network"]) == ("success", "base-mainnet")
    code, text = run("0x" + "ab" * 32, "--json")
    assert (code, json.loads(text)["status"]) == (1, "not-found")


def test_unreachable_node_exits_2(saved: Saved, run: Run) -> None:
    code, _ = run(saved.tx_hash, TOLLGAUGE_CHAINS_8453_NODES="http://127.0.0.1:9")
    assert code == 2
