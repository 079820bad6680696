"""Transfers of one token on one chain: what monitored wallets received by authorization and paid,
and all deposits to the service's own addresses.

All parts of a step come from one node, so that they are consistent. Blocks that may still change
are queried by hash, final ones by number; many new blocks at a time also by number, compared with
their headers' hashes before and after. A sample of the responses, and every empty one, is compared
with another node's: if one contains all of the other it is used, otherwise neither is. Raises only
RpcError, whatever the nodes send.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Final, NamedTuple

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.log_query import TOPICS_MAX, Blocks, LogReader, QuerySize
from tollgauge.clients.chain.nodes import ChainNodes, View
from tollgauge.clients.chain.rpc import Node, RpcCall, RpcError, RpcUnavailable
from tollgauge.core.base.units import hex_text
from tollgauge.core.chain.blocks import BlockHeader, Span
from tollgauge.core.chain.forms import (
    REFUNDED,
    FormEvent,
    FormReader,
)
from tollgauge.core.chain.settlement import (
    AUTHORIZATION_USED,
    MIN_PAYMENT,
    TRANSFER,
    Deposit,
    Entry,
    LogError,
    Transfer,
    Used,
    list_deposits,
    list_entries,
    match_by_receipts,
    match_transfers,
)
from tollgauge.core.endpoint.terms import BATCH_SETTLEMENT


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Sizes of log queries. `finality` and `rest_s` are as in ChainNodes."""

    span: PositiveInt = 2_000
    """Final blocks per query."""
    tip_span: PositiveInt = 64
    """Blocks per query near the head of the chain."""
    topics: Annotated[int, Field(ge=1, le=TOPICS_MAX)] = TOPICS_MAX
    """Addresses per query."""
    logs: PositiveInt = 10_000
    """Target number of transfers per step."""
    check: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Fraction of the responses that are compared with another node's."""
    finality: int = 900
    """Depth in blocks after which no reorganisation is expected."""
    by_hash: int = 400
    """Maximum queries by block hash for new blocks; beyond it, queries are by number."""
    rest_s: float = 5.0
    """Time for which a node is skipped after a failure."""


class ContradictionError(RpcUnavailable):
    """Two nodes contradict each other."""


class UnconfirmedError(RpcError):
    """No other node could confirm a response that requires confirmation."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The addresses to follow: monitored `wallets`, and the service's `own` ones. An address may be
    both; `receivers` is their union.
    """

    wallets: frozenset[bytes] = frozenset()
    own: frozenset[bytes] = frozenset()
    receivers: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Computed once per set, not per query: there may be very many wallets.
        object.__setattr__(self, "receivers", self.wallets | self.own)


class Fetched(NamedTuple):
    """Entries and deposits of a span, and the headers that were read, by number. `missed` of them
    came from a second node because the first lacked them.
    """

    entries: list[Entry]
    deposits: list[Deposit]
    headers: dict[int, BlockHeader]
    missed: int = 0

    @property
    def moves(self) -> list[Entry | Deposit]:
        """Entries and deposits."""
        return [*self.entries, *self.deposits]


