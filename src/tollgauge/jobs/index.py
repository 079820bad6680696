"""The index loop: follow a chain, and keep what the watched wallets received and sent, and
everything that came to the addresses that we sell to.

A round, for one chain:
1. learns the wallets that endpoints are newly paid at, and the addresses that we newly sell to;
2. goes forward from the cursor, step by step: final blocks in ranges, later ones one by one by
   hash. Where the chain was reorganised, a step replaces what is above the last common block;
3. fills in the past of wallets that were learned late, from the newest blocks downwards, and
   that of our own addresses after it;
4. looks again at blocks that became final since, at two nodes where there are two, and adds what
   the first look lacked: a node may have hidden logs that it did have;
5. tells endpoints whose settlements changed, and measures the chain's volume and checks the
   books (jobs/books) now and then.
Every step is fetched whole before it is written in one transaction, so a process that dies at any
point leaves a state from which the next one goes on. A node that fails gives way to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tollgauge.clients.chainlogs import (
    TOPICS_MAX,
    ChainLogs,
    Fetched,
    LogSettings,
    UnconfirmedError,
    View,
    Watched,
)
from tollgauge.clients.rpc import RpcError
from tollgauge.core.blocks import (
    DeepReorgError,
    Header,
    Rewind,
    Span,
    linked,
    next_span,
    previous_span,
    reconcile,
)
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS
from tollgauge.jobs import books
from tollgauge.observe import log
from tollgauge.store import books as ledger
from tollgauge.store import chain as chains
from tollgauge.store import deposits, transfers, volumes
from tollgauge.store.chain import Cursor
from tollgauge.store.engine import Store

Clock = Callable[[], int]

BACK_MS: Final = WINDOW_MS + DAY_MS
"""How far back a wallet is filled in: the window, and a day for clocks and edges."""
KEEP_MS: Final = 40 * DAY_MS
BOOKS_BACK_MS: Final = 366 * DAY_MS
"""How far back an address of ours is filled in at most; else from the ledger's first day on."""
LOOK_BACK_MS: Final = 10 * MINUTE_MS
"""The clocks of those who write the ledger differ by less."""
FORGET_BLOCKS: Final = 50_000
PATIENCE: Final = 60
"""How many rounds a step into the past waits for a second node that should confirm it."""
SHARE: Final = 100
"""Measuring a chain's volume takes at most one part in so many of the time, and so does checking
the books."""
_FORKS: Final = 32


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


async def run(
    store: Store, chain: ChainLogs, *, settings: IndexSettings, clock: Clock, pay_to: str = ""
) -> dict[str, object]:
    """One round; the tally counts blocks, entries, deposits and what went wrong, `busy` asks for
    the next. `pay_to` is the address that we sell to now, empty where nothing is sold.

    Raises DeepReorgError when every node's chain disagrees with what is final.
    """
    tally: Counter[str] = Counter()
    deep: DeepReorgError | None = None
    for _ in range(chain.nodes.width):
        try:
            view = await chain.nodes.view()
        except RpcError as error:
            log().warning("index.unreachable", chain=chain.chain_id, why=str(error))
            break
        try:
            return await _Round(store, chain, view, settings, clock, tally, pay_to).turn()
        except (RpcError, DeepReorgError) as error:
            chain.nodes.failed(
                view.node, error if isinstance(error, RpcError) else RpcError(str(error))
            )
            log().warning("index.node", chain=chain.chain_id, node=view.node.name, why=str(error))
            deep = error if isinstance(error, DeepReorgError) else None
        except chains.OvertakenError:
            return {**tally, "overtaken": 1}
    if deep is not None:
        raise deep
    return {**tally, "unreachable": 1}


