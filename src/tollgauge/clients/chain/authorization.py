"""Proves the state of one EIP-3009 authorization on the chain (docs/payments.md).

An authorization is *paid* if one transaction contains `AuthorizationUsed` and, as the token's next
event, the signed `Transfer`: one transfer cannot pay for two authorizations. It is *unused* if the
token's `authorizationState` is false as of a block whose time is in the result, so that a lagging
node cannot make a payment look expired. If it is used, but no log shows how, the state is unknown.
Nodes are queried in order, and the first answer is used. Raises only RpcError.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

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
    pair_transfers,
    read_logs,
)
from tollgauge.core.sale.payment import Authorization
from tollgauge.core.sale.payment_state import Proof

AUTHORIZATION_STATE: Final = "0xe94a0102"
"""Selector of `authorizationState(address,bytes32)`, EIP-3009."""
SIGNATURE_ACCEPTED: Final = "0x1626ba7e"
"""Selector of `isValidSignature(bytes32,bytes)`, which it returns for a valid one (ERC-1271)."""
_NETWORK: Final = re.compile(r"eip155:(\d{1,18})", re.ASCII)
DAY_S: Final = 86_400
SEARCHED_S: Final = 90 * DAY_S
"""Period that `find_transaction` searches."""
_BLOCK_SECONDS: Final = 2
"""Block time of Base; on a faster chain the search continues to the same time."""
_MARGIN_S: Final = 1200

T = TypeVar("T")


class NonceKey(NamedTuple):
    """A nonce of a payer at a token, in lower-case hex."""

    asset: str
    payer: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnswer:
    """A proof about an authorization.

    Attributes:
        head_s: Time of the node's last block (Unix seconds); None if the receipt of a hint was
            sufficient.
        transaction: The transaction that used or cancelled it; None if it is unused.
        at_s: Time of that transaction's block (Unix seconds); None as for the two above.
    """

    proof: Proof
    head_s: int | None = None
    transaction: str | None = None
    at_s: int | None = None


class Prover:
    """Queries the nodes of one chain about single authorizations."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes: Final = tuple(nodes)
        self._chains: Final[dict[Node, int]] = {}

    async def close(self) -> None:
        """Close every pool."""
        for node in self._nodes:
            await node.close()

    async def proof(self, authorization: Authorization, *, hint: str | None = None) -> ChainAnswer:
        """Return the proof of an authorization's state.

        Args:
            authorization: The signed transfer.
            hint: A transaction that may have used it: if it did, one request to the node is enough.

        Raises:
            RpcError: No node could answer.
        """
        return await self._first(
            authorization.network, lambda node: _proof(node, authorization, hint)
        )

    async def accepts(self, network: str, wallet: str, digest: bytes, signature: bytes) -> bool:
        """Return whether a contract wallet accepts a signature of a digest (ERC-1271). An address
        without a contract accepts none. Raises RpcError if no node could answer.
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
        """Return the answer of the first node that gives one. Raises RpcError."""
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
            raise RpcUnavailable(f"{node.name} is not a node of {network}.")


async def find_transaction(node: Node, nonce: NonceKey) -> str | None:
    """Return the hash of the transaction that used or cancelled a nonce; None if it is unused.

    The logs of the last SEARCHED_S seconds are searched, newest first. Raises RpcError.
    """
    head, head_s = await _latest(node)
    if not await _is_used(node, nonce, head):
        return None
    blocks = DAY_S // _BLOCK_SECONDS
    log = await _latest_log(node, nonce, head, blocks=blocks, since_s=head_s - SEARCHED_S)
    return _hash(log.get("transactionHash"))


async def _latest(node: Node) -> tuple[int, int]:
    """Return the number and the time (Unix seconds) of a node's last block."""
    return _number_and_time(await node.call("eth_getBlockByNumber", "latest", False))  # noqa: FBT003 - wire


async def _is_used(node: Node, nonce: NonceKey, block: int) -> bool:
    """Return whether a nonce was used or cancelled as of a block."""
    data = AUTHORIZATION_STATE + _topic(nonce.payer)[2:] + nonce.nonce[2:]
    # The block is named because behind a load balancer a node that lags may answer.
    state = _hash(await node.call("eth_call", {"to": nonce.asset, "data": data}, hex(block)))
    if int(state, 16) > 1:  # a contract without the method returns nothing
        raise RpcUnavailable("The token's answer is not a boolean.")
    return state.endswith("1")


