"""The logs of one chain, from whichever of its nodes can tell.

What is true here:
- nodes are asked in order; one that fails moves to the end, one that throttles rests;
- what a step needs comes from one node, so that its parts fit together;
- topic lists hold at most 500 words; a range or a list that a node calls too large is halved,
  down to one block and one word, and what worked is remembered;
- every batch of log queries asks for the node's head too: an answer, empty or not, is believed
  only if that head is not before the queried range (safety.md, *chain*);
- blocks that may still change are asked for by hash, final ones by number;
- a share of the answers, and every one that is empty, is compared with another node's where
  there is one. If one node has all that the other has and more, the other one lacked it; if each
  has what the other lacks, neither is believed.

Raises RpcError only, whatever the nodes send. What the transfers mean is core/settlement's work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tollgauge.clients.rpc import (
    Call,
    Node,
    RpcError,
    RpcLimit,
    RpcRefused,
    RpcThrottled,
    RpcUnavailable,
    uncollected,
)
from tollgauge.core.blocks import Header, Span
from tollgauge.core.settlement import (
    AUTHORIZATION_USED,
    TRANSFER,
    Entry,
    Events,
    LogError,
    Transfer,
    Used,
    entries,
    events,
    resolved,
    settled,
    word,
)

TOPICS_MAX: Final = 500
QUERIES_PER_BATCH: Final = 20
UNKNOWN_METHOD: Final = -32601
_CALM_STEPS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How logs are asked for.

    `span` and `tip_span` are the most final and not yet final blocks of a step, `logs` how many
    transfers a step aims at. `check` is the share of the answers that a second node is asked for
    too. `finality` is how many blocks are taken as not final where a node cannot say. `rest_s` is
    how long a node that throttles is left alone when it does not say so itself.
    """

    span: int = 2_000
    tip_span: int = 64
    topics: int = TOPICS_MAX
    logs: int = 10_000
    check: float = 0.05
    finality: int = 900
    rest_s: float = 5.0


class UnconfirmedError(RpcError):
    """No other node could confirm an answer that wanted it."""


class View(NamedTuple):
    """What one node says of its chain: its last block and the last final one's number."""

    node: Node
    head: Header
    finalized: int


class Fetched(NamedTuple):
    """The entries of a span, and the headers that were asked for on the way, by number.
    `healed` entries came from a second node because the first lacked them.
    """

    entries: list[Entry]
    headers: dict[int, Header]
    healed: int = 0