class _Round:
    """One round at one node."""

    def __init__(
        self,
        store: Store,
        chain: ChainLogs,
        view: View,
        settings: IndexSettings,
        clock: Clock,
        tally: Counter[str],
        pay_to: str,
    ) -> None:
        self.store = store
        self.chain = chain
        self.id = chain.chain_id
        self.view = view
        self.settings = settings
        self.clock = clock
        self.tally = tally
        self.pay_to = pay_to.lower()
        self.until = clock() + settings.round_ms

    async def turn(self) -> dict[str, object]:
        """All of it."""
        cursor = await self._learn(await self._begin())
        if not self.chain.notes.watched.receivers:
            return dict(self.tally)
        busy = False
        for _ in range(self.settings.steps):
            after = await self._forward(cursor)
            if after is None:
                break
            busy = after.number < self.view.head.number
            cursor = after
            if self.clock() > self.until:
                break
        for _ in range(self.settings.fills):
            if self.clock() > self.until or not await self._fill(cursor):
                break
        else:
            busy = True
        # One step at least, so that a long past of the wallets does not keep our own waiting.
        for done in range(self.settings.fills):
            if (done and self.clock() > self.until) or not await self._fill_own(cursor):
                break
        else:
            busy = True
        for _ in range(self.settings.steps):
            if self.clock() > self.until or not await self._audit():
                break
        await self._tell()
        await self._check_books()
        return {**self.tally, "busy": busy}

    async def _begin(self) -> Cursor:
        """Where the chain is indexed to; a new chain begins at its final block."""
        async with self.store.read() as tx:
            cursor = await chains.cursor(tx, self.id)
        if cursor is not None:
            return cursor
        final = await self.chain.nodes.headers(self.view, [self.view.finalized])
        if not final:
            raise RpcError("The node lacks its own final block.")
        async with self.store.write() as tx:
            return await chains.start(tx, self.id, final[0])

    async def _learn(self, cursor: Cursor) -> Cursor:
        """Whom to watch: with the wallets that endpoints are newly paid at, and our own."""
        notes = self.chain.notes
        async with self.store.read() as tx:
            new = await chains.unknown(tx, self.id)
        if new:
            async with self.store.write() as tx:
                cursor = await chains.join(tx, cursor, new)
            self.tally["wallets"] += len(new)
        cursor = await self._learn_own(cursor)
        if notes.version != cursor.version:
            async with self.store.read() as tx:
                wallets = await chains.wallets(tx, self.id)
                own = await deposits.lows(tx, self.id, self.chain.token)
            notes.watched = Watched(frozenset(wallets), frozenset(own))
            notes.version = cursor.version
        return cursor

    async def _learn_own(self, cursor: Cursor) -> Cursor:
        """The addresses that the configuration and the ledger name and that are new."""
        notes, now = self.chain.notes, self.clock()
        network = f"eip155:{self.id}"
        async with self.store.read() as tx:
            since = notes.ledger_at - LOOK_BACK_MS
            named, began = await ledger.named(tx, network, self.chain.token, since=since)
            known = {
                address for address in {*named, self.pay_to} if chains.ADDRESS.fullmatch(address)
            }
            new = await deposits.unopened(tx, self.id, self.chain.token, known)
        if new:
            first = max(now if began is None else min(began, now), now - BOOKS_BACK_MS)
            # An hour more than whole days, because clocks differ.
            wanted = first - first % DAY_MS - HOUR_MS
            async with self.store.write() as tx:
                cursor = await chains.join_accounts(
                    tx, cursor, self.chain.token, new, wanted_from=wanted
                )
            self.tally["accounts"] += len(new)
        notes.ledger_at = now
        return cursor

    async def _forward(self, cursor: Cursor) -> Cursor | None:
        """One step from the cursor, or from the last common block; None when there is none."""
        known = await self._next(cursor.number, parent=cursor.hash)
        common = None
        if known is None:
            common, parent = await self._common(cursor)
            if common is None:
                return None
            self.tally["reorgs"] += 1
            known = await self._next(common, parent=parent)
            if known is None:
                self.tally["moved"] += 1
                return None
        headers, found = known
        async with self.store.write() as tx:
            after = await chains.advance(
                tx,
                cursor,
                headers,
                found.entries,
                came=found.deposits,
                finalized=self.view.finalized,
                common=common,
            )
        self.tally["blocks"] += after.number - (cursor.number if common is None else common)
        self.tally["entries"] += len(found.entries)
        self.tally["deposits"] += len(found.deposits)
        return after

    async def _next(self, number: int, *, parent: bytes) -> tuple[list[Header], Fetched] | None:
        """The blocks after one, and what they hold; None where they do not follow it."""
        span = next_span(
            number,
            head=self.view.head.number,
            finalized=self.view.finalized,
            most=self.chain.span(self.view),
            most_tip=self.settings.tip_span,
        )
        if span is None:
            return None
        if span.final:
            fetched = await self.chain.final(self.view, span, self.chain.notes.watched)
            self.tally["healed"] += fetched.healed
            if fetched.headers[span.first].parent != parent:
                return None
            return [fetched.headers[span.last]], fetched
        headers = await self.chain.nodes.headers(self.view, range(span.first, span.last + 1))
        if len(headers) != span.blocks or not linked(headers, parent=parent):
            return None
        fetched = await self.chain.tip(self.view, headers, self.chain.notes.watched)
        self.tally["healed"] += fetched.healed
        return headers, fetched

    async def _common(self, cursor: Cursor) -> tuple[int | None, bytes]:
        """The last block that the node's chain and the indexed one have in common, with its
        hash; None where the node's chain goes on from the indexed one, or is behind it.
        """
        if (self.view.head.number, self.view.head.hash) == (cursor.number, cursor.hash):
            return None, b""
        async with self.store.read() as tx:
            ours = await chains.kept(tx, self.id)
        theirs: dict[int, bytes] = {}
        wanted = sorted((n for n in ours if n <= self.view.head.number), reverse=True)
        for start in range(0, len(wanted), _FORKS):
            some = wanted[start : start + _FORKS]
            for header in await self.chain.nodes.headers(self.view, some):
                theirs[header.number] = header.hash
            if any(theirs.get(number) == ours[number] for number in some):
                break
        verdict = reconcile(ours, theirs, head=self.view.head.number)
        if isinstance(verdict, Rewind):
            return verdict.number, ours[verdict.number]
        return None, b""

    async def _fill(self, cursor: Cursor) -> bool:
        """One step into the past of the wallets that need it; whether there was one."""
        async with self.store.read() as tx:
            missing = await chains.backlog(tx, self.id, limit=self.settings.fill_wallets)
        if missing is None:
            return False
        past = await self._past(missing.low, Watched(missing.wallets), floor=missing.floor)
        if past is None:
            return False
        span, fetched = past
        async with self.store.write() as tx:
            await chains.fill(
                tx,
                cursor,
                missing,
                fetched.entries,
                low=span.first,
                low_at=fetched.headers[span.first].at,
                wanted_from=self.clock() - BACK_MS,
            )
        self.tally["filled"] += span.blocks
        self.tally["entries"] += len(fetched.entries)
        return True

    async def _fill_own(self, cursor: Cursor) -> bool:
        """One step into the past of an address of ours; whether there was one."""
        token = self.chain.token
        async with self.store.read() as tx:
            owed = await deposits.backlog(tx, self.id, token)
        if owed is None:
            return False
        past = await self._past(owed.low, Watched(own=frozenset([owed.address])), floor=0)
        if past is None:
            return False
        span, fetched = past
        low_at = fetched.headers[span.first].at
        async with self.store.write() as tx:
            await chains.fill_account(
                tx, cursor, token, owed, fetched.deposits, low=span.first, low_at=low_at
            )
        self.tally["filled"] += span.blocks
        self.tally["deposits"] += len(fetched.deposits)
        return True

    async def _past(self, low: int, whose: Watched, *, floor: int) -> tuple[Span, Fetched] | None:
        """The blocks before one, down to `floor`, and what they hold; None when it has to wait."""
        span = previous_span(
            low,
            floor=floor,
            most=self.chain.span(self.view),
            finalized=self.view.finalized,
            most_tip=self.settings.tip_span,
        )
        if span is None:
            return None
        if span.final:
            fetched = await self._confirmed(span, whose)
            return None if fetched is None else (span, fetched)
        headers = await self._indexed(span)
        if headers is None:
            self.tally["moved"] += 1
            return None
        return span, await self.chain.tip(self.view, headers, whose)

    async def _confirmed(self, span: Span, whose: Watched) -> Fetched | None:
        """What is in final blocks that nothing will look at again: so where a second node should
        confirm it, it is waited for, but not for ever.
        """
        kind = "deposits" if whose.own else "entries"
        strict = self.chain.notes.unconfirmed[kind] < PATIENCE
        try:
            fetched = await self.chain.final(self.view, span, whose, strict=strict)
        except UnconfirmedError:
            self.chain.notes.unconfirmed[kind] += 1
            self.tally["unconfirmed"] += 1
            return None
        self.chain.notes.unconfirmed[kind] = 0
        return fetched

    async def _indexed(self, span: Span) -> list[Header] | None:
        """The node's headers of a span, None unless they are those that are indexed."""
        headers = await self.chain.nodes.headers(self.view, range(span.first, span.last + 1))
        async with self.store.read() as tx:
            ours = await chains.kept(tx, self.id)
        same = len(headers) == span.blocks and all(
            ours.get(header.number) == header.hash for header in headers
        )
        return headers if same else None

    async def _audit(self) -> bool:
        """A second look at blocks that are final now; whether there was something to look at."""
        async with self.store.read() as tx:
            cursor = await chains.cursor(tx, self.id)
            ours = await chains.kept(tx, self.id)
        if cursor is None:
            return False
        final = min(self.view.finalized, cursor.number)
        if final - cursor.audited < self.settings.audit:
            return False
        second = await self.chain.nodes.second(self.view, final)
        waited = final - cursor.audited >= PATIENCE * self.settings.audit
        if second is None and self.chain.nodes.width > 1 and not waited:
            return False
        views = [self.view] if second is None else [self.view, second]
        last = min(final, cursor.audited + self.chain.span(self.view))
        # That the kept hash of a later block is theirs vouches for all blocks before it.
        floor = min(ours)
        for view in views:
            same = await self.chain.nodes.headers(view, [floor])
            if floor < last or [header.hash for header in same] != [ours[floor]]:
                return False
        return await self._add_missing(cursor, Span(cursor.audited + 1, last, final=True), views)

    async def _add_missing(self, cursor: Cursor, span: Span, views: list[View]) -> bool:
        seen = await self.chain.every(views, span, self.chain.notes.watched)
        never = span.last + 1
        async with self.store.write() as tx:
            lows = await chains.wallets(tx, self.id)
            own = await deposits.lows(tx, self.id, self.chain.token)
            found = [each for each in seen.entries if each.number >= lows.get(each.wallet, never)]
            came = [each for each in seen.deposits if each.number >= own.get(each.pay_to, never)]
            at = seen.headers[span.last].at
            added = await chains.audited(tx, cursor, span, found, at=at, came=came)
        self.tally["audited"] += span.blocks
        self.tally["healed"] += added
        return True

    async def _tell(self) -> None:
        """Mark endpoints dirty, measure the volume, forget what is old."""
        now = self.clock()
        async with self.store.read() as tx:
            known = {each.chain: each for each in await volumes.published(tx)}
        last = known.get(self.id)
        pause = max(self.settings.volume_every_ms, SHARE * self.chain.notes.volume_ms)
        async with self.store.write() as tx:
            told = await chains.mark_dirty(
                tx, self.id, now=now, every_ms=self.settings.dirty_every_ms
            )
        self.tally["told"] += told
        if last is not None and now - max(last.as_of, self.chain.notes.volume_at) < pause:
            return
        self.chain.notes.volume_at = now
        async with self.store.read() as tx:
            volume = await volumes.measure(tx, self.id, as_of=now)
        self.chain.notes.volume_ms = self.clock() - now
        async with self.store.write() as tx:
            await volumes.publish(tx, volume)
            await transfers.forget(tx, self.id, before=now - KEEP_MS, blocks=FORGET_BLOCKS)

    async def _check_books(self) -> None:
        """The days that are complete, now and then."""
        notes, now = self.chain.notes, self.clock()
        if now - notes.books_at < max(books.EVERY_MS, SHARE * notes.books_ms):
            return
        notes.books_at = now
        self.tally["unexplained"] += await books.run(self.store, now=now)
        notes.books_ms = self.clock() - now
