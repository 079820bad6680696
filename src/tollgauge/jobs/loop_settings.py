"""Settings of the loops.

They stand apart from the loops because every command reads the configuration, and importing the
loops takes 0.2 s of CPU time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.logs import LogSettings
from tollgauge.clients.directories import bazaar
from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.probe.attribution import DEFAULT, NAME_PATTERN, Vantages
from tollgauge.core.probe.schedule import Cadence

VantageName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
NAME_MAX: Final = 100
_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+", re.ASCII)
_ANCHOR: Final = re.compile(
    r"(eip155:[0-9]{1,15}:)?0x[0-9a-f]{40}|(solana:[A-Za-z0-9]{32}:)?[1-9A-HJ-NP-Za-km-z]{32,44}",
    re.ASCII,
)


class SourceKind(StrEnum):
    """Format of a source: a paged Bazaar listing, an origin's OpenAPI documents, or a file."""

    BAZAAR = "bazaar"
    OPENAPI = "openapi"
    FILE = "file"


def _check_name(name: str) -> str:
    if clean_text(name, NAME_MAX) != name:
        raise ValueError("is too long or contains odd characters")
    return name


@pydantic_dataclass(frozen=True, slots=True)
class Source:
    """A directory to crawl."""

    name: Annotated[str, Field(min_length=1, examples=["cdp"]), AfterValidator(_check_name)]
    """The source's name in discovery events."""
    kind: Annotated[SourceKind, Field(examples=["bazaar"])]
    """`bazaar`, `openapi` or `file`."""
    location: Annotated[
        str,
        Field(
            min_length=1,
            examples=["https://api.cdp.coinbase.com/platform/v2/x402/discovery/resources"],
        ),
    ]
    """The source's URL, or a file's path."""
    pause_ms: NonNegativeInt = bazaar.PAUSE_MS
    """Pause between two pages."""
    limit: Annotated[int, Field(ge=1, le=1_000)] = bazaar.LIMIT
    """Entries per page."""

    def __post_init__(self) -> None:
        if self.kind != SourceKind.FILE and not self.location.startswith("https://"):
            raise ValueError(
                f"The location of {self.name} is not an https:// URL. "
                f"Only the kind {SourceKind.FILE} accepts a path."
            )


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How endpoints are probed.

    A batch takes as long as its slowest endpoint. If every batch has an unresponsive one, a worker
    probes `wave * concurrent_waves` endpoints per probe deadline.
    """

    wave: PositiveInt = 128
    """Endpoints per round."""
    concurrent_waves: PositiveInt = 16
    """Concurrent rounds of a worker."""
    lease_ms: Annotated[int, Field(ge=SECOND_MS)] = 60_000
    """Duration of a worker's lease on a host."""
    catch_up: Annotated[int, Field(ge=2)] = 2
    """Maximum speed, as a multiple of the normal one, at which overdue probes are made up for."""
    late_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    """A host that waits longer for its probe raises the alarm."""
    references: tuple[str, ...] = ()
    """https URLs that show whether this machine is connected, before a failure is attributed to a
    seller: two or three sites that are always up. Default: the origins of [[sources]] and of the
    facilitator.
    """
    cadence: Cadence = field(default_factory=Cadence)
    """How often and how gently endpoints are probed."""
    vantage: VantageName = DEFAULT
    """The name of the network location from which this process probes."""
    vantages: tuple[VantageName, ...] = ()
    """The names of all locations, if workers probe from several. The first is the primary one: its
    probes are scored, and `serve` runs there (docs/operating/processes.md).
    """

    def __post_init__(self) -> None:
        if len(set(self.vantages)) < len(self.vantages):
            raise ValueError("vantages contains a name twice")
        if self.vantages and self.vantage not in self.vantages:
            raise ValueError(f"vantage {self.vantage!r} is not in vantages")

    @property
    def places(self) -> Vantages:
        """The location of this process and all others."""
        return Vantages(own=self.vantage, all=self.vantages)


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """How many endpoints are scored together, and the maximum age of a score."""

    batch: PositiveInt = 200
    """Endpoints per round."""
    max_age_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = DAY_MS
    """Maximum age of a score; at most 24 hours."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How many forecasts are tested."""

    forecasts_per_hour: NonNegativeInt = 500
    """Forecasts stored per hour for comparison with the outcomes; 0 stores none."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class BundleSettings:
    """Interval of the bundle loop."""

    every_ms: Annotated[int, Field(ge=SECOND_MS, le=HOUR_MS)] = HOUR_MS
    """Time between two builds; at most one hour, after which clients fetch again."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings(LogSettings):
    """How a chain is followed, in addition to how its logs are fetched."""

    every_ms: PositiveInt = 5_000
    """Time between two rounds."""
    steps: PositiveInt = 20
    """Maximum steps forward per round."""
    fills: int = 20
    """Maximum back-filling steps per round."""
    fill_wallets: PositiveInt = 5_000
    """Wallets back-filled per step."""
    audit: PositiveInt = 150
    """Newly final blocks that are audited together."""
    dirty_every_ms: int = 10 * MINUTE_MS
    """Minimum time between two scores of an endpoint because of changed settlements."""
    volume_every_ms: int = 5 * MINUTE_MS
    """Time between two measurements of the chain's volume, and between two reconciliations."""
    submitters: NonNegativeInt = 100
    """Settlement transactions per round whose submitter is looked up for the statistics of
    facilitators; 0 turns this off.
    """
    sample_every_ms: NonNegativeInt = 5 * MINUTE_MS
    """Time between two blocks that are read whole, to count how many payments facilitators failed
    to settle; 0 turns this off.
    """
    round_ms: int = 20_000
    """A round starts no further step after this time."""


def _owner(text: str) -> str:
    if not _DOMAIN.fullmatch(text):
        raise ValueError("must be the domain of an owner, such as books.example")
    return text


def _addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    addresses = tuple(text.lower() if "0x" in text.lower() else text for text in texts)
    if not addresses or not all(map(_ANCHOR.fullmatch, addresses)):
        raise ValueError(
            "must be a list of addresses, each 0x and 40 hex digits, or a key of Solana; with its "
            "network before it (eip155:ID:, solana:ID:) if it counts on one network only"
        )
    return addresses


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class DemandSettings:
    """Which payers are proven."""

    anchors: Annotated[
        Mapping[
            Annotated[str, AfterValidator(_owner)],
            Annotated[tuple[str, ...], AfterValidator(_addresses)],
        ],
        Field(
            examples=[
                {
                    "books.example": ("0x1111111111111111111111111111111111111111",),
                    "maps.example": ("0x2222222222222222222222222222222222222222",),
                }
            ]
        ),
    ] = field(default_factory=dict)
    """payTo addresses that prove payers, by the domain of their owner; at least two owners that are
    independent of each other and of every seller. `eip155:ID:ADDRESS` counts only on the chain with
    this number, `solana:ID:ADDRESS` only on this network of Solana. See docs/operating/anchors.md.
    """
