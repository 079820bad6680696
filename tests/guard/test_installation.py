"""The lines that install the guards work from a checkout: the packages are not published."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.support.programs import require

from tollgauge.web.free.downloads import read_packages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "build/guards"
PAGES = [
    ROOT / "README.md",
    ROOT / "src/tollgauge/web/pages/docs.py",
    *(ROOT / "guard/python/src").rglob("*.py"),
    *(ROOT / "guard/typescript/src").iterdir(),
    *(ROOT / "guard").glob("*/README.md"),
    *(ROOT / "guard/examples").iterdir(),
    *(ROOT / "docs").rglob("*.md"),
]


def test_no_page_installs_an_unpublished_package_by_name() -> None:
    # A name before " @ " belongs to the URL after it.
    name = r"[\s'\"](tollgauge-guard(?!-\d|\[evm\] @ )|@tollgauge/guard)"
    lines = [
        (page.name, line)
        for page in PAGES
        for line in re.findall(
            r"^.*(?:pip|npm)\W+install.*$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert len(lines) > 10
    assert [line for line in lines if re.search(name, line[1])] == []


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


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """The lines that `make packages` prints."""
    require("npm")
    command = ["bash", "scripts/build-guards.sh"]
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()


@pytest.mark.node
def test_make_packages_prints_digests_and_the_line_of_the_readme(printed: list[str]) -> None:
    *digests, line = printed
    assert [digest.split() for digest in digests] == [
        [hashlib.sha256(file.read_bytes()).hexdigest(), file.name]
        for file in sorted(PACKAGES.iterdir())
    ]
    assert line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert set(read_packages(str(PACKAGES))) == {file.name for file in PACKAGES.iterdir()}


@pytest.mark.node
@pytest.mark.usefixtures("printed")
def test_npm_package_contains_built_code_without_tests() -> None:
    (package,) = PACKAGES.glob("*.tgz")
    with tarfile.open(package) as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
    sources = {path.name.split(".")[0] for path in (ROOT / "guard/typescript/src").glob("*.ts")}
    code = {f"dist/{name}{suffix}" for name in sources for suffix in (".js", ".d.ts")}
    assert names == code | {"LICENSE", "README.md", "package.json"}


@pytest.mark.node
@pytest.mark.usefixtures("printed")
def test_pages_install_the_file_that_npm_packs() -> None:
    (package,) = PACKAGES.glob("*.tgz")
    for page in (ROOT / "guard/typescript/README.md", ROOT / "docs/guard.md"):
        text = page.read_text(encoding="utf-8")
        assert "npm ci && npm pack -w @tollgauge/guard" in text
        assert f"npm install ./{package.name} " in text


@pytest.mark.node
@pytest.mark.usefixtures("printed")
def test_wheel_contains_package_and_licence() -> None:
    (package,) = PACKAGES.glob("*.whl")
    names = set(zipfile.ZipFile(package).namelist())
    folder = ROOT / "guard/python/src/tollgauge_guard"
    sources = {f"tollgauge_guard/{path.name}" for path in folder.iterdir()}
    sources -= {"tollgauge_guard/__pycache__"}
    others = {name.split("/", 1)[1] for name in names - sources}
    assert sources <= names
    assert others == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
