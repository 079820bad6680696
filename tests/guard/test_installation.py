"""The lines that install the guards work from a checkout: the packages are not published."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.programs import require

from tollgauge.web.free.downloads import read_packages

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "src/tollgauge/web/pages/docs.py",
    *(ROOT / "guard/python/src").rglob("*.py"),
    *(ROOT / "guard/typescript/src").iterdir(),
    *(ROOT / "guard").glob("*/README.md"),
    *(ROOT / "guard/examples").iterdir(),
    *(ROOT / "docs").rglob("*.md"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_an_unpublished_package_by_name(page: Path) -> None:
    lines = re.findall(
        r"^.*(?:pip|npm)\W+install.*$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    for line in lines:
        # A name before " @ " belongs to the URL after it.
        name = r"[\s'\"](tollgauge-guard(?!-\d|\[evm\] @ )|@tollgauge/guard)"
        assert not re.search(name, line), line


@pytest.mark.parametrize(
    "example", sorted((ROOT / "guard/examples").glob("*.mjs")), ids=lambda path: path.name
)
def test_example_installs_each_package_that_it_imports(example: Path) -> None:
    # npm and yarn also find packages of packages; pnpm does not.
    text = example.read_text(encoding="utf-8")
    (line,) = re.findall(r"^// npm install (.*)", text, re.MULTILINE)
    imported = re.findall(r'from "((?:@[^/"]+/)?[^/"]+)', text)
    assert set(imported) - {"@tollgauge/guard"} <= set(line.split())


def test_pip_installs_guard_from_checkout(tmp_path: Path) -> None:
    page = (ROOT / "guard/python/README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^pip install '(.*?)'", page, re.MULTILINE)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    words = [*pip, "--no-build-isolation", "--target", tmp_path, source]
    subprocess.run(words, cwd=ROOT, check=True)
    assert (tmp_path / "tollgauge_guard" / "__init__.py").is_file()
    assert (tmp_path / "bin" / "tollgauge-guard").is_file()


@pytest.mark.node
def test_npm_packs_the_file_that_the_pages_install() -> None:
    require("npm")
    words = ["npm", "pack", "-w", "@tollgauge/guard", "--dry-run", "--json", "--ignore-scripts"]
    (packed,) = json.loads(subprocess.check_output(words, cwd=ROOT))
    for page in (ROOT / "guard/typescript/README.md", ROOT / "docs/guard.md"):
        text = page.read_text(encoding="utf-8")
        assert "npm ci && npm pack -w @tollgauge/guard" in text
        assert f"npm install ./{packed['filename']} " in text


@pytest.mark.node
def test_make_packages_prints_digests_and_the_line_of_the_readme() -> None:
    require("npm")
    command = ["bash", "scripts/build-guards.sh"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    *digests, line = printed
    folder = ROOT / "build/guards"
    assert [digest.split() for digest in digests] == [
        [hashlib.sha256(file.read_bytes()).hexdigest(), file.name]
        for file in sorted(folder.iterdir())
    ]
    assert line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert set(read_packages(str(folder))) == {file.name for file in folder.iterdir()}
