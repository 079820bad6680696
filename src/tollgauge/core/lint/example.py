"""Examples of each rule of the linter, and the remedies for its findings.

An example is a response that breaks the rule, one that does not, the rule's source and the kind of
its fix. The data is in `examples`: the accepted responses in answers.json, the documents that rules
come from in sources.json, and the rules of each module in a file of its name.

Rules with the same kind of fix share one remedy, as code for each web framework with x402
middleware. Most fixes are a route's configuration, which is the same for all frameworks of a
language; `fixes/install` shows how a framework uses it. The options are those of the published
packages: @x402/* 2.27 (TypeScript), x402 2.25 (Python) and github.com/x402-foundation/x402/go/v2
(Go). The code is in `fixes`: a folder per kind, with a file per language, or per framework if
frameworks differ.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind


class RemedyKind(StrEnum):
    """The part of a server that the fix of a rule changes."""

    ORDER = "order"
    ENVELOPE = "envelope"
    HEADERS = "headers"
    BODY = "body"
    OPTION = "option"
    ASSET = "asset"
    SCHEME = "scheme"
    RESOURCE = "resource"
    DISCOVERY = "discovery"


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

    kind: RemedyKind
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
    files = resources.files("tollgauge.core.lint").joinpath("fixes", name).iterdir()
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

_ALL: Final = (
    Remedy(
        kind=RemedyKind.ORDER,
        title="Run the payment middleware first",
        advice="An unpaid request must reach the payment middleware before other code can refuse "
        "or serve it: before logins, rate limits, redirects and request validation. The route's "
        "key must contain the listed method and path.",
    ),
    Remedy(
        kind=RemedyKind.ENVELOPE,
        title="Let the middleware write the envelope",
        advice="Version 2 middleware writes PAYMENT-REQUIRED itself: one header, standard base64, "
        "the right version and members. Remove code that writes the header or the 402 by hand, "
        "replace version 1 packages (x402-express, x402-hono, x402-next), and make sure that no "
        "proxy drops, repeats or rewraps the header.",
    ),
    Remedy(
        kind=RemedyKind.HEADERS,
        title="Send the other headers of the 402",
        advice="Version 2 middleware sends Cache-Control: no-store with the 402; a proxy or a CDN "
        "must not replace it. It does not send CORS headers. Add them with the framework's CORS "
        "middleware, outside the payment middleware, so that the 402 has them too.",
    ),
    Remedy(
        kind=RemedyKind.BODY,
        title="Fix the body for version 1 clients, or leave it empty",
        advice="Version 2 clients read only the header, so the default body, {}, is sufficient. "
        "Write a version 1 body only if your server also settles version 1 payments, and build it "
        "from the route's price and payTo.",
    ),
    Remedy(
        kind=RemedyKind.OPTION,
        title="Set the payment option",
        advice="Each option of the route has a scheme, network, price, payTo and timeout. "
        'From a price in dollars ("$0.01") the middleware computes the atomic amount of the '
        "network's default token.",
    ),
    Remedy(
        kind=RemedyKind.ASSET,
        title="Set the token and its signature domain",
        advice="With a price in dollars the middleware uses the network's default token, with its "
        "address and its EIP-712 domain. For another token, write the price as an amount of that "
        "token, and copy the name and version of the domain from its contract.",
    ),
    Remedy(
        kind=RemedyKind.SCHEME,
        title="Register the scheme, and let the facilitator fill in its terms",
        advice="The members of extra that a scheme requires (the fee payer on Solana, the "
        "facilitator's address of upto, the terms of a channel or a capture) come from the "
        "scheme's server class and from the facilitator's /supported. Register the class for the "
        "network, and use a facilitator that supports the scheme there.",
    ),
    Remedy(
        kind=RemedyKind.RESOURCE,
        title="Describe the resource",
        advice="Set resource to the public URL. Otherwise it is built from the request, which "
        "contains an internal host or http behind a proxy. Agents select resources by their "
        "description.",
    ),
    Remedy(
        kind=RemedyKind.DISCOVERY,
        title="Declare the input for directories",
        advice="Declare an example of the input and of the output with the package's helper: it "
        "writes a matching info and schema. The method comes from the route's key. Keep both "
        "short, because a payment returns them in a header.",
    ),
)
REMEDIES: Final = {remedy.kind: remedy for remedy in _ALL}


URL: Final = "https://api.example.com/weather"
LINE_LENGTH_MAX: Final = 96  # characters of a displayed line
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)
_RULE_FILES: Final = (
    *("transport", "envelope", "resource", "extensions", "tool"),
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
