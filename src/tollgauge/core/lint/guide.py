"""The explanation of each rule for pages, documents and the command line.

Rules with the same kind of fix share one remedy: a text in `fixes/remedies.json`, and code for each
web framework with x402 middleware. The code is in a folder per kind, with a file per language, or
per framework if frameworks differ; `fixes/install` shows how a framework uses the route's
configuration of its language. The options are those of the published packages: @x402/* 2.27
(TypeScript), x402 2.25 (Python) and github.com/x402-foundation/x402/go/v2 (Go).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches, unified_diff
from functools import cache
from typing import Any, Final

from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.rule import FOLDER, Rule, RuleEntry
from tollgauge.core.probe.exchange import Severity

CONTEXT_LINES: Final = 2  # lines of an example that are shown before and after a difference
DIFF_MAX: Final = 60  # lines of a difference that are shown


@dataclass(frozen=True, slots=True)
class Framework:
    """A web framework with x402 middleware. `file` is the stem of its files in `fixes`."""

    name: str
    package: str
    language: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The fix for a kind of rules: its title, and instructions."""

    kind: str
    title: str
    advice: str

    def by_framework(self) -> Iterator[tuple[Framework, str]]:
        """Yield each framework with its code."""
        code, install = _read_folder(self.kind), _read_folder("install")
        for framework in FRAMEWORKS:
            own = code.get(framework.file)
            if own is None:
                own = f"{code[framework.language.lower()]}\n\n{install[framework.file]}"
            yield framework, own


@cache
def _read_folder(name: str) -> Mapping[str, str]:
    """Return the code in a folder of `fixes` by the stem of its file."""
    files = FOLDER.joinpath("fixes", name).iterdir()
    return {
        file.name.split(".")[0]: file.read_text(encoding="utf-8").rstrip("\n") for file in files
    }


_GIN: Final = "github.com/x402-foundation/x402/go/v2/http/gin"
FRAMEWORKS: Final = (
    Framework("Express", "@x402/express", "TypeScript", "express"),
    Framework("Hono", "@x402/hono", "TypeScript", "hono"),
    Framework("Next.js", "@x402/next", "TypeScript", "next"),
    Framework("FastAPI", "x402[fastapi]", "Python", "fastapi"),
    Framework("Flask", "x402[flask]", "Python", "flask"),
    Framework("Go (Gin)", _GIN, "Go", "gin"),
)

REMEDIES: Final = {
    kind: Remedy(kind=kind, **texts)
    for kind, texts in json.loads(FOLDER.joinpath("fixes/remedies.json").read_bytes()).items()
}
"""The remedies by kind of fix, which is the name of their folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A rule with its examples and its remedy."""

    rule: Rule[Any]

    @property
    def entry(self) -> RuleEntry:
        """The texts and examples of the rule."""
        return self.rule.entry

    @property
    def remedy(self) -> Remedy:
        """The remedy for its kind of fix."""
        return REMEDIES[self.entry.kind]

    @property
    def what(self) -> str:
        """The rule's description."""
        return " ".join(self.rule.doc.split())

    def document(self) -> dict[str, object]:
        """Return the explanation as JSON; the examples are captures that the linter accepts."""
        return {
            "rule": self.rule.slug,
            "severity": self.rule.severity.value,
            "fatal": self.rule.fatal,
            "stops": sorted(self.rule.stops),
            "what": self.what,
            "fix": self.entry.fix,
            "source": {"name": self.entry.source.name, "url": self.entry.source.url},
            "wrong": self.entry.wrong.capture(),
            "right": self.entry.right.capture(),
            "how": {
                "title": self.remedy.title,
                "advice": self.remedy.advice,
                "code": {framework.name: code for framework, code in self.remedy.by_framework()},
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield the explanation as lines for a terminal."""
        yield f"{self.rule.slug} ({self.rule.severity}; {self.rule.effect})"
        yield from ("", self.what, "", f"Fix: {self.entry.fix}")
        yield f"Source: {self.entry.source.name}, {self.entry.source.url}"
        yield from ("", *self.diff)
        yield from ("", f"{self.remedy.title}. {self.remedy.advice}")
        for framework, code in self.remedy.by_framework():
            yield from ("", f"{framework.name} ({framework.package}):")
            yield from (f"  {line}".rstrip() for line in code.split("\n"))

    @property
    def diff(self) -> list[str]:
        """The difference from the wrong to the right example, in the unified format."""
        note = self.rule.severity is Severity.INFO  # which is not a mistake
        names = ("With this note", "Without it") if note else ("Wrong", "Right")
        wrong, right = self.entry.wrong.lines(), self.entry.right.lines()
        lines = list(unified_diff(wrong, right, *names, n=CONTEXT_LINES, lineterm=""))
        return lines if len(lines) <= DIFF_MAX else [*lines[:DIFF_MAX], "…"]


def explain(slug: str) -> Explanation | None:
    """Return the explanation of a rule; None for an unknown slug."""
    rule = _rules().get(slug)
    return None if rule is None else Explanation(rule=rule)


def find_similar_rule(slug: str) -> str | None:
    """Return the slug of a rule that is most similar to a text; None if no slug is similar."""
    return next(iter(get_close_matches(slug, _rules(), n=1)), None)


@cache
def _rules() -> Mapping[str, Rule[Any]]:
    return {rule.slug: rule for rule in ALL_RULES}
