"""The past of addresses that the index loop learned of late: wallets, and our own.

It is filled in step by step, from the newest blocks downwards. Nothing reads these blocks again
(the loop itself reads again those that became final after they were read), so what they hold is
confirmed by a second node where there is one.
"""

from __future__ import annotations

from typing import Final

from tollgauge.clients.chain.logs import Fetched, UnconfirmedError, Watched
from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.chain.blocks import Header, Span, previous_span
from tollgauge.jobs.index_visit import PATIENCE, Visit
from tollgauge.store.chain import cursors, deposits, wallets
from tollgauge.store.chain.cursors import Cursor

BACK_MS: Final = WINDOW_MS + DAY_MS
"""How far back a wallet is filled in: the window, and a day for clocks and edges."""


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


async def _indexed(visit: Visit, span: Span) -> list[Header] | None:
    """The node's headers of a span, None unless they are those that are indexed."""
    headers = await visit.chain.nodes.headers(visit.view, range(span.first, span.last + 1))
    hashes = await visit.store.reading(cursors.kept_hashes, visit.id)
    same = len(headers) == span.blocks and all(
        hashes.get(header.number) == header.hash for header in headers
    )
    return headers if same else None
