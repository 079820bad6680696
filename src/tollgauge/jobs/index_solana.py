"""The index loop of a Solana network: store the transfers of watched wallets.

A round:
1. Adds wallets and fee payers that offers newly name.
2. Reads the new transactions of each fee payer: most payments, within seconds.
3. Once a day, reads the token accounts of each wallet: transfers from it, payments before its fee
   payer was known, and what a node omitted.
4. Moves the cursor to the time up to which every fee payer was read, and marks endpoints with
   changed settlements for scoring.

Each page is fetched completely and then written in one transaction with the position of its scan,
so that a process can stop at any point. Transfers have keys (signature and index), so that pages
may overlap. If a node fails, the round continues at the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.nodes import View
from tollgauge.clients.chain.rpc import BATCH_CALLS, RpcUnavailable
from tollgauge.clients.chain.solana import SignatureEntry, SolanaReader
from tollgauge.core.base.units import DAY_MS, HOUR_MS, Clock, address_text, base58_bytes
from tollgauge.core.chain.settlement import Entry, LogError
from tollgauge.core.chain.solana import classify
from tollgauge.core.score.demand import addresses_on
from tollgauge.db.engine import Store
from tollgauge.jobs.index import publish
from tollgauge.jobs.index_visit import BACK_MS, PATIENCE, IndexRound, IndexState, run_at_nodes
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.observe import log
from tollgauge.store import rows
from tollgauge.store.chain import cursors, followed, transfers, volumes, wallets
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.chain.followed import Followed

FRESH_MS: Final = 2 * DAY_MS  # how far back fee payers are read; token accounts have the rest
SLOT_MARGIN: Final = 1_500  # ten minutes: a listed slot cannot be later than the newest by more


@dataclass(frozen=True, slots=True, kw_only=True)
class SolanaRound(IndexRound):
    """One round: `views` has the node and, if there is one, a second node for comparison.
    `watched` maps the wallets' addresses to their bytes, and `idle` collects the addresses without
    new transactions.
    """

    reader: SolanaReader
    views: Sequence[View]
    watched: Mapping[str, bytes]
    facilitators: frozenset[str]
    idle: list[Followed] = field(default_factory=list)

    @property
    def head_at(self) -> int:
        """The time of the newest final block (ms UTC)."""
        return self.views[0].head.at


async def run(
    store: Store,
    reader: SolanaReader,
    state: IndexState,
    *,
    settings: IndexSettings,
    clock: Clock,
    anchors: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, object]:
    """Run one round. The tally counts transactions, entries and problems; `missed` are
    payments that only a token account showed after its first scan. `busy` requests another round
    immediately.
    """
    tally: Counter[str] = Counter()
    until = clock() + settings.round_ms

    async def visit(view: View) -> dict[str, object]:
        if view.head.at > clock() + HOUR_MS:
            raise RpcUnavailable("The node's newest block is in the future.")
        learned = store.writing(_learn, reader.chain_id, view, anchors or {}, now=clock())
        cursor, payers, known = await learned
        second = await reader.nodes.second(view, 0)
        solana_round = SolanaRound(
            id=reader.chain_id,
            store=store,
            reader=reader,
            state=state,
            settings=settings,
            clock=clock,
            until=until,
            views=[view] if second is None else [view, second],
            tally=tally,
            watched=known,
            facilitators=frozenset(one.address for one in payers),
        )
        return await _steps(solana_round, cursor, payers)

    return await run_at_nodes(reader.nodes, tally, visit)


def _learn(
    tx: Connection, chain: int, view: View, anchors: Mapping[str, tuple[str, ...]], *, now: int
) -> tuple[Cursor, list[Followed], dict[str, bytes]]:
    """Add new wallets and fee payers; return the cursor, all fee payers and all wallets."""
    cursor = cursors.cursor(tx, chain) or cursors.start(tx, chain, view.head)
    volumes.save_anchors(tx, anchors, now=now)
    proving = [one for texts in anchors.values() for one in addresses_on(chain, texts)]
    cursor = cursors.add_wallets(tx, cursor, wallets.new_addresses(tx, chain, proving))
    followed.follow_new(tx, chain)
    watched = {address_text(wallet): wallet for wallet in wallets.lows(tx, chain)}
    return cursor, followed.list_fee_payers(tx, chain), watched


async def _steps(
    visit: SolanaRound, cursor: Cursor, payers: Sequence[Followed]
) -> dict[str, object]:
    """Perform the steps of a round in order."""
    if not visit.watched:
        return dict(visit.tally)
    # One page per address and turn: a fee payer with very many transactions, which any offer may
    # name, must not delay the others. Those never read completely come last.
    waiting: list[Followed] = sorted(payers, key=lambda one: (not one.at, one.at))
    while waiting and not visit.late:
        waiting = await _scan_each(visit, waiting, floor=visit.head_at - FRESH_MS)
    accounts = await visit.store.reading(
        followed.list_due,
        visit.id,
        before=visit.head_at - DAY_MS,
        limit=visit.settings.fills,
    )
    going_on = await _scan_each(visit, accounts, floor=visit.head_at - BACK_MS)
    await visit.store.writing(_move_cursor, visit, cursor)
    await publish(visit)
    # Accounts that were found in this round are read in the next one.
    is_more = len(accounts) == visit.settings.fills or visit.tally["accounts"] > 0
    return {**visit.tally, "busy": bool(waiting or going_on or is_more)}


def _move_cursor(tx: Connection, visit: SolanaRound, cursor: Cursor) -> None:
    """Move the idle addresses to the time of the newest block, and the cursor to the time up to
    which every fee payer was read.
    """
    followed.move_idle(tx, visit.idle, at=visit.head_at)
    # A fee payer that was never read completely is left out: token accounts have its payments.
    read = followed.list_fee_payers(tx, visit.id)
    at = min((one.at for one in read if one.at), default=visit.head_at)
    if at > cursor.at:
        cursors.move_to(tx, cursor, visit.views[0].head.number, at=at)


async def _scan_each(
    visit: SolanaRound, waiting: Sequence[Followed], *, floor: int
) -> list[Followed]:
    """Take one step for each address; return those whose scans go on."""
    going_on = []
    for row in waiting:
        if visit.late:
            going_on.append(row)
        elif row.owner and row.address == row.owner:
            await _find_accounts(visit, row, floor=floor)
        elif (after := await _scan(visit, row, floor=floor)) is not None:
            going_on.append(after)
    return going_on


async def _scan(visit: SolanaRound, row: Followed, *, floor: int) -> Followed | None:
    """Read a page of an address; return its row if the scan goes on, None if it is complete or
    must wait.
    """
    last = visit.views[0].head.number + SLOT_MARGIN
    if max(row.until_slot, row.top_slot) > last:
        # A node invented a signature: nothing would be new until the chain has reached its slot.
        fresh = Followed(chain=row.chain, owner=row.owner, address=row.address)
        await visit.store.writing(followed.move, row, fresh)
        row = fresh
    page = await visit.reader.list_signatures(
        visit.views, row.address, before=row.before, until=row.until
    )
    if any(one.slot > last for one in page.signatures):
        raise RpcUnavailable("A node lists a transaction in a future slot.")
    # The last list that can show a payment: a node that omits it must not be the only one.
    if row.owner and not page.confirmed and _may_wait(visit, row):
        return None
    if row.at and not row.before and not page.signatures:
        del visit.state.unconfirmed[row.address]
        visit.idle.append(row)
        return None
    new = [one for one in page.signatures if one.slot >= row.until_slot - SLOT_MARGIN]
    recent = [one for one in new if one.at is None or one.at >= floor]
    found = await _load(visit, row, [one for one in recent if not one.failed])
    if found is None:
        return None
    after = row
    if not row.before:
        top, slot = (new[0].text, new[0].slot) if new else ("", 0)
        after = replace(row, top=top, top_slot=slot, began_at=visit.head_at)
    # A node that does not have `until` lists older transactions too: the slot ends the scan.
    is_complete = page.before is None or len(recent) < len(page.signatures)
    if is_complete:
        low_at = row.low_at
        if not row.at:
            low_at = max(floor, await visit.reader.find_history_start(visit.views[0]))
        after = replace(
            after,
            until=after.top or row.until,
            until_slot=max(after.top_slot, row.until_slot),
            top="",
            top_slot=0,
            before="",
            at=max(after.began_at, row.at),
            low_at=low_at,
        )
    else:
        after = replace(after, before=page.before or "")
    added = await visit.store.writing(_write, visit.id, row, after, found)
    visit.tally["transactions"] += len(recent)
    visit.tally["entries"] += len(added)
    visit.tally["returned"] += sum(not one.incoming for one in added)
    if row.owner and row.at:
        # Transfers from the wallet are never in the list of a fee payer unless it pays their fee.
        visit.tally["missed"] += sum(one.incoming for one in added)
    return None if is_complete else after


async def _load(
    visit: SolanaRound, row: Followed, wanted: Sequence[SignatureEntry]
) -> list[Entry] | None:
    """Return the entries of transactions; None if the scan must wait for one that no node has."""
    if row.owner and row.at:
        known = await visit.store.reading(
            transfers.find_known,
            visit.id,
            visit.watched.get(row.owner, b""),
            {one.slot for one in wanted},
        )
        wanted = [one for one in wanted if base58_bytes(one.text) not in known]
    found: list[Entry] = []
    times = {one.text: one.at for one in wanted}
    for batch in rows.chunks(wanted, BATCH_CALLS):
        transactions, absent = await visit.reader.load(visit.views, batch)
        if absent and _may_wait(visit, row):
            return None
        if absent:
            log().warning("index.absent", chain=visit.id, transactions=len(absent))
        for one in transactions:
            at = times[one.signature] if one.at is None else one.at
            at = visit.head_at if at is None else min(at, visit.head_at)
            try:
                classified = classify(one, visit.watched, visit.facilitators, at=at)
            except LogError as error:
                raise RpcUnavailable(str(error)) from error
            found += classified.entries
            visit.tally["others"] += classified.others
            visit.tally["unclear"] += one.unclear
    del visit.state.unconfirmed[row.address]
    return found


def _may_wait(visit: SolanaRound, row: Followed) -> bool:
    """Return whether an address may wait for another node once more, and count it."""
    may_wait = visit.state.unconfirmed[row.address] < PATIENCE
    visit.state.unconfirmed[row.address] += may_wait
    visit.tally["unconfirmed"] += may_wait
    return may_wait


def _write(
    tx: Connection, chain: int, row: Followed, after: Followed, found: Sequence[Entry]
) -> list[Entry]:
    """Write a page's transfers and the scan's position; return the new transfers."""
    followed.move(tx, row, after)
    added = transfers.find_new(tx, chain, found)
    wallets.touch(tx, chain, transfers.replace(tx, chain, added))
    if row.owner and after.at and not after.before:
        accounts = followed.list_accounts(tx, chain, row.owner)
        if all(one.at for one in accounts):
            low_at = max(one.low_at for one in accounts)
            wallets.cover(tx, chain, row.owner, low_at=low_at)
    return added


async def _find_accounts(visit: SolanaRound, wallet: Followed, *, floor: int) -> None:
    """Follow the token accounts of a wallet."""
    accounts = await visit.reader.list_accounts(visit.views, wallet.address)
    start = max(floor, await visit.reader.find_history_start(visit.views[0]))

    def write(tx: Connection) -> None:
        followed.move(tx, wallet, replace(wallet, at=visit.head_at))
        followed.follow(
            tx,
            [Followed(chain=visit.id, owner=wallet.address, address=one) for one in accounts],
        )
        if not accounts:  # without an account it cannot have received the token
            wallets.cover(tx, visit.id, wallet.address, low_at=start)

    await visit.store.writing(write)
    visit.tally["accounts"] += len(accounts)
