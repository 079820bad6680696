"""Evidence: all data that a score depends on, as of a time.

A score is a function of its evidence and the policy only. These types also define the published
JSON form: the docstrings of their fields are the descriptions in its schema. Properties that are
absent from the form if they are empty are those of `OPTIONAL`; all others are always present.
core/score/evidence_document reads and writes the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.discovery import TERM_EVENTS
from tollgauge.core.endpoint.terms import MAX_FORMS, MAX_OFFERS, Amount, Quote, Text
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.probe import AnyProbe
from tollgauge.core.probe.rollup import Rollup, days_from_document
from tollgauge.core.score.prices import Price

FORMAT: Final = 3
"""Version of the JSON form."""
OPTIONAL: Final = frozenset({"announced", "price", "since", "forms", "payToVaries", "otherChains"})

Whole = Annotated[int, Field(ge=0, le=2**53 - 1)]  # exact in JavaScript
Count = Annotated[int, Field(ge=1, le=2**53 - 1)]
_DayMs = Annotated[int, Field(ge=0, le=DAY_MS)]
_Word = Annotated[str, Field(max_length=256)]
_Outcome = Annotated[str, Field(max_length=64)]


class SpansDocument(TypedDict):
    """The time of a UTC day for which the endpoint had each state."""

    up: _DayMs
    """Milliseconds up"""
    payable: _DayMs
    """Milliseconds payable"""
    down: _DayMs
    """Milliseconds not up"""
    compliance: Whole
    """Sum of compliance (0 to 100) x milliseconds"""
    failures: Whole
    """Changes from payable to not payable"""
    repairs: Whole
    """Changes from not payable to payable"""
    refused: _DayMs
    """Milliseconds of `down` with refusals (401, 403, 429, bot walls)"""


class DayDocument(TypedDict):
    """The sums of the probes of one UTC day."""

    day: Annotated[int, Field(ge=0, le=(2**53 - 1) // DAY_MS)]
    """Days since the epoch, UTC"""
    probes: Whole
    """All probes"""
    scored: Whole
    """Probes whose result the target caused"""
    up: Whole
    """Scored probes that were up"""
    compliant: Whole
    """Scored probes with a 402 without errors"""
    payable: Whole
    """Scored probes that a stock client could have paid"""
    compliance: Whole
    """Sum of the compliance (0 to 100) of the scored probes"""
    slots: Annotated[int, Field(ge=0, le=2**48 - 1)]
    """Bit i is set if half hour i has a scored probe"""
    latency_sum: Whole
    """Exact sum of the milliseconds of scored, up probes"""
    latency: tuple[tuple[Annotated[int, Field(ge=0, le=4_096)], Count], ...]
    """Histogram of scored, up probes: [bucket, count]"""
    excluded: tuple[tuple[_Word, Count], ...]
    """Unscored probes by reason: [reason, count]"""
    spans: SpansDocument
    blocked: Whole
    """Scored probes that a bot wall refused"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermChange:
    """A changed advertised price, payTo or network."""

    at: Whole
    """When it was observed, milliseconds since the epoch, UTC"""
    kind: Annotated[str, WithJsonSchema({"enum": [*TERM_EVENTS]})]
    source: Text
    """The observer: a directory's name, or `probe`"""
    before: Text
    """Atomic amount (followed by the asset if that changed too), address or network before"""
    after: Text
    """The same after the change"""
    announced: Annotated[bool, WithJsonSchema({"const": True})] = False
    """Only of a payTo: the seller announced the change, signed by the old address"""
    price: Price | None = None
    """Only of a price: the change compared with the usual price"""

    @property
    def order(self) -> tuple[Any, ...]:
        """Its key in the canonical order of changes. Amounts are compared as text, and null is
        after every value.
        """
        price = self.price
        values = price and (price.after, price.before, price.unit, price.upper, price.usual)
        last = [(value is None, str(value)) for value in values or ()]
        return (self.at, self.kind, self.source, self.before, self.after, last, self.announced)


