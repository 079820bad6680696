"""Findings of one response for its seller, next to the response itself.

A probe stores only the findings; a diagnosis needs the response. Each finding states the found and
the expected value, and each line of the decoded envelope the rules that it breaks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from tollgauge.core.base.text import shorten
from tollgauge.core.lint.correction import (
    ABSENT,
    Correction,
    correct_envelope,
    find_correction,
    value_at,
)
from tollgauge.core.lint.guide import explain
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.reading import Reading, read
from tollgauge.core.lint.rule import RULE_ENTRIES
from tollgauge.core.probe.exchange import Exchange, Fault, Finding, Lint

VALUE_MAX: Final = 100  # characters of a quoted value
LINE_MAX: Final = 160  # characters of a displayed line of the envelope
LINES_MAX: Final = 400  # lines of the envelope that are displayed
_HEADERS: Final = {
    "cache-control": "Cache-Control",
    "cors-expose": "Access-Control-Expose-Headers",
}
"""The header that a rule reads if it is not PAYMENT-REQUIRED."""

_OWN: Final = (
    *("payTo", "feePayer", "facilitatorAddress", "receiverAuthorizer", "captureAuthorizer"),
    *("feeRecipient", "verifyingContract", "asset", "name", "version"),
)
"""Members whose right value depends on the seller or the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A finding with the found and the expected value as texts. `found` is empty for a stored
    finding, because responses are not stored.
    """

    finding: Finding
    found: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisLine:
    """A line of the decoded envelope, and the rules with a finding in it."""

    text: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of a response. `place` is `header` or `body`; empty without an envelope."""

    place: str = ""
    details: tuple[Detail, ...] = ()
    lines: tuple[DiagnosisLine, ...] = ()
    correction: Correction | None = None


def diagnose(exchange: Exchange, result: Lint) -> Diagnosis:
    """Return the diagnosis of a response and the linter's result. Never raises."""
    reading = read(exchange)
    findings = worst_first(result.findings)
    return Diagnosis(
        place=reading.envelope.place,
        details=tuple(_describe_finding(reading, finding) for finding in findings),
        lines=_list_lines(reading, findings),
        correction=correct_envelope(exchange),
    )


def stored_details(result: Lint) -> tuple[Detail, ...]:
    """Return the details of stored findings, without the found values."""
    return tuple(
        Detail(finding=one, found="", expected=_describe_expected(one.rule, None))
        for one in worst_first(result.findings)
    )


def worst_first(findings: tuple[Finding, ...]) -> list[Finding]:
    """Sort findings by severity; findings of one severity keep the order of the rules."""
    return sorted(findings, key=lambda finding: finding.severity.rank)


def _describe_finding(reading: Reading, finding: Finding) -> Detail:
    right = find_correction(reading, finding.rule, finding.where)
    return Detail(
        finding=finding,
        found=_describe_found(reading, finding),
        expected=_describe_expected(finding.rule, right),
    )


def _describe_found(reading: Reading, finding: Finding) -> str:
    where = finding.where
    if where == "status":
        result = reading.exchange.result
        return (
            f"no answer ({result.kind})" if isinstance(result, Fault) else f"HTTP {result.status}"
        )
    if where == "header":
        return _describe_header(reading, finding.rule)
    if where == "body":
        body = reading.answer.body.decode("utf-8", "replace").strip() if reading.answer else ""
        return shorten(body, VALUE_MAX) or "an empty body"
    return quote_value(value_at(reading.envelope.document, where))


def _describe_header(reading: Reading, rule: str) -> str:
    if name := _HEADERS.get(rule):
        values = reading.answer.header_values(name.lower()) if reading.answer else ()
        return f"{name}: {shorten(', '.join(values), VALUE_MAX)}" if values else f"no {name}"
    text = reading.header.text
    if not text:
        return "no PAYMENT-REQUIRED"
    if rule == "header-large":
        return f"{len(text):,} characters"
    if rule == "header-repeated":
        return f"{reading.header.count} headers"
    return shorten(text, VALUE_MAX)


def _describe_expected(rule: str, right: object) -> str:
    """Return the text of the expected value, with the correction or, failing that, an example."""
    known = explain(rule)
    if known is None:
        return ""
    words = known.rule.entry.expected
    if right is ABSENT:
        return words
    if right is not None:
        return f"{words}: {shorten(json.dumps(right), VALUE_MAX)}"
    example = _find_example(rule)
    return f"{words}, for example {shorten(json.dumps(example), VALUE_MAX)}" if example else words


@cache
def _find_example(rule: str) -> object:
    """Return the value of the right example where the wrong one breaks the rule.

    None for an account, which a reader might copy, and for values that depend on the token.
    """
    entry = RULE_ENTRIES[rule]
    findings = lint(entry.wrong.exchange()).findings
    where = next((one.where for one in findings if one.rule == rule), "")
    value = value_at(read(entry.right.exchange()).envelope.document, where)
    shown = isinstance(value, (str, int)) and value is not True
    return value if shown and where.rpartition(".")[2] not in _OWN else None


def quote_value(value: object) -> str:
    """Return a JSON value as text; values other than strings with their type."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case str():
            return shorten(json.dumps(value, ensure_ascii=False), VALUE_MAX)
        case int() | float():
            return f"{shorten(json.dumps(value), VALUE_MAX)} (JSON number)"
        case dict():
            return f"an object with {', '.join(value)}"[:VALUE_MAX] if value else "an empty object"
        case list():
            return f"an array of {len(value)}"
        case _:
            return "nothing"


def _list_lines(reading: Reading, findings: list[Finding]) -> tuple[DiagnosisLine, ...]:
    """Return the lines of the decoded envelope; empty without an envelope."""
    if not reading.envelope.exists:
        return ()
    document = reading.envelope.document
    marks: dict[str, list[str]] = {}
    for finding in findings:
        if finding.where not in ("status", "header", "body"):
            marks.setdefault(_find_nearest(document, finding.where), []).append(finding.rule)
    lines: list[DiagnosisLine] = []
    for path, text in _format_json(document, "", "", ""):
        if len(lines) == LINES_MAX:
            lines.append(DiagnosisLine(text="…"))
            break
        rules = tuple(dict.fromkeys(marks.pop(path, ())))
        lines.append(DiagnosisLine(text=shorten(text, LINE_MAX), rules=rules))
    return tuple(lines)


def _find_nearest(document: object, where: str) -> str:
    """Return a path, or the path of the innermost existing member around it."""
    while where and value_at(document, where) is ABSENT:
        where = where[: max(where.rfind("."), where.rfind("["), 0)]
    return where


def _format_json(value: object, path: str, key: str, comma: str) -> Iterator[tuple[str, str]]:
    """Yield JSON with an indentation of two: each line with the path of its value.

    The path of a closing bracket is `]`.
    """
    indent = "  " * (path.count(".") + path.count("[") + (path != ""))
    if not isinstance(value, (dict, list)) or not value:
        yield path, f"{indent}{key}{json.dumps(value, ensure_ascii=False)}{comma}"
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield path, f"{indent}{key}{opening}"
    if isinstance(value, dict):
        members = [
            (f"{path}.{name}" if path else name, f"{json.dumps(name, ensure_ascii=False)}: ", one)
            for name, one in value.items()
        ]
    else:
        members = [(f"{path}[{index}]", "", one) for index, one in enumerate(value)]
    for number, (inner, name, one) in enumerate(members, start=1):
        yield from _format_json(one, inner, name, "," if number < len(members) else "")
    yield "]", f"{indent}{closing}{comma}"
