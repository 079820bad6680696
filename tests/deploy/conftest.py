"""The image, built by the steps of its Containerfile on this machine."""

from __future__ import annotations

import fcntl
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.packaging import ROOT, make_environment, stages

BUILD, _ = stages(ROOT / "Containerfile")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the content of the image, which one worker builds for all.

    The steps of the first stage run under this folder instead of `/`. This machine replaces the
    base image, and the locked packages of the tests replace those from the package index.
    """
    root = tmp_path_factory.getbasetemp() / "image"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            build(root)
    return root


def build(root: Path) -> None:
    """Run the steps of the first stage."""
    root.mkdir()
    make_environment(root / "opt" / "tollgauge")
    make_environment(root / "opt" / "build")
    for word, rest in BUILD[1:]:
        if word == "COPY":
            *names, target = rest.split()
            (root / target.strip("/")).mkdir(parents=True, exist_ok=True)
            for name in names:
                copy(ROOT / name, root / target.strip("/"), name)
        else:
            assert word == "RUN"
            run(rest, root)


def copy(source: Path, folder: Path, name: str) -> None:
    """Copy like COPY: the content of a folder into the target, or a file under its name."""
    if source.is_file():
        shutil.copy(source, folder / name)
    else:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=skipped)


def run(line: str, root: Path) -> None:
    """Run a step, except the parts that the tests already have."""
    parts = [part.strip() for part in line.split("&&")]
    done_already = re.compile(r"^python -m venv |--require-hashes ")
    for part in parts:
        if done_already.search(part):
            continue
        pip = f"{shlex.quote(sys.executable)} -m pip"
        here = part.replace("/opt/build/bin/pip", pip)
        here = re.sub(r"(?<= )/(?=opt/|src\b)", f"{root}/", here)
        subprocess.run(["sh", "-c", here], check=True, capture_output=True)
