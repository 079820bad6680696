"""Evidence: all that scoring may look at, as of a moment.

A score is a function of its evidence and the policy alone. The evidence has a JSON form with a
published schema (core/score/evidence_schema); its canonical text (RFC 8785) has the digest that a
report names.

Rules of the canonical form: whatever has no order is sorted, so the digest does not depend on
order; text sorts by code point; atomic amounts are decimal strings; every property is present,
null where unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, PlainValidator, TypeAdapter
from pydantic.alias_generators import to_camel

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.discovery import PRICE_CHANGED
from tollgauge.core.endpoint.terms import Amount, Quote
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.rollup import Rollup, day_document, day_from_document
from tollgauge.core.score.evidence_schema import EVIDENCE_SCHEMA
from tollgauge.core.score.prices import Price

FORMAT: Final = 3
"""Version of the JSON form."""

_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
"""RFC 8785 for this form, eighteen times faster than the rfc8785 package: its property names are
ASCII, its numbers integers within 2^53 - 1. A test compares the two on arbitrary evidence."""


class EvidenceError(TollgaugeError):
    """A document that is no evidence. `path` says where, as `days[3].scored`; `$` is its root."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(
            f"{path}: {message}",
            hint="Send an evidence document as docs/evidence.schema.json describes it.",
        )
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class TermChange:
    """An advertised price, payTo or network that changed: `kind` is `price-changed`,
    `payto-changed` or `network-changed`, `source` who saw it (a directory's name, or `probe`).
    `before` and `after` are atomic amounts, addresses or networks as text; behind an amount stands
    its asset where that changed too (core/directory/discovery). `announced`: the seller announced
    this change of payTo ahead, signed by the old one (core/directory/seller_file); the JSON form
    has it only then. `price`, only of a changed price, compares it with the usual one.
    """

    at: int
    kind: str
    source: str
    before: str
    after: str
    announced: bool = False
    price: Price | None = None


Weights = Annotated[
    tuple[tuple[str, int], ...],
    BeforeValidator(lambda rows: tuple(map(tuple, rows))),
    PlainSerializer(lambda rows: sorted(map(list, rows))),
]
"""Sums of weights in millionths by owner of an anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandEvidence:
    """Who paid a seller in the window (core/score/demand): `payers` by `transfers` of `volume`
    atomic USDC, without the seller itself. `own` is what it paid itself, `returned` what it sent
    back to payers, at most what they paid. `proven_payers` also spend at anchors;
    `proven_volume` is their net spending at the seller. `weights` has for each anchor's owner the
    sum of the payers' weights without that anchor, in millionths; empty if all are 0.
    """

    transfers: int = 0
    payers: int = 0
    volume: Amount = 0
    own: Amount = 0
    returned: Amount = 0
    proven_payers: int = 0
    proven_volume: Amount = 0
    weights: Weights = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The addresses of one owner that prove payers, and since when (ms UTC)."""

    owner: str
    since: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvidence:
    """Settlements to the endpoint's payTo in the window. `indexed_ms` is how much of the window
    is indexed; `shared_hosts` how many monitored hosts name the same payTo (at least 1).
    `owner` is the site that the payTo belongs to, where it is not the endpoint's own; `shares` is
    among how many sites its owner's key shares it. `demand` is None where nothing is indexed or the
    payTo belongs to another site.
    """

    network: str
    pay_to: str
    indexed_ms: int = 0
    indexed_to_block: int | None = None
    indexed_to: int | None = None
    shared_hosts: int = 1
    owner: str | None = None
    shares: int = 1
    demand: DemandEvidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestState:
    """What the latest probe that speaks says (core/probe/probe): a scored one, a 429, or one that
    confirms a failure. `unconfirmed` says that it is the first failure of an endpoint that was
    payable, not probed again yet. `since` is the first of several failures in a row;
    `payable_since` when the latest time that it was payable began, None if it never was.
    """

    at: int
    outcome: str
    up: bool
    payable: bool
    unconfirmed: bool = False
    since: int | None = None
    payable_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastProbe:
    """What the latest scored probe saw. `rules` are (slug, severity, message) of the linter."""

    at: int
    outcome: str
    up: bool
    payable: bool
    accepts: int | None
    tls_not_after: int | None
    rules: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, result: ProbeResult) -> LastProbe:
        """What evidence keeps of a result."""
        return cls(
            at=result.at,
            outcome=result.outcome.value,
            up=result.up,
            payable=result.payable,
            accepts=result.accepts,
            tls_not_after=result.tls_not_after,
            rules=tuple((one.rule, one.severity.value, one.message) for one in result.findings),
        )


