"""The two journeys in README.md are those of the code.

Each row of a table names a file, a function in it, and the row that it is called from. A row holds
when the function exists, when the calling function mentions it (itself or through functions of
its own file), and when the calling file imports from its file. A function written as "`f` as `g`"
is handed over under another name: its file passes `g=f` as an argument, and the caller uses `.g`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tollgauge"
FILES_MAX = {"A probe": 8, "A paid request": 11}
"""How many different files a journey may lead through, up to the next row that is a start: a probe
to its recorded change, a paid request to its response."""

_ROW = re.compile(r"\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)`(?: as `(\w+)`)? \| (\d+|start) \| ")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of a table."""

    file: str
    function: str
    handed_over_as: str | None
    called_from: int | None

    @property
    def name(self) -> str:
        """What a caller writes: the function, or the class of a special method."""
        parts = self.function.split(".")
        return parts[-2] if parts[-1].startswith("__") else parts[-1]


def journeys() -> dict[str, dict[int, Step]]:
    """The tables of README.md: heading to steps by number."""
    tables: dict[str, dict[int, Step]] = {}
    heading = ""
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif match := _ROW.match(line):
            number, file, function, alias, caller = match.groups()
            tables.setdefault(heading, {})[int(number)] = Step(
                file=file,
                function=function,
                handed_over_as=alias,
                called_from=None if caller == "start" else int(caller),
            )
    return tables


JOURNEYS = journeys()
STEPS = [
    pytest.param(journey, number, id=f"{journey}-{number}-{step.function}")
    for journey, steps in JOURNEYS.items()
    for number, step in steps.items()
]


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> dict[str, _Function]:
    """The functions of a module, and the methods of its classes as `Class.method`."""
    nodes: dict[str, _Function] = {}
    for node in tree.body:
        if isinstance(node, _Function):
            nodes[node.name] = node
        elif isinstance(node, ast.ClassDef):
            nodes |= {
                f"{node.name}.{part.name}": part
                for part in node.body
                if isinstance(part, _Function)
            }
    return nodes


def mentioned(node: ast.AST) -> set[str]:
    """Every name and attribute in a piece of code."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def reached(file: str, function: str) -> set[str]:
    """Every name that a function mentions, itself or through functions of the same file."""
    known = functions(parsed(file))
    pending, visited, names = [function], set[str](), set[str]()
    while pending:
        current = pending.pop()
        visited.add(current)
        names |= mentioned(known[current])
        pending += [
            other for other in known if other not in visited and other.rsplit(".")[-1] in names
        ]
    return names


def imports(file: str) -> Iterator[str]:
    """The files that a file imports from; a package that hands names on counts with its parts."""
    for node in ast.walk(parsed(file)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tollgauge"):
            continue
        base = Path(*(node.module or "").split(".")[1:])
        for path in (base, *(base / alias.name for alias in node.names)):
            if (SOURCE / path).is_dir():
                package = f"{path}/__init__.py"
                yield package
                if package != file:
                    yield from imports(package)
            elif (SOURCE / path).with_suffix(".py").is_file():
                yield f"{path}.py"


def hands_over(file: str, function: str, name: str) -> bool:
    """Whether a file passes a function as an argument of another name."""
    return any(
        isinstance(node, ast.keyword) and node.arg == name and function in mentioned(node.value)
        for node in ast.walk(parsed(file))
    )


def test_both_journeys_are_told() -> None:
    assert set(JOURNEYS) == set(FILES_MAX)
    for steps in JOURNEYS.values():
        assert list(steps) == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(("journey", "number"), STEPS)
def test_a_step_exists_and_is_called_from_the_step_that_is_named(journey: str, number: int) -> None:
    steps = JOURNEYS[journey]
    step = steps[number]
    assert (SOURCE / step.file).is_file(), f"there is no {step.file}"
    known = functions(parsed(step.file))
    assert step.function in known, f"{step.file} has no {step.function}: it has {', '.join(known)}"
    if step.called_from is None:
        return
    assert step.called_from < number
    caller = steps[step.called_from]
    names = reached(caller.file, caller.function)
    name = step.handed_over_as or step.name
    assert name in names, f"{caller.file}:{caller.function} does not call {name}"
    if step.handed_over_as is not None:
        assert hands_over(step.file, step.name, name), f"{step.file} hands over no {name}"
    elif caller.file != step.file:
        # Directly, or as a method of an object that comes from what it imports.
        direct = set(imports(caller.file))
        through = {file for between in direct for file in imports(between)}
        assert step.file in direct | through, f"{caller.file} does not import {step.file}"


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_is_short(journey: str) -> None:
    first, *others = JOURNEYS[journey].values()
    leg = takewhile(lambda step: step.called_from is not None, others)
    assert len({first.file, *(step.file for step in leg)}) <= FILES_MAX[journey]
