"""The package as its users get it: the wheel, installed into a virtual environment of its own.

The environment's dependencies are those of the tests, read from where they are: nothing is asked of
a package index. Of the package itself it has what the wheel holds, and no checkout is above it.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built with the locked build backend."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path) -> Path:
    """An empty virtual environment that finds the dependencies of the tests; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def install(wheel: Path, folder: Path) -> Path:
    """A virtual environment with the wheel in it; its command `tollgauge`."""
    python = make_environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "bin" / "tollgauge"
