"""The wheel: its contents, and that it works without a checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.support.command_server import command as prepared_command
from tests.support.packaging import ROOT, registry
from tests.support.programs import require

from tollgauge.demo.anvil import VERSION

PACKAGE = ROOT / "src" / "tollgauge"


@pytest.fixture
def wheel(image: Path) -> Path:
    """The wheel from which the image is built."""
    (wheel,) = (image / "opt" / "build" / "wheel").glob("*.whl")
    return wheel


@pytest.fixture
def command(image: Path) -> Path:
    """The command of an installed wheel."""
    return image / "opt" / "tollgauge" / "bin" / "tollgauge"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without Node.js, chain and checkout."""
    (tmp_path / "home").mkdir()
    return {"PATH": "/nowhere", "HOME": str(tmp_path / "home")}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_contains_exactly_the_files_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/tollgauge"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    expected = {
        name.removeprefix("src/") for name in listed.stdout.split() if (ROOT / name).is_file()
    }
    held = {name for name in names(wheel) if name.startswith("tollgauge/")}
    assert held == expected
    for part in ("web/pages/templates/base.html", "db/tables.sqlite.sql"):
        assert f"tollgauge/{part}" in held
    assert "tollgauge/web/pages/static/tollgauge.css" in held
    assert "tollgauge/core/lint/fixes/order/express.ts.txt" in held
    assert "tollgauge/py.typed" in held


def test_wheel_also_contains_only_the_units_and_metadata(wheel: Path) -> None:
    beside = {name for name in names(wheel) if not name.startswith("tollgauge/")}
    units = {name for name in beside if ".data/data/share/tollgauge/systemd/" in name}
    assert {Path(name).name for name in units} == {
        path.name for path in (ROOT / "deploy" / "systemd").rglob("*") if path.is_file()
    }
    assert all(".dist-info/" in name for name in beside - units)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in beside)


def test_locked_packages_satisfy_the_requirements(wheel: Path) -> None:
    locked, with_extras = (
        dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist") or ()]
    assert len(required) > 20
    for requirement in required:
        lock = with_extras if "extra" in str(requirement.marker) else locked
        assert Version(lock[canonicalize_name(requirement.name)]) in requirement.specifier


def demo(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str], *more: str
) -> tuple[dict[str, object], str]:
    """Run one round of the demo; return its JSON and its standard error."""
    empty = folder / "empty"
    empty.mkdir()
    done = subprocess.run(
        [*command, "demo", "--once", "--json", *more],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert list(empty.iterdir()) == [], "the demo must delete its files"
    document: dict[str, object] = json.loads(done.stdout)
    return document, done.stderr


def test_demo_runs_without_node_and_reports_missing_programs(
    command: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    document, said = demo([command], tmp_path, environment)
    assert int(str(document["probes"])) > 50
    assert int(str(document["scored"])) > 50
    assert (document["report"], document["payment"]) == (None, None)
    assert document["missing"] == "The local chain's program (anvil) is not installed."
    assert "Install Node.js with npm" in said
    assert len(said.splitlines()) == 1


def test_demo_runs_without_a_chain_on_request(tmp_path: Path, environment: dict[str, str]) -> None:
    named = environment | {"TOLLGAUGE_ANVIL": "/no/such/anvil"}
    document, said = demo(prepared_command("tollgauge"), tmp_path, named, "--no-chain")
    assert document["payment"] is None
    assert document["missing"] == "The demo was started with --no-chain."
    assert said == ""


def test_anvil_on_the_path_is_the_chain_of_the_demo(
    command: Path, tmp_path: Path, environment: dict[str, str], anvil: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "anvil").symlink_to(anvil)
    document, said = demo([command], tmp_path, environment | {"PATH": str(tools)})
    assert said == ""
    payment = document["payment"]
    assert isinstance(payment, dict)
    assert payment["amount"] == "5000"
    assert "missing" not in document


@pytest.fixture
def npm_environment(
    tmp_path: Path, environment: dict[str, str], anvil: Path
) -> Iterator[dict[str, str]]:
    """An environment with npm and a local registry that has anvil's package."""
    npm = require("npm")
    with registry({anvil.parents[1].name: (VERSION, anvil)}) as url:
        yield environment | {
            "PATH": f"{Path(npm).parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "npm_config_registry": url,
            "npm_config_cache": str(tmp_path / "npm"),
        }


def find_chain(command: Path, folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """Return the path of the chain that the installed package finds, and its messages."""
    program = "import sys; from tollgauge.demo.anvil import find_or_fetch_anvil as anvil; "
    program += "print(anvil(lambda words: print(words, file=sys.stderr)))"
    done = subprocess.run(
        [command.with_name("python"), "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stdout.strip(), done.stderr


def test_npm_downloads_the_chain_once(
    command: Path, tmp_path: Path, npm_environment: dict[str, str]
) -> None:
    binary, said = find_chain(command, tmp_path, npm_environment)
    cache = f"{npm_environment['HOME']}/.cache/tollgauge"
    assert binary.startswith(f"{cache}/node_modules/@foundry-rs/anvil-"), said
    assert said.startswith("anvil is not installed: npm installs @foundry-rs/anvil-")
    assert said.endswith(f" {VERSION} in {cache}.\n")
    shown = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True)
    assert "anvil" in shown.stdout
    without_npm = npm_environment | {"PATH": "/nowhere"}
    assert find_chain(command, tmp_path, without_npm) == (binary, "")


def test_failed_download_is_reported_with_its_reason(
    command: Path, tmp_path: Path, npm_environment: dict[str, str]
) -> None:
    nobody = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0"}
    binary, said = find_chain(command, tmp_path, npm_environment | nobody)
    assert binary == ""
    *_, last = said.splitlines()
    assert last.startswith(
        "tollgauge.demo.anvil.AnvilMissingError: npm could not install @foundry-"
    )
    assert "ECONNREFUSED" in last


def test_downloaded_version_is_the_locked_one() -> None:
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    locked = package["optionalDependencies"]
    assert {locked[name] for name in locked if name.startswith("@foundry-rs/anvil")} == {VERSION}
