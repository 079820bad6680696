"""Kept evidence: the form in which a saved score has what it was computed from.

It is written with each score and read of few, so it is the form that is quickest to write: values
without names. The canonical text (core/evidence) is made of it when somebody wants it, and is what
`to_json` would have made of the evidence.

Rules:
- it is `[evidence, days]`: a record is the list of its values in the order of its fields, the days
  are in their JSON form;
- a field is only ever added behind the others of its record: what was kept before has no value for
  it, and its text no such property;
- before there was this form, the canonical text was kept, which is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import orjson
from pydantic.alias_generators import to_camel

from tollgauge.core.evidence import (
    ChainEvidence,
    ChainSums,
    Evidence,
    LastProbe,
    LatestState,
    PayerSums,
    TermChange,
    canonical_text,
    in_order,
    written,
)
from tollgauge.core.terms import Quote

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_STRICT_INTEGER
_RECORDS: Final = {"quote": Quote, "last": LastProbe, "envelope": LastProbe, "state": LatestState}
_KINDS: Final = (*_RECORDS.values(), Evidence, TermChange, ChainEvidence, ChainSums, PayerSums)
_FIELDS: Final = {
    kind: tuple(field.name for field in fields(kind) if field.name != "days") for kind in _KINDS
}
_NAMES: Final = {kind: tuple(map(to_camel, names)) for kind, names in _FIELDS.items()}


def _sums(sums: PayerSums) -> tuple[Any, ...]:
    return sums.payers, str(sums.volume), str(sums.squares), str(sums.top), sums.weight


def _chain_sums(sums: ChainSums) -> tuple[Any, ...]:
    readings = map(_sums, (sums.raw, sums.organic, sums.high, sums.low))
    return sums.transfers, str(sums.own), str(sums.returned), sums.clusters, *readings


# A quarter of the time that to find the amounts by their types would take.
_VALUES: Final[dict[Any, Callable[[Any], Any]]] = {
    **{kind: attrgetter(*names) for kind, names in _FIELDS.items()},
    Quote: lambda quote: (quote.network, quote.asset, str(quote.amount), quote.pay_to),
    ChainSums: _chain_sums,
}


def keep(evidence: Evidence, days: bytes) -> bytes:
    """What is kept of an evidence of the newest format. Its days are at hand as text: each one's
    canonical JSON in the order of days, with commas between. Raises EvidenceError as `to_json`.
    """
    whole = (evidence, orjson.Fragment(b"[%b]" % days))
    return written(whole, option=_OPTIONS, default=_values)


def _values(record: object) -> Any:
    return _VALUES[type(record)](record)


def open_document(kept: bytes) -> dict[str, Any]:
    """The JSON object of a kept evidence, with no more days than were kept with it."""
    whole: list[Any] | dict[str, Any] = orjson.loads(kept)
    if isinstance(whole, dict):
        return whole
    values, days = whole
    return in_order(_document(values)) | {"days": days}


def with_earlier_days(kept: bytes, days: bytes = b"") -> bytes:
    """The canonical JSON text of a kept evidence with more days, which are at hand as for `keep`,
    before those that were kept with it.
    """
    if not days and kept.startswith(b"{"):
        return kept
    whole = open_document(kept)
    own = canonical_text(whole["days"])[1:-1]
    whole["days"] = orjson.Fragment(b"[%b]" % b",".join(filter(None, (days, own))))
    return canonical_text(whole)


def _document(values: Sequence[Any]) -> dict[str, Any]:
    """The JSON object of an evidence without its days, from its values."""
    document = _named(Evidence, values)
    document["recent"] = dict(zip(("scored", "up"), document["recent"], strict=True))
    document["changes"] = [_named(TermChange, change) for change in document["changes"]]
    for name, kind in _RECORDS.items():
        if document[name] is not None:
            document[name] = _named(kind, document[name])
    if document["chain"] is not None:
        document["chain"] = _chain_document(document["chain"])
    return document


def _chain_document(values: Sequence[Any]) -> dict[str, Any]:
    chain = _named(ChainEvidence, values)
    if chain["sums"] is not None:
        sums = chain["sums"] = _named(ChainSums, chain["sums"])
        for reading in ("raw", "organic", "high", "low"):
            sums[reading] = _named(PayerSums, sums[reading])
    return chain


def _named(kind: type, values: Sequence[Any]) -> dict[str, Any]:
    """The properties of a record; those that were added after it was kept are left out."""
    return dict(zip(_NAMES[kind], values, strict=False))
