"""The packages of the payment guards, served by the service."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_service import Running, configuration, open_service
from tests.support.programs import require
from tests.support.signing import KEY, PRIVATE_JWK, verify

from tollgauge.demo.serving import serve
from tollgauge.web.free.downloads import read_packages
from tollgauge.web.signing import SigningSettings

ROOT = Path(__file__).parents[3]


def build_wheel(folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=ROOT / "guard/python",
        check=True,
        capture_output=True,
    )


def pack(folder: Path) -> None:
    command = [require("npm"), "pack", "--silent", "--ignore-scripts", "--pack-destination"]
    subprocess.run(
        [*command, str(folder), "-w", "guard/typescript"], cwd=ROOT, check=True, capture_output=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("guards")
    build_wheel(built)
    pack(built)
    return built


@pytest.fixture
async def running(tmp_path: Path, folder: Path) -> AsyncIterator[Running]:
    config = configuration(store_url=f"sqlite:///{tmp_path}/service.db")
    server = replace(config.server, guards=str(folder))
    config = replace(config, server=server, signing=SigningSettings(key=PRIVATE_JWK))
    async with open_service(config) as service:
        yield service


async def packages(running: Running) -> list[dict[str, Any]]:
    answer = await running.get("/guard")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["packages"])


@pytest.mark.node
async def test_list_contains_the_signed_digest_of_each_file(running: Running) -> None:
    listed = await packages(running)
    assert [Path(package["name"]).suffix for package in listed] == [".tgz", ".whl"]
    for package in listed:
        answer = await running.get(f"/guard/{package['name']}")
        assert (answer.status_code, len(answer.content)) == (200, package["size"])
        assert hashlib.sha256(answer.content).hexdigest() == package["sha256"]
        for signature in (package["signature"], answer.headers["tollgauge-signature"]):
            verify(signature, answer.content, "tollgauge-guard", [KEY.public])


@pytest.mark.node
@pytest.mark.parametrize("name", ["other.whl", "..%2fapp.py", "tollgauge.example.toml"])
async def test_unknown_package_is_404(running: Running, name: str) -> None:
    assert (await running.get(f"/guard/{name}")).status_code == 404


@pytest.mark.node
async def test_printed_commands_install_the_packages(running: Running, tmp_path: Path) -> None:
    async with serve(running.app) as port:
        npm, pip = await packages(running)
        base_url = npm["url"].partition("/guard/")[0]
        local = f"http://127.0.0.1:{port}"
        target = tmp_path / "python"
        requirement = pip["install"].removeprefix("pip install ").strip("'")
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target)]
        await run([*command, requirement.replace(base_url, local)], tmp_path)
        assert (target / "tollgauge_guard/guard.py").exists()
        wrong = requirement.replace(base_url, local).replace(pip["sha256"], "0" * 64)
        with pytest.raises(subprocess.CalledProcessError):
            await run([*command, "--upgrade", wrong], tmp_path)
        # `npm install` would also need a registry, for the dependencies.
        url = npm["install"].split()[2].replace(base_url, local)
        await run([require("npm"), "pack", "--silent", url], tmp_path)
    assert (tmp_path / npm["name"]).stat().st_size == npm["size"]


async def run(command: list[str], folder: Path) -> None:
    await asyncio.to_thread(
        subprocess.run, command, cwd=folder, check=True, capture_output=True, timeout=120
    )


def test_folder_without_packages_or_no_folder_offers_none(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no package")
    assert read_packages(str(tmp_path)) == read_packages("") == {}