Weights = Annotated[
    tuple[tuple[_Word, Whole], ...],
    Field(max_length=10_000),
    BeforeValidator(lambda rows: tuple(map(tuple, rows))),
    PlainSerializer(lambda rows: sorted(map(list, rows))),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandEvidence:
    """The payers of a seller in the window, without the seller itself (core/score/demand)."""

    transfers: Whole = 0
    """Payments of at least $0.0001, signed by the payer"""
    payers: Whole = 0
    """Distinct payers"""
    volume: Amount = 0
    """Their payments, atomic USDC"""
    own: Amount = 0
    """Payments of the seller to itself, atomic USDC"""
    returned: Amount = 0
    """Atomic USDC that it sent back to payers, at most their payments"""
    proven_payers: Whole = 0
    """Payers that also spend at anchors"""
    proven_volume: Amount = 0
    """Their net spending at the seller, atomic USDC"""
    weights: Weights = ()
    """For each anchor the sum of the payers' weights without it: [owner, millionths]; empty if all
    are 0"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Addresses of one owner that prove payers."""

    owner: _Word
    """The owner's domain"""
    since: Whole
    """When it became an anchor, milliseconds since the epoch, UTC"""
    addresses: Annotated[
        tuple[Annotated[str, Field(max_length=128)], ...], Field(max_length=10_000)
    ]
    """Its addresses"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvidence:
    """USDC settlements by EIP-3009 authorization to the payTo in the window."""

    network: Text
    """CAIP-2 network"""
    pay_to: Text
    """Receiving address"""
    indexed_ms: Whole = 0
    """Indexed part of the window, in milliseconds"""
    indexed_to_block: Whole | None = None
    """Last indexed block"""
    indexed_to: Whole | None = None
    """Time of the last indexed block, milliseconds since the epoch, UTC"""
    shared_hosts: Count = 1
    """Monitored hosts that name this payTo"""
    owner: Text | None = None
    """The site that the payTo belongs to, if it is another one"""
    shares: Count = 1
    """Number of sites among which its key shares it"""
    demand: DemandEvidence | None = None
    """Null if nothing is indexed or the payTo belongs to another site"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestState:
    """The state by the latest probe that describes the target (core/probe/probe): a scored one, a
    429, or one that confirms a failure.
    """

    at: Whole
    """Time of the probe, milliseconds since the epoch, UTC"""
    outcome: _Outcome
    """Outcome of the probe"""
    up: bool
    """Whether it was up; a refusal (429, 401, 403) is not"""
    payable: bool
    """Whether a stock client could have paid"""
    unconfirmed: bool = False
    """Whether it is a first failure after a payable state, not confirmed yet"""
    since: Whole | None = None
    """Only after several failures in a row: time of the first, milliseconds since the epoch, UTC"""
    payable_since: Whole | None = None
    """Begin of the latest period in which it was payable, milliseconds since the epoch, UTC; null
    if it never was"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastProbe:
    """The result of one scored probe."""

    at: Whole
    """Time of the probe, milliseconds since the epoch, UTC"""
    outcome: _Outcome
    """Outcome of the probe"""
    up: bool
    """Whether it counts as up"""
    payable: bool
    """Whether a stock client could have paid"""
    accepts: Whole | None
    """Number of payment terms; null without an envelope"""
    tls_not_after: Whole | None
    """End of the certificate's validity, milliseconds since the epoch, UTC"""
    rules: tuple[
        tuple[
            Annotated[str, Field(max_length=128)],
            Annotated[str, WithJsonSchema({"enum": [*Severity]})],
            Text,
        ],
        ...,
    ] = ()
    """Lint rules that fired: [slug, severity, message]"""

    def breaks(self, rule: str) -> bool:
        """Return whether a lint rule fired."""
        return any(fired == rule for fired, _, _ in self.rules)

    @classmethod
    def of(cls, result: AnyProbe) -> LastProbe:
        """Return the part of a result that evidence contains."""
        return cls(
            at=result.at,
            outcome=result.outcome.value,
            up=result.up,
            payable=result.payable,
            accepts=result.accepts,
            tls_not_after=result.tls_not_after,
            rules=tuple((one.rule, one.severity.value, one.message) for one in result.findings),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All data that a score depends on. The SHA-256 digest of its RFC 8785 form is in the report.
    The order of arrays has no meaning; the canonical form sorts them.
    """

    __pydantic_config__ = ConfigDict(
        alias_generator=to_camel, serialize_by_alias=True, use_attribute_docstrings=True
    )

    resource: Text
    """Canonical URL of the endpoint"""
    as_of: Whole
    """End of the window, milliseconds since the epoch, UTC"""
    first_seen: Whole
    """When the endpoint was first known, milliseconds since the epoch, UTC"""
    listed: bool = True
    """Whether any directory lists it now"""
    templated: bool = False
    """Whether its path contains a placeholder"""
    wildcard: bool = False
    """Whether a 402 of its host proves nothing, because unlisted paths answer 402 too"""
    injection: bool = False
    """Whether its texts look like instructions to an agent"""
    quote: Quote | None = None
    """The advertised price"""
    days: Annotated[
        tuple[Rollup, ...],
        PlainValidator(days_from_document),
        WithJsonSchema({"maxItems": 4_096}),
    ] = ()
    """Probes of the window, one row per UTC day: the current day and the 30 before it"""
    last: LastProbe | None = None
    """The latest scored probe"""
    envelope: LastProbe | None = None
    """The latest scored probe with a payment envelope, if `last` has none: a failed probe does not
    describe the envelope and must not lift its cap"""
    changes: tuple[TermChange, ...] = ()
    """Changes in the window"""
    chain: ChainEvidence | None = None
    state: LatestState | None = None
    interval: Whole = 30 * MINUTE_MS
    """Present probe interval of the endpoint, in milliseconds"""
    site_median_tenths: Annotated[int, Field(ge=0, le=1_000)] | None = None
    """Median score of its site's other endpoints if it is a new path of a known site"""
    paid_not_delivered: bool = False
    """Whether a purchase settled and was not delivered"""
    anchors: Annotated[tuple[Anchor, ...], Field(max_length=10_000)] = ()
    """Anchors that demand was measured by"""
    format: Annotated[int, WithJsonSchema({"type": "integer", "const": FORMAT})] = FORMAT
    """Version of this form"""
    forms: Annotated[
        tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=MAX_FORMS)
    ] = ()
    """Only if known: the forms of payment that it offers, each as network, space, form, such as
    `eip155:8453 eip3009`"""
    pay_to_varies: Annotated[bool, WithJsonSchema({"type": "boolean"})] = False
    """Only if true: each offer names another payTo, since observation began"""
    other_chains: Annotated[tuple[ChainEvidence, ...], Field(max_length=MAX_OFFERS)] = ()
    """Only if any: settlements to the other addresses that it offers, on indexed networks"""
