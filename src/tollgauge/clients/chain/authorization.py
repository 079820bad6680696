"""Proves the state of one EIP-3009 authorization on the chain (docs/payments.md).

An authorization is *paid* if one transaction contains `AuthorizationUsed` and, as the token's next
event, the signed `Transfer`: one transfer cannot pay for two authorizations. It is *unused* if the
token's `authorizationState` returns so as of a block whose time is in the result, so that a lagging
node cannot make a payment look expired. Used without a visible log is unknown. Nodes are queried in
order, and the first answer is used. Raises only RpcError.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from tollgauge.clients.chain.rpc import (
    Node,
    RpcError,
    RpcLimit,
    RpcRefused,
    RpcUnavailable,
    quantity,
)
from tollgauge.core.base.units import EVM_WORD_PATTERN
from tollgauge.core.chain.settlement import (
    AUTHORIZATION_CANCELED,
    AUTHORIZATION_USED,
    LogError,
    events,
    paired,
)
from tollgauge.core.sale.payment import Authorization
from tollgauge.core.sale.payment_state import Proof

AUTHORIZATION_STATE: Final = "0xe94a0102"
"""Selector of `authorizationState(address,bytes32)`, EIP-3009."""
SIGNATURE_ACCEPTED: Final = "0x1626ba7e"
"""Selector of `isValidSignature(bytes32,bytes)`, and what it returns for a good one (ERC-1271)."""
_NETWORK: Final = re.compile(r"eip155:(\d{1,18})", re.ASCII)
DAY_S: Final = 86_400
SEARCHED_S: Final = 90 * DAY_S
"""How far back `transaction_of` searches."""
_BLOCK_SECONDS: Final = 2
"""Block time of Base; on a faster chain the search continues to the same time."""
_MARGIN_S: Final = 1200

T = TypeVar("T")


class Nonce(Protocol):
    """An authorization's nonce: hex in lower case."""

    @property
    def asset(self) -> str:
        """The token's address."""

    @property
    def payer(self) -> str:
        """Who signed."""

    @property
    def nonce(self) -> str:
        """32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnswer:
    """A proof as of `head_s`, the time of the node's last block.

    `transaction` is the one that used or cancelled the authorization, `at_s` its block's time,
    None while it is unused. Instants are unix seconds. The receipt of a hint is a proof by itself:
    then neither time is asked for.
    """

    proof: Proof
    head_s: int | None = None
    transaction: str | None = None
    at_s: int | None = None


class Prover:
    """The nodes of one chain, asked about single authorizations."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes: Final = tuple(nodes)
        self._chains: Final[dict[Node, int]] = {}

    async def close(self) -> None:
        """Close every pool."""
        for node in self._nodes:
            await node.close()

    async def proof(self, authorization: Authorization, *, hint: str | None = None) -> ChainAnswer:
        """What became of an authorization. `hint` is a transaction that may have used it: if it
        did, one exchange with the node is enough. Raises RpcError when no node can tell.
        """
        return await self._first(
            authorization.network, lambda node: _proof(node, authorization, hint)
        )

    async def accepts(self, network: str, wallet: str, digest: bytes, signature: bytes) -> bool:
        """Whether a contract wallet takes a signature of a digest for its own (ERC-1271); an
        address without a contract takes none. Raises RpcError when no node can tell.
        """
        call = {"to": wallet, "data": _signature_call(digest, signature)}

        async def ask(node: Node) -> bool:
            try:
                reply = await node.call("eth_call", call, "latest")
            except RpcRefused:
                return False  # the wallet reverted
            return isinstance(reply, str) and reply.lower().startswith(SIGNATURE_ACCEPTED)

        return await self._first(network, ask)

    async def _first(self, network: str, ask: Callable[[Node], Awaitable[T]]) -> T:
        """What the first node of the network that can tell says. Raises RpcError."""
        problem: RpcError = RpcUnavailable("There is no node.")
        for node in self._nodes:
            try:
                await self._check_chain(node, network)
                return await ask(node)
            except RpcError as error:
                problem = error
        raise problem

    async def _check_chain(self, node: Node, network: str) -> None:
        if node not in self._chains:
            self._chains[node] = quantity(await node.call("eth_chainId"))
        named = _NETWORK.fullmatch(network)
        if named is None or int(named[1]) != self._chains[node]:
            raise RpcUnavailable(f"{node.name} is no node of {network}.")


async def transaction_of(node: Node, nonce: Nonce) -> str | None:
    """The transaction that used or cancelled a nonce, of which nothing else is known; None while it
    is unused. Logs are searched for SEARCHED_S, the latest first. Raises RpcError.
    """
    head, head_s = await _latest(node)
    if not await _is_used(node, nonce, head):
        return None
    blocks = DAY_S // _BLOCK_SECONDS
    log = await _latest_log(node, nonce, head, blocks=blocks, since_s=head_s - SEARCHED_S)
    return _hash(log.get("transactionHash"))


async def _latest(node: Node) -> tuple[int, int]:
    """The number and time of a node's last block."""
    return _number_and_time(await node.call("eth_getBlockByNumber", "latest", False))  # noqa: FBT003 - wire


async def _is_used(node: Node, nonce: Nonce, block: int) -> bool:
    """What the token says of a nonce as of that very block: behind a balancer another node may
    answer, one that lags.
    """
    call = {"to": nonce.asset, "data": _state_call(nonce)}
    return _bool(await node.call("eth_call", call, hex(block)))


async def _proof(node: Node, authorization: Authorization, hint: str | None) -> ChainAnswer:
    if hint is not None and _transfer(
        await node.call("eth_getTransactionReceipt", hint), authorization
    ):
        return ChainAnswer(proof=Proof.PAID, transaction=hint)
    head, head_s = await _latest(node)
    if not await _is_used(node, authorization, head):
        return ChainAnswer(proof=Proof.UNUSED, head_s=head_s)
    return await _use(node, authorization, head=head, head_s=head_s)


