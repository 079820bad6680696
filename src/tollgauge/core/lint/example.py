"""The texts and examples of each rule of the linter, and the remedies for its findings.

The data is in JSON files: the rules of each module in `rules`, in a file of the module's name, the
documents that rules come from in sources.json, and responses without findings in answers.json. The
example of a rule is one of these responses with changes that break the rule.

Rules with the same kind of fix share one remedy, as code for each web framework with x402
middleware. Most fixes are a route's configuration, which is the same for all frameworks of a
language; `fixes/install` shows how a framework uses it. The options are those of the published
packages: @x402/* 2.27 (TypeScript), x402 2.25 (Python) and github.com/x402-foundation/x402/go/v2
(Go). The texts are in `fixes/remedies.json`, and the code in a folder per kind, with a file per
language, or per framework if frameworks differ.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind


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


_FOLDER: Final = resources.files("tollgauge.core.lint")


@cache
def _read_folder(name: str) -> Mapping[str, str]:
    """Return the code in a folder of `fixes` by the stem of its file."""
    files = _FOLDER.joinpath("fixes", name).iterdir()
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
    for kind, texts in json.loads(_FOLDER.joinpath("fixes/remedies.json").read_bytes()).items()
}
"""The remedies by kind of fix, which is the name of their folder."""

URL: Final = "https://api.example.com/weather"
LINE_LENGTH_MAX: Final = 96  # characters of a displayed line
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response to an unpaid request, or the fault that occurred in its place.

    Attributes:
        envelope: The document in the PAYMENT-REQUIRED header.
        header: Value of that header if it is not the base64 of `envelope`.
        header_name: Name of that header.
        headers: All other headers.
        url: The resource of the request.
    """

    url: str = URL
    method: str = "GET"
    status: int = 402
    headers: tuple[tuple[str, str], ...] = _HEADERS
    header_name: str = "payment-required"
    header: str | None = None
    envelope: Any = None
    body: Any = None
    fault: FaultKind | None = None

    def exchange(self) -> Exchange:
        """Return the example as input of the linter."""
        result: Answer | Fault
        if self.fault is not None:
            result = Fault(kind=self.fault)
        else:
            result = Answer(
                status=self.status, headers=self._all_headers(), body=self._body().encode()
            )
        return Exchange(url=self.url, method=self.method, at=0, result=result)

    def capture(self) -> str | None:
        """Return the example as a capture to paste into the linter; None for a fault."""
        if self.fault is not None:
            return None
        headers: dict[str, str | list[str]] = {}
        for name, value in self._all_headers():
            match headers.get(name):
                case None:
                    headers[name] = value
                case str(first):
                    headers[name] = [first, value]
                case list(values):
                    values.append(value)
        document = {
            "method": self.method,
            "url": self.url,
            "status": self.status,
            "headers": headers,
            "body": self._body(),
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def lines(self) -> list[str]:
        """Return the example line by line for display: the envelope decoded, long lines cut."""
        lines = (f"{self.method} {self.url}", *self._answer_lines())
        return [
            line if len(line) <= LINE_LENGTH_MAX else f"{line[: LINE_LENGTH_MAX - 1]}…"
            for line in lines
        ]

    def _answer_lines(self) -> Iterator[str]:
        if self.fault is not None:
            yield f"(no answer: {self.fault.value})"
            return
        yield f"HTTP {self.status}"
        for name, value in self.headers:
            yield f"{name}: {value}"
        if self.header is not None:
            yield f"{self.header_name}: {self.header}"
        elif self.envelope is not None:
            yield f"{self.header_name}: base64 of"
            yield from _format(self.envelope)
        if self.body is not None:
            yield ""
            yield from self.body.split("\n") if isinstance(self.body, str) else _format(self.body)

    def _all_headers(self) -> tuple[tuple[str, str], ...]:
        value = self.header
        if value is None and self.envelope is not None:
            value = encode_envelope(self.envelope)
        return self.headers if value is None else (*self.headers, (self.header_name, value))

    def _body(self) -> str:
        if self.body is None:
            return ""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


class RuleSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document that a rule comes from: its name with the section, and its URL."""

    name: str
    url: str


class _Changes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to an example, by the dotted paths of its members."""

    set: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
    repeat: dict[str, int] = {}  # multiplies a text or an array: "ab" twice is "abab"

    def apply(self, example: Example) -> Example:
        document = copy.deepcopy(msgspec.structs.asdict(example))
        for path, value in self.set.items():
            parent, key = _find_parent(document, path)
            parent[key] = copy.deepcopy(value)
        for path in self.remove:
            parent, key = _find_parent(document, path)
            del parent[key]
        for path, count in self.repeat.items():
            parent, key = _find_parent(document, path)
            parent[key] *= count
        return msgspec.convert(document, Example)


class _AnswerEntry(_Changes, frozen=True):
    base: str | None = None  # the answer that the changes apply to; Default: an empty one


class RuleEntry(_Changes, frozen=True):
    """The texts and examples of a rule.

    Attributes:
        fix: The message of its findings: the change that fixes them.
        expected: The value that belongs at the place of a finding, in a few words.
        kind: The kind of its fix.
        source_name: The key of its source.
        right_name: The key of the response that the changes make wrong.
    """

    fix: str
    expected: str
    kind: str
    source_name: str = msgspec.field(name="source")
    right_name: str = msgspec.field(name="right", default="v2")

    @property
    def source(self) -> RuleSource:
        """The document that the rule comes from."""
        return SOURCES[self.source_name]

    @property
    def right(self) -> Example:
        """A response in which the rule finds nothing."""
        return ANSWERS[self.right_name]

    @property
    def wrong(self) -> Example:
        """A response in which the rule finds something."""
        return self.apply(self.right)


def encode_envelope(document: object) -> str:
    """Return the value of the PAYMENT-REQUIRED header."""
    return base64.b64encode(json.dumps(document).encode()).decode()


def _format(document: object) -> list[str]:
    return json.dumps(document, indent=2, ensure_ascii=False).split("\n")


def _find_parent(document: Any, path: str) -> tuple[Any, Any]:
    """Return the object or array that contains the member at a path, and the member's key."""
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in parents:
        document = document[key]
    return document, last


def _load_answers() -> Mapping[str, Example]:
    answers: dict[str, Example] = {}
    entries = _FOLDER.joinpath("answers.json").read_bytes()
    for name, entry in msgspec.json.decode(entries, type=dict[str, _AnswerEntry]).items():
        answers[name] = entry.apply(answers[entry.base] if entry.base else Example())
    return answers


ANSWERS: Final = _load_answers()
"""Responses without a finding of the rules that they illustrate, by name."""
SOURCES: Final = msgspec.json.decode(
    _FOLDER.joinpath("sources.json").read_bytes(), type=dict[str, RuleSource]
)
"""The documents that rules come from, by name."""
RULE_ENTRIES: Final[Mapping[str, RuleEntry]] = {
    slug: entry
    for file in _FOLDER.joinpath("rules").iterdir()
    for slug, entry in msgspec.json.decode(file.read_bytes(), type=dict[str, RuleEntry]).items()
}
"""The entries of all rules by slug."""
