"""The JSON Schema of an evidence document, published as docs/evidence.schema.json.

Rules: every property is required (`announced` of a change where it is true, else forbidden) and no
other is allowed, so that the canonical form is one text;
integers stay within 2^53 - 1 and are written without a fraction; atomic amounts, which do not, are
decimal strings. What a schema cannot say (up <= scored <= probes), core/score/evidence checks.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tollgauge.core.base.units import AMOUNT_PATTERN, DAY_MS
from tollgauge.core.directory.discovery import TERM_EVENTS
from tollgauge.core.endpoint.terms import MAX_FORMS

_Schema = dict[str, Any]

SAFE_INTEGER: Final = 2**53 - 1
_SLOTS_MAX: Final = 2**48 - 1
_BUCKET_MAX: Final = 4_096
_DAY_MAX: Final = 104_249_991
"""The last day whose milliseconds stay below 2^53."""


def _integer(says: str, *, most: int = SAFE_INTEGER) -> _Schema:
    return {"type": "integer", "minimum": 0, "maximum": most, "description": says}


def _text(says: str, *, most: int = 4_096) -> _Schema:
    return {"type": "string", "maxLength": most, "description": says}


def _flag(says: str) -> _Schema:
    return {"type": "boolean", "description": says}


def _maybe(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(says: str, properties: _Schema) -> _Schema:
    return {
        "type": "object",
        "description": says,
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _with_optional(schema: _Schema, **optional: _Schema) -> _Schema:
    """An object's schema with properties that may be absent."""
    return {**schema, "properties": schema["properties"] | optional}


def _list(says: str, items: _Schema, *, most: int = 1_000_000) -> _Schema:
    return {"type": "array", "description": says, "items": items, "maxItems": most}


def _pairs(says: str, key: _Schema) -> _Schema:
    count = {**_integer("Count"), "minimum": 1}
    pair = {"type": "array", "prefixItems": [key, count], "minItems": 2, "maxItems": 2}
    return _list(says, pair)


def _amount(says: str) -> _Schema:
    return {"type": "string", "pattern": f"^{AMOUNT_PATTERN.pattern}$", "description": says}


def _instant(says: str) -> _Schema:
    return _integer(f"{says}, milliseconds since the epoch, UTC")


_QUOTE: Final = _object(
    "The advertised price.",
    {
        "network": _text("CAIP-2 network, or as written where it could not be translated"),
        "asset": _text("Token address"),
        "amount": _amount("Atomic units of the asset"),
        "payTo": _text("Receiving address"),
    },
)

_SPANS: Final = _object(
    "For how long the endpoint was what, that day.",
    {
        "up": _integer("Milliseconds up", most=DAY_MS),
        "payable": _integer("Milliseconds payable", most=DAY_MS),
        "down": _integer("Milliseconds not up", most=DAY_MS),
        "compliance": _integer("Sum of compliance (0 to 100) x milliseconds"),
        "failures": _integer("Changes from payable to not payable"),
        "repairs": _integer("Changes from not payable to payable"),
        "refused": _integer(
            "Milliseconds of `down` with refusals (401, 403, 429, bot walls)", most=DAY_MS
        ),
    },
)

_DAY: Final = _object(
    "The sums of the probes of one UTC day.",
    {
        "day": _integer("Days since the epoch, UTC", most=_DAY_MAX),
        "probes": _integer("All probes"),
        "scored": _integer("Probes that were up or down by the target's own doing"),
        "up": _integer("Scored probes that were up"),
        "compliant": _integer("Scored probes with a 402 without errors"),
        "payable": _integer("Scored probes that a stock client could have paid"),
        "compliance": _integer("Sum of the subscores (0 to 100) of the scored probes"),
        "slots": _integer("Bit i is set when half hour i has a scored probe", most=_SLOTS_MAX),
        "latencySum": _integer("Exact sum of the milliseconds of scored, up probes"),
        "latency": _pairs(
            "Histogram of scored, up probes: [bucket, count]", _integer("Bucket", most=_BUCKET_MAX)
        ),
        "excluded": _pairs(
            "How many probes are not scored: [reason, count]", _text("Reason", most=256)
        ),
        "spans": _SPANS,
        "blocked": _integer("Scored probes that a bot wall refused"),
    },
)

_STATE: Final = _object(
    "What the latest probe that speaks says: a scored one, a 429, or one that confirms a failure.",
    {
        "at": _instant("When"),
        "outcome": _text("What the probe met", most=64),
        "up": _flag("Whether it was up; a refusal (429, 401, 403) is not"),
        "payable": _flag("Whether a stock client could have paid"),
        "unconfirmed": _flag("Whether it is a first failure that is not confirmed yet"),
        "payableSince": _maybe(_instant("When the latest time that it was payable began")),
    },
)

_STATE_SCHEMA: Final = _with_optional(
    _STATE, since=_instant("Only after several failures in a row: when the first of them was")
)

_PROBE: Final = _object(
    "What one scored probe saw.",
    {
        "at": _instant("When"),
        "outcome": _text("What the probe met", most=64),
        "up": _flag("Whether it counts as up"),
        "payable": _flag("Whether a stock client could have paid"),
        "accepts": _maybe(_integer("Number of payment terms; null without an envelope")),
        "tlsNotAfter": _maybe(_instant("End of the certificate's validity")),
        "rules": _list(
            "Lint rules that fired: [slug, severity, message]",
            {
                "type": "array",
                "prefixItems": [
                    _text("Slug", most=128),
                    {"enum": ["error", "warn", "info"]},
                    _text("Message"),
                ],
                "minItems": 3,
                "maxItems": 3,
            },
        ),
    },
)

