"""The index loop: follow a chain, and keep what the watched wallets received and sent, and
everything that came to the addresses that we sell to.

A round, for one chain:
1. learns the wallets that endpoints are newly paid at, and the addresses that we newly sell to;
2. goes forward from the cursor, step by step: final blocks in ranges, later ones one by one by
   hash. Where the chain was reorganised, a step replaces what is above the last common block;
3. fills in the past of wallets that were learned late, from the newest blocks downwards, and
   that of our own addresses after it (jobs/index_visit);
4. reads blocks that became final since a second time, at two nodes where there are two, and adds
   what the first reading lacked: a node may have hidden logs that it did have;
5. marks endpoints whose settlements changed for a new score; now and then it measures the chain's
   volume and checks the books (jobs/settle).
Every step is fetched whole before it is written in one transaction, so a process that dies at any
point leaves a state from which the next one goes on. A node that fails gives way to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.logs import ChainLogs, Fetched, Watched
from tollgauge.clients.chain.nodes import View
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.core.base.units import MINUTE_MS, Clock
from tollgauge.core.chain.blocks import BlockHeader, DeepReorgError, Span, fork, linked, next_span
from tollgauge.db.engine import Store
from tollgauge.jobs import settle
from tollgauge.jobs.index_visit import (
    PATIENCE,
    IndexSettings,
    IndexState,
    Visit,
    fill_account,
    fill_wallets,
)
from tollgauge.monitor import settlement
from tollgauge.observe import log
from tollgauge.store.chain import cursors, deposits, volumes, wallets
from tollgauge.store.chain.cursors import Cursor

LOOK_BACK_MS: Final = 10 * MINUTE_MS
"""The clocks of those who write the ledger differ by less."""
SHARE: Final = 100
"""Measuring a chain's volume takes at most one part in so many of the time, and so does checking
the books."""
_FORKS: Final = 32


async def run(
    store: Store,
    chain: ChainLogs,
    state: IndexState,
    *,
    settings: IndexSettings,
    clock: Clock,
    pay_to: str = "",
    anchors: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, object]:
    """One round; the tally counts blocks, entries, deposits and what went wrong, `busy` asks for
    the next. `pay_to` is the address that we sell to now, empty where nothing is sold.

    Raises DeepReorgError when every node's chain disagrees with what is final.
    """
    tally: Counter[str] = Counter()
    deep: DeepReorgError | None = None
    for _ in range(chain.nodes.count):
        try:
            view = await chain.nodes.view()
        except RpcError as error:
            log().warning("index.unreachable", chain=chain.chain_id, why=str(error))
            break
        try:
            visit = Visit(
                store=store,
                chain=chain,
                state=state,
                view=view,
                settings=settings,
                clock=clock,
                until=clock() + settings.round_ms,
                tally=tally,
                pay_to=pay_to.lower(),
                anchors=anchors or {},
            )
            return await _steps(visit)
        except (RpcError, DeepReorgError) as error:
            chain.nodes.failed(
                view.node, error if isinstance(error, RpcError) else RpcError(str(error))
            )
            log().warning("index.node", chain=chain.chain_id, node=view.node.name, why=str(error))
            deep = error if isinstance(error, DeepReorgError) else None
        except cursors.CursorOvertakenError:
            return {**tally, "overtaken": 1}
    if deep is not None:
        raise deep
    return {**tally, "unreachable": 1}


async def _steps(visit: Visit) -> dict[str, object]:
    """The steps of a round, in their order."""
    cursor = await _learn(visit, await _begin(visit))
    if not visit.state.watched.receivers:
        return dict(visit.tally)
    busy = False
    for _ in range(visit.settings.steps):
        after = await _forward(visit, cursor)
        if after is None:
            break
        busy = after.number < visit.view.head.number
        cursor = after
        if visit.late:
            break
    for _ in range(visit.settings.fills):
        if visit.late or not await fill_wallets(visit, cursor):
            break
    else:
        busy = True
    # One step at least, so that a long past of the wallets does not keep our own waiting.
    for done in range(visit.settings.fills):
        if (done and visit.late) or not await fill_account(visit, cursor):
            break
    else:
        busy = True
    for _ in range(visit.settings.steps):
        if visit.late or not await _audit(visit):
            break
    await _publish(visit)
    await _check_books(visit)
    return {**visit.tally, "busy": busy}


async def _begin(visit: Visit) -> Cursor:
    """Where the chain is indexed to; a new chain begins at its final block."""
    cursor = await visit.store.reading(cursors.cursor, visit.id)
    if cursor is not None:
        return cursor
    final = await visit.chain.nodes.headers(visit.view, [visit.view.finalized])
    if not final:
        raise RpcError("The node lacks its own final block.")
    return await visit.store.writing(cursors.start, visit.id, final[0])


async def _learn(visit: Visit, cursor: Cursor) -> Cursor:
    """Whom to watch: with the wallets that endpoints newly name, the anchors, and our own."""
    state = visit.state
    if not state.anchors_saved:
        await visit.store.writing(volumes.save_anchors, visit.anchors, now=visit.clock())
        state.anchors_saved = True
    anchors = [address for addresses in visit.anchors.values() for address in addresses]
    new = await visit.store.reading(wallets.new_addresses, visit.id, anchors)
    if new:
        cursor = await visit.store.writing(cursors.add_wallets, cursor, new)
        visit.tally["wallets"] += len(new)
    cursor = await _learn_own(visit, cursor)
    if state.version != cursor.version:
        state.watched = await visit.store.reading(_watched, visit.id, visit.chain.token)
        state.version = cursor.version
    return cursor


def _watched(tx: Connection, chain: int, token: str) -> Watched:
    """The wallets that endpoints are paid at, and the addresses that we sell to."""
    return Watched(frozenset(wallets.lows(tx, chain)), frozenset(deposits.lows(tx, chain, token)))


async def _learn_own(visit: Visit, cursor: Cursor) -> Cursor:
    """Add the addresses that the configuration and the ledger name and that are new."""
    state, now = visit.state, visit.clock()
    addresses, wanted_from = await visit.store.reading(
        settlement.new_accounts,
        visit.id,
        visit.chain.token,
        pay_to=visit.pay_to,
        since=state.ledger_at - LOOK_BACK_MS,
        now=now,
    )
    if addresses:
        cursor = await visit.store.writing(
            cursors.add_accounts, cursor, visit.chain.token, addresses, wanted_from=wanted_from
        )
        visit.tally["accounts"] += len(addresses)
    state.ledger_at = now
    return cursor


async def _forward(visit: Visit, cursor: Cursor) -> Cursor | None:
    """One step from the cursor, or from the last common block; None when there is none."""
    following = await _next(visit, cursor.number, parent=cursor.hash)
    common = None
    if following is None:
        common, parent = await _common(visit, cursor)
        if common is None:
            return None
        visit.tally["reorgs"] += 1
        following = await _next(visit, common, parent=parent)
        if following is None:
            visit.tally["moved"] += 1
            return None
    headers, fetched = following
    after = await visit.store.writing(
        cursors.advance,
        cursor,
        headers,
        fetched.entries,
        received=fetched.deposits,
        finalized=visit.view.finalized,
        common=common,
    )
    visit.tally["blocks"] += after.number - (cursor.number if common is None else common)
    visit.tally["entries"] += len(fetched.entries)
    visit.tally["deposits"] += len(fetched.deposits)
    return after


async def _next(
    visit: Visit, number: int, *, parent: bytes
) -> tuple[list[BlockHeader], Fetched] | None:
    """The blocks after one, and what they hold; None where they do not follow it."""
    span = next_span(
        number,
        head=visit.view.head.number,
        finalized=visit.view.finalized,
        most=visit.chain.span(visit.view),
        most_tip=visit.settings.tip_span,
    )
    if span is None:
        return None
    if span.final:
        fetched = await visit.chain.final(visit.view, span, visit.state.watched)
        visit.tally["missed"] += fetched.missed
        if fetched.headers[span.first].parent != parent:
            return None
        return [fetched.headers[span.last]], fetched
    headers = await visit.chain.nodes.headers(visit.view, range(span.first, span.last + 1))
    if len(headers) != span.blocks or not linked(headers, parent=parent):
        return None
    fetched = await visit.chain.tip(visit.view, headers, visit.state.watched)
    visit.tally["missed"] += fetched.missed
    return headers, fetched


async def _common(visit: Visit, cursor: Cursor) -> tuple[int | None, bytes]:
    """The last block that the node's chain and the indexed one have in common, with its hash; None
    where the node's chain goes on from the indexed one, or is behind it.
    """
    if (visit.view.head.number, visit.view.head.hash) == (cursor.number, cursor.hash):
        return None, b""
    known = await visit.store.reading(cursors.kept_hashes, visit.id)
    on_node: dict[int, bytes] = {}
    candidates = sorted((n for n in known if n <= visit.view.head.number), reverse=True)
    for start in range(0, len(candidates), _FORKS):
        batch = candidates[start : start + _FORKS]
        for header in await visit.chain.nodes.headers(visit.view, batch):
            on_node[header.number] = header.hash
        if any(on_node.get(number) == known[number] for number in batch):
            break
    common = fork(known, on_node, head=visit.view.head.number)
    return (None, b"") if common is None else (common, known[common])


async def _audit(visit: Visit) -> bool:
    """Read blocks that are final now a second time; whether there were any."""
    cursor, hashes = await visit.store.reading(_indexed, visit.id)
    if cursor is None:
        return False
    final = min(visit.view.finalized, cursor.number)
    if final - cursor.audited < visit.settings.audit:
        return False
    second = await visit.chain.nodes.second(visit.view, final)
    waited = final - cursor.audited >= PATIENCE * visit.settings.audit
    if second is None and visit.chain.nodes.count > 1 and not waited:
        return False
    views = [visit.view] if second is None else [visit.view, second]
    last = min(final, cursor.audited + visit.chain.span(visit.view))
    # A node that has the known hash of a later block has all blocks before it too.
    floor = min(hashes)
    for view in views:
        same = await visit.chain.nodes.headers(view, [floor])
        if floor < last or [header.hash for header in same] != [hashes[floor]]:
            return False
    await _add_missing(visit, cursor, Span(cursor.audited + 1, last, final=True), views)
    return True


def _indexed(tx: Connection, chain: int) -> tuple[Cursor | None, dict[int, bytes]]:
    """Where a chain is indexed to, and the hashes of its newest blocks by number."""
    return cursors.cursor(tx, chain), cursors.kept_hashes(tx, chain)


async def _add_missing(visit: Visit, cursor: Cursor, span: Span, views: list[View]) -> None:
    """Fetch final blocks again, and store what is not stored yet."""
    fetched = await visit.chain.final_of_all(views, span, visit.state.watched)
    added = await visit.store.writing(
        settlement.add_missing,
        cursor,
        span,
        visit.chain.token,
        entries=fetched.entries,
        received=fetched.deposits,
        at=fetched.headers[span.last].at,
    )
    visit.tally["audited"] += span.blocks
    visit.tally["missed"] += added


async def _publish(visit: Visit) -> None:
    """Mark endpoints whose settlements changed, and measure the chain now and then."""
    now = visit.clock()
    published = await visit.store.reading(volumes.published)
    last = next((volume for volume in published if volume.chain == visit.id), None)
    pause = max(visit.settings.volume_every_ms, SHARE * visit.state.volume_ms)
    marked = await visit.store.writing(
        wallets.mark_dirty, visit.id, now=now, every_ms=visit.settings.dirty_every_ms
    )
    visit.tally["marked"] += marked
    if last is not None and now - max(last.as_of, visit.state.volume_at) < pause:
        return
    visit.state.volume_at = now
    await settlement.measure(visit.store, visit.id, now=now)
    visit.state.volume_ms = visit.clock() - now


async def _check_books(visit: Visit) -> None:
    """The days that are complete, now and then."""
    state, now = visit.state, visit.clock()
    if now - state.books_at < max(settle.BOOKS_EVERY_MS, SHARE * state.books_ms):
        return
    state.books_at = now
    visit.tally["unexplained"] += await settle.check_books(visit.store, now=now)
    state.books_ms = visit.clock() - now
