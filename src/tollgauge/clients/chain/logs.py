"""The transfers of one token on one chain, from whichever of its nodes can tell: what monitored
wallets received by authorization and paid, and everything that came to addresses of our own.

What is true here:
- what a step needs comes from one node, so that its parts fit together;
- blocks that may still change are asked for by hash, final ones by number; many new blocks at
  once by number too, held against the hashes of their headers before and after;
- a share of the answers, and every one that is empty, is compared with another node's where
  there is one. If one node has all that the other has and more, the other one lacked it; if each
  has what the other lacks, neither is believed.

Raises RpcError only, whatever the nodes send. Which node is asked is clients/chain/nodes' work, how
it is asked clients/chain/log_query's, and what the transfers mean core/settlement's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tollgauge.clients.chain.log_query import (
    TOPICS_MAX,
    CollectedEvents,
    LogReader,
    Query,
    RateEstimate,
    about,
)
from tollgauge.clients.chain.nodes import ChainNodes, View
from tollgauge.clients.chain.rpc import Call, Node, RpcError, RpcUnavailable, uncollected
from tollgauge.core.blocks import Header, Span
from tollgauge.core.settlement import (
    AUTHORIZATION_USED,
    TRANSFER,
    Deposit,
    Entry,
    LogError,
    Transfer,
    decided_by_receipts,
    deposits,
    entries,
    settled,
)

__all__ = [
    "TOPICS_MAX",
    "ChainLogs",
    "Fetched",
    "LogSettings",
    "UnconfirmedError",
    "View",
    "Watched",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How logs are asked for.

    `span` and `tip_span` are the most final and not yet final blocks of a step, `logs` how many
    transfers a step aims at. `check` is the share of the answers that a second node is asked for
    too. New blocks are asked for by hash while that takes at most `by_hash` queries, and by number
    beyond it. `finality` and `rest_s` are as in ChainNodes.
    """

    span: int = 2_000
    tip_span: int = 64
    topics: int = TOPICS_MAX
    logs: int = 10_000
    check: float = 0.05
    finality: int = 900
    by_hash: int = 400
    rest_s: float = 5.0


class UnconfirmedError(RpcError):
    """No other node could confirm an answer that wanted it."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Whose transfers are asked for: those of monitored `wallets`, and what comes to addresses of
    our `own`. An address may be both; `receivers` are all of them.
    """

    wallets: frozenset[bytes] = frozenset()
    own: frozenset[bytes] = frozenset()
    receivers: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Once for all blocks that are asked for: there may be very many wallets.
        object.__setattr__(self, "receivers", self.wallets | self.own)


class Fetched(NamedTuple):
    """The entries and deposits of a span, and the headers that were asked for on the way, by
    number. `healed` of them came from a second node because the first lacked them.
    """

    entries: list[Entry]
    deposits: list[Deposit]
    headers: dict[int, Header]
    healed: int = 0

    @property
    def moves(self) -> list[Entry | Deposit]:
        """Entries and deposits."""
        return [*self.entries, *self.deposits]


class _Ranged(NamedTuple):
    """The transfers of a range with what made them, and times of blocks that logs told."""

    known: list[Transfer]
    stamps: dict[bytes, int]


@dataclass(slots=True)
class IndexerState:
    """What who follows the chain remembers between rounds, so that the next need not ask: who is
    `watched` in a `version` of that set, how many answers in a row nobody could confirm, for
    wallets and for deposits, up to when the ledger was searched for addresses of ours, and when
    the chain's volume was last measured, the books last checked, and how long that took.
    """

    watched: Watched = Watched()
    version: int = -1
    unconfirmed: Counter[str] = field(default_factory=Counter)
    ledger_at: int = 0
    volume_at: int = 0
    volume_ms: int = 0
    books_at: int = 0
    books_ms: int = 0


