"""Names: one per class and module, and functions are named by verbs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tollgauge"
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
MAX_MODULES_OF_A_NAME = 2
FUNCTION_FOLDERS = ("bench", "docs", "guard/adapters", "guard/python", "scripts", "src", "tests")
IRREGULAR = re.compile(
    "become|begun|bought|bound|broken|brought|built|caught|chosen|done|drawn|driven|fed|forgotten|"
    "found|frozen|given|gone|heard|held|hidden|kept|known|left|lost|made|met|paid|proven|said|"
    "seen|sent|shown|sold|spent|spoken|stolen|taken|thought|told|torn|understood|won|written"
)
GERUND = re.compile(r"\w{2,}ing")
PREPOSITION = re.compile("after|as|at|before|by|for|from|in|of|on|since|to|until|up|with")
ALLOWED_PARTICIPLES = {
    "botsrated": "the client of this name",
    "delisted": "the flag of this name",
    "guarded": "published by the guard; returns a guarded client, as `sorted` a sorted list",
    "settled": "the client of this name",
    "unresolved": "published by the guard",
}
ALLOWED_GERUNDS = {
    "paying": "published by the guard; a context manager, as `contextlib.closing`",
    "reading": "a transaction for reading",
    "writing": "a transaction for writing",
}
NOUNS = re.compile(
    "_?(delisting|docstring|during|finding|funding|gaming|nothing|pricing|signing|spending|"
    "standing|warning)"
)


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in _walk_statements(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_module_name_is_used_at_most_twice() -> None:
    places = defaultdict(list)
    for path in MODULES:
        places[path.stem].append(str(path.relative_to(PACKAGE)))
    assert len(places) > 100
    crowded = {name: found for name, found in places.items() if len(found) > MAX_MODULES_OF_A_NAME}
    assert crowded == {}


def test_functions_are_not_named_by_participles() -> None:
    functions = {node.name: where for where, node in _functions()}
    wrong = {
        name: where
        for name, where in functions.items()
        if is_participle(name) and name not in ALLOWED_PARTICIPLES
        if name not in ALLOWED_GERUNDS and not NOUNS.fullmatch(name)
    }
    assert len(functions) > 3_000
    assert wrong == {}
    assert functions.keys() >= ALLOWED_PARTICIPLES.keys()


@pytest.mark.parametrize("name", ["refused", "_judged", "paid_by", "asked_since", "serving"])
def test_finds_participles(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["feed", "refuse", "stored_score", "is_signed", "parse", "string"])
def test_accepts_verbs_and_nouns(name: str) -> None:
    assert not is_participle(name)


def is_participle(name: str) -> bool:
    """Return whether a name is a participle without its noun: `stored`, but not `stored_score`."""
    first, *others = name.strip("_").split("_")
    if others:
        return is_past(first) and PREPOSITION.fullmatch(others[0]) is not None
    return is_past(first) or (GERUND.fullmatch(first) is not None and first != "string")


def is_past(word: str) -> bool:
    """Return whether a word is a past participle: `signed`, but not `feed`."""
    return IRREGULAR.fullmatch(word) is not None or bool(re.fullmatch(r"\w{2,}[^e]ed", word))


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions, except for tests, fixtures and properties: these may be adjectives."""
    for folder in FUNCTION_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(part.startswith(".venv") or part == "node_modules" for part in path.parts):
                continue
            for node in _walk_statements(path):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "property" in decorators or "fixture" in decorators:
                    continue
                if not node.name.startswith(("test_", "__")):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _walk_statements(path: Path) -> Iterator[ast.AST]:
    """Yield the statements of a module. Walking the expressions too takes as long as parsing."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        yield node
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            nodes += getattr(node, name, ())
