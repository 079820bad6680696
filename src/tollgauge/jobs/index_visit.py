"""A visit: one round of the index loop at one node, its back-filling of addresses added late, and
its statistics of facilitators.

Back-filling goes from the newest blocks downwards. These blocks are not audited later, so a second
node confirms them if there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tollgauge.clients.chain.logs import ChainLogs, Fetched, UnconfirmedError, Watched
from tollgauge.clients.chain.nodes import ChainNodes, View
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.chain.transactions import sample_block
from tollgauge.core.base.units import (
    DAY_MS,
    MINUTE_MS,
    WINDOW_MS,
    Clock,
    address_bytes,
    day_of,
)
from tollgauge.core.chain.blocks import BlockHeader, DeepReorgError, Span, previous_span
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.observe import log
from tollgauge.store.chain import cursors, deposits, submitters, wallets
from tollgauge.store.chain.cursors import Cursor

PATIENCE: Final = 60  # rounds that a step waits for the confirmation of a second node
LOOKUP_RETRY_MS: Final = 10 * MINUTE_MS  # pause after a node refused to return transactions
BACK_MS: Final = WINDOW_MS + DAY_MS  # back-filled time of a wallet; one day allows for clocks


@dataclass(slots=True)
class IndexState:
    """State that the loop keeps between rounds to save queries.

    - `watched` is the set of addresses at its `version`.
    - `unconfirmed` counts consecutive answers without confirmation, for wallets and deposits.
    - `ledger_at` is the time up to which the ledger was searched for addresses.
    - `submitters_after` is the time before which submitters are not looked up, because the node
      refused it.
    - `sampled_at` is the time at which a whole block was last read.
    - The remaining fields state when volume and reconciliation last ran and how long that took.
    """

    watched: Watched = field(default_factory=Watched)
    anchors_saved: bool = False
    version: int = -1
    unconfirmed: Counter[str] = field(default_factory=Counter)
    ledger_at: int = 0
    volume_at: int = 0
    volume_ms: int = 0
    submitters_after: int = 0
    sampled_at: int = 0
    reconciled_at: int = 0
    reconciliation_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRound:
    """One round of a chain.

    - `id` is the chain's number.
    - `tally` also includes work at nodes that failed before.
    - `until` is the time after which no further step starts (ms UTC).
    """

    id: int
    store: Store
    state: IndexState
    settings: IndexSettings
    clock: Clock
    tally: Counter[str]
    until: int

    @property
    def late(self) -> bool:
        """Whether the round's time is over."""
        return self.clock() > self.until


