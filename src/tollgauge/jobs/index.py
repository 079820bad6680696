"""The index loop: follow a chain and store the transfers of watched wallets and all deposits at
this service's addresses.

A round, for one chain:
1. Adds wallets that endpoints newly ask to be paid at, and new addresses of this service.
2. Advances from the cursor: final blocks in ranges, newer ones one by one by hash. After a
   reorganisation, a step replaces the blocks above the last common one.
3. Back-fills wallets that were added late, newest blocks first, then this service's addresses
   (jobs/index_visit).
4. Audits newly final blocks: reads them again, at two nodes if possible, and adds missing
   transfers. A node may have omitted logs at the first reading.
5. Looks up who submitted the newest final settlements, and counts the attempts to settle in the
   newest block now and then, for the statistics of facilitators.
6. Marks endpoints with changed settlements for scoring; periodically measures the chain's volume
   and runs the reconciliation (jobs/settle).

Each step is fetched completely and then written in one transaction, so that a process can stop at
any point. If a node fails, the round continues at the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.logs import ChainLogs, ContradictionError, Fetched, Watched
from tollgauge.clients.chain.nodes import View
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.core.base.units import MINUTE_MS, Clock, address_bytes
from tollgauge.core.chain.blocks import (
    BlockHeader,
    Span,
    are_linked,
    find_fork,
    next_span,
)
from tollgauge.core.score.demand import addresses_on
from tollgauge.db.engine import Store
from tollgauge.jobs import settle
from tollgauge.jobs.index_visit import (
    PATIENCE,
    IndexRound,
    IndexState,
    Visit,
    count_attempts,
    fill_account,
    fill_wallets,
    look_up_submitters,
    run_at_nodes,
)
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.monitor import settlement
from tollgauge.observe import INDEX_MISSED, INDEX_TRANSFERS, log
from tollgauge.store.chain import cursors, deposits, periods, volumes, wallets
from tollgauge.store.chain.cursors import Cursor

LOOK_BACK_MS: Final = 10 * MINUTE_MS  # allowance for clocks of machines that write the ledger
SHARE: Final = 100  # measuring the volume takes at most 1% of the time; so does reconciliation
_FORK_BATCH: Final = 32  # block hashes compared per request when looking for a fork


async def run(
    store: Store,
    chain: ChainLogs,
    state: IndexState,
    *,
    settings: IndexSettings,
    clock: Clock,
    pay_to: str = "",
    anchors: Mapping[str, tuple[str, ...]] | None = None,
    read_signers: Callable[[], Awaitable[frozenset[bytes]]] | None = None,
) -> dict[str, object]:
    """Run one round. The tally counts blocks, entries, deposits and problems; `busy` requests
    another round immediately.

    `pay_to` is the address this service sells to now, empty if it sells nothing; `read_signers`
    returns the addresses of its facilitator.

    Raises:
        DeepReorgError: The chains of all nodes contradict a final block.
    """
    tally: Counter[str] = Counter()

    async def visit(view: View) -> dict[str, object]:
        return await _steps(
            Visit(
                id=chain.chain_id,
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
            ),
            read_signers,
        )

    return await run_at_nodes(chain.nodes, tally, visit)


async def _steps(
    visit: Visit, read_signers: Callable[[], Awaitable[frozenset[bytes]]] | None
) -> dict[str, object]:
    """Perform the steps of a round in order."""
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
    # At least one step, so that a long back-fill of wallets cannot starve this service's addresses.
    for done in range(visit.settings.fills):
        if (done and visit.late) or not await fill_account(visit, cursor):
            break
    else:
        busy = True
    for _ in range(visit.settings.steps):
        if visit.late or not await _audit(visit):
            break
    await look_up_submitters(visit, cursor)
    await count_attempts(visit)
    await publish(visit, read_signers)
    await _reconcile(visit)
    return {**visit.tally, "busy": busy}


async def _begin(visit: Visit) -> Cursor:
    """Return the chain's cursor; a new chain starts at its final block."""
    cursor = await visit.store.reading(cursors.cursor, visit.id)
    if cursor is not None:
        return cursor
    final = await visit.chain.nodes.headers(visit.view, [visit.view.finalized])
    if not final:
        raise RpcError("The node lacks its own final block.")
    return await visit.store.writing(cursors.start, visit.id, final[0])


async def _learn(visit: Visit, cursor: Cursor) -> Cursor:
    """Update the watched addresses and return the cursor."""
    state = visit.state
    if not state.anchors_saved:
        await visit.store.writing(volumes.save_anchors, visit.anchors, now=visit.clock())
        state.anchors_saved = True
    anchors = [one for texts in visit.anchors.values() for one in addresses_on(visit.id, texts)]
    new = await visit.store.reading(wallets.new_addresses, visit.id, anchors)
    if new:
        cursor = await visit.store.writing(cursors.add_wallets, cursor, new)
        visit.tally["wallets"] += len(new)
    cursor = await _learn_own(visit, cursor)
    if state.version != cursor.version:
        state.watched = await visit.store.reading(_read_watched, visit.id, visit.chain.token)
        state.version = cursor.version
    return cursor


