"""A visit: one round of the index loop at one node of a chain, and what its steps work with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.logs import ChainLogs, LogSettings, Watched
from tollgauge.clients.chain.nodes import View
from tollgauge.core.base.units import MINUTE_MS, Clock
from tollgauge.db.engine import Store

PATIENCE: Final = 60
"""How many rounds a step waits for a second node that should confirm what the first one says."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings(LogSettings):
    """How a chain is followed, besides how its logs are asked for."""

    every_ms: PositiveInt = 5_000
    """Between two rounds."""
    steps: PositiveInt = 20
    """Steps forward that a round makes at most."""
    fills: int = 20
    """Steps into the past of new wallets that it makes at most."""
    fill_wallets: PositiveInt = 5_000
    """Wallets filled at once."""
    audit: PositiveInt = 150
    """Newly final blocks that are read a second time together."""
    dirty_every_ms: int = 10 * MINUTE_MS
    """An endpoint is scored again for changed settlements at most so often."""
    volume_every_ms: int = 5 * MINUTE_MS
    """How often the chain's volume is measured, and the books are checked."""
    round_ms: int = 20_000
    """After so long a round begins no further step."""


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
    clock: Clock
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