async def run_at_nodes(
    nodes: ChainNodes,
    tally: Counter[str],
    visit: Callable[[View], Awaitable[dict[str, object]]],
) -> dict[str, object]:
    """Run a round at the first node that responds, and continue at the next one if it fails.

    Raises:
        DeepReorgError: The chains of all nodes contradict a final block.
    """
    deep: DeepReorgError | None = None
    for _ in range(nodes.count):
        try:
            view = await nodes.view()
        except RpcError as error:
            log().warning("index.unreachable", chain=nodes.chain_id, why=str(error))
            break
        try:
            return await visit(view)
        except (RpcError, DeepReorgError) as error:
            nodes.record_failure(
                view.node, error if isinstance(error, RpcError) else RpcError(str(error))
            )
            log().warning("index.node", chain=nodes.chain_id, node=view.node.name, why=str(error))
            deep = error if isinstance(error, DeepReorgError) else None
        except cursors.CursorOvertakenError:
            return {**tally, "overtaken": 1}
    if deep is not None:
        raise deep
    return {**tally, "unreachable": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit(IndexRound):
    """One round at one node of an EVM chain.

    - `view` is the node with its head.
    - `pay_to` is the address this service sells to, in lower case, empty if it sells nothing.
    - `anchors` contains the addresses that prove payers, by owner.
    """

    chain: ChainLogs
    view: View
    pay_to: str
    anchors: Mapping[str, tuple[str, ...]]


async def fill_wallets(visit: Visit, cursor: Cursor) -> bool:
    """Back-fill wallets by one step; return whether there was one."""
    missing = await visit.store.reading(
        wallets.backlog, visit.id, limit=visit.settings.fill_wallets
    )
    if missing is None:
        return False
    past = await _fetch_back(visit, missing.low, Watched(missing.wallets), floor=missing.floor)
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
    """Back-fill an address of this service by one step; return whether there was one."""
    backlog = await visit.store.reading(deposits.backlog, visit.id, visit.chain.token)
    if backlog is None:
        return False
    past = await _fetch_back(
        visit, backlog.low, Watched(own=frozenset([address_bytes(backlog.address)])), floor=0
    )
    if past is None:
        return False
    span, fetched = past
    low_at = fetched.headers[span.first].at
    await visit.store.writing(
        cursors.fill_account,
        cursor,
        backlog,
        fetched.deposits,
        low=span.first,
        low_at=low_at,
    )
    visit.tally["filled"] += span.blocks
    visit.tally["deposits"] += len(fetched.deposits)
    return True


async def _fetch_back(
    visit: Visit, low: int, whose: Watched, *, floor: int
) -> tuple[Span, Fetched] | None:
    """Fetch the blocks before `low`, down to `floor`, and their transfers; None if the step must
    wait.
    """
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
        fetched = await _fetch_confirmed(visit, span, whose)
        return None if fetched is None else (span, fetched)
    headers = await _fetch_indexed(visit, span)
    if headers is None:
        visit.tally["moved"] += 1
        return None
    return span, await visit.chain.tip(visit.view, headers, whose)


async def _fetch_confirmed(visit: Visit, span: Span, whose: Watched) -> Fetched | None:
    """Fetch final blocks that are not read again, confirmed by a second node.

    The confirmation is waited for at most PATIENCE rounds.
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


async def _fetch_indexed(visit: Visit, span: Span) -> list[BlockHeader] | None:
    """Return the node's headers of a span, or None unless they are the indexed ones."""
    headers = await visit.chain.nodes.headers(visit.view, range(span.first, span.last + 1))
    hashes = await visit.store.reading(cursors.kept_hashes, visit.id)
    same = len(headers) == span.blocks and all(
        hashes.get(header.number) == header.hash for header in headers
    )
    return headers if same else None


async def look_up_submitters(visit: Visit, cursor: Cursor) -> None:
    """Look up who submitted the newest final settlements. A failure only delays the statistics, so
    that it neither ends the round nor selects another node.
    """
    limit = visit.settings.submitters
    if not limit or visit.late or visit.clock() < visit.state.submitters_after:
        return
    final = min(visit.view.finalized, cursor.number)
    unknown = await visit.store.reading(submitters.find_unknown, visit.id, final=final, limit=limit)
    if not unknown:
        return
    keys = [(one.block_hash, one.hash) for one in unknown]
    try:
        submissions = await visit.chain.nodes.submissions(visit.view, keys)
    except RpcError as error:
        visit.state.submitters_after = visit.clock() + LOOKUP_RETRY_MS
        log().warning("index.submitters", chain=visit.id, node=visit.view.node.name, why=str(error))
        return
    found = dict(zip(unknown, submissions, strict=True))
    await visit.store.writing(submitters.save, visit.id, found)
    visit.tally["submitters"] += sum(bool(one.sender) for one in submissions)


async def count_attempts(visit: Visit) -> None:
    """Count the attempts to settle in the newest block, if due.

    The newest block, because most nodes soon delete the state that shows why a transaction failed.
    A failure only delays the statistics.
    """
    state, now, every_ms = visit.state, visit.clock(), visit.settings.sample_every_ms
    if not every_ms or visit.late or now < state.sampled_at + every_ms:
        return
    state.sampled_at = now
    head = visit.view.head
    try:
        attempts = await sample_block(visit.view.node, f"eip155:{visit.id}", head.number)
    except RpcError as error:
        log().warning("index.sample", chain=visit.id, node=visit.view.node.name, why=str(error))
        return
    await visit.store.writing(
        submitters.count_attempts, visit.id, head.number, attempts, day=day_of(head.at)
    )
    visit.tally["attempts"] += len(attempts)
