"""The nodes of one chain: selects the node to query, and reads its newest and its final block.

Nodes are queried in order: one that fails moves to the end, and one that throttles rests. A node is
used only after it has confirmed its chain ID. Raises only RpcError, whatever the nodes send.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.rpc import (
    Node,
    RpcCall,
    RpcError,
    RpcRefused,
    RpcThrottled,
    RpcUnavailable,
    quantity,
)
from tollgauge.clients.peer import WebUrl
from tollgauge.core.base.units import (
    EVM_ADDRESS_PATTERN,
    chain_number,
    hex_text,
    settlement_token,
)
from tollgauge.core.chain.blocks import FAST_CHAINS, BlockHeader
from tollgauge.core.chain.settlement import LogError, word

_CALL_DATA_MAX: Final = 1 << 21  # hex digits; nodes accept transactions of at most 128 KiB


def _indexable_network(network: str) -> str:
    if chain_number(network) is None:
        raise ValueError("must be eip155: and the number of an EVM chain, or a network of Solana")
    return network


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """An EVM chain or a network of Solana, and its nodes, whose URLs are secret."""

    network: Annotated[str, AfterValidator(_indexable_network), Field(examples=["eip155:8453"])]
    """CAIP-2 identifier, such as eip155:8453 for Base, or
    solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp for Solana.
    """
    nodes: tuple[WebUrl, ...] = field(default=(), repr=False)
    """URLs of nodes, separated by commas, the preferred one first. ID is the number in `network`,
    such as 8453, or SOLANA, SOLANA_DEVNET; the variable adds the chain if the file does not list
    it.
    """
    index: bool = True
    """Read settlements from the chain. If false, its nodes only prove payments and trace
    transactions."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Timeout for a request to a node."""

    def __post_init__(self) -> None:
        if self.index and settlement_token(self.network) is None:
            raise ValueError(
                f"settlements on {self.network} cannot be read, because it has no known dollar "
                "token: set index = false"
            )

    @property
    def chain_id(self) -> int:
        """The number by which the chain is stored (`chain_number`)."""
        number = chain_number(self.network)
        if number is None:
            raise ValueError(f"{self.network} cannot be indexed")
        return number

    @property
    def is_solana(self) -> bool:
        """Whether the chain is a network of Solana."""
        return self.chain_id < 0

    def open(self) -> list[Node]:
        """Create a pool for each node."""
        return [Node(url, timeout_s=self.timeout_s) for url in self.nodes]


class View(NamedTuple):
    """A node's view of its chain: the newest block, and the number of the final one."""

    node: Node
    head: BlockHeader
    finalized: int


class Submission(NamedTuple):
    """Who sent a transaction, and the builder code of the seller's app in it; both empty if
    unknown.
    """

    sender: bytes = b""
    app_code: str = ""