_CHANGE_REQUIRED: Final = _object(
    "An advertised price, payTo or network that changed.",
    {
        "at": _instant("When it was seen"),
        "kind": {"enum": [*TERM_EVENTS]},
        "source": _text("Who saw it: a directory's name, or `probe`"),
        "before": _text("Amount, address or network before"),
        "after": _text("Amount, address or network after"),
    },
)

_ANNOUNCED: Final = {
    "const": True,
    "description": "Only of a payTo: the seller announced it ahead, signed by the old one",
}
_SCALED: Final = {
    "type": "string",
    "pattern": "^(0|[1-9][0-9]{0,119})$",
    "description": "Amount in the unit",
}
_PRICE: Final = _object(
    "Only of a price: it and the usual price in one unit.",
    {
        "unit": _text("`USD` for 10^-18 dollars, otherwise network, space, asset"),
        "before": {**_maybe(_SCALED), "description": "The price before; null in another unit"},
        "after": {**_SCALED, "description": "The new price"},
        "usual": _maybe(
            {**_SCALED, "description": "Time-weighted lower median of the 31 days before"}
        ),
        "upper": _maybe({**_SCALED, "description": "Upper quartile of the same"}),
    },
)
_CHANGE: Final = _with_optional(_CHANGE_REQUIRED, announced=_ANNOUNCED, price=_PRICE)

_DEMAND: Final = _object(
    "Who paid the seller in the window, itself left out.",
    {
        "transfers": _integer("Payments of at least $0.0001, signed by the payer"),
        "payers": _integer("Distinct payers"),
        "volume": _amount("What they paid, atomic USDC"),
        "own": _amount("Atomic USDC that the seller paid itself"),
        "returned": _amount("Atomic USDC that it sent back to payers, at most what they paid"),
        "provenPayers": _integer("Payers that also spend at anchors"),
        "provenVolume": _amount("Their net spending at the seller, atomic USDC"),
        "weights": _list(
            "For each anchor the sum of the payers' weights without it: [owner, millionths]; empty "
            "if all are 0",
            {
                "type": "array",
                "prefixItems": [_text("Owner of the anchor", most=256), _integer("Millionths")],
                "minItems": 2,
                "maxItems": 2,
            },
            most=10_000,
        ),
    },
)

_ANCHOR: Final = _object(
    "Addresses of one owner that prove payers.",
    {
        "owner": _text("The owner's domain", most=256),
        "since": _instant("Since when it is an anchor"),
        "addresses": _list("Its addresses", _text("Address", most=128), most=10_000),
    },
)

_CHAIN: Final = _object(
    "USDC settlements by EIP-3009 authorization to the payTo in the window.",
    {
        "network": _text("CAIP-2 network"),
        "payTo": _text("Receiving address"),
        "indexedMs": _integer("How much of the window is indexed, in milliseconds"),
        "indexedToBlock": _maybe(_integer("Last block that is indexed")),
        "indexedTo": _maybe(_instant("Time of the last block that is indexed")),
        "sharedHosts": {**_integer("Monitored hosts that name this payTo"), "minimum": 1},
        "owner": _maybe(_text("The site that the payTo belongs to, if it is another one")),
        "shares": {**_integer("Among how many sites its key shares it"), "minimum": 1},
        "demand": _maybe(_DEMAND),
    },
)

EVIDENCE_SCHEMA: Final[_Schema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:tollgauge:evidence:3",
    "title": "Evidence of a trust score",
    **_with_optional(
        _object(
            "All that a score depends on. Its RFC 8785 form has the SHA-256 digest that a report "
            "names. Order inside arrays means nothing; the canonical form sorts them.",
            {
                "format": {"type": "integer", "const": 3, "description": "Version of this form"},
                "resource": _text("Canonical URL of the endpoint"),
                "asOf": _instant("End of the window"),
                "firstSeen": _instant("When the endpoint was first known"),
                "listed": _flag("Whether any directory lists it now"),
                "templated": _flag("Whether its path holds a placeholder that nobody filled in"),
                "wildcard": _flag("Whether unlisted paths of its host answered 402"),
                "injection": _flag("Whether its texts look like instructions to an agent"),
                "quote": _maybe(_QUOTE),
                "days": _list("Probes of the window, one row a UTC day", _DAY, most=4_096),
                "last": _maybe(_PROBE),
                "envelope": _maybe(_PROBE),
                "changes": _list("Changes in the window", _CHANGE),
                "chain": _maybe(_CHAIN),
                "state": _maybe(_STATE_SCHEMA),
                "interval": _integer("How often the endpoint is probed, in milliseconds"),
                "siteMedianTenths": _maybe(
                    _integer(
                        "Median score of its site's other endpoints, where it is a new path",
                        most=1_000,
                    )
                ),
                "paidNotDelivered": _flag("Whether a purchase settled and was not delivered"),
                "anchors": _list("What demand was measured by", _ANCHOR, most=10_000),
            },
        ),
        forms=_list(
            "Only if known: the forms of payment that it offers, each as network, space, form",
            _text("As `eip155:8453 eip3009`", most=300),
            most=MAX_FORMS,
        ),
        payToVaries=_flag("Only if true: each offer names another payTo, since observation began"),
    ),
}


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(EVIDENCE_SCHEMA, indent=2) + "\n"
