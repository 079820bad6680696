"""One name, one meaning: classes and modules of the package have distinct names."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tollgauge"
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
MAX_MODULES_OF_A_NAME = 2


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
