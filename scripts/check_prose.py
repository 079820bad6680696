#!/usr/bin/env python3
"""Find phrases that make a reader stop: idioms of one author, vague subjects, dated words.

Usage:
    scripts/check_prose.py [PATH ...]          list the phrases, each with a replacement
    scripts/check_prose.py --rates [PATH ...]  print the frequency per kind of text

A rule marked `never` accepts no use at all. The other rules also match some good sentences, so
tests/test_prose.py limits their frequency. Code in backticks and fenced blocks is not read.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = "documents"
MESSAGE: Final = "program texts"
DOCSTRING: Final = "docstrings and comments"
TEST: Final = "test names"
KINDS: Final = (DOCUMENT, MESSAGE, DOCSTRING, TEST)


@dataclass(frozen=True)
class Rule:
    """A phrase to avoid.

    `cues` are words of which every match contains at least one: a text without them is skipped,
    which makes the check ten times faster. `example` is a text that the rule must find.
    """

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


def _never(cues: str, pattern: str, instead: str, example: str) -> Rule:
    return Rule(cues, pattern, instead, example, never=True)


_BE: Final = r"\b(?:am|is|are|was|were|be|been|being)"
_SOURCES: Final = (
    "answer answers bundle catalogue challenge configuration directory directories document entry "
    "envelope evidence facilitator file header host it last line list listing log message name "
    "node page policy receipt record report response row seller sellers service table that they "
    "this which who"
)

RULES: Final = (
    _never("instant instants", r"\binstants?\b(?!-)", "a time, a timestamp", "at that instant"),
    _never("ours theirs", r"\bof (?:ours|theirs)\b", "our X, their X", "a mistake of ours"),
    _never("nobody nobody's", r"\bnobody\b", "no client, or the passive", "nobody reads it"),
    _never(
        "told",
        _BE + r" (?:not |never |also |only )?told\b",
        "is notified, receives",
        "the owner is told",
    ),
    _never("say says said", r"\b(?:says?|said) of\b", "states about", "what it says of a host"),
    _never(
        "what",
        r"\bwhat (?:(?:is|was) known|became|becomes|came|comes) of\b",
        "the state of, the outcome of",
        "what became of it",
    ),
    _never("so", r"\bso many\b(?! that)", "a number, N", "one in so many"),
    _never("beside", r"\bbeside\b", "next to, in addition to", "beside the others"),
    _never("mend mends mended mending", r"\bmend(?:s|ed|ing)?\b", "fix, repair", "mend the row"),
    _never("anew", r"\banew\b", "again", "it is read anew"),
    _never("seldom", r"\bseldom\b", "rarely", "it is seldom used"),
    _never(
        "alone",
        r"\b(?!let\b|leaves?\b|left\b|stands?\b|stood\b|runs?\b)[\w`)]+ alone\b(?!-)",
        "only X",
        "the host alone counts",
    ),
    _never("held", r"\bheld against\b", "compared with", "held against the chain"),
    _never(
        "count counts",
        r"\bcounts? for (?:nobody|nothing)\b",
        "is ignored",
        "such a probe counts for nothing",
    ),
    _never("none", r"(?<!there )" + _BE + r" (?-i:none)\b", "does not exist", "if it is none"),
    _never("else", r"[,;] else\b(?! if\b)", "otherwise, by default", "the first, else the last"),
    _never(
        "turns", r"\b(?:take|takes|took|taking) turns at\b", "alternate", "they take turns at it"
    ),
    _never("be", r"\bbe it that\b", "if", "be it that one fails"),
    _never("right", r"\b(?:put|puts|putting) right\b", "fix, correct", "it was put right"),
    _never("hence", r"\bhence\b", "so, therefore", "hence the limit"),
    Rule(
        "no",
        r"(?<!there )" + _BE + r" no\b(?! longer| more| such| one\b)",
        "is not a, has no",
        "this is no URL",
    ),
    Rule(
        "somebody anybody everybody whoever whom",
        r"\b(?:somebody|anybody|everybody|whoever|whom)\b",
        "name the actor",
        "whoever pays",
    ),
    Rule(
        "tell tells told",
        r"\btells? (?:nothing|of|what|which|whether|how|apart)\b|\btold (?:of|by|apart|from)\b",
        "reports, distinguishes",
        "it tells whether a host is up",
    ),
    Rule(
        "say says said",
        r"\b(?:" + "|".join(_SOURCES.split()) + r") (?:says?|said)\b",
        "states, contains, returns",
        "the table says so",
    ),
    Rule(
        "know knows known hear hears heard nothing",
        r"\b(?:know[ns]?|hears?|heard|nothing) of\b",
        "about",
        "nothing of it is stored",
    ),
    Rule("speak speaks spoke spoken", r"\b(?:speaks?|spoken?)\b", "uses, covers", "it speaks MCP"),
    Rule(
        "once",
        r"(?<!all )(?<!both )\bat once\b",
        "immediately, concurrently, in one batch",
        "it is sent at once",
    ),
    Rule(
        "own",
        r"\bof (?:its|their|our|your|one's) own\b",
        "its own X, a separate X",
        "a key of its own",
    ),
    Rule("so", r"\bso (?:much|long)\b(?! as\b| that\b)", "name the amount", "it waits so long"),
    Rule(
        "meanwhile lately henceforth thus afterwards whereupon thereby therein",
        r"\b(?:meanwhile|lately|henceforth|thus far|afterwards|whereupon|thereby|therein)\b",
        "in the meantime, recently, later",
        "it is stored meanwhile",
    ),
    Rule("but save", r"\b(?:but|save) for\b", "except", "all but for one"),
    Rule(
        "stands stood stand",
        r"\b(?:stands|stood)\b(?! for\b)|\bstand (?:in|at|there|here|next|with)\b",
        "is, is written, appears",
        "the limit stands there",
    ),
    Rule("held hold holds holding", r"\b(?:held|holds?|holding) to\b", "limited to", "held to one"),
    Rule(
        "of from by on to with",
        r"(?<!some )(?<!each )(?<!all )(?<!both )(?<!most )(?<!none )(?<!any )(?<!one )"
        r"\bof which\b|\b(?:of|from|by|on|to|with) whom\b",
        "two sentences",
        "two hosts, of which one fails",
    ),
    Rule(
        "words",
        r"(?<!other )(?<!\d )(?<!000 )\bwords\b(?! (?:per|long|each|of|in)\b)",
        "text, message (if not words)",
        "the words for a grade",
    ),
    Rule("past", r"\b(?:a|its|their|whose|whole|own) past\b", "history", "endpoints with a past"),
    Rule(
        "take takes took taken",
        r"\b(?:takes?|took|taken) for\b",
        "treated as",
        "it is taken for an error",
    ),
    Rule(
        "unwise vain dear dearer",
        r"\b(?:unwise|vain|dear(?:er)?)\b",
        "not recommended, without effect, expensive",
        "a dear request",
    ),
    Rule("asked", _BE + r" asked\b", "is requested, queried", "the node is asked"),
    Rule(
        "what",
        r"(?<!twice )(?<!know )(?<!knows )(?<!see )(?<!exactly )(?<!this is )(?<!just )"
        r"\bwhat (?:is|was|are|were|has|had|it|they|we|he|a|an|the|one|follows|came|comes|remains|"
        r"stands|counts|became|becomes)\b(?![^.\n]{0,80}\?)",
        "name the thing",
        "it keeps what is due",
    ),
    Rule(
        "how",
        r"(?<!know )(?<!see )\bhow (?:many|much|often|long|far|soon) (?:it|a|an|the|they|one)\b",
        "name the quantity: timeout, page size",
        "how long a delivery waits",
    ),
    Rule(
        "where",
        r"\bwhere (?:there|that|they|it|none|no|nothing|nobody|he)\b(?! (?:is|are) (?:a|an|the)\b)",
        "if, when",
        "where there is no answer",
    ),
    Rule(
        "a",
        r"\b(?:one|each|rows?|lease|probe|entry|file|once|times|twice) a (?:host|line|day|site|"
        r"payment|grade|watch|file|round|endpoint|wave|call|page|source)\b",
        "per",
        "one a line",
    ),
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
                if file.suffix in _SUFFIXES and file.resolve() != Path(__file__).resolve():
                    yield file


def _read_python(file: Path, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
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
            elif "tests" not in file.parts and _SENTENCE.search(node.value):
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
    if "tests" in file.parts or ".test." in file.name or "test" in file.parts:
        return
    # Comments may contain an apostrophe, which would open a string.
    for match in _SCRIPT_STRING.finditer(_SCRIPT_COMMENT.sub(_blank_comment, source)):
        if _SENTENCE.search(match.group()):
            yield Text(MESSAGE, file, _line_of(match), match.group().strip("`"))


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