class _Query(NamedTuple):
    """One eth_getLogs: an event, and the words wanted at a topic position (1 or 2)."""

    event: str
    position: int
    words: Sequence[str]
    first: int
    last: int
    block: str | None = None

    def call(self, token: str) -> Call:
        topics = [self.event, *[None] * (self.position - 1), self.words]
        where: dict[str, object] = {"address": token, "topics": topics}
        if self.block is not None:
            where["blockHash"] = self.block
        else:
            where |= {"fromBlock": hex(self.first), "toBlock": hex(self.last)}
        return Call("eth_getLogs", [where])

    def parts(self, error: RpcRefused) -> list[_Query]:
        """Smaller queries that are this one together; empty when it cannot be smaller."""
        hinted = error.span if isinstance(error, RpcLimit) else None
        topics = isinstance(error, RpcLimit) and error.topics
        if self.last > self.first and not (topics and len(self.words) > 1):
            size = self.last - self.first + 1
            step = hinted if hinted and hinted < size else -(-size // 2)
            return [
                self._replace(first=at, last=min(at + step - 1, self.last))
                for at in range(self.first, self.last + 1, step)
            ]
        if len(self.words) > 1:
            half = len(self.words) // 2
            return [
                self._replace(words=self.words[:half]),
                self._replace(words=self.words[half:]),
            ]
        return []


@dataclass(slots=True)
class _Pace:
    """How much one node takes at once: learned from its refusals, raised again when it is calm."""

    span: int
    topics: int
    calm: int = 0
    rest_until: float = 0.0

    def refused(self, query: _Query, parts: Sequence[_Query]) -> None:
        self.calm = 0
        if parts[0].last - parts[0].first < query.last - query.first:
            self.span = max(1, min(self.span, parts[0].last - parts[0].first + 1))
        else:
            self.topics = max(1, min(self.topics, len(parts[0].words)))

    def went_well(self, *, found: int, aim: int, most: int) -> None:
        self.calm += 1
        if found > 2 * aim:
            self.span = max(1, self.span // 2)
        elif self.calm >= _CALM_STEPS and 2 * found < aim:
            self.calm = 0
            self.span = min(most, self.span * 2)


@dataclass(slots=True)
class _Found:
    """Events gathered from several answers, each once."""

    transfers: dict[tuple[bytes, int], Transfer] = field(default_factory=dict)
    used: dict[tuple[bytes, int], Used] = field(default_factory=dict)
    stamps: dict[bytes, int] = field(default_factory=dict)


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
        if not nodes:
            raise ValueError("at least one node")
        self.chain_id: Final = chain_id
        self.token: Final = token.lower()
        self.settings: Final = settings or LogSettings()
        self._nodes: Final = list(nodes)
        # What the last round loaded from the store, so that the next need not.
        self.wallets: frozenset[bytes] = frozenset()
        self.version = -1
        # How many answers in a row nobody could confirm.
        self.unconfirmed = 0
        # When the chain's volume was last measured, and how long that took.
        self.volume_at = 0
        self.volume_ms = 0
        self._right: Final[set[Node]] = set()
        self._dice: Final = random.Random(seed)  # noqa: S311 (which answers are checked)
        self._paces: Final = {
            node: _Pace(
                span=self.settings.span, topics=max(1, min(self.settings.topics, TOPICS_MAX))
            )
            for node in nodes
        }

    async def close(self) -> None:
        """Close every node's pool."""
        for node in self._nodes:
            await node.close()

    @property
    def width(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def span(self, view: View) -> int:
        """How many final blocks a step should ask this view's node for."""
        return self._paces[view.node].span

    async def view(self) -> View:
        """The first node that answers, and its chain's ends. Raises RpcError when none does."""
        problem: RpcError = RpcUnavailable("Every node of the chain is resting.")
        for node in list(self._nodes):
            if self._paces[node].rest_until > time.monotonic():
                continue
            try:
                return await self._view(node)
            except RpcError as error:
                self.failed(node, error)
                problem = error
        raise problem

    def failed(self, node: Node, error: RpcError) -> None:
        """Ask this node last from now on, and not at all for a while if it throttles."""
        self._nodes.remove(node)
        self._nodes.append(node)
        if isinstance(error, RpcThrottled):
            pause = error.retry_after_s or self.settings.rest_s
            self._paces[node].rest_until = time.monotonic() + pause

    async def headers(self, view: View, numbers: Iterable[int]) -> list[Header]:
        """The node's blocks with these numbers, in order; those it does not have are left out."""
        calls = [Call("eth_getBlockByNumber", [hex(number), False]) for number in numbers]
        found = [_header(each) for each in await view.node.results(calls) if each is not None]
        wanted = [int(call.params[0], 16) for call in calls]
        if not {header.number for header in found} <= set(wanted):
            raise RpcUnavailable(f"{view.node.name} sent blocks that nobody asked for.")
        return found

    async def final(
        self, view: View, span: Span, wallets: Collection[bytes], *, strict: bool = False
    ) -> Fetched:
        """The entries of wallets in final blocks, with the headers of the span's ends.

        Under `strict` an answer that wants confirming and gets none is UnconfirmedError, where
        there is another node at all.
        """
        return await self._checked(
            view, lambda of: self._final(of, span, wallets), last=span.last, strict=strict
        )

    async def every(
        self, views: Sequence[View], span: Span, wallets: Collection[bytes]
    ) -> list[Entry]:
        """The entries of wallets in final blocks, from all of these nodes together."""
        answers = [await self._final(view, span, wallets) for view in views]
        for other in answers[1:]:
            if not _same_blocks(answers[0], other):
                raise RpcUnavailable("Two nodes disagree about the blocks of a range.")
        return sorted({entry for answer in answers for entry in answer.entries}, key=_place_of)

    async def tip(
        self, view: View, headers: Sequence[Header], wallets: Collection[bytes]
    ) -> Fetched:
        """The entries of wallets in exactly these blocks, by hash.

        RpcRefused where the node no longer has one of them.
        """
        return await self._checked(
            view, lambda of: self._tip(of, headers, wallets), last=headers[-1].number, strict=False
        )

    async def _checked(
        self, view: View, fetch: Callable[[View], Awaitable[Fetched]], *, last: int, strict: bool
    ) -> Fetched:
        """An answer, compared with another node's when it is empty or by chance."""
        first = await fetch(view)
        if first.entries and self._dice.random() >= self.settings.check:
            return first
        second = None
        other = await self.second(view, last)
        if other is not None:
            try:
                second = await fetch(other)
            except RpcError as error:
                self.failed(other.node, error)
        if second is None:
            if strict and self.width > 1:
                raise UnconfirmedError("No other node could confirm the logs of a range.")
            return first
        return self._merged(view, first, second)

    def _merged(self, view: View, first: Fetched, second: Fetched) -> Fetched:
        """The fuller of two answers about the same blocks, when it holds all of the other."""
        if not _same_blocks(first, second):
            raise RpcUnavailable("Two nodes disagree about the blocks of a range.")
        mine, more = set(first.entries), set(second.entries)
        if mine >= more:
            return first
        if more > mine:
            self.failed(view.node, RpcUnavailable("The node left out logs."))
            return first._replace(entries=second.entries, healed=len(more - mine))
        raise RpcUnavailable("Two nodes disagree about the logs of a range.")

    async def second(self, view: View, last: int) -> View | None:
        """Another node whose head is not before a block, None when there is none."""
        for node in list(self._nodes):
            if node is view.node or self._paces[node].rest_until > time.monotonic():
                continue
            try:
                other = await self._view(node)
            except RpcError as error:
                self.failed(node, error)
                continue
            if other.head.number >= last:
                return other
        return None

    async def _view(self, node: Node) -> View:
        calls = [
            Call("eth_getBlockByNumber", ["latest", False]),
            Call("eth_getBlockByNumber", ["finalized", False]),
        ]
        if node not in self._right:
            calls.append(Call("eth_chainId"))
        latest, final, *chain = await node.batch(calls)
        if chain and (isinstance(chain[0], RpcError) or quantity(chain[0]) != self.chain_id):
            raise RpcUnavailable(f"{node.name} is no node of chain {self.chain_id}.")
        self._right.add(node)
        if isinstance(latest, RpcError):
            raise latest
        head = _header(latest)
        # A node without the `finalized` tag, or a chain too young for it, leaves it to a depth.
        known = None if final is None or isinstance(final, RpcRefused) else final
        if isinstance(known, RpcError):
            raise known
        number = head.number - self.settings.finality if known is None else _header(known).number
        return View(node, head, max(0, min(number, head.number)))

    async def _final(self, view: View, span: Span, wallets: Collection[bytes]) -> Fetched:
        ends = await self.headers(view, dict.fromkeys((span.first, span.last)))
        if [end.number for end in ends] != list(dict.fromkeys((span.first, span.last))):
            raise RpcUnavailable(f"{view.node.name} lacks a block before its head.")
        known = {header.number: header for header in ends}
        queries = self._directions(view.node, wallets, span.first, span.last, None)
        found = await self._gathered(view.node, queries)
        payers = {move.sender for move in found.transfers.values() if move.receiver in wallets}
        used = self._payers(view.node, payers, span.first, span.last, None)
        transfers = await self._paired(view.node, found, used)
        times = await self._times(view, transfers, found.stamps, known)
        self._paces[view.node].went_well(
            found=len(transfers), aim=self.settings.logs, most=self.settings.span
        )
        return Fetched(_within(entries(transfers, wallets, times), span), known)

    async def _tip(
        self, view: View, headers: Sequence[Header], wallets: Collection[bytes]
    ) -> Fetched:
        queries = [
            query
            for header in headers
            for query in self._directions(
                view.node, wallets, header.number, header.number, _hex(header.hash)
            )
        ]
        found = await self._gathered(view.node, queries)
        numbers = {header.hash: header.number for header in headers}
        if any(numbers.get(move.block_hash) != move.number for move in found.transfers.values()):
            raise RpcUnavailable(f"{view.node.name} sent logs of other blocks.")

        payers: dict[tuple[int, bytes], set[bytes]] = {}
        for move in found.transfers.values():
            if move.receiver in wallets:
                payers.setdefault((move.number, move.block_hash), set()).add(move.sender)
        used = [
            query
            for (number, block), senders in payers.items()
            for query in self._payers(view.node, senders, number, number, _hex(block))
        ]
        transfers = await self._paired(view.node, found, used)
        times = {header.hash: header.at for header in headers}
        return Fetched(
            entries(transfers, wallets, times), {header.number: header for header in headers}
        )

    def _directions(
        self,
        node: Node,
        wallets: Collection[bytes],
        first: int,
        last: int,
        block: str | None,
    ) -> list[_Query]:
        """Transfers to the wallets, and from them, in lists that the node takes."""
        words = [_topic(wallet) for wallet in wallets]
        size = self._paces[node].topics
        return [
            _Query(TRANSFER, position, words[at : at + size], first, last, block)
            for at in range(0, len(words), size)
            for position in (2, 1)
        ]

    def _payers(
        self, node: Node, payers: Collection[bytes], first: int, last: int, block: str | None
    ) -> list[_Query]:
        words = [_topic(payer) for payer in sorted(payers)]
        size = self._paces[node].topics
        return [
            _Query(AUTHORIZATION_USED, 1, words[at : at + size], first, last, block)
            for at in range(0, len(words), size)
        ]

    async def _paired(self, node: Node, found: _Found, queries: Sequence[_Query]) -> list[Transfer]:
        """The transfers with their authorizations; what the logs leave open, receipts decide."""
        used = (await self._gathered(node, queries)).used
        try:
            known = settled(found.transfers.values(), used.values())
            if not known.unclear:
                return known.transfers
            hashes = sorted({move.transaction for move in known.unclear})
            calls = [Call("eth_getTransactionReceipt", [_hex(each)]) for each in hashes]
            receipts = await node.results(calls)
            return known.transfers + resolved(known.unclear, receipts, token=self.token)
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
        places = {move.block_hash: move.number for move in transfers}
        if len(set(places.values())) != len(places):
            raise RpcUnavailable(f"{view.node.name} sent two blocks of one number.")
        times = {block: stamps[block] for block in places if block in stamps}
        rest = [number for block, number in places.items() if block not in times]
        told = {header.number: header for header in await self.headers(view, rest)} | known
        for block, number in places.items():
            header = told.get(number)
            if header is not None and header.hash != block:
                raise RpcUnavailable(f"{view.node.name} sent logs of another block.")
            if header is not None:
                times[block] = header.at
        if len(times) != len(places):
            raise RpcUnavailable(f"{view.node.name} lacks a block whose logs it sent.")
        return times

    async def _gathered(self, node: Node, queries: Sequence[_Query]) -> _Found:
        """The events of all queries; one that is too large is asked for in parts."""
        found = _Found()
        for start in range(0, len(queries), QUERIES_PER_BATCH):
            await self._ask(node, queries[start : start + QUERIES_PER_BATCH], found)
        return found

    async def _ask(self, node: Node, queries: Sequence[_Query], found: _Found) -> None:
        calls = [Call("eth_blockNumber"), *(query.call(self.token) for query in queries)]
        try:
            head, *answers = await node.batch(calls)
        except RpcLimit as error:
            if len(queries) > 1:
                for query in queries:
                    await self._ask(node, [query], found)
                return
            head, answers = hex(queries[0].last), [error]
        if isinstance(head, RpcError):
            raise head
        if quantity(head) < max(query.last for query in queries):
            raise RpcUnavailable(f"{node.name} is behind the blocks that were asked for.")
        for query, answer in zip(queries, answers, strict=True):
            if isinstance(answer, RpcError):
                await self._ask_parts(node, query, answer, found)
            else:
                self._take(node, query, answer, found)

    async def _ask_parts(self, node: Node, query: _Query, error: RpcError, found: _Found) -> None:
        """A query again in parts. A refusal in unknown words may be a limit, so a range is
        divided for it too; a block by its hash only for what is clearly a limit.
        """
        whole = not isinstance(error, RpcLimit) and (
            query.block is not None or query.first == query.last
        )
        if not isinstance(error, RpcRefused) or error.code == UNKNOWN_METHOD or whole:
            raise error
        parts = query.parts(error)
        if not parts:
            raise error
        for part in parts:
            await self._ask(node, [part], found)
        self._paces[node].refused(query, parts)

    def _take(self, node: Node, query: _Query, answer: Any, found: _Found) -> None:
        if not isinstance(answer, list):
            raise RpcUnavailable(f"{node.name} sent no list of logs.")
        try:
            seen = read_events(answer, token=self.token)
        except LogError as error:
            raise RpcUnavailable(f"{node.name}: {error}") from error
        for move in seen.transfers:
            self._place(node, query, move, found.transfers)
        for use in seen.used:
            self._place(node, query, use, found.used)
        found.stamps.update(seen.stamps)

    def _place(self, node: Node, query: _Query, event: Any, into: dict[Any, Any]) -> None:
        if not query.first <= event.number <= query.last:
            raise RpcUnavailable(f"{node.name} sent logs from outside the range.")
        if into.setdefault((event.block_hash, event.log_index), event) != event:
            raise RpcUnavailable(f"{node.name} sent two logs of one place.")


def read_events(logs: list[Any], *, token: str) -> Events:
    """The events of one answer. Raises LogError."""
    with uncollected():
        return events(logs, token=token)


def quantity(value: object) -> int:
    """A JSON-RPC number below 2^40, which blocks and seconds are. Raises RpcUnavailable for
    anything else.
    """
    if isinstance(value, str) and value.startswith("0x") and len(value) <= 12:
        try:
            return int(value, 16)
        except ValueError:
            pass
    raise RpcUnavailable("A number of the node is malformed.")


def _header(value: Any) -> Header:
    try:
        return Header(
            quantity(value["number"]),
            word(value["hash"]),
            word(value["parentHash"]),
            1_000 * quantity(value["timestamp"]),
        )
    except (KeyError, TypeError, ValueError, LogError) as error:
        raise RpcUnavailable("A block of the node is malformed.") from error


def _topic(address: bytes) -> str:
    return "0x" + 24 * "0" + address.hex()


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _place_of(entry: Entry) -> tuple[int, int, bytes]:
    return entry.number, entry.log_index, entry.wallet


def _within(found: list[Entry], span: Span) -> list[Entry]:
    return [entry for entry in found if span.first <= entry.number <= span.last]


def _same_blocks(first: Fetched, second: Fetched) -> bool:
    """Whether two answers speak of the same chain, as far as their headers and entries tell."""
    blocks = {number: header.hash for number, header in first.headers.items()}
    blocks |= {entry.number: entry.block_hash for entry in first.entries}
    others = [(number, header.hash) for number, header in second.headers.items()]
    others += [(entry.number, entry.block_hash) for entry in second.entries]
    return all(blocks.get(number, block) == block for number, block in others)
