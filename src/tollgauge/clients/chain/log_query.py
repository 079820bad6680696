"""Log queries: eth_getLogs in batches, split if a node reports a query as too large.

A query is split down to one block and one topic. The working size is remembered and grows again
after a number of queries without a refusal. Every batch also requests the node's head: a response,
even an empty one, counts only if that head is not before the queried range (docs/indexing.md).
Raises only RpcError, whatever the node sends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tollgauge.clients.chain.rpc import (
    Node,
    RpcCall,
    RpcError,
    RpcLimit,
    RpcRefused,
    RpcUnavailable,
    quantity,
)
from tollgauge.core.chain.forms import CONTRACTS, EVENTS, FormEvent, read_events
from tollgauge.core.chain.settlement import LogError, Transfer, Used, read_logs

TOPICS_MAX: Final = 500
QUERIES_PER_BATCH: Final = 20
UNKNOWN_METHOD: Final = -32601
_CALM_STEPS: Final = 8


class Blocks(NamedTuple):
    """A range of blocks, or one block by its hash."""

    first: int
    last: int
    hash: str | None = None


class Query(NamedTuple):
    """One eth_getLogs of the token: an event, and the values of a topic (position 1 or 2) to match.
    At position 0 it is for the events `words` of the contracts of other forms (core/chain/forms).
    """

    event: str
    position: int
    words: Sequence[str]
    blocks: Blocks

    @property
    def of_forms(self) -> bool:
        """Whether it is for events of the contracts of other forms."""
        return self.position == 0

    def call(self, token: str) -> RpcCall:
        """Return the call that runs the query."""
        first, last, block_hash = self.blocks
        topics: list[object] = [self.event, *[None] * (self.position - 1), self.words]
        log_filter: dict[str, object] = {"address": token, "topics": topics}
        if self.of_forms:
            log_filter = {"address": list(CONTRACTS), "topics": [self.words]}
        if block_hash is not None:
            return RpcCall("eth_getLogs", [log_filter | {"blockHash": block_hash}])
        return RpcCall(
            "eth_getLogs", [log_filter | {"fromBlock": hex(first), "toBlock": hex(last)}]
        )

    def parts(self, error: RpcRefused) -> list[Query]:
        """Split the query into smaller ones; empty if it cannot be split."""
        first, last, _ = self.blocks
        hinted = error.span if isinstance(error, RpcLimit) else None
        topics = isinstance(error, RpcLimit) and error.topics
        if last > first and not (topics and len(self.words) > 1):
            size = last - first + 1
            step = hinted if hinted and hinted < size else -(-size // 2)
            return [
                self._replace(blocks=Blocks(at, min(at + step - 1, last)))
                for at in range(first, last + 1, step)
            ]
        half = len(self.words) // 2
        halves = (self.words[:half], self.words[half:]) if half else ()
        return [self._replace(words=words) for words in halves]


@dataclass(slots=True)
class QuerySize:
    """Maximum blocks (`span`) and topics per query of one node. Refusals decrease them; `calm`
    queries without a refusal increase them again.
    """

    span: int
    topics: int
    calm: int = 0

    def record_refusal(self, query: Query, parts: Sequence[Query]) -> None:
        """Record that the parts of a refused query worked."""
        self.calm = 0
        first, last, _ = parts[0].blocks
        if last - first < query.blocks.last - query.blocks.first:
            self.span = max(1, min(self.span, last - first + 1))
        else:
            self.topics = max(1, min(self.topics, len(parts[0].words)))

    def record_success(self, *, transfers: int, aim: int, most: int) -> None:
        """Adapt `span` after a query returned `transfers` where about `aim` are wanted."""
        self.calm += 1
        if transfers > 2 * aim:
            self.span = max(1, self.span // 2)
        elif self.calm >= _CALM_STEPS and 2 * transfers < aim:
            self.calm = 0
            self.span = min(most, self.span * 2)


@dataclass(slots=True)
class CollectedEvents:
    """Events from several responses, without duplicates."""

    transfers: dict[tuple[bytes, int], Transfer] = field(default_factory=dict)
    used: dict[tuple[bytes, int], Used] = field(default_factory=dict)
    of_forms: dict[tuple[bytes, int], FormEvent] = field(default_factory=dict)
    stamps: dict[bytes, int] = field(default_factory=dict)


class LogReader:
    """Reads the events of one token from one node, in queries of the size that the node accepts."""

    def __init__(self, node: Node, token: str, size: QuerySize) -> None:
        self.node: Final = node
        self.size: Final = size
        self._token: Final = token

    def queries(
        self, event: str, position: int, addresses: Collection[bytes], blocks: Blocks
    ) -> list[Query]:
        """Build the queries for an event with one of these addresses at topic `position`."""
        words = ["0x" + 24 * "0" + address.hex() for address in addresses]
        most = self.size.topics
        return [
            Query(event, position, words[start : start + most], blocks)
            for start in range(0, len(words), most)
        ]

    def forms(self, blocks: Blocks, events: Sequence[str] = EVENTS) -> list[Query]:
        """Build the queries for events of the contracts of other forms."""
        most = self.size.topics
        return [
            Query("", 0, events[start : start + most], blocks)
            for start in range(0, len(events), most)
        ]

    async def events(self, queries: Sequence[Query]) -> CollectedEvents:
        """Return the events of all queries."""
        collected, start = CollectedEvents(), 0
        while start < len(queries):
            # One call of each batch is reserved for the head.
            end = start + max(1, min(QUERIES_PER_BATCH, self.node.batch_calls - 1))
            await self._ask(queries[start:end], collected)
            start = end
        return collected

    async def _ask(self, queries: Sequence[Query], collected: CollectedEvents) -> None:
        calls = [RpcCall("eth_blockNumber"), *(query.call(self._token) for query in queries)]
        try:
            head, *answers = await self.node.batch(calls)
        except RpcLimit as error:
            if len(queries) > 1:
                for query in queries:
                    await self._ask([query], collected)
                return
            head, answers = hex(queries[0].blocks.last), [error]
        if isinstance(head, RpcError):
            raise head
        if quantity(head) < max(query.blocks.last for query in queries):
            raise RpcUnavailable(f"{self.node.name} is behind the requested blocks.")
        for query, answer in zip(queries, answers, strict=True):
            if isinstance(answer, RpcError):
                await self._ask_parts(query, answer, collected)
            else:
                self._take(query, answer, collected)

    async def _ask_parts(self, query: Query, error: RpcError, collected: CollectedEvents) -> None:
        """Repeat a query in parts. An unrecognised refusal may be a limit, so a range is split for
        it too; a block by its hash is split only for a recognised limit.
        """
        first, last, block_hash = query.blocks
        whole = not isinstance(error, RpcLimit) and (block_hash is not None or first == last)
        if not isinstance(error, RpcRefused) or error.code == UNKNOWN_METHOD or whole:
            raise error
        parts = query.parts(error)
        if not parts:
            raise error
        for part in parts:
            await self._ask([part], collected)
        self.size.record_refusal(query, parts)

    def _take(self, query: Query, answer: Any, collected: CollectedEvents) -> None:
        if not isinstance(answer, list):
            raise RpcUnavailable(f"{self.node.name} did not return a list of logs.")
        try:
            of_forms = read_events(answer) if query.of_forms else []
            decoded = read_logs([] if query.of_forms else answer, token=self._token)
        except LogError as error:
            raise RpcUnavailable(f"{self.node.name}: {error}") from error
        for transfer in decoded.transfers:
            self._add(query, transfer, collected.transfers)
        for use in decoded.used:
            self._add(query, use, collected.used)
        for event in of_forms:
            self._add(query, event, collected.of_forms)
        collected.stamps.update(decoded.stamps)

    def _add(self, query: Query, event: Any, into: dict[Any, Any]) -> None:
        """Add an event without duplicates. Raises RpcUnavailable if it does not match the query."""
        if not query.blocks.first <= event.number <= query.blocks.last:
            raise RpcUnavailable(f"{self.node.name} sent logs from outside the range.")
        if into.setdefault((event.block_hash, event.log_index), event) != event:
            raise RpcUnavailable(f"{self.node.name} sent two logs with the same index.")
