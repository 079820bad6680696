"""Count code lines and modules of src/tollgauge, without demo, by folder.

A code line has a token that is not a comment or a docstring. tests/test_size.py limits the totals.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tollgauge"
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    | {tokenize.INDENT, tokenize.DEDENT}
)


def count_code_lines(text: str) -> int:
    """Count the code lines of a module. A string that is a statement is a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


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