async def _proof(node: Node, authorization: Authorization, hint: str | None) -> ChainAnswer:
    if hint is not None and _transfer(
        await node.call("eth_getTransactionReceipt", hint), authorization
    ):
        return ChainAnswer(proof=Proof.PAID, transaction=hint)
    head, head_s = await _latest(node)
    nonce = NonceKey(authorization.asset, authorization.payer, authorization.nonce)
    if not await _is_used(node, nonce, head):
        return ChainAnswer(proof=Proof.UNUSED, head_s=head_s)
    since_s = authorization.since_s - _MARGIN_S
    blocks = max(0, head_s - since_s) // _BLOCK_SECONDS
    log = await _latest_log(node, nonce, head, blocks=blocks, since_s=since_s)
    transaction = _hash(log.get("transactionHash"))
    at_s = await _time(node, quantity(log.get("blockNumber")))
    proof = Proof.CANCELLED
    if str(log["topics"][0]).lower() == AUTHORIZATION_USED:
        transferred = _transfer(
            await node.call("eth_getTransactionReceipt", transaction), authorization
        )
        if transferred is None:
            raise RpcUnavailable(f"{node.name} has no receipt for a log that it sent.")
        proof = Proof.PAID if transferred else Proof.OTHER
    return ChainAnswer(proof=proof, head_s=head_s, transaction=transaction, at_s=at_s)


async def _latest_log(
    node: Node, nonce: NonceKey, head: int, *, blocks: int, since_s: int
) -> dict[str, Any]:
    """Return the log in which a nonce was used or cancelled.

    The search goes back from block `head` to the time `since_s` (Unix seconds): `blocks` first,
    then twice as many each time.
    """
    last = head
    while True:
        first = max(0, last - blocks)
        if log := await _first_log(node, nonce, first, last):
            return log
        if first == 0 or await _time(node, first) <= since_s:
            raise RpcUnavailable(f"{node.name} returned no log of a used nonce.")
        last, blocks = first - 1, 2 * blocks


async def _first_log(
    node: Node, authorization: NonceKey, first: int, last: int
) -> dict[str, Any] | None:
    """Return the log of a nonce in a range of blocks, split into ranges that the node accepts."""
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
        raise RpcUnavailable(f"{node.name} sent logs that were not requested.")
    return logs[0] if logs else None


def _is_use(log: Any, authorization: NonceKey) -> bool:
    """Return whether a log is that of the requested nonce; nodes are not trusted."""
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
    """Return whether the authorization made the signed transfer; None if the receipt does not
    contain the authorization.
    """
    logs = receipt.get("logs") if isinstance(receipt, dict) else None
    if not isinstance(logs, list):
        return None
    try:
        decoded = read_logs(logs, token=authorization.asset)
    except LogError as error:
        raise RpcUnavailable("A receipt's logs are malformed.") from error
    key = (_bytes(authorization.payer), _bytes(authorization.nonce))
    if key not in {(use.authorizer, use.nonce) for use in decoded.used}:
        return None
    signed = (*key, _bytes(authorization.to), authorization.value)
    return signed in {
        (move.sender, move.nonce, move.receiver, move.value)
        for move in pair_transfers(decoded.transfers, decoded.used)
    }


async def _time(node: Node, number: int) -> int:
    answered, at_s = _number_and_time(await node.call("eth_getBlockByNumber", hex(number), False))  # noqa: FBT003 - wire
    if answered != number:
        raise RpcUnavailable(f"{node.name} sent a block that was not requested.")
    return at_s


def _number_and_time(block: Any) -> tuple[int, int]:
    """Return a block's number and its time (Unix seconds)."""
    if not isinstance(block, dict):
        raise RpcUnavailable("The node lacks a block that it named.")
    return quantity(block.get("number")), quantity(block.get("timestamp"))


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not EVM_WORD_PATTERN.fullmatch(value):
        raise RpcUnavailable("A hash in the node's reply is malformed.")
    return value.lower()


def _signature_call(digest: bytes, signature: bytes) -> str:
    """Return the call data of `isValidSignature(bytes32,bytes)`."""
    size = len(signature)
    padded = signature.ljust(-(-size // 32) * 32, b"\0")
    words = digest + (64).to_bytes(32) + size.to_bytes(32) + padded
    return SIGNATURE_ACCEPTED + words.hex()


def _topic(address: str) -> str:
    return "0x" + address[2:].rjust(64, "0")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
