"""Names: one per class and module, and functions are named by verbs."""

from __future__ import annotations

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
DEFINITION = re.compile(r" *(?:async )?(class|def) (\w+)")
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
        for kind, name, line, _ in _definitions(path):
            if kind == "class":
                places[name].append(f"{path.relative_to(PACKAGE)}:{line}")
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
    functions = dict(_functions())
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


def _functions() -> Iterator[tuple[str, str]]:
    """Yield the functions and their places, except for tests, fixtures and properties: these may be
    adjectives.
    """
    for folder in FUNCTION_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(part.startswith(".venv") or part == "node_modules" for part in path.parts):
                continue
            for kind, name, line, decorators in _definitions(path):
                is_adjective = "property" in decorators or "fixture" in decorators
                if kind == "def" and not is_adjective and not name.startswith(("test_", "__")):
                    yield name, f"{path.relative_to(ROOT)}:{line}"


def _definitions(path: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield `class` or `def`, the name, the line and the decorators of each definition.

    The lines are read without parsing them, which takes a tenth of the time.
    """
    decorators = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("@"):
            decorators += line
        elif match := DEFINITION.match(line):
            yield match[1], match[2], number, decorators
            decorators = ""
