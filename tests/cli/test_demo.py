"""`demo fault` finds the running demo as other commands find their service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.command_line import Command
from tests.support.processes import free_port

from tollgauge.demo.control import run_control
from tollgauge.demo.faults import Faults
from tollgauge.demo.receiver import Receiver


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def control(faults: Faults) -> AsyncIterator[str]:
    """Start the control server of a demo on a free port."""
    async with run_control(faults, Receiver()) as url:
        yield url


@pytest.mark.parametrize("found_by", ["folder", "config", "service", "environment", "port"])
async def test_fault_finds_the_running_demo(
    tollgauge: Command, tmp_path: Path, faults: Faults, control: str, found_by: str
) -> None:
    port = urlsplit(control).port or 0
    service = f"http://127.0.0.1:{port - 1}"
    text = f'[demo]\ncontrol_url = "{control}"\n'
    words: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    match found_by:
        case "folder":
            (tmp_path / "tollgauge.toml").write_text(text)
        case "config":
            (tmp_path / "demo.toml").write_text(text)
            words = ("--config", "demo.toml")
        case "service":
            words = ("--service", service)
        case "environment":
            environment = {"TOLLGAUGE_URL": service}
        case "port":
            words = ("--port", str(port))
    done = await asyncio.to_thread(
        tollgauge, "demo", "fault", "weather", "down", "on", *words, **environment
    )
    assert (done.code, done.err) == (0, "")
    assert faults.on() == {"weather": ["down"]}


def test_fault_reports_that_no_demo_answers(tollgauge: Command) -> None:
    done = tollgauge("demo", "fault", "--service", f"http://127.0.0.1:{free_port() - 1}")
    assert done.code == 2
    assert "No demo responds at http://127.0.0.1:" in done.err


def test_demo_settings_are_rejected_for_a_public_service(
    tollgauge: Command, tmp_path: Path
) -> None:
    (tmp_path / "tollgauge.toml").write_text(
        '[server]\nbase_url = "https://trust.example.com"\n'
        '[demo]\ncontrol_url = "http://127.0.0.1:8403"\n'
    )
    done = tollgauge("demo", "fault")
    assert done.code == 2
    assert "demo is only for a closed market" in done.err


def test_solana_requires_a_chain(tollgauge: Command) -> None:
    done = tollgauge("demo", "--no-chain", "--solana")
    assert done.code == 2
    words = " ".join(done.err.replace("│", " ").split())
    assert "requires a chain and the package solders: pip install 'tollgauge[solana]'." in words
