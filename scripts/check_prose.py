#!/usr/bin/env python3
"""Find awkward English: idioms of one author, vague subjects, dated vocabulary.

Usage:
    scripts/check_prose.py [PATH ...]          list the phrases, each with a replacement
    scripts/check_prose.py --rates [PATH ...]  print the frequency per kind of text

The rules are in scripts/prose_rules.toml. A rule with `never` accepts no use; tests/test_prose.py
limits the frequency of the others. Code in backticks and fenced blocks is not read.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RULES_FILE: Final = Path(__file__).with_name("prose_rules.toml")
DOCUMENT: Final = "documents"
MESSAGE: Final = "program texts"
DOCSTRING: Final = "docstrings and comments"
TEST: Final = "test names"
KINDS: Final = (DOCUMENT, MESSAGE, DOCSTRING, TEST)


@dataclass(frozen=True)
class Rule:
    """A phrase to avoid. The fields are described in prose_rules.toml."""

    cues: str
    pattern: str
    instead: str
    example: str
    never: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, re.IGNORECASE)

    @cached_property
    def cue_words(self) -> frozenset[str]:
        """The cues as a set."""
        return frozenset(self.cues.split())


RULES: Final = tuple(
    Rule(**rule) for rule in tomllib.loads(RULES_FILE.read_text(encoding="utf-8"))["rule"]
)
_SENTENCE: Final = re.compile(r"[A-Za-z]+(?: [a-z,'`]+){3}")
_CODE: Final = re.compile(
    r"```.*?```|``?[^`\n]+``?|<(script|style|code|pre)\b.*?</\1>|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"(?:^|  ) *# (.*)")
_SCRIPT_COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
_SCRIPT_STRING: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`")
_WORD: Final = re.compile(r"[A-Za-z']+")
_SKIPPED_FOLDERS: Final = frozenset(
    {".git", ".venv", "__pycache__", "build", "dist", "node_modules", "_build"}
)
_SUFFIXES: Final = frozenset({".py", ".md", ".html", ".toml", ".ts", ".mjs", ".js"})
_RULE_TEXT: Final = re.compile(r'^ +"(?:fix|expected|title|advice|help)": "(.*)",?$', re.M)
"""A text in the JSON files of core/lint, and in metrics.json."""
_ADVICE: Final = re.compile(r'^ +".*": "(.*)",?$', re.MULTILINE)
"""A text in config/advice.json."""


@dataclass(frozen=True)
class Text:
    """A text for people, with the place where it was found."""

    kind: str
    file: Path
    line: int
    text: str

    @cached_property
    def prose(self) -> str:
        """The text without code. Lines keep their numbers."""
        return _CODE.sub(lambda match: "`" + "\n" * match.group().count("\n") + "`", self.text)

    def count_words(self) -> int:
        """Return the number of words."""
        return len(self.prose.split())


@dataclass(frozen=True)
class Finding:
    """A phrase in a file that a rule does not accept."""

    file: Path
    line: int
    phrase: str
    rule: Rule

    def __str__(self) -> str:
        """Return the location, the phrase and the replacement."""
        path = self.file.relative_to(ROOT) if self.file.is_relative_to(ROOT) else self.file
        mark = " [never]" if self.rule.never else ""
        return f'{path}:{self.line}: "{self.phrase}": write {self.rule.instead}{mark}'


def read_texts(paths: Iterable[Path]) -> Iterator[Text]:
    """Yield the texts of the files and folders."""
    for file in _list_files(paths):
        source = file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            yield from _read_python(file, source)
        elif file.suffix in {".ts", ".mjs", ".js"}:
            yield from _read_script(file, source)
        elif file.suffix == ".json":
            pattern = _ADVICE if file.name == "advice.json" else _RULE_TEXT
            for match in pattern.finditer(source):
                yield Text(MESSAGE, file, _line_of(match), match[1])
        elif file.suffix == ".toml":
            yield from _read_comments(file, source, DOCUMENT, skipped=set())
        else:
            yield Text(DOCUMENT, file, 1, source)


def find_phrases(text: Text) -> Iterator[Finding]:
    """Yield the phrases of a text that a rule matches."""
    present = set(_WORD.findall(text.text.lower()))
    rules = [rule for rule in RULES if not present.isdisjoint(rule.cue_words)]
    if not rules:
        return
    for rule in rules:
        for match in rule.regex.finditer(text.prose):
            line = text.line + text.prose.count("\n", 0, match.start())
            yield Finding(text.file, line, " ".join(match.group().split()), rule)


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(
                name
                for name in folders
                if name not in _SKIPPED_FOLDERS and not name.startswith(".venv")
            )
            for name in sorted(names):
                file = Path(folder, name)
                is_texts = file.name in ("advice.json", "metrics.json") or "lint" in file.parts
                if file.suffix in _SUFFIXES or (file.suffix == ".json" and is_texts):
                    yield file


def _read_python(file: Path, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    is_test = _is_test(file)
    documentation: set[int] = set()
    inside_strings: set[int] = set()  # lines that begin inside a string of several lines
    for node in ast.walk(tree):  # breadth first: a statement precedes its expression
        if isinstance(node, ast.Expr):
            documentation.add(id(node.value))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside_strings.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) in documentation:
                yield Text(DOCSTRING, file, node.lineno, node.value)
            elif not is_test and _SENTENCE.search(node.value):
                yield Text(MESSAGE, file, node.lineno, node.value)
        elif isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_").replace("_", " ")
            yield Text(TEST, file, node.lineno, name)
    yield from _read_comments(file, source, DOCSTRING, skipped=inside_strings)


def _read_script(file: Path, source: str) -> Iterator[Text]:
    for match in _SCRIPT_COMMENT.finditer(source):
        yield Text(DOCSTRING, file, _line_of(match), match.group())
    if _is_test(file):
        return
    # Comments may contain an apostrophe, which would open a string.
    for match in _SCRIPT_STRING.finditer(_SCRIPT_COMMENT.sub(_blank_comment, source)):
        if _SENTENCE.search(match.group()):
            yield Text(MESSAGE, file, _line_of(match), match.group().strip("`"))


def _is_test(file: Path) -> bool:
    # Folders above the checkout may have any name.
    folders = file.relative_to(ROOT).parts[:-1] if file.is_relative_to(ROOT) else ()
    return not {"test", "tests"}.isdisjoint(folders) or ".test." in file.name


def _blank_comment(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _read_comments(file: Path, source: str, kind: str, *, skipped: set[int]) -> Iterator[Text]:
    # tokenize would be exact and takes longer than all other steps together. A "#" in a string of
    # one line is read as a comment only after two spaces.
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line and number not in skipped and (match := _COMMENT.search(line)):
            yield Text(kind, file, number, match[1])


def _line_of(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def _print_rates(texts: Iterable[Text]) -> None:
    words: Counter[str] = Counter()
    phrases: Counter[str] = Counter()
    for text in texts:
        words[text.kind] += text.count_words()
        phrases[text.kind] += sum(1 for _ in find_phrases(text))
    for kind in KINDS:
        rate = 1_000 * phrases[kind] / max(words[kind], 1)
        print(f"{kind:24} {phrases[kind]:5} in {words[kind]:7,} words: {rate:4.1f} per 1,000")


def main() -> None:
    """List the phrases, or print their frequency."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", action="store_true", help="print the frequency per kind")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT])
    options = parser.parse_args()
    texts = read_texts(path.resolve() for path in options.paths)
    if options.rates:
        _print_rates(texts)
        return
    for text in texts:
        for finding in find_phrases(text):
            print(finding)


if __name__ == "__main__":
    main()
