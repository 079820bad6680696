"""A visit: one round of the index loop at one node of a chain, and what its steps work with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tollgauge.clients.chain.log_query import TOPICS_MAX
from tollgauge.clients.chain.logs import ChainLogs, LogSettings, Watched
from tollgauge.clients.chain.nodes import View
from tollgauge.core.units import MINUTE_MS
from tollgauge.db.engine import Store

PATIENCE: Final = 60
"""How many rounds a step waits for a second node that should confirm what the first one says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """How a chain is followed.

    A round makes at most `steps` steps forward and `fills` into the past, for `fill_wallets`
    wallets at once; `audit` is how many newly final blocks are worth a second look. An endpoint
    is told of changed settlements at most once in `dirty_every_ms`. The rest is as in
    LogSettings.
    """

    every_ms: int = 5_000
    steps: int = 20
    fills: int = 20
    fill_wallets: int = 5_000
    audit: int = 150
    dirty_every_ms: int = 10 * MINUTE_MS
    volume_every_ms: int = 5 * MINUTE_MS
    round_ms: int = 20_000
    span: int = 2_000
    tip_span: int = 64
    topics: int = 500
    logs: int = 10_000
    check: float = 0.05
    finality: int = 900
    by_hash: int = 400
    rest_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("every_ms", "steps", "fill_wallets", "audit", "span", "tip_span", "logs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if not 1 <= self.topics <= TOPICS_MAX:
            raise ValueError(f"topics must be from 1 to {TOPICS_MAX}")
        if not 0 <= self.check <= 1:
            raise ValueError("check is a share from 0 to 1")

    @property
    def asking(self) -> LogSettings:
        """The part that the chain's client needs."""
        return LogSettings(
            span=self.span,
            tip_span=self.tip_span,
            topics=self.topics,
            logs=self.logs,
            check=self.check,
            finality=self.finality,
            by_hash=self.by_hash,
            rest_s=self.rest_s,
        )


@dataclass(slots=True)
class IndexState:
    """What the loop remembers between rounds, so that the next need not ask: who is `watched` in a
    `version` of that set, how many answers in a row nobody could confirm, for wallets and for
    deposits, up to when the ledger was searched for addresses of ours, and when the chain's volume
    was last measured, the books last checked, and how long that took.
    """

    watched: Watched = field(default_factory=Watched)
    version: int = -1
    unconfirmed: Counter[str] = field(default_factory=Counter)
    ledger_at: int = 0
    volume_at: int = 0
    volume_ms: int = 0
    books_at: int = 0
    books_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One round at one node.

    `view` is the node with its head; `until` is when the round begins no further step (ms UTC);
    `tally` counts what was done, also at nodes that failed before; `pay_to` is the address that we
    sell to now, in lower case, empty where nothing is sold.
    """

    store: Store
    chain: ChainLogs
    state: IndexState
    view: View
    settings: IndexSettings
    clock: Callable[[], int]
    until: int
    tally: Counter[str]
    pay_to: str

    @property
    def id(self) -> int:
        """The chain's id."""
        return self.chain.chain_id

    @property
    def late(self) -> bool:
        """Whether the round's time is over."""
        return self.clock() > self.until