def _read_watched(tx: Connection, chain: int, token: str) -> Watched:
    """Return the wallets that endpoints are paid at, and the addresses of this service."""
    own = frozenset(map(address_bytes, deposits.lows(tx, chain, token)))
    return Watched(frozenset(wallets.lows(tx, chain)), own)


async def _learn_own(visit: Visit, cursor: Cursor) -> Cursor:
    """Add new addresses from the configuration and the ledger."""
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
    """Advance one step, from the cursor or the last common block; return None if there is no
    step.
    """
    following = await _fetch_next(visit, cursor.number, parent=cursor.hash)
    common = None
    if following is None:
        common, parent = await _find_common(visit, cursor)
        if common is None:
            return None
        visit.tally["reorgs"] += 1
        following = await _fetch_next(visit, common, parent=parent)
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


async def _fetch_next(
    visit: Visit, number: int, *, parent: bytes
) -> tuple[list[BlockHeader], Fetched] | None:
    """Fetch the blocks after `number` and their transfers; None if they do not follow `parent`."""
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
    if len(headers) != span.blocks or not are_linked(headers, parent=parent):
        return None
    fetched = await visit.chain.tip(visit.view, headers, visit.state.watched)
    visit.tally["missed"] += fetched.missed
    return headers, fetched


async def _find_common(visit: Visit, cursor: Cursor) -> tuple[int | None, bytes]:
    """Return the last block that the node's chain shares with the indexed one, and its hash.

    None if the node's chain continues the indexed one or is behind it.
    """
    if (visit.view.head.number, visit.view.head.hash) == (cursor.number, cursor.hash):
        return None, b""
    known = await visit.store.reading(cursors.kept_hashes, visit.id)
    on_node: dict[int, bytes] = {}
    candidates = sorted((n for n in known if n <= visit.view.head.number), reverse=True)
    # Newest first: most reorganisations are a few blocks deep, so one batch is usually enough.
    for start in range(0, len(candidates), _FORK_BATCH):
        batch = candidates[start : start + _FORK_BATCH]
        for header in await visit.chain.nodes.headers(visit.view, batch):
            on_node[header.number] = header.hash
        if any(on_node.get(number) == known[number] for number in batch):
            break
    common = find_fork(known, on_node, head=visit.view.head.number)
    return (None, b"") if common is None else (common, known[common])


async def _audit(visit: Visit) -> bool:
    """Read newly final blocks a second time; return whether there were any."""
    cursor, hashes = await visit.store.reading(_read_indexed, visit.id)
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
    # A node that returns the known hash of a later block also has all earlier blocks.
    floor = min(hashes)
    for view in views:
        same = await visit.chain.nodes.headers(view, [floor])
        if floor < last or [header.hash for header in same] != [hashes[floor]]:
            return False
    try:
        await _add_missing(visit, cursor, Span(cursor.audited + 1, last, final=True), views)
    except ContradictionError as error:
        # It may last until the operator replaces a node, and must not stop the scores.
        log().warning("index.audit", chain=visit.id, why=str(error))
        visit.tally["contradicted"] += 1
        return False
    return True


def _read_indexed(tx: Connection, chain: int) -> tuple[Cursor | None, dict[int, bytes]]:
    """Return the chain's cursor and the hashes of its newest blocks by number."""
    return cursors.cursor(tx, chain), cursors.kept_hashes(tx, chain)


async def _add_missing(visit: Visit, cursor: Cursor, span: Span, views: list[View]) -> None:
    """Fetch final blocks again and store the transfers that are missing."""
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


async def publish(
    visit: IndexRound, read_signers: Callable[[], Awaitable[frozenset[bytes]]] | None = None
) -> None:
    """Count the round's transfers, mark endpoints with changed settlements, and measure the chain's
    volume if due.
    """
    store, chain, state, now = visit.store, visit.id, visit.state, visit.clock()
    INDEX_TRANSFERS.labels(chain).inc(visit.tally["entries"] - visit.tally["returned"])
    INDEX_MISSED.labels(chain).inc(visit.tally["missed"])
    published = await store.reading(periods.load_published)
    last = next((one for one in published if one.chain == chain), None)
    pause = max(visit.settings.volume_every_ms, SHARE * state.volume_ms)
    visit.tally["marked"] += await store.writing(
        wallets.mark_dirty, chain, now=now, every_ms=visit.settings.dirty_every_ms
    )
    if last is not None and now - max(last.as_of, state.volume_at) < pause:
        return
    state.volume_at = now
    signers = frozenset() if read_signers is None else await read_signers()
    await settlement.measure(store, chain, now=now, signers=signers)
    state.volume_ms = visit.clock() - now


async def _reconcile(visit: Visit) -> None:
    """Reconcile complete days if due."""
    state, now = visit.state, visit.clock()
    if now - state.reconciled_at < max(settle.RECONCILE_EVERY_MS, SHARE * state.reconciliation_ms):
        return
    state.reconciled_at = now
    visit.tally["unexplained"] += await settle.reconcile_days(visit.store, visit.id, now=now)
    state.reconciliation_ms = visit.clock() - now
