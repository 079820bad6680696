"""Claims: what a trust report says of an endpoint, compared with what its evidence gives.

Rules:
- whatever follows from the evidence is compared: the score and all its parts, the resource, and
  the evidence's own digest, time and policy. Human words (`WORDS`) may change with the version;
- a field that the report leaves out claims nothing, but a flag that is left out is hidden;
- the rest of a report (the live probe, the advertised terms, the provider's words) is not in the
  evidence: nothing here can say whether it is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tollgauge.core.score import evidence as evidence_form
from tollgauge.core.score.improvement import Improvement, improvements
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import recompute
from tollgauge.web.wire.response_model import dump, iso
from tollgauge.web.wire.scores import score_alone

WORDS: Final = frozenset({"message", "fix", "reason", "latencyVantage"})
_WHOLE: Final = ("flags", "stats.excluded30d")
"""Objects whose names are the claim: one that is left out or added is a difference."""
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field (`score`, `stats.uptime30d`) with what a report claims and its evidence gives;
    None where either has nothing.
    """

    field: str
    claimed: Any
    given: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A score that was computed again, and its JSON form. `differences` is None for an evidence
    document alone, which claims no score. `improvements` are what would raise the score.
    """

    score: Score
    given: dict[str, Any]
    differences: tuple[Difference, ...] | None
    improvements: tuple[Improvement, ...]


def checked(document: bytes) -> Checked:
    """The score of an evidence document, or of the one in a trust report and how the report
    differs from it. Raises EvidenceError and ScoreError, as `recompute` does.
    """
    again = recompute(document)
    given = orjson.loads(dump(score_alone(again)))
    report = evidence_form.parse(document)
    carried = report.get("evidence") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(carried, dict):
        raising = improvements(evidence_form.from_json(report))
        return Checked(score=again, given=given, differences=None, improvements=raising)
    evidence = evidence_form.from_json(carried["document"])
    proof = {
        "policyVersion": again.policy_version,
        "asOf": iso(evidence.as_of),
        "digest": evidence_form.digest(evidence),
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
    """Where the evidence of a trust report is that does not carry it; None for any other document.
    Raises EvidenceError for a text that is no JSON.
    """
    report = evidence_form.parse(document)
    named = report.get("evidence") if isinstance(report, dict) else None
    if not isinstance(named, dict) or named.get("document") is not None:
        return None
    url = named.get("url")
    return url if isinstance(url, str) else None


def with_evidence(document: bytes, evidence: bytes) -> bytes:
    """A trust report with the evidence that it names. Raises EvidenceError for a text that is no
    JSON.
    """
    report: Any = evidence_form.parse(document)
    report["evidence"]["document"] = evidence_form.parse(evidence)
    return orjson.dumps(report)


def _leave_out_flags(given: dict[str, Any], more_flags: Any) -> None:
    """Leave out the least severe flags, as many as a short report says that it leaves out."""
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
        yield Difference(field=field, claimed=_shown(claimed), given=_shown(given))


def _order(given: Mapping[str, Any]) -> Any:
    """What the evidence gives in its own order, the score first; then what it does not give."""
    places = {name: place for place, name in enumerate(given)}
    return lambda name: (places.get(name, len(places)), name)


def _plain(value: Any) -> Any:
    """A value without human words."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in WORDS}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value
