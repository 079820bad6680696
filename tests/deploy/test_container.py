"""The image: its Containerfile, and the steps of it run on this machine without an engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.packaging import ROOT, stages, values
from tests.support.processes import free_port
from tests.support.programs import require

from tollgauge.config import find_unused, load

CONTAINERFILE = ROOT / "Containerfile"
BUILD, IMAGE = stages(CONTAINERFILE)
USER = 10001


def health_check(declared: str) -> list[str]:
    """Return the command of an image's health check."""
    words: list[str] = json.loads(declared.partition("CMD ")[2])
    return words


def test_linter_has_no_findings() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", CONTAINERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_packages_come_only_from_the_locks_and_are_never_compiled() -> None:
    installs = [
        part
        for line in values(BUILD, "RUN")
        for part in line.split("&&")
        if re.search(r"\bpip\b.*\binstall\b", part)
    ]
    assert len(installs) == 3
    for part in installs:
        locked = "--require-hashes" in part and "--only-binary :all:" in part
        assert locked or "--no-deps --no-index" in part, part
    assert not any("pip" in line for line in values(IMAGE, "RUN"))


def test_build_lock_is_a_subset_of_the_test_lock() -> None:
    pin = re.compile(r"^([a-z0-9._-]+==\S+)((?: \\\n    --hash=\S+)+)", re.MULTILINE)
    build, every = (
        dict(pin.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("requirements-build.lock", "requirements-dev.lock")
    )
    assert build.items() <= every.items()
    needed, names = ["hatchling"], {pin.partition("==")[0] for pin in build}
    for name in needed:  # grows during the iteration
        wanted = map(Requirement, requires(name) or ())
        needed += [
            requirement.name
            for requirement in wanted
            if not requirement.marker or requirement.marker.evaluate()
        ]
    assert set(needed) == names


def test_dockerignore_admits_exactly_the_copied_files() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    copied = {name for line in values(BUILD, "COPY") for name in line.split()[:-1]}
    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)
    assert "*" in ignored


def test_image_runs_as_an_unprivileged_user() -> None:
    assert values(IMAGE, "USER") == [f"{USER}:{USER}"]
    (useradd,) = (line for line in values(IMAGE, "RUN") if "useradd" in line)
    assert f"--uid {USER} --user-group" in useradd
    assert BUILD[0] == ("FROM", IMAGE[0][1] + " AS build")
    assert re.fullmatch(r"docker\.io/library/python:3\.1[1-9]-slim-\w+", IMAGE[0][1])


@pytest.fixture
def as_stranger() -> list[str]:
    """Return the command prefix that starts a program as the image's user.

    The user owns nothing here. It may read everything, because the packages of the tests can be in
    a folder that only root may read (/root).
    """
    if os.getuid() != 0:
        pytest.skip("only root may start a process as another user")
    reading = "-all,+dac_read_search"
    privileges = [f"--{kind}={reading}" for kind in ("bounding-set", "inh-caps", "ambient-caps")]
    privileges.append("--no-new-privs")
    return [require("setpriv"), f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *privileges]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that belongs to the image's user. Pytest's own folders are private."""
    with tempfile.TemporaryDirectory(prefix="tollgauge-state-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "state"
        folder.mkdir(mode=0o700)
        os.chown(folder, USER, USER)
        yield folder


def variables() -> dict[str, str]:
    """Return the environment variables of the image."""
    pairs = (pair.partition("=") for line in values(IMAGE, "ENV") for pair in line.split())
    return {name: value for name, _, value in pairs}


def test_variables_of_the_image_are_settings() -> None:
    environment = variables()
    assert find_unused(environment) == []
    assert load(None, environment).server.host == "0.0.0.0"


def test_serves_as_another_user_and_its_health_check_passes(
    image: Path, as_stranger: list[str], folder: Path
) -> None:
    port, admin = free_port(), free_port()
    command = json.loads(values(IMAGE, "ENTRYPOINT")[0]) + json.loads(values(IMAGE, "CMD")[0])
    environment = variables() | {
        "PATH": f"{image}/opt/tollgauge/bin:/usr/bin:/bin",
        "TOLLGAUGE_SERVER_PORT": str(port),
        "TOLLGAUGE_SERVER_ADMIN_PORT": str(admin),
    }
    before = sorted(image.rglob("*"))
    (declared,) = values(IMAGE, "HEALTHCHECK")
    check = [word.replace("8403", str(admin)) for word in health_check(declared)]

    def healthy() -> bool:
        words = [*as_stranger, *check]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True)
        return done.returncode == 0

    assert not healthy()
    process = subprocess.Popen(
        [*as_stranger, *command], cwd=folder, env=environment, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        while (line := process.stderr.readline()) and not line.startswith(b"tollgauge serves "):
            pass
        deadline = time.monotonic() + 60
        while not healthy():
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert (folder / "tollgauge.sqlite").is_file()
    assert sorted(image.rglob("*")) == before, "it wrote into the image"
