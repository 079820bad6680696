"""Verification of trust reports: comparison of a report with the score of its evidence.

All values that follow from the evidence are compared, except texts (`WORDS`), which can change
between versions. Omitted fields are not compared, but omitted flags are a difference. The live
probe, the advertised terms and the provider's texts are not part of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tollgauge.core.base.units import iso
from tollgauge.core.score import evidence_document
from tollgauge.core.score.improvement import Improvement, improvements
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import recompute
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.scores import score_alone

WORDS: Final = frozenset({"message", "fix", "reason", "latencyVantage"})
_WHOLE: Final = ("flags", "stats.excluded30d")
"""Objects in which a missing or additional name is a difference."""
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field (`stats.uptime30d`) whose value in the report differs from that of the evidence."""

    field: str
    claimed: Any
    given: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A recomputed score with its JSON. `differences` is None for a bare evidence document."""

    score: Score
    given: dict[str, Any]
    differences: tuple[Difference, ...] | None
    improvements: tuple[Improvement, ...]


def check_claim(document: bytes) -> Checked:
    """Recompute the score of an evidence document or a trust report, and compare the report.

    Raises:
        EvidenceError: The document contains no valid evidence.
        ScoreError: The score cannot be computed.
    """
    again = recompute(document)
    given = orjson.loads(dump(score_alone(again)))
    report = evidence_document.parse(document)
    carried = report.get("evidence") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(carried, dict):
        raising = improvements(evidence_document.from_json(report))
        return Checked(score=again, given=given, differences=None, improvements=raising)
    evidence = evidence_document.from_json(carried["document"])
    proof = {
        "policyVersion": again.policy_version,
        "asOf": iso(evidence.as_of),
        "digest": evidence_document.digest(evidence),
    }
    whole = given | {"resource": evidence.resource, "evidence": proof}
    whole["verdict"] = {"recommendation": again.recommendation}
    _leave_out_flags(whole, report.get("moreFlags"))
    return Checked(
        score=again,
        given=given,
        differences=tuple(_differences("", report, whole)),
        improvements=improvements(evidence),
    )


def evidence_url(document: bytes) -> str | None:
    """Return the URL of the evidence of a report that does not include it; otherwise None.

    Raises EvidenceError if the document is not JSON.
    """
    report = evidence_document.parse(document)
    named = report.get("evidence") if isinstance(report, dict) else None
    if not isinstance(named, dict) or named.get("document") is not None:
        return None
    url = named.get("url")
    return url if isinstance(url, str) else None


def with_evidence(document: bytes, evidence: bytes) -> bytes:
    """Add the evidence to a trust report. Raises EvidenceError if either is not JSON."""
    report: Any = evidence_document.parse(document)
    report["evidence"]["document"] = evidence_document.parse(evidence)
    return orjson.dumps(report)


def _leave_out_flags(given: dict[str, Any], more_flags: Any) -> None:
    """Drop as many of the least severe flags as a short report states to have omitted."""
    if type(more_flags) is not int or not 0 < more_flags < len(given["flagsDetailed"]):
        return
    rows = given["flagsDetailed"][:-more_flags]
    given["flagsDetailed"] = rows
    given["flags"] = {row["code"]: given["flags"][row["code"]] for row in rows}
    given["moreFlags"] = more_flags


def _differences(field: str, claimed: Any, given: Any) -> Iterator[Difference]:
    if isinstance(claimed, dict) and isinstance(given, dict):
        names = claimed.keys() | given.keys() if field in _WHOLE else claimed.keys()
        for name in sorted(names, key=_order(given)):
            if name in WORDS or (name not in given and field not in _WHOLE):
                continue
            path = f"{field}.{name}" if field else name
            yield from _differences(path, claimed.get(name, _ABSENT), given.get(name, _ABSENT))
    elif _plain(claimed) != _plain(given):
        yield Difference(field=field, claimed=_display(claimed), given=_display(given))


def _order(given: Mapping[str, Any]) -> Any:
    """Return a sort key: fields in the order of the evidence, then the others."""
    indexes = {name: index for index, name in enumerate(given)}
    return lambda name: (indexes.get(name, len(indexes)), name)


def _plain(value: Any) -> Any:
    """Remove texts from a value."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in WORDS}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _display(value: Any) -> Any:
    return None if value is _ABSENT else value