Days = Annotated[
    tuple[Rollup, ...], PlainValidator(lambda days: tuple(map(day_from_document, days)))
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a score may depend on. Instants are milliseconds UTC; `as_of` ends the window.

    `days` are whole UTC days with their spans, the current one and the 30 before it, in any order.
    `wildcard` says that a 402 of the host means
    nothing. `injection` says that provider text looks like instructions to an agent.

    `last` is the latest scored probe. `envelope` is the latest scored probe of the window that
    carried a payment envelope (`accepts` is not None), where that is an older one: a probe that
    failed says nothing about the envelope, and must not lift a cap that an envelope set.

    `state` is the latest that is known; `interval` how often the endpoint is probed now (ms);
    `site_median_tenths` the median score of its site's other endpoints, if this one is a new path
    of a known site; `paid_not_delivered` that a purchase settled and was not delivered; `anchors`
    are those that demand was measured by; `forms` the forms of payment that it offers
    (core/endpoint/terms), empty and not in the JSON form while they are not known; `pay_to_varies`
    that each offer names another payTo (core/endpoint/terms), in the JSON form only then.
    """

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)

    resource: str
    as_of: int
    first_seen: int
    listed: bool = True
    templated: bool = False
    wildcard: bool = False
    injection: bool = False
    quote: Quote | None = None
    days: Days = ()
    last: LastProbe | None = None
    envelope: LastProbe | None = None
    changes: tuple[TermChange, ...] = ()
    chain: ChainEvidence | None = None
    state: LatestState | None = None
    interval: int = 30 * MINUTE_MS
    site_median_tenths: int | None = None
    paid_not_delivered: bool = False
    anchors: tuple[Anchor, ...] = ()
    format: int = FORMAT
    forms: tuple[str, ...] = ()
    pay_to_varies: bool = False


_FORM: Final = TypeAdapter(Evidence)
"""The JSON form and back, its values as the schema says."""


_ANCHORS: Final = TypeAdapter(tuple[Anchor, ...])


def to_json(evidence: Evidence) -> bytes:
    """The canonical JSON text (RFC 8785). Raises EvidenceError for values that the form cannot
    hold: integers past 2^53 - 1, text that is not Unicode.
    """
    return canonical_text(to_document(evidence))


def canonical_text(document: object) -> bytes:
    """The canonical JSON text of a document, or a part of one; raises as `to_json`."""
    return written(document, option=_CANONICAL)


def written(value: object, *, option: int, default: Callable[[Any], Any] | None = None) -> bytes:
    """What orjson writes of a value. Raises EvidenceError for what it cannot write."""
    try:
        return orjson.dumps(value, default, option)
    except orjson.JSONEncodeError as error:
        raise EvidenceError("$", "A value has no canonical JSON form.") from error


def digest(evidence: Evidence) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(to_json(evidence)).hexdigest()


def anchors_digest(anchors: Sequence[Anchor]) -> str:
    """SHA-256 of the canonical text of anchors, in hex."""
    rows = _ANCHORS.dump_python(tuple(sorted(anchors, key=lambda anchor: anchor.owner)))
    return hashlib.sha256(canonical_text(rows)).hexdigest()


def from_json(document: object) -> Evidence:
    """The evidence of a JSON text (bytes) or of an already parsed object. Raises EvidenceError with
    the place and the reason for anything that the schema or the sums refuse.
    """
    if isinstance(document, bytes | bytearray):
        document = parse(bytes(document))
    evidence = _FORM.validate_python(_checked(document))
    for path, problem in _contradictions(evidence):
        raise EvidenceError(path, problem)
    return evidence


def from_stored(document: bytes) -> Evidence:
    """The evidence of a JSON text that this program wrote, forty times as fast as `from_json`:
    nothing is compared with the schema. Raises EvidenceError for what is no JSON.
    """
    return _FORM.validate_python(parse(document))


def parse(text: bytes) -> object:
    """A JSON text as an object. Raises EvidenceError when it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EvidenceError("$", "This is not JSON.") from error


def to_document(evidence: Evidence) -> dict[str, Any]:
    """The JSON object of an evidence, everything without order sorted."""
    document = in_order(_FORM.dump_python(evidence, exclude={"days"}))
    document["days"] = _sorted([day_document(sums) for sums in evidence.days])
    return document


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of an evidence without its days, what has no order sorted."""
    for probe in filter(None, (document["last"], document["envelope"])):
        probe["rules"] = sorted(probe["rules"])
    for change in document["changes"]:
        for name in ("announced", "price"):
            if not change[name]:
                del change[name]
    if not document.get("payToVaries"):
        document.pop("payToVaries", None)
    if forms := document.pop("forms", None):
        document["forms"] = sorted(forms)
    if (state := document.get("state")) is not None and state.get("since") is None:
        state.pop("since", None)
    document["changes"] = sorted(document["changes"], key=_order_of_change)
    document["anchors"] = sorted(document["anchors"], key=lambda anchor: anchor["owner"])
    for anchor in document["anchors"]:
        anchor["addresses"] = sorted(anchor["addresses"])
    return document


def _order_of_change(change: dict[str, Any]) -> tuple[Any, ...]:
    price = canonical_text(change.get("price"))
    return (*(change[name] for name in ("at", "kind", "source", "before", "after")), price)


def _sorted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by their values, property after property."""
    return sorted(rows, key=lambda row: tuple(map(_comparable, row.values())))


def _comparable(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value


def _strict_integer(_checker: object, value: object) -> bool:
    """JSON Schema calls 1.0 an integer; arithmetic here is of integers alone."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Final = Draft202012Validator.TYPE_CHECKER.redefine("integer", _strict_integer)
_STRICT: Final = extend(Draft202012Validator, type_checker=_TYPES)  # type: ignore[no-untyped-call]
_VALIDATOR: Final = _STRICT(EVIDENCE_SCHEMA)


def _checked(document: object) -> dict[str, Any]:
    """The document if the schema accepts it. Raises EvidenceError."""
    try:
        error = best_match(islice(_VALIDATOR.iter_errors(document), 1))
    except RecursionError as cause:
        raise EvidenceError("$", "This is nested too deeply.") from cause
    if error is not None:
        raise EvidenceError(error.json_path.removeprefix("$."), _short(error.message))
    if not isinstance(document, dict):
        raise EvidenceError("$", "This is not a JSON object.")
    return document


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-100:]}"


def _contradictions(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Where the figures contradict each other: (path, problem)."""
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
            ("latency", sum(count for _, count in row.latency), "up", row.up),
            ("spans.up + spans.down", row.spans.up + row.spans.down, "a day", DAY_MS),
            ("blocked", row.blocked, "scored", row.scored),
            ("spans.refused", row.spans.refused, "down", row.spans.down),
            ("spans.payable", row.spans.payable, "up", row.spans.up),
            ("spans.compliance", row.spans.compliance, "100 x up", 100 * row.spans.up),
        ):
            if value > bound:
                yield f"days[{index}].{name}", f"{value} is more than {limit} ({bound})."
