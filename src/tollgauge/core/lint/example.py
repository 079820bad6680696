"""Examples of each rule of the linter: a response that the rule finds fault with, one that it
accepts, the rule's source and the kind of its fix.

The data is in `examples`: the accepted responses in answers.json, the documents that rules come
from in sources.json, and the rules of each module in a file of its name. Every rule has an entry.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final

import msgspec

from tollgauge.core.lint.remedy import RemedyKind
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind

URL: Final = "https://api.example.com/weather"
LINE_LENGTH_MAX: Final = 96  # characters of a displayed line
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)
_RULE_FILES: Final = (
    *("transport", "envelope", "resource", "extensions"),
    *("entry", "network", "token", "scheme"),
)
"""The rule files in the order of `ALL_RULES`."""


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response to an unpaid request, or the fault that occurred in its place.

    Attributes:
        envelope: The document in the PAYMENT-REQUIRED header.
        header: Value of that header if it is not the base64 of `envelope`.
        header_name: Name of that header.
        headers: All other headers.
    """

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
        return Exchange(url=URL, method=self.method, at=0, result=result)

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
            "url": URL,
            "status": self.status,
            "headers": headers,
            "body": self._body(),
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def lines(self) -> list[str]:
        """Return the example line by line for display: the envelope decoded, long lines cut."""
        lines = (f"{self.method} {URL}", *self._answer_lines())
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


class RuleExamples(msgspec.Struct, frozen=True):
    """The kind of a rule's fix, its source, a response in which it finds something, and one in
    which it finds nothing.
    """

    kind: RemedyKind
    source: RuleSource
    wrong: Example
    right: Example


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


class _RuleEntry(_Changes, frozen=True):
    kind: RemedyKind
    source: str
    right: str = "v2"  # the changes to this answer make it wrong


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


def _read(name: str) -> bytes:
    return resources.files("tollgauge.core.lint").joinpath("examples", f"{name}.json").read_bytes()


def _load_answers() -> Mapping[str, Example]:
    answers: dict[str, Example] = {}
    for name, entry in msgspec.json.decode(_read("answers"), type=dict[str, _AnswerEntry]).items():
        answers[name] = entry.apply(answers[entry.base] if entry.base else Example())
    return answers


def _load_examples() -> Mapping[str, RuleExamples]:
    sources = msgspec.json.decode(_read("sources"), type=dict[str, RuleSource])
    return {
        slug: RuleExamples(
            kind=entry.kind,
            source=sources[entry.source],
            wrong=entry.apply(ANSWERS[entry.right]),
            right=ANSWERS[entry.right],
        )
        for name in _RULE_FILES
        for slug, entry in msgspec.json.decode(_read(name), type=dict[str, _RuleEntry]).items()
    }


ANSWERS: Final = _load_answers()
"""Responses without a finding of the rules that they illustrate, by name."""
EXAMPLES: Final = _load_examples()
"""The examples of every rule, by slug, in the order of `ALL_RULES`."""
