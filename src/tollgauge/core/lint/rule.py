"""Rule: one check of an answer, with its texts and examples.

A check is a small pure function with a name. It yields the places where the rule fires and never
raises. Its docstring is its public documentation: docs/lint-rules.md is generated from it.

Texts and examples are in JSON files: the rules of each module in `rules`, in a file of the module's
name, the documents that rules come from in sources.json, and responses without findings in
answers.json. The example of a rule is one of these responses with changes that break the rule.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from tollgauge.core.probe.exchange import (
    ALL_CLIENTS,
    Answer,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    OfficialClient,
    Severity,
)

FOLDER: Final = resources.files("tollgauge.core.lint")
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
    entries = FOLDER.joinpath("answers.json").read_bytes()
    for name, entry in msgspec.json.decode(entries, type=dict[str, _AnswerEntry]).items():
        answers[name] = entry.apply(answers[entry.base] if entry.base else Example())
    return answers


ANSWERS: Final = _load_answers()
"""Responses without a finding of the rules that they illustrate, by name."""
SOURCES: Final = msgspec.json.decode(
    FOLDER.joinpath("sources.json").read_bytes(), type=dict[str, RuleSource]
)
"""The documents that rules come from, by name."""
RULE_ENTRIES: Final[Mapping[str, RuleEntry]] = {
    slug: entry
    for file in FOLDER.joinpath("rules").iterdir()
    for slug, entry in msgspec.json.decode(file.read_bytes(), type=dict[str, RuleEntry]).items()
}
"""The entries of all rules by slug."""


class _Located(Protocol):
    """The subject of a rule: a response, or one entry of its `accepts`."""

    def at(self, where: str) -> str:
        """Return the path of a member."""
        ...


Subject = TypeVar("Subject", bound=_Located)
Check = Callable[[Subject], bool | Iterator[str]]
"""Whether the rule fires; or, for rules that can fire at several places, the paths."""


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """A named check.

    Attributes:
        where: The path of findings if the check returns no paths.
        stops: The official clients that cannot pay if the rule fires.
        revision: Raised when the check starts to find more, so that a new rule version is not
            reported as a change of endpoints (core/watch/change_state).
    """

    severity: Severity
    check: Check[Subject]
    where: str = ""
    stops: frozenset[OfficialClient] = frozenset()
    revision: int = 1

    @cached_property
    def slug(self) -> str:
        """The name of the check, with hyphens."""
        return self.check.__name__.replace("_", "-")

    @cached_property
    def entry(self) -> RuleEntry:
        """The texts and examples of the rule."""
        return RULE_ENTRIES[self.slug]

    @property
    def fatal(self) -> bool:
        """Whether no official client can pay if the rule fires."""
        return self.stops == ALL_CLIENTS

    @property
    def effect(self) -> str:
        """Which official clients cannot pay, for people."""
        if self.fatal or not self.stops:
            return "no client can pay" if self.fatal else "clients may still pay"
        names = [client.label for client in OfficialClient if client in self.stops]
        return f"{' and '.join(names)} cannot pay"

    @property
    def doc(self) -> str:
        """The description of the rule with its source: the docstring of its check."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def find(self, subject: Subject) -> Iterable[str]:
        """Return the paths at which a subject breaks the rule."""
        found = self.check(subject)
        return (subject.at(self.where),) if found is True else found or ()

    def finding(self, where: str) -> Finding:
        """Return a finding at a path."""
        return Finding(rule=self.slug, severity=self.severity, message=self.entry.fix, where=where)


def set_id(rules: Iterable[Rule[Any]]) -> str:
    """Return 16 hex digits that are equal for sets with the same rules and revisions."""
    text = json.dumps({rule.slug: rule.revision for rule in rules}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rules_of(*modules: ModuleType) -> tuple[Rule[Any], ...]:
    """Return every rule that the modules define, in source order."""
    members = (member for module in modules for member in vars(module).values())
    return tuple(member for member in members if isinstance(member, Rule))


def error(
    where: str = "", *, stops: Collection[OfficialClient] = ALL_CLIENTS, revision: int = 1
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a check an error: its finding prevents an official client from paying correctly.

    `stops` is empty if the subject of the finding decides which clients can pay.
    """
    return lambda check: Rule(Severity.ERROR, check, where, frozenset(stops), revision)


def warning(
    where: str = "", *, stops: Collection[OfficialClient] = ()
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a check a warning: its finding costs some clients, or concerns the description only.

    `stops`: clients that cannot pay, although the envelope is valid.
    """
    return lambda check: Rule(Severity.WARN, check, where, frozenset(stops))


def note(where: str = "") -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a check a note: its finding needs no fix."""
    return lambda check: Rule(Severity.INFO, check, where)
