"""Every file that a document, a docstring or a comment names is in the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tollgauge"
PLACES = sorted(
    [path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    + ["docs", "tests", "scripts", "src", "bench", "deploy", "guard", "notes", "shared", "spec"]
)
"""Folders whose names begin a path, and some that were never in the repository."""

_PATH = re.compile(rf"(?<![\w:-])(?<!\w[./])(?:\.\./)*(?:{'|'.join(PLACES)})/[\w./*-]*\w\*?")
_MODULE = re.compile(r"(?<![\w./-])(?:tollgauge|bench)(?:\.[a-z]\w*)+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")
"""Code does not contain links."""
_FILE_NAME = re.compile(r"(?<![\w./*{-])\w[\w-]*\.(?:py|md|sh|sol)\b")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FILES_OF_USERS = re.compile(r"tollgauge\.(toml|sqlite|service|example|db|info)\b")
"""Not modules: file names, and the key of tollgauge's extension in a 402."""

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPTS = sorted(
    path
    for path in (*(ROOT / "scripts").iterdir(), ROOT / "Makefile", ROOT / "pyproject.toml")
    if path.is_file()
)
PYTHON = sorted(
    path for top in ("src", "bench", "tests", "docs") for path in (ROOT / top).rglob("*.py")
)


SOLIDITY = [path for top in ("src", "tests") for path in (ROOT / top).rglob("*.sol")]
NAMES = {path.name for path in (*DOCUMENTS, *SCRIPTS, *PYTHON, *SOLIDITY)} | {"web3.py"}
"""File names, and a library whose name is also that of a file."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def words_of(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module, and the texts under its constants."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


BUILT = ("guard/typescript/dist",)
"""Folders and files that are built from the repository."""


@cache
def is_there(reference: str) -> bool:
    """Return whether a path is a file or folder of the repository or the package.

    `.py` may be omitted, and a dot may be followed by a name of the module. A pattern must match at
    least one file.
    """
    reference = re.sub(r"^(\.\./)+", "", reference)
    if reference.startswith(BUILT):
        return True
    for top in (ROOT, SOURCE):
        if "*" in reference:
            if any(top.glob(reference)):
                return True
            continue
        path = top / reference
        if path.exists() or path.with_name(f"{path.name}.py").is_file():
            return True
        module, _, name = reference.rpartition(".")
        file = top / f"{module}.py"
        if module and file.is_file() and re.search(rf"\b{re.escape(name)}\b", file.read_text()):
            return True
    return False


@cache
def module_is_there(reference: str) -> bool:
    """Return whether a dotted name is a module or a name in a module."""
    parts = reference.split(".")
    top = ROOT if parts[0] == "bench" else ROOT / "src"
    for length in range(len(parts), 0, -1):
        path = top.joinpath(*parts[:length])
        if path.with_suffix(".py").is_file() or path.is_dir():
            return length >= len(parts) - 1
    return False


def find_missing(text: str) -> list[str]:
    """Return the files and modules that a text names and that do not exist."""
    modules = (name for name in _MODULE.findall(text) if not _FILES_OF_USERS.match(name))
    return [
        *(path for path in _PATH.findall(text) if not is_there(path)),
        *(name for name in modules if not module_is_there(name)),
        *(name for name in _FILE_NAME.findall(text) if name not in NAMES),
    ]


@cache
def anchors(document: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = _HEADING.findall(document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, *SCRIPTS], ids=name_of)
def test_document_names_only_existing_files(path: Path) -> None:
    assert find_missing(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_of_a_document_have_targets(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in _LINK.findall(_CODE.sub("", text)):
        target, _, anchor = link.partition("#")
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        leads_to = (path.parent / target).resolve() if target else path
        assert leads_to.exists(), link
        if anchor:
            assert anchor in anchors(leads_to), link


def test_docstrings_and_comments_name_only_existing_files() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in PYTHON}
    wrong = {
        f"{name_of(path)}: {reference}"
        for path, source in sources.items()
        if find_missing(source)  # this test would not find anything in the text otherwise
        for words in words_of(source)
        for reference in find_missing(words)
    }
    assert not wrong, "\n".join(sorted(wrong))