class ChainLogs:
    """The nodes of one chain, and the transfers of one token on it."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        chain_id: int,
        token: str,
        settings: LogSettings | None = None,
        seed: int | None = None,
    ) -> None:
        self.settings: Final = settings or LogSettings()
        self.nodes: Final = ChainNodes(
            nodes,
            chain_id=chain_id,
            finality=self.settings.finality,
            rest_s=self.settings.rest_s,
        )
        self.chain_id: Final = chain_id
        self.token: Final = token.lower()
        self.state: Final = IndexerState()
        self._dice: Final = random.Random(seed)  # noqa: S311 (which answers are checked)
        topics = max(1, min(self.settings.topics, TOPICS_MAX))
        self._rates: Final = {node: RateEstimate(self.settings.span, topics) for node in nodes}

    async def close(self) -> None:
        """Close every node's pool."""
        await self.nodes.close()

    def span(self, view: View) -> int:
        """How many final blocks a step should ask this view's node for."""
        return self._rates[view.node].span

    async def final(
        self, view: View, span: Span, watched: Watched, *, strict: bool = False
    ) -> Fetched:
        """What happened in final blocks, with the headers of the span's ends.

        Under `strict` an answer that wants confirming and gets none is UnconfirmedError, where
        there is another node at all.
        """
        return await self._checked(
            view, lambda of: self._final(of, span, watched), last=span.last, strict=strict
        )

    async def every(self, views: Sequence[View], span: Span, watched: Watched) -> Fetched:
        """What happened in final blocks, from all of these nodes together."""
        answers = [await self._final(view, span, watched) for view in views]
        for other in answers[1:]:
            if not _same_blocks(answers[0], other):
                raise RpcUnavailable("Two nodes disagree about the blocks of a range.")
        distinct_entries = {entry for answer in answers for entry in answer.entries}
        distinct_deposits = {deposit for answer in answers for deposit in answer.deposits}
        places = len({_place_of(entry) for entry in distinct_entries})
        if places != len(distinct_entries) or len(
            {_slot_of(deposit) for deposit in distinct_deposits}
        ) != len(distinct_deposits):
            raise RpcUnavailable("Two nodes disagree about a log.")
        return Fetched(
            sorted(distinct_entries, key=_place_of),
            sorted(distinct_deposits, key=_slot_of),
            answers[0].headers,
        )

    async def tip(self, view: View, headers: Sequence[Header], watched: Watched) -> Fetched:
        """What happened in exactly these blocks, by hash.

        RpcRefused where the node no longer has one of them.
        """
        return await self._checked(
            view, lambda of: self._tip(of, headers, watched), last=headers[-1].number, strict=False
        )

    async def _checked(
        self, view: View, fetch: Callable[[View], Awaitable[Fetched]], *, last: int, strict: bool
    ) -> Fetched:
        """An answer, compared with another node's when it is empty or by chance."""
        first = await fetch(view)
        if first.moves and self._dice.random() >= self.settings.check:
            return first
        second = None
        other = await self.nodes.second(view, last)
        if other is not None:
            try:
                second = await fetch(other)
            except RpcError as error:
                self.nodes.failed(other.node, error)
        if second is None:
            if strict and self.nodes.width > 1:
                raise UnconfirmedError("No other node could confirm the logs of a range.")
            return first
        return self._merged(view, first, second)

    def _merged(self, view: View, first: Fetched, second: Fetched) -> Fetched:
        """The fuller of two answers about the same blocks, when it holds all of the other."""
        if not _same_blocks(first, second):
            raise RpcUnavailable("Two nodes disagree about the blocks of a range.")
        known, other = set(first.moves), set(second.moves)
        if known >= other:
            return first
        if other > known:
            self.nodes.failed(view.node, RpcUnavailable("The node left out logs."))
            return second._replace(headers=first.headers, healed=len(other - known))
        raise RpcUnavailable("Two nodes disagree about the logs of a range.")

    async def _final(self, view: View, span: Span, watched: Watched) -> Fetched:
        ends = await self.nodes.headers(view, dict.fromkeys((span.first, span.last)))
        if [end.number for end in ends] != list(dict.fromkeys((span.first, span.last))):
            raise RpcUnavailable(f"{view.node.name} lacks a block before its head.")
        known = {header.number: header for header in ends}
        transfers, stamps = await self._range(view.node, span.first, span.last, watched)
        times = await self._times(view, transfers, stamps, known)
        self._rates[view.node].succeeded(
            transfers=len(transfers), aim=self.settings.logs, most=self.settings.span
        )
        return self._sorted(transfers, watched, times, known)

    async def _tip(self, view: View, headers: Sequence[Header], watched: Watched) -> Fetched:
        sides = (watched.receivers, watched.wallets)
        lists = sum(-(-len(side) // self._rates[view.node].topics) for side in sides)
        queries = len(headers) * lists
        if len(headers) > 1 and queries > self.settings.by_hash:
            transfers = await self._tip_range(view, headers, watched)
        else:
            transfers = await self._tip_blocks(view.node, headers, watched)
        numbers = {header.hash: header.number for header in headers}
        if any(numbers.get(transfer.block_hash) != transfer.number for transfer in transfers):
            raise RpcUnavailable(f"{view.node.name} sent logs of other blocks.")
        times = {header.hash: header.at for header in headers}
        return self._sorted(
            transfers, watched, times, {header.number: header for header in headers}
        )

    def _sorted(
        self,
        transfers: Sequence[Transfer],
        watched: Watched,
        times: dict[bytes, int],
        headers: dict[int, Header],
    ) -> Fetched:
        """The transfers as whom they concern has them."""
        with uncollected():
            return Fetched(
                entries(transfers, watched.wallets, times),
                deposits(transfers, watched.own, times, token=self.token),
                headers,
            )

    async def _tip_blocks(
        self, node: Node, headers: Sequence[Header], watched: Watched
    ) -> list[Transfer]:
        """Block by block, by hash."""
        queries = [
            query
            for header in headers
            for query in self._directions(
                node, watched, header.number, header.number, _hex(header.hash)
            )
        ]
        collected = await self._reader(node).events(queries)
        payers: dict[tuple[int, bytes], set[bytes]] = {}
        for transfer in collected.transfers.values():
            if transfer.receiver in watched.receivers:
                payers.setdefault((transfer.number, transfer.block_hash), set()).add(
                    transfer.sender
                )
        used = [
            query
            for (number, block), senders in payers.items()
            for query in self._payers(node, senders, number, number, _hex(block))
        ]
        return await self._paired(node, collected, used)

    async def _tip_range(
        self, view: View, headers: Sequence[Header], watched: Watched
    ) -> list[Transfer]:
        """By number, with the last block asked for again afterwards: it vouches for the others."""
        first, last = headers[0].number, headers[-1].number
        transfers = await self._range(view.node, first, last, watched)
        if await self.nodes.headers(view, [last]) != [headers[-1]]:
            raise RpcUnavailable(f"{view.node.name} changed its chain meanwhile.")
        return transfers.known

    async def _range(self, node: Node, first: int, last: int, watched: Watched) -> _Ranged:
        collected = await self._reader(node).events(self._directions(node, watched, first, last))
        payers = {
            transfer.sender
            for transfer in collected.transfers.values()
            if transfer.receiver in watched.receivers
        }
        used = self._payers(node, payers, first, last)
        return _Ranged(await self._paired(node, collected, used), collected.stamps)

    def _reader(self, node: Node) -> LogReader:
        return LogReader(node, self.token, self._rates[node])

    def _directions(
        self,
        node: Node,
        watched: Watched,
        first: int,
        last: int,
        block: str | None = None,
    ) -> list[Query]:
        """Transfers to the wallets and to us, and from the wallets, in lists that a node takes."""
        place = {"size": self._rates[node].topics, "first": first, "last": last}
        ends = ((2, watched.receivers), (1, watched.wallets))
        return [
            query
            for position, addresses in ends
            for query in about(TRANSFER, position, addresses, **place, block=block)
        ]

    def _payers(
        self,
        node: Node,
        payers: Collection[bytes],
        first: int,
        last: int,
        block: str | None = None,
    ) -> list[Query]:
        place = {"size": self._rates[node].topics, "first": first, "last": last}
        return about(AUTHORIZATION_USED, 1, sorted(payers), **place, block=block)

    async def _paired(
        self, node: Node, collected: CollectedEvents, queries: Sequence[Query]
    ) -> list[Transfer]:
        """The transfers with their authorizations; what the logs leave open, receipts decide."""
        used = (await self._reader(node).events(queries)).used
        try:
            with uncollected():
                pairing = settled(collected.transfers.values(), used.values())
            if not pairing.unclear:
                return pairing.transfers
            hashes = sorted({transfer.transaction for transfer in pairing.unclear})
            calls = [
                Call("eth_getTransactionReceipt", [_hex(transaction)]) for transaction in hashes
            ]
            receipts = await node.results(calls)
            return pairing.transfers + decided_by_receipts(
                pairing.unclear, receipts, token=self.token
            )
        except LogError as error:
            raise RpcUnavailable(f"{node.name}: {error}") from error

    async def _times(
        self,
        view: View,
        transfers: Sequence[Transfer],
        stamps: dict[bytes, int],
        known: dict[int, Header],
    ) -> dict[bytes, int]:
        """The times of the transfers' blocks; those that no log told are asked for."""
        places = {transfer.block_hash: transfer.number for transfer in transfers}
        if len(set(places.values())) != len(places):
            raise RpcUnavailable(f"{view.node.name} sent two blocks of one number.")
        times = {block: stamps[block] for block in places if block in stamps}
        rest = [number for block, number in places.items() if block not in times]
        headers = {header.number: header for header in await self.nodes.headers(view, rest)} | known
        for block, number in places.items():
            header = headers.get(number)
            if header is not None and header.hash != block:
                raise RpcUnavailable(f"{view.node.name} sent logs of another block.")
            if header is not None:
                times[block] = header.at
        if len(times) != len(places):
            raise RpcUnavailable(f"{view.node.name} lacks a block whose logs it sent.")
        return times


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _place_of(entry: Entry) -> tuple[int, int, bytes]:
    return entry.number, entry.log_index, entry.wallet


def _slot_of(deposit: Deposit) -> tuple[int, int]:
    return deposit.number, deposit.log_index


def _same_blocks(first: Fetched, second: Fetched) -> bool:
    """Whether two answers speak of the same chain, as far as their headers and entries tell."""
    blocks = {number: header.hash for number, header in first.headers.items()}
    blocks |= {move.number: move.block_hash for move in first.moves}
    other_blocks = [(number, header.hash) for number, header in second.headers.items()]
    other_blocks += [(move.number, move.block_hash) for move in second.moves]
    return all(blocks.get(number, block) == block for number, block in other_blocks)
