"""Linter results in the formats of CI systems: GitHub annotations, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

if TYPE_CHECKING:
    from tollgauge.web.wire.lint_answers import LintFindingResponse, LintResponse

_LEVELS: Final = {"error": "error", "warn": "warning", "info": "note"}
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even escaped."""
_NOT_PAYABLE: Final = "No official client could pay this response."


class FailOn(StrEnum):
    """The least problem that makes `lint` fail. What no client could pay fails except with
    `never`.
    """

    UNPAYABLE = "unpayable"
    WARN = "warn"
    ERROR = "error"
    NEVER = "never"

    def includes(self, severity: str) -> bool:
        """Return whether a finding of this severity makes `lint` fail."""
        return severity in {FailOn.ERROR: ("error",), FailOn.WARN: ("error", "warn")}.get(self, ())


class CiFormat(StrEnum):
    """A format that CI systems read."""

    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """The linter's result for a source: a file, a URL, or `-`."""

    name: str
    linted: LintResponse

    def is_failed(self, fail_on: FailOn) -> bool:
        """Return whether the result makes `lint` fail."""
        if not self.linted.payable:
            return fail_on is not FailOn.NEVER
        return any(fail_on.includes(finding.severity) for finding in self.linted.findings)


def write(style: CiFormat, sources: Sequence[CheckedSource], fail_on: FailOn) -> str:
    """Return results in the format of a CI system."""
    if style is CiFormat.GITHUB:
        return "\n".join(_annotations(sources))
    return _sarif(sources) if style is CiFormat.SARIF else _junit(sources, fail_on)


def _annotations(sources: Sequence[CheckedSource]) -> Iterator[str]:
    """Yield workflow commands of GitHub Actions, and a summary of each source."""
    for source in sources:
        for finding in source.linted.findings:
            level = _LEVELS[finding.severity].replace("note", "notice")
            place = f"file={_property(source.name)}," if _is_file(source.name) else ""
            text = f"{source.name}: {_text(finding)}"
            yield f"::{level} {place}title={_property(finding.rule)}::{_data(text)}"
        payable = "payable" if source.linted.payable else "not payable"
        yield f"{_data(source.name)}: {payable}, {len(source.linted.findings)} findings"


def _is_file(name: str) -> bool:
    return name != "-" and not name.startswith("https://")


def _data(text: str) -> str:
    """Escape the message of a workflow command, as GitHub's @actions/core does. Otherwise,
    foreign text could add a line with another command.
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _text(finding: LintFindingResponse) -> str:
    found = f" Found {finding.found}, expected {finding.expected}."
    return f"{finding.message} ({finding.where}){found}"


def _sarif(sources: Sequence[CheckedSource]) -> str:
    """Return SARIF 2.1.0 (OASIS), the format of code scanning."""
    from importlib.metadata import version

    from tollgauge.core.lint.guide import explain

    rules = sorted({finding.rule for source in sources for finding in source.linted.findings})
    described: list[dict[str, Any]] = []
    for slug in rules:
        rule: dict[str, Any] = {"id": slug}
        if known := explain(slug):
            rule["shortDescription"] = {"text": known.what}
            rule["help"] = {"text": known.rule.entry.fix}
            rule["helpUri"] = known.entry.source.url
        described.append(rule)
    driver = {"name": "tollgauge", "version": version("tollgauge"), "rules": described}
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": rules.index(finding.rule),
            "level": _LEVELS[finding.severity],
            "message": {"text": _text(finding)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(source.name)},
                        "region": {"startLine": 1},
                    },
                    "logicalLocations": [{"fullyQualifiedName": finding.where}],
                }
            ],
        }
        for source in sources
        for finding in source.linted.findings
    ]
    document = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _uri(name: str) -> str:
    """Return a source's name as a URI reference (RFC 3986)."""
    if name == "-":
        return "stdin"
    return quote(name) if _is_file(name) else name


def _junit(sources: Sequence[CheckedSource], fail_on: FailOn) -> str:
    """Return JUnit XML: a suite for each source, in which "payable" and each finding are tests."""
    from xml.etree import ElementTree as ET

    suites = ET.Element("testsuites", name="tollgauge lint")
    for source in sources:
        unpayable = not source.linted.payable and fail_on is not FailOn.NEVER
        cases = [("payable", _NOT_PAYABLE if not source.linted.payable else "", unpayable)]
        cases += [
            (finding.rule, _text(finding), fail_on.includes(finding.severity))
            for finding in source.linted.findings
        ]
        failures = sum(failed for *_, failed in cases)
        name = _xml_text(source.name)
        suite = ET.SubElement(
            suites, "testsuite", name=name, tests=str(len(cases)), failures=str(failures)
        )
        for rule, text, failed in cases:
            case = ET.SubElement(suite, "testcase", classname=name, name=rule)
            if failed:
                ET.SubElement(case, "failure", message=_xml_text(text))
            elif text:
                ET.SubElement(case, "system-out").text = _xml_text(text)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True)


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
