"""The JSON form of evidence: its schema, its canonical text and digest, and validation.

The schema is published as docs/evidence.schema.json. Every property is required, except those that
are absent if they are empty, and no other is allowed, so that the canonical form is one text:
arrays without an order are sorted, text sorts by code point, integers have no fraction, and atomic
amounts are decimal strings. A schema cannot express relations between figures (up <= scored <=
probes); `from_json` checks them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend
from pydantic import TypeAdapter

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.discovery import PRICE_CHANGED
from tollgauge.core.probe.rollup import days_to_json
from tollgauge.core.score.evidence import OPTIONAL, Anchor, DayDocument, Evidence

_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
"""RFC 8785 for this form, eighteen times faster than the rfc8785 package: its property names are
ASCII, its numbers integers within 2^53 - 1. A test compares the two on arbitrary evidence."""
_FORM: Final = TypeAdapter(Evidence)
_ANCHORS: Final = TypeAdapter(tuple[Anchor, ...])


class EvidenceError(TollgaugeError):
    """A document that is not evidence. `path` is the place, such as `days[3].scored`; `$` is the
    root.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(
            f"{path}: {message}",
            hint="Send an evidence document as docs/evidence.schema.json describes it.",
        )
        self.path = path


@cache
def evidence_schema() -> dict[str, Any]:
    """Return the JSON Schema of an evidence document."""
    schema = _FORM.json_schema()
    config = Evidence.__pydantic_config__
    days = TypeAdapter(tuple[DayDocument, ...], config=config).json_schema()
    schema["$defs"] |= days.pop("$defs")
    schema["properties"]["days"] |= days
    strict: dict[str, Any] = _make_strict(schema)
    return strict | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tollgauge:evidence:3",
        "title": "Evidence of a trust score",
    }


def schema_text() -> str:
    """Return the schema as it is published."""
    return json.dumps(evidence_schema(), indent=2) + "\n"


def _make_strict(schema: Any) -> Any:
    """Return a schema of pydantic with all properties required, no others, and no defaults."""
    if isinstance(schema, list):
        return [_make_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {
        key: _make_strict(part) for key, part in schema.items() if key not in ("title", "default")
    }
    if properties := strict.get("properties"):
        for name in OPTIONAL & properties.keys():
            if "anyOf" in properties[name]:  # absent, never null
                properties[name] |= properties[name].pop("anyOf")[0]
        strict["required"] = sorted(properties.keys() - OPTIONAL)
        strict["additionalProperties"] = False
    return strict


def to_json(evidence: Evidence) -> bytes:
    """Return the canonical JSON text (RFC 8785). Raises EvidenceError for values that the form
    cannot contain: integers above 2^53 - 1, text that is not Unicode.
    """
    try:
        days = orjson.Fragment(days_to_json(evidence.days))
    except UnicodeEncodeError as error:
        raise EvidenceError("days", "A text is not Unicode.") from error
    return _canonical_text(_to_document(evidence) | {"days": days})


def _canonical_text(document: object) -> bytes:
    try:
        return orjson.dumps(document, option=_CANONICAL)
    except orjson.JSONEncodeError as error:
        raise EvidenceError("$", "A value has no canonical JSON form.") from error


def digest(evidence: Evidence) -> str:
    """Return the SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(to_json(evidence)).hexdigest()


def anchors_digest(anchors: Sequence[Anchor]) -> str:
    """Return the SHA-256 of the canonical text of anchors, in hex."""
    rows = _ANCHORS.dump_python(tuple(sorted(anchors, key=lambda anchor: anchor.owner)))
    return hashlib.sha256(_canonical_text(rows)).hexdigest()


def from_json(document: object) -> Evidence:
    """Return the evidence of a JSON text (bytes) or of a parsed object.

    Raises EvidenceError, with the place and the reason, for a document that the schema or the
    relations between its figures reject.
    """
    if isinstance(document, bytes | bytearray):
        document = parse(bytes(document))
    _check_schema(document)
    evidence = _FORM.validate_python(document)
    for path, problem in _contradictions(evidence):
        raise EvidenceError(path, problem)
    return evidence


def from_stored(document: bytes) -> Evidence:
    """Return the evidence of a JSON text that this program wrote, forty times as fast as
    `from_json`: the schema is not checked. Raises EvidenceError for a text that is not JSON.
    """
    return _FORM.validate_python(parse(document))


def parse(text: bytes) -> object:
    """Return the value of a JSON text. Raises EvidenceError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EvidenceError("$", "This is not JSON.") from error


def _to_document(evidence: Evidence) -> dict[str, Any]:
    """Return the JSON object of an evidence without its days, with sorted arrays."""
    changes = tuple(sorted(evidence.changes, key=attrgetter("order")))
    document: dict[str, Any] = _FORM.dump_python(
        replace(evidence, changes=changes), exclude={"days"}
    )
    for probe in filter(None, (document["last"], document["envelope"])):
        probe["rules"] = sorted(probe["rules"])
    for holder in (document, document["state"] or {}, *document["changes"]):
        for name in OPTIONAL & holder.keys():
            # `since` of a state may be 0; the others are absent if they are empty.
            if not holder[name] and (name != "since" or holder[name] is None):
                del holder[name]
    document["anchors"] = sorted(document["anchors"], key=lambda anchor: anchor["owner"])
    for anchor in document["anchors"]:
        anchor["addresses"] = sorted(anchor["addresses"])
    if "forms" in document:
        document["forms"] = sorted(document["forms"])
    if "otherChains" in document:
        document["otherChains"] = sorted(document["otherChains"], key=_canonical_text)
    return document


@cache
def _validator() -> Any:
    # JSON Schema accepts 1.0 as an integer; scores only use integers.
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    strict = extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    return strict(evidence_schema())


def _check_schema(document: object) -> None:
    """Raise EvidenceError unless the schema accepts a document."""
    try:
        error = best_match(islice(_validator().iter_errors(document), 1))
    except RecursionError as cause:
        raise EvidenceError("$", "This is nested too deeply.") from cause
    if error is not None:
        text = error.message
        short = text if len(text) <= 200 else f"{text[:80]} ... {text[-100:]}"
        raise EvidenceError(error.json_path.removeprefix("$."), short)


def _contradictions(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the contradictions between figures as (path, problem)."""
    for index, change in enumerate(evidence.changes):
        if (change.kind == PRICE_CHANGED) != (change.price is not None):
            yield f"changes[{index}].price", "Changes of the price, and no others, have a price."
    for index, row in enumerate(evidence.days):
        for name, value, limit, bound in (
            ("scored", row.scored, "probes", row.probes),
            ("up", row.up, "scored", row.scored),
            ("compliant", row.compliant, "scored", row.scored),
            ("payable", row.payable, "scored", row.scored),
            ("compliance", row.compliance, "100 x scored", 100 * row.scored),
            ("slots", row.slots.bit_count(), "scored", row.scored),
            ("latency", sum(count for _, count in row.histogram), "up", row.up),
            ("spans.up + spans.down", row.spans.up + row.spans.down, "a day", DAY_MS),
            ("blocked", row.blocked, "scored", row.scored),
            ("spans.refused", row.spans.refused, "down", row.spans.down),
            ("spans.payable", row.spans.payable, "up", row.spans.up),
            ("spans.compliance", row.spans.compliance, "100 x up", 100 * row.spans.up),
        ):
            if value > bound:
                yield f"days[{index}].{name}", f"{value} is more than {limit} ({bound})."