async def _use(node: Node, authorization: Authorization, *, head: int, head_s: int) -> ChainAnswer:
    """What used the authorization, from the token's logs."""
    since_s = authorization.since_s - _MARGIN_S
    blocks = max(0, head_s - since_s) // _BLOCK_SECONDS
    log = await _latest_log(node, authorization, head, blocks=blocks, since_s=since_s)
    transaction = _hash(log.get("transactionHash"))
    at_s = await _time(node, quantity(log.get("blockNumber")))
    proof = Proof.CANCELLED
    if str(log["topics"][0]).lower() == AUTHORIZATION_USED:
        transferred = _transfer(
            await node.call("eth_getTransactionReceipt", transaction), authorization
        )
        if transferred is None:
            raise RpcUnavailable(f"{node.name} has no receipt of a use that it showed.")
        proof = Proof.PAID if transferred else Proof.OTHER
    return ChainAnswer(proof=proof, head_s=head_s, transaction=transaction, at_s=at_s)


async def _latest_log(
    node: Node, nonce: Nonce, head: int, *, blocks: int, since_s: int
) -> dict[str, Any]:
    """The log that used or cancelled a used nonce, searched from the last block back to an instant,
    `blocks` first and twice as many each time.
    """
    last = head
    while True:
        first = max(0, last - blocks)
        if log := await _first_log(node, nonce, first, last):
            return log
        if first == 0 or await _time(node, first) <= since_s:
            raise RpcUnavailable(f"{node.name} says that a nonce is used, but shows no log of it.")
        last, blocks = first - 1, 2 * blocks


async def _first_log(
    node: Node, authorization: Nonce, first: int, last: int
) -> dict[str, Any] | None:
    """The log that used or cancelled the nonce, in ranges that the node takes."""
    topics = [
        [AUTHORIZATION_USED, AUTHORIZATION_CANCELED],
        _topic(authorization.payer),
        authorization.nonce,
    ]
    log_filter = {"address": authorization.asset, "topics": topics}
    try:
        logs = await node.call(
            "eth_getLogs", log_filter | {"fromBlock": hex(first), "toBlock": hex(last)}
        )
    except RpcLimit:
        if first == last:
            raise
        middle = (first + last) // 2
        later = await _first_log(node, authorization, middle + 1, last)
        return later or await _first_log(node, authorization, first, middle)
    if not isinstance(logs, list) or not all(_is_use(log, authorization) for log in logs):
        raise RpcUnavailable(f"{node.name} sent logs that nobody asked for.")
    return logs[0] if logs else None


def _is_use(log: Any, authorization: Nonce) -> bool:
    """Whether a log is of the wanted authorization: what a node sends is not believed unread."""
    if not isinstance(log, dict) or not isinstance(log.get("topics"), list) or log.get("removed"):
        return False
    topics = [str(topic).lower() for topic in log["topics"]]
    known = (AUTHORIZATION_USED, AUTHORIZATION_CANCELED)
    return (
        str(log.get("address")).lower() == authorization.asset
        and len(topics) == 3
        and topics[0] in known
        and topics[1:] == [_topic(authorization.payer), authorization.nonce]
    )


def _transfer(receipt: Any, authorization: Authorization) -> bool | None:
    """Whether the authorization made the transfer that was signed, None where a receipt does not
    hold the authorization at all.
    """
    logs = receipt.get("logs") if isinstance(receipt, dict) else None
    if not isinstance(logs, list):
        return None
    try:
        decoded = events(logs, token=authorization.asset)
    except LogError as error:
        raise RpcUnavailable("A receipt's logs are malformed.") from error
    key = (_bytes(authorization.payer), _bytes(authorization.nonce))
    if key not in {(use.authorizer, use.nonce) for use in decoded.used}:
        return None
    signed = (*key, _bytes(authorization.to), authorization.value)
    return signed in {
        (move.sender, move.nonce, move.receiver, move.value)
        for move in paired(decoded.transfers, decoded.used)
    }


async def _time(node: Node, number: int) -> int:
    answered, at_s = _number_and_time(await node.call("eth_getBlockByNumber", hex(number), False))  # noqa: FBT003 - wire
    if answered != number:
        raise RpcUnavailable(f"{node.name} sent a block that nobody asked for.")
    return at_s


def _number_and_time(block: Any) -> tuple[int, int]:
    """A block's number and time in unix seconds."""
    if not isinstance(block, dict):
        raise RpcUnavailable("The node lacks a block that it named.")
    return quantity(block.get("number")), quantity(block.get("timestamp"))


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not EVM_WORD_PATTERN.fullmatch(value):
        raise RpcUnavailable("A hash of the node's is malformed.")
    return value.lower()


def _bool(value: Any) -> bool:
    """The bool that a contract returned; a contract without the method returns nothing."""
    if _hash(value) not in (f"0x{0:064x}", f"0x{1:064x}"):
        raise RpcUnavailable("The token's answer is no bool.")
    return int(value, 16) == 1


def _state_call(authorization: Nonce) -> str:
    return AUTHORIZATION_STATE + _topic(authorization.payer)[2:] + authorization.nonce[2:]


def _signature_call(digest: bytes, signature: bytes) -> str:
    """`isValidSignature(bytes32,bytes)` as call data."""
    size = len(signature)
    padded = signature.ljust(-(-size // 32) * 32, b"\0")
    words = digest + (64).to_bytes(32) + size.to_bytes(32) + padded
    return SIGNATURE_ACCEPTED + words.hex()


def _topic(address: str) -> str:
    return "0x" + address[2:].rjust(64, "0")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
