"""The audit of the index loop: a second look at blocks that became final since the first.

A node may have hidden logs that it did have: what two nodes, where there are two, show now and the
first look lacked is added.
"""

from __future__ import annotations

from sqlalchemy import Connection

from tollgauge.clients.chain.logs import View
from tollgauge.core.blocks import Span
from tollgauge.jobs.index_visit import PATIENCE, Visit
from tollgauge.monitor import settlement
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain.cursors import Cursor


async def look(visit: Visit) -> bool:
    """A second look at blocks that are final now; whether there was something to look at."""
    cursor, kept = await visit.store.reading(_indexed, visit.id)
    if cursor is None:
        return False
    final = min(visit.view.finalized, cursor.number)
    if final - cursor.audited < visit.settings.audit:
        return False
    second = await visit.chain.nodes.second(visit.view, final)
    waited = final - cursor.audited >= PATIENCE * visit.settings.audit
    if second is None and visit.chain.nodes.width > 1 and not waited:
        return False
    views = [visit.view] if second is None else [visit.view, second]
    last = min(final, cursor.audited + visit.chain.span(visit.view))
    # That the kept hash of a later block is theirs vouches for all blocks before it.
    floor = min(kept)
    for view in views:
        same = await visit.chain.nodes.headers(view, [floor])
        if floor < last or [header.hash for header in same] != [kept[floor]]:
            return False
    return await _add_missing(visit, cursor, Span(cursor.audited + 1, last, final=True), views)


def _indexed(tx: Connection, chain: int) -> tuple[Cursor | None, dict[int, bytes]]:
    """Where a chain is indexed to, and the hashes of its newest blocks by number."""
    return chains.cursor(tx, chain), chains.kept_hashes(tx, chain)


async def _add_missing(visit: Visit, cursor: Cursor, span: Span, views: list[View]) -> bool:
    seen = await visit.chain.every(views, span, visit.chain.state.watched)
    added = await visit.store.writing(
        settlement.add_missing,
        cursor,
        span,
        visit.chain.token,
        entries=seen.entries,
        received=seen.deposits,
        at=seen.headers[span.last].at,
    )
    visit.tally["audited"] += span.blocks
    visit.tally["healed"] += added
    return True
