"""A visit: one round of the index loop at one node of a chain, and its steps into the past.

The past of addresses that the loop learned late, wallets and our own, is filled in from the newest
blocks downwards. These blocks are not read a second time, so they are confirmed by a second node
where there is one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.logs import ChainLogs, Fetched, LogSettings, UnconfirmedError, Watched
from tollgauge.clients.chain.nodes import View
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, WINDOW_MS, Clock
from tollgauge.core.chain.blocks import BlockHeader, Span, previous_span
from tollgauge.db.engine import Store
from tollgauge.store.chain import cursors, deposits, wallets
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.chain.wallets import ADDRESS

_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+", re.ASCII)
PATIENCE: Final = 60  # rounds that a step waits for the confirmation of a second node
BACK_MS: Final = WINDOW_MS + DAY_MS  # the past of a wallet: the window, and a day for clocks


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


def _owner(text: str) -> str:
    if not _DOMAIN.fullmatch(text):
        raise ValueError("must be the domain of an owner, such as books.example")
    return text


def _addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    addresses = tuple(text.lower() for text in texts)
    if not addresses or not all(map(ADDRESS.fullmatch, addresses)):
        raise ValueError("must be a list of addresses, each 0x and 40 hex digits")
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
    independent of each other and of every seller. See docs/operating/anchors.md."""


@dataclass(slots=True)
class IndexState:
    """What the loop remembers between rounds, so that the next need not ask: who is `watched` in a
    `version` of that set, how many answers in a row nobody could confirm, for wallets and for
    deposits, up to when the ledger was searched for addresses of ours, and when the chain's volume
    was last measured, the books last checked, and how long that took.
    """

    watched: Watched = field(default_factory=Watched)
    anchors_saved: bool = False
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
    sell to now, in lower case, empty where nothing is sold; `anchors` are the addresses by owner
    that prove payers.
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
    anchors: Mapping[str, tuple[str, ...]]

    @property
    def id(self) -> int:
        """The chain's id."""
        return self.chain.chain_id

    @property
    def late(self) -> bool:
        """Whether the round's time is over."""
        return self.clock() > self.until


async def fill_wallets(visit: Visit, cursor: Cursor) -> bool:
    """One step into the past of the wallets that need it; whether there was one."""
    missing = await visit.store.reading(
        wallets.backlog, visit.id, limit=visit.settings.fill_wallets
    )
    if missing is None:
        return False
    past = await _past(visit, missing.low, Watched(missing.wallets), floor=missing.floor)
    if past is None:
        return False
    span, fetched = past
    await visit.store.writing(
        cursors.fill,
        cursor,
        missing,
        fetched.entries,
        low=span.first,
        low_at=fetched.headers[span.first].at,
        wanted_from=visit.clock() - BACK_MS,
    )
    visit.tally["filled"] += span.blocks
    visit.tally["entries"] += len(fetched.entries)
    return True


async def fill_account(visit: Visit, cursor: Cursor) -> bool:
    """One step into the past of an address of ours; whether there was one."""
    token = visit.chain.token
    backlog = await visit.store.reading(deposits.backlog, visit.id, token)
    if backlog is None:
        return False
    past = await _past(visit, backlog.low, Watched(own=frozenset([backlog.address])), floor=0)
    if past is None:
        return False
    span, fetched = past
    low_at = fetched.headers[span.first].at
    await visit.store.writing(
        cursors.fill_account,
        cursor,
        token,
        backlog,
        fetched.deposits,
        low=span.first,
        low_at=low_at,
    )
    visit.tally["filled"] += span.blocks
    visit.tally["deposits"] += len(fetched.deposits)
    return True


async def _past(
    visit: Visit, low: int, whose: Watched, *, floor: int
) -> tuple[Span, Fetched] | None:
    """The blocks before one, down to `floor`, and what they hold; None when it has to wait."""
    span = previous_span(
        low,
        floor=floor,
        most=visit.chain.span(visit.view),
        finalized=visit.view.finalized,
        most_tip=visit.settings.tip_span,
    )
    if span is None:
        return None
    if span.final:
        fetched = await _confirmed(visit, span, whose)
        return None if fetched is None else (span, fetched)
    headers = await _indexed(visit, span)
    if headers is None:
        visit.tally["moved"] += 1
        return None
    return span, await visit.chain.tip(visit.view, headers, whose)


async def _confirmed(visit: Visit, span: Span, whose: Watched) -> Fetched | None:
    """What is in final blocks that nothing will read again: so where a second node should
    confirm it, it is waited for, but not for ever.
    """
    kind = "deposits" if whose.own else "entries"
    strict = visit.state.unconfirmed[kind] < PATIENCE
    try:
        fetched = await visit.chain.final(visit.view, span, whose, strict=strict)
    except UnconfirmedError:
        visit.state.unconfirmed[kind] += 1
        visit.tally["unconfirmed"] += 1
        return None
    visit.state.unconfirmed[kind] = 0
    return fetched


async def _indexed(visit: Visit, span: Span) -> list[BlockHeader] | None:
    """The node's headers of a span, None unless they are those that are indexed."""
    headers = await visit.chain.nodes.headers(visit.view, range(span.first, span.last + 1))
    hashes = await visit.store.reading(cursors.kept_hashes, visit.id)
    same = len(headers) == span.blocks and all(
        hashes.get(header.number) == header.hash for header in headers
    )
    return headers if same else None