class ChainNodes:
    """Connection pools to the nodes of a chain, the preferred one first.

    `finality` is the depth of a final block if a node cannot name one. A node that throttles
    without a Retry-After rests for `rest_s` seconds. On a chain with blocks under one second, the
    newest block of a view is the final one: following single blocks would take too many requests.
    """

    def __init__(
        self, nodes: Sequence[Node], *, chain_id: int, finality: int, rest_s: float
    ) -> None:
        if not nodes:
            raise ValueError("a chain needs a node")
        self.chain_id: Final = chain_id
        self._finality: Final = finality
        self._rest_s: Final = rest_s
        self._nodes: Final = list(nodes)
        self._of_this_chain: Final[set[Node]] = set()
        self._rest_until: Final[dict[Node, float]] = {}

    async def close(self) -> None:
        """Close every node's pool."""
        for node in self._nodes:
            await node.close()

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    async def view(self) -> View:
        """Return the view of the first node that responds. Raises RpcError if none does."""
        problem: RpcError = RpcUnavailable("Every node of the chain is resting.")
        for node in list(self._nodes):
            if self._is_resting(node):
                continue
            try:
                return await self._view(node)
            except RpcError as error:
                self.record_failure(node, error)
                problem = error
        raise problem

    def record_failure(self, node: Node, error: RpcError) -> None:
        """Move a node to the end; if it throttles, skip it for a while."""
        self._nodes.remove(node)
        self._nodes.append(node)
        if isinstance(error, RpcThrottled):
            pause = error.retry_after_s or self._rest_s
            self._rest_until[node] = time.monotonic() + pause

    async def headers(self, view: View, numbers: Iterable[int]) -> list[BlockHeader]:
        """Return the node's blocks with these numbers, in order; missing ones are left out."""
        calls = [RpcCall("eth_getBlockByNumber", [hex(number), False]) for number in numbers]
        headers = [_header(block) for block in await view.node.results(calls) if block is not None]
        requested = [int(call.params[0], 16) for call in calls]
        if not {header.number for header in headers} <= set(requested):
            raise RpcUnavailable(f"{view.node.name} sent blocks that were not requested.")
        return headers

    async def submissions(
        self, view: View, transactions: Sequence[tuple[bytes, bytes]]
    ) -> list[Submission]:
        """Return the submission of each transaction, given as (block hash, transaction hash) of a
        final block; an empty one if the node does not have the transaction in this block.
        """
        calls = [RpcCall("eth_getTransactionByHash", [hex_text(tx)]) for _, tx in transactions]
        results = await view.node.results(calls)
        return [
            _submission(result, block_hash, transaction)
            for result, (block_hash, transaction) in zip(results, transactions, strict=True)
        ]

    async def call_data(self, node: Node, hashes: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the call data of transactions by hash, without those that no node has.

        `node` is queried first, then the others for the missing ones. Any node may answer, because
        the data must match hashes in the events.

        Raises:
            RpcError: `node` did not respond; a refusal is not an error.
        """
        found: dict[bytes, bytes] = {}
        others = [one for one in self._nodes if one is not node and not self._is_resting(one)]
        for one in (node, *others):
            missing = sorted(set(hashes) - set(found))
            calls = [RpcCall("eth_getTransactionByHash", [hex_text(hash_)]) for hash_ in missing]
            try:
                replies = await one.each(calls)
            except RpcError:
                if one is node:
                    raise
                continue
            for hash_, reply in zip(missing, replies, strict=True):
                if isinstance(reply, RpcUnavailable) and one is node:
                    raise reply
                data = _input(reply)
                if data is not None:
                    found[hash_] = data
        return found

    async def second(self, view: View, last: int) -> View | None:
        """Return another node whose head is at or after block `last`, or None."""
        for node in list(self._nodes):
            if node is view.node or self._is_resting(node):
                continue
            try:
                other = await self._view(node)
            except RpcError as error:
                self.record_failure(node, error)
                continue
            if other.head.number >= last:
                return other
        return None

    def _is_resting(self, node: Node) -> bool:
        return self._rest_until.get(node, 0.0) > time.monotonic()

    async def _view(self, node: Node) -> View:
        calls = [
            RpcCall("eth_getBlockByNumber", ["latest", False]),
            RpcCall("eth_getBlockByNumber", ["finalized", False]),
        ]
        if node not in self._of_this_chain:
            calls.append(RpcCall("eth_chainId"))
        latest, final, *chain = await node.batch(calls)
        if chain and (isinstance(chain[0], RpcError) or quantity(chain[0]) != self.chain_id):
            raise RpcUnavailable(f"{node.name} is not a node of chain {self.chain_id}.")
        self._of_this_chain.add(node)
        if isinstance(latest, RpcError):
            raise latest
        head = _header(latest)
        # A node without the `finalized` tag, or a young chain, does not name a final block.
        known = None if final is None or isinstance(final, RpcRefused) else final
        if isinstance(known, RpcError):
            raise known
        number = head.number - self._finality if known is None else _header(known).number
        final = max(0, min(number, head.number))
        if self.chain_id not in FAST_CHAINS:
            return View(node, head, final)
        headers = await self.headers(View(node, head, final), [final])
        if not headers:
            raise RpcUnavailable(f"{node.name} lacks its own final block.")
        return View(node, headers[0], final)


def _input(transaction: Any) -> bytes | None:
    """Return the call data of a transaction; None if it is missing or malformed."""
    text = transaction.get("input") if isinstance(transaction, dict) else None
    if not isinstance(text, str) or len(text) > _CALL_DATA_MAX:
        return None
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        return None


def _submission(value: Any, block_hash: bytes, transaction: bytes) -> Submission:
    if not isinstance(value, dict):
        return Submission()
    place, sender = (value.get("blockHash"), value.get("hash")), value.get("from")
    if place != (hex_text(block_hash), hex_text(transaction)) or not isinstance(sender, str):
        return Submission()
    if not EVM_ADDRESS_PATTERN.fullmatch(sender):
        return Submission()
    return Submission(bytes.fromhex(sender[2:]), _app_code(value.get("input")))


def _app_code(calldata: object) -> str:
    """Return the builder code of the seller's app at the end of calldata (ERC-8021, schema 2)."""
    # The import takes 0.1 s: it loads all extensions of the SDK. The configuration imports this
    # module, so every command would pay for it.
    from x402.extensions.builder_code import parse_builder_code_suffix_from_calldata
    from x402.extensions.builder_code.types import BUILDER_CODE_PATTERN

    try:
        suffix = parse_builder_code_suffix_from_calldata(str(calldata))
    except (ValueError, IndexError):  # the SDK's parser trusts the lengths in the suffix
        return ""
    code = suffix.a if suffix is not None else None
    return code if isinstance(code, str) and BUILDER_CODE_PATTERN.fullmatch(code) else ""


def _header(value: Any) -> BlockHeader:
    try:
        return BlockHeader(
            quantity(value["number"]),
            word(value["hash"]),
            word(value["parentHash"]),
            1_000 * quantity(value["timestamp"]),
        )
    except (KeyError, TypeError, ValueError, LogError) as error:
        raise RpcUnavailable("A block of the node is malformed.") from error