class ChainLogs:
    """The nodes of one chain, and the transfers of one token on it."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        chain_id: int,
        token: str,
        settings: LogSettings,
        seed: int | None = None,
    ) -> None:
        self.settings: Final = settings
        self.nodes: Final = ChainNodes(
            nodes, chain_id=chain_id, finality=self.settings.finality, rest_s=self.settings.rest_s
        )
        self.chain_id: Final = chain_id
        self.token: Final = token.lower()
        self._forms: Final = FormReader(self.token, chain_id)
        self._random: Final = random.Random(seed)  # noqa: S311 (which answers are checked)
        self._readers: Final = {
            node: LogReader(node, self.token, QuerySize(self.settings.span, self.settings.topics))
            for node in nodes
        }

    async def close(self) -> None:
        """Close every node's pool."""
        await self.nodes.close()

    def span(self, view: View) -> int:
        """Return the number of final blocks per step for this view's node."""
        return self._readers[view.node].size.span

    async def final(
        self, view: View, span: Span, watched: Watched, *, strict: bool = False
    ) -> Fetched:
        """Return the transfers in final blocks, with the headers of the span's ends.

        Raises:
            UnconfirmedError: With `strict`, if a response required confirmation, other nodes are
                configured, and none confirmed it.
        """
        return await self._check_with_another_node(
            view, lambda of: self._final(of, span, watched), last=span.last, strict=strict
        )

    async def final_of_all(self, views: Sequence[View], span: Span, watched: Watched) -> Fetched:
        """Return the transfers in final blocks that any of these nodes has. Raises
        ContradictionError.
        """
        answers = [await self._final(view, span, watched) for view in views]
        for other in answers[1:]:
            if not _same_blocks(answers[0], other):
                raise ContradictionError("Two nodes disagree about the blocks of a range.")
        distinct_entries = {entry for answer in answers for entry in answer.entries}
        distinct_deposits = {deposit for answer in answers for deposit in answer.deposits}
        entry_keys = {_entry_key(entry) for entry in distinct_entries}
        deposit_keys = {_deposit_key(deposit) for deposit in distinct_deposits}
        if (len(entry_keys), len(deposit_keys)) != (len(distinct_entries), len(distinct_deposits)):
            raise ContradictionError("Two nodes disagree about a log.")
        return Fetched(
            sorted(distinct_entries, key=_entry_key),
            sorted(distinct_deposits, key=_deposit_key),
            answers[0].headers,
        )

    async def tip(self, view: View, headers: Sequence[BlockHeader], watched: Watched) -> Fetched:
        """Return the transfers in exactly these blocks, by hash.

        Raises RpcRefused if the node no longer has one of them.
        """
        return await self._check_with_another_node(
            view, lambda of: self._tip(of, headers, watched), last=headers[-1].number, strict=False
        )

    async def _check_with_another_node(
        self, view: View, fetch: Callable[[View], Awaitable[Fetched]], *, last: int, strict: bool
    ) -> Fetched:
        """Return a response, compared with another node's if it is empty or in the sample."""
        first = await fetch(view)
        if first.moves and self._random.random() >= self.settings.check:
            return first
        second = None
        other = await self.nodes.second(view, last)
        if other is not None:
            try:
                second = await fetch(other)
            except RpcError as error:
                self.nodes.record_failure(other.node, error)
        if second is None:
            if strict and self.nodes.count > 1:
                raise UnconfirmedError("No other node could confirm the logs of a range.")
            return first
        return self._select_larger(view, first, second)

    def _select_larger(self, view: View, first: Fetched, second: Fetched) -> Fetched:
        """Return the larger of two results for the same blocks, if it contains the other."""
        if not _same_blocks(first, second):
            raise ContradictionError("Two nodes disagree about the blocks of a range.")
        first_moves, second_moves = set(first.moves), set(second.moves)
        if first_moves >= second_moves:
            return first
        if second_moves > first_moves:
            self.nodes.record_failure(view.node, RpcUnavailable("The node left out logs."))
            return second._replace(headers=first.headers, missed=len(second_moves - first_moves))
        raise ContradictionError("Two nodes disagree about the logs of a range.")

    async def _final(self, view: View, span: Span, watched: Watched) -> Fetched:
        numbers = dict.fromkeys((span.first, span.last))
        known = {header.number: header for header in await self.nodes.headers(view, numbers)}
        if list(known) != list(numbers):
            raise RpcUnavailable(f"{view.node.name} lacks a block before its head.")
        blocks = Blocks(span.first, span.last)
        transfers, stamps = await self._transfers(view.node, [blocks], watched)
        times = await self._times(view, transfers, stamps, known)
        self._readers[view.node].size.record_success(
            transfers=len(transfers), aim=self.settings.logs, most=self.settings.span
        )
        return self._to_entries(transfers, watched, times, known)

    async def _tip(self, view: View, headers: Sequence[BlockHeader], watched: Watched) -> Fetched:
        size = self._readers[view.node].size.topics
        lists = sum(ceil(len(side) / size) for side in (watched.receivers, watched.wallets))
        if len(headers) == 1 or len(headers) * lists <= self.settings.by_hash:
            blocks = [
                Blocks(header.number, header.number, hex_text(header.hash)) for header in headers
            ]
            transfers, _ = await self._transfers(view.node, blocks, watched)
        else:
            span = Blocks(headers[0].number, headers[-1].number)
            transfers, _ = await self._transfers(view.node, [span], watched)
            # A hash covers all earlier blocks: if the last one is unchanged, so are the others.
            if await self.nodes.headers(view, [span.last]) != [headers[-1]]:
                raise RpcUnavailable(f"{view.node.name} changed its chain during the query.")
        numbers = {header.hash: header.number for header in headers}
        if any(numbers.get(transfer.block_hash) != transfer.number for transfer in transfers):
            raise RpcUnavailable(f"{view.node.name} sent logs of other blocks.")
        times = {header.hash: header.at for header in headers}
        return self._to_entries(
            transfers, watched, times, {header.number: header for header in headers}
        )

    def _to_entries(
        self,
        transfers: Sequence[Transfer],
        watched: Watched,
        times: dict[bytes, int],
        headers: dict[int, BlockHeader],
    ) -> Fetched:
        """Return the transfers as entries of wallets and deposits to the service's addresses."""
        return Fetched(
            list_entries(transfers, watched.wallets, times),
            list_deposits(transfers, watched.own, times, token=self.token),
            headers,
        )

    async def _transfers(
        self, node: Node, blocks: Sequence[Blocks], watched: Watched
    ) -> tuple[list[Transfer], dict[bytes, int]]:
        """Return the transfers to the receivers and from the wallets, with their authorizations,
        and the block times that the logs contain. `blocks` is one range, or single blocks.
        """
        reader = self._readers[node]
        queries = [
            query
            for part in blocks
            for position, addresses in ((2, watched.receivers), (1, watched.wallets))
            for query in reader.queries(TRANSFER, position, addresses, part)
        ]
        if watched.wallets:
            # A refund is paid by the operator of a payment: no transfer of a wallet shows it.
            queries += [query for part in blocks for query in reader.forms(part, (REFUNDED,))]
        collected = await reader.events(queries)
        by_number = {part.first: part for part in blocks}
        payers: dict[Blocks, set[bytes]] = {}
        for transfer in collected.transfers.values():
            if transfer.receiver in watched.receivers:
                part = blocks[0] if len(blocks) == 1 else by_number[transfer.number]
                payers.setdefault(part, set()).add(transfer.sender)
        uses = await reader.events(
            [
                query
                for part, senders in payers.items()
                for query in reader.queries(AUTHORIZATION_USED, 1, sorted(senders), part)
            ]
        )
        transfers = await self._pair_authorizations(
            node, collected.transfers.values(), uses.used.values()
        )
        refunds = list(collected.of_forms.values())
        matched = await self._match_forms(reader, blocks, transfers, refunds, watched)
        return matched, collected.stamps

    async def _match_forms(
        self,
        reader: LogReader,
        blocks: Sequence[Blocks],
        transfers: list[Transfer],
        refunds: list[FormEvent],
        watched: Watched,
    ) -> list[Transfer]:
        """Return the transfers with the forms of those that a contract settled, and the refunds of
        captured payments.
        """
        # Most events of the contracts do not name the payTo, so that all of them in a range are
        # requested; only for blocks with a transfer to a wallet that nothing else explains.
        unexplained = {
            transfer.number
            for transfer in transfers
            if transfer.nonce is None
            and transfer.value >= MIN_PAYMENT
            and transfer.receiver in watched.wallets
        }
        events: list[FormEvent] = []
        if unexplained:
            if len(blocks) == 1 and blocks[0].hash is None:
                parts = [Blocks(min(unexplained), max(unexplained))]
            else:
                parts = [part for part in blocks if part.first in unexplained]
            found = await reader.events([query for part in parts for query in reader.forms(part)])
            events = list(found.of_forms.values())
            transfers = self._forms.match(transfers, events)
        batches = {one.transaction for one in transfers if one.form == BATCH_SETTLEMENT}
        called = batches | {refund.transaction for refund in refunds}
        calls = await self.nodes.call_data(reader.node, called)
        transfers = self._forms.add_payers(transfers, events, calls)
        return self._forms.add_refunds(transfers, refunds, calls, watched.wallets)

    async def _pair_authorizations(
        self, node: Node, transfers: Collection[Transfer], used: Collection[Used]
    ) -> list[Transfer]:
        """Return the transfers with their authorizations; receipts decide unclear ones."""
        try:
            pairing = match_transfers(transfers, used)
            if not pairing.unclear:
                return pairing.transfers
            hashes = sorted({transfer.transaction for transfer in pairing.unclear})
            calls = [RpcCall("eth_getTransactionReceipt", [hex_text(hash_)]) for hash_ in hashes]
            receipts = await node.results(calls)
            return pairing.transfers + match_by_receipts(
                pairing.unclear, receipts, token=self.token
            )
        except LogError as error:
            raise RpcUnavailable(f"{node.name}: {error}") from error

    async def _times(
        self,
        view: View,
        transfers: Sequence[Transfer],
        stamps: dict[bytes, int],
        known: dict[int, BlockHeader],
    ) -> dict[bytes, int]:
        """Return the times of the transfers' blocks; those that no log contains are queried."""
        numbers = {transfer.block_hash: transfer.number for transfer in transfers}
        if len(set(numbers.values())) != len(numbers):
            raise RpcUnavailable(f"{view.node.name} sent two blocks with the same number.")
        times = {block: stamps[block] for block in numbers if block in stamps}
        rest = [number for block, number in numbers.items() if block not in times]
        if times:  # blocks whose time is in their logs: all are checked roughly, and one exactly
            ends = [header.at for header in known.values()]
            if not min(ends) <= min(times.values()) <= max(times.values()) <= max(ends):
                raise RpcUnavailable(f"{view.node.name} sent logs of another time.")
            rest.append(numbers[self._random.choice(list(times))])
        headers = {header.number: header for header in await self.nodes.headers(view, rest)} | known
        for block, number in numbers.items():
            header = headers.get(number)
            if header is not None and header.hash != block:
                raise RpcUnavailable(f"{view.node.name} sent logs of another block.")
            if header is not None:
                times[block] = header.at
        if len(times) != len(numbers):
            raise RpcUnavailable(f"{view.node.name} lacks a block whose logs it sent.")
        return times


def _entry_key(entry: Entry) -> tuple[int, int, bytes]:
    return entry.number, entry.log_index, entry.wallet


def _deposit_key(deposit: Deposit) -> tuple[int, int]:
    return deposit.number, deposit.log_index


def _same_blocks(first: Fetched, second: Fetched) -> bool:
    """Return whether two responses have the same hash for each block that both contain."""
    blocks = {number: header.hash for number, header in first.headers.items()}
    blocks |= {move.number: move.block_hash for move in first.moves}
    other_blocks = [(number, header.hash) for number, header in second.headers.items()]
    other_blocks += [(move.number, move.block_hash) for move in second.moves]
    return all(blocks.get(number, block) == block for number, block in other_blocks)
