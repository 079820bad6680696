"""Count code lines and modules of src/tollgauge, without demo, by folder.

A code line has a token that is not a comment or a docstring. tests/test_size.py limits the totals.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tollgauge"
_CODE = re.compile(r"\s*[^\s#]")
_TEXT = re.compile(r"""[a-zA-Z]*(\"{3}|'{3})""")


def count_code_lines(text: str) -> int:
    """Count the code lines of a module. A string that is a statement is a docstring."""
    lines = text.splitlines()
    code = {number for number, line in enumerate(lines, 1) if _CODE.match(line)}
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                documentation.update(range(node.lineno, (node.end_lineno or 0) + 1))
            case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
                # Blank lines of a text, and those that look like comments, are code.
                if _TEXT.match(lines[node.lineno - 1], node.col_offset):
                    code.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(code - documentation)


def count_folders() -> tuple[Counter[str], Counter[str]]:
    """Return the code lines and the modules of each folder, and of modules outside of folders."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        folder = path.relative_to(SOURCE).parts[0]
        if folder != "demo":
            lines[folder] += count_code_lines(path.read_text(encoding="utf-8"))
            modules[folder] += 1
    return lines, modules


def main() -> None:
    """Print the table."""
    lines, modules = count_folders()
    for folder in sorted(lines):
        print(f"{folder:12} {lines[folder]:6} lines {modules[folder]:4} modules")
    print(f"{'total':12} {lines.total():6} lines {modules.total():4} modules")


if __name__ == "__main__":
    main()
