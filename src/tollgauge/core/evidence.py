"""Evidence: all that scoring may look at, as of a moment.

A score is a function of its evidence and the policy alone. The evidence has a JSON form with a
published schema (core/evidence_schema); its canonical text (RFC 8785) has the digest that a
report names.

Rules of the canonical form: whatever has no order is sorted, so the digest does not depend on
order; text sorts by code point; atomic amounts are decimal strings; every property is present,
null where unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend

from tollgauge.core.errors import TollgaugeError
from tollgauge.core.evidence_schema import EVIDENCE_SCHEMA
from tollgauge.core.rollup import Rollup
from tollgauge.core.terms import Quote
from tollgauge.core.units import HOUR_MS

FORMAT: Final = 1
"""Version of the JSON form."""
RECENT_MS: Final = 3 * HOUR_MS
"""How far back from `as_of` the counts of `Evidence.recent` reach. It belongs to the form, not to
a policy: the counts cannot be cut again afterwards."""

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
class Change:
    """An advertised price, payTo or network that changed: `kind` is `price-changed`,
    `payto-changed` or `network-changed`, `source` who saw it (a directory's name, or `probe`).
    `before` and `after` are atomic amounts, addresses or networks as text.
    """

    at: int
    kind: str
    source: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerVolume:
    """One payer's transfers to the payTo in the window, made by EIP-3009 authorizations.

    `paid` and `returned` (transfers payTo to payer) are atomic USDC.
    """

    payer: str
    transfers: int
    paid: int
    returned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvidence:
    """Settlements to the endpoint's payTo in the window. `indexed_ms` is how much of the window
    is indexed; `shared_hosts` how many monitored hosts name the same payTo (at least 1).
    """

    network: str
    pay_to: str
    indexed_ms: int = 0
    indexed_to_block: int | None = None
    indexed_to: int | None = None
    shared_hosts: int = 1
    payers: tuple[PayerVolume, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a score may depend on. Instants are milliseconds UTC; `as_of` ends the window.

    `days` are rollups of the probes inside the window, one a UTC day, in any order. `recent` is
    (scored, up) of the last 3 hours. `wildcard` says that a random path of the host answered
    402. `injection` says that provider text looks like instructions to an agent.

    `last` is the latest scored probe. `envelope` is the latest scored probe of the window that
    carried a payment envelope (`accepts` is not None), where that is an older one: a probe that
    failed says nothing about the envelope, and must not lift a cap that an envelope set.
    """

    resource: str
    as_of: int
    first_seen: int
    listed: bool = True
    templated: bool = False
    wildcard: bool = False
    injection: bool = False
    quote: Quote | None = None
    days: tuple[Rollup, ...] = ()
    recent: tuple[int, int] = (0, 0)
    last: LastProbe | None = None
    envelope: LastProbe | None = None
    changes: tuple[Change, ...] = ()
    chain: ChainEvidence | None = None


def to_json(evidence: Evidence) -> bytes:
    """The canonical JSON text (RFC 8785).

    Raises EvidenceError for values that the form cannot hold: integers past 2^53 - 1, text that
    is not Unicode.
    """
    try:
        return orjson.dumps(to_document(evidence), option=_CANONICAL)
    except orjson.JSONEncodeError as error:
        raise EvidenceError("$", "A value has no canonical JSON form.") from error


def digest(evidence: Evidence) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(to_json(evidence)).hexdigest()


def from_json(document: object) -> Evidence:
    """The evidence of a JSON text (bytes) or of an already parsed object.

    Raises EvidenceError with the place and the reason for anything that the schema or the sums
    refuse.
    """
    if isinstance(document, bytes | bytearray):
        document = parse(bytes(document))
    evidence = _evidence(_checked(document))
    for path, problem in _contradictions(evidence):
        raise EvidenceError(path, problem)
    return evidence


def parse(text: bytes) -> object:
    """A JSON text as an object. Raises EvidenceError when it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EvidenceError("$", "This is not JSON.") from error


def to_document(evidence: Evidence) -> dict[str, Any]:
    """The JSON object of an evidence, everything without order sorted."""
    return {
        "format": FORMAT,
        "resource": evidence.resource,
        "asOf": evidence.as_of,
        "firstSeen": evidence.first_seen,
        "listed": evidence.listed,
        "templated": evidence.templated,
        "wildcard": evidence.wildcard,
        "injection": evidence.injection,
        "quote": None if evidence.quote is None else _quote_document(evidence.quote),
        "days": [_day_document(row) for row in sorted(evidence.days, key=_day_order)],
        "recent": {"scored": evidence.recent[0], "up": evidence.recent[1]},
        "last": None if evidence.last is None else _probe_document(evidence.last),
        "envelope": None if evidence.envelope is None else _probe_document(evidence.envelope),
        "changes": sorted((_change_document(item) for item in evidence.changes), key=_values),
        "chain": None if evidence.chain is None else _chain_document(evidence.chain),
    }


def _quote_document(quote: Quote) -> dict[str, Any]:
    return {
        "network": quote.network,
        "asset": quote.asset,
        "amount": str(quote.amount),
        "payTo": quote.pay_to,
    }


def _day_document(row: Rollup) -> dict[str, Any]:
    return {
        "day": row.day,
        "probes": row.probes,
        "scored": row.scored,
        "up": row.up,
        "compliant": row.compliant,
        "payable": row.payable,
        "compliance": row.compliance,
        "slots": row.slots,
        "latencySum": row.latency_sum,
        "latency": sorted(row.latency),
        "excluded": sorted(row.excluded),
    }


def _probe_document(probe: LastProbe) -> dict[str, Any]:
    return {
        "at": probe.at,
        "outcome": probe.outcome,
        "up": probe.up,
        "payable": probe.payable,
        "accepts": probe.accepts,
        "tlsNotAfter": probe.tls_not_after,
        "rules": sorted(probe.rules),
    }


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "at": change.at,
        "kind": change.kind,
        "source": change.source,
        "before": change.before,
        "after": change.after,
    }


def _payer_document(payer: PayerVolume) -> dict[str, Any]:
    return {
        "payer": payer.payer,
        "transfers": payer.transfers,
        "paid": str(payer.paid),
        "returned": str(payer.returned),
    }


def _chain_document(chain: ChainEvidence) -> dict[str, Any]:
    return {
        "network": chain.network,
        "payTo": chain.pay_to,
        "indexedMs": chain.indexed_ms,
        "indexedToBlock": chain.indexed_to_block,
        "indexedTo": chain.indexed_to,
        "sharedHosts": chain.shared_hosts,
        "payers": sorted((_payer_document(payer) for payer in chain.payers), key=_values),
    }


def _values(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """The order of rows that have none: by their values, property after property."""
    return tuple(document.values())


def _day_order(row: Rollup) -> tuple[Any, ...]:
    counts = (row.probes, row.scored, row.up, row.compliant, row.payable, row.compliance)
    rest = (row.slots, row.latency_sum, sorted(row.latency), sorted(row.excluded))
    return (row.day, *counts, *rest)


def _strict_integer(_checker: object, value: object) -> bool:
    """JSON Schema calls 1.0 an integer; arithmetic here is of integers alone."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Final = Draft202012Validator.TYPE_CHECKER.redefine("integer", _strict_integer)
_STRICT: Final = extend(Draft202012Validator, type_checker=_TYPES)  # type: ignore[no-untyped-call]
_VALIDATOR: Final = _STRICT(EVIDENCE_SCHEMA)


def _checked(document: object) -> dict[str, Any]:
    """The document when the schema accepts it, else EvidenceError."""
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


def _evidence(document: Mapping[str, Any]) -> Evidence:
    quote, chain = document["quote"], document["chain"]
    return Evidence(
        resource=document["resource"],
        as_of=document["asOf"],
        first_seen=document["firstSeen"],
        listed=document["listed"],
        templated=document["templated"],
        wildcard=document["wildcard"],
        injection=document["injection"],
        quote=None if quote is None else _quote(quote),
        days=tuple(_day(row) for row in document["days"]),
        recent=(document["recent"]["scored"], document["recent"]["up"]),
        last=_probe(document["last"]),
        envelope=_probe(document["envelope"]),
        changes=tuple(Change(**row) for row in document["changes"]),
        chain=None if chain is None else _chain(chain),
    )


def _quote(document: Mapping[str, Any]) -> Quote:
    return Quote(
        network=document["network"],
        asset=document["asset"],
        amount=int(document["amount"]),
        pay_to=document["payTo"],
    )


def _day(document: Mapping[str, Any]) -> Rollup:
    return Rollup(
        day=document["day"],
        probes=document["probes"],
        scored=document["scored"],
        up=document["up"],
        compliant=document["compliant"],
        payable=document["payable"],
        compliance=document["compliance"],
        slots=document["slots"],
        latency_sum=document["latencySum"],
        latency=tuple(sorted((bucket, count) for bucket, count in document["latency"])),
        excluded=tuple(sorted((reason, count) for reason, count in document["excluded"])),
    )


def _probe(document: Mapping[str, Any] | None) -> LastProbe | None:
    if document is None:
        return None
    return LastProbe(
        at=document["at"],
        outcome=document["outcome"],
        up=document["up"],
        payable=document["payable"],
        accepts=document["accepts"],
        tls_not_after=document["tlsNotAfter"],
        rules=tuple((slug, severity, text) for slug, severity, text in document["rules"]),
    )


def _chain(document: Mapping[str, Any]) -> ChainEvidence:
    return ChainEvidence(
        network=document["network"],
        pay_to=document["payTo"],
        indexed_ms=document["indexedMs"],
        indexed_to_block=document["indexedToBlock"],
        indexed_to=document["indexedTo"],
        shared_hosts=document["sharedHosts"],
        payers=tuple(
            PayerVolume(
                payer=row["payer"],
                transfers=row["transfers"],
                paid=int(row["paid"]),
                returned=int(row["returned"]),
            )
            for row in document["payers"]
        ),
    )


def _contradictions(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """What no sequence of probes can add up to: (path, problem)."""
    scored, up = evidence.recent
    if up > scored:
        yield "recent.up", "More probes were up than were scored."
    for index, row in enumerate(evidence.days):
        for name, value, limit, bound in (
            ("scored", row.scored, "probes", row.probes),
            ("up", row.up, "scored", row.scored),
            ("compliant", row.compliant, "scored", row.scored),
            ("payable", row.payable, "scored", row.scored),
            ("compliance", row.compliance, "100 x scored", 100 * row.scored),
            ("slots", row.slots.bit_count(), "scored", row.scored),
            ("latency", sum(count for _, count in row.latency), "up", row.up),
        ):
            if value > bound:
                yield f"days[{index}].{name}", f"{value} is more than {limit} ({bound})."
