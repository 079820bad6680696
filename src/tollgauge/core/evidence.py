"""Evidence: all that scoring may look at, as of a moment.

A score is a function of its evidence and the policy alone. The evidence has a JSON form with a
published schema; its canonical text (RFC 8785) has the digest that a report names.
"""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.core.rollup import Rollup
from tollgauge.core.terms import Quote


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
    changes: tuple[Change, ...] = ()
    chain: ChainEvidence | None = None
