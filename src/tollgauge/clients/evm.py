"""JSON-RPC to an EVM node: what the chain says of one authorization.

Raw requests and byte slicing; a malformed reply is RpcUnavailable and never anything else. The
operator names the node, so this is httpx and not egress.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import httpx

from tollgauge.core import strictjson
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.payment import Proof

TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""keccak256("Transfer(address,address,uint256)"), EIP-20."""
AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
"""keccak256("AuthorizationUsed(address,bytes32)"), EIP-3009."""
AUTHORIZATION_CANCELED: Final = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
"""keccak256("AuthorizationCanceled(address,bytes32)"), EIP-3009."""
_REPLY_MAX: Final = 8 * 1024 * 1024
_HEX: Final = re.compile(r"0x[0-9a-fA-F]*", re.ASCII)
_BLOCK_SECONDS: Final = 2
_MARGIN_BLOCKS: Final = 600


class RpcUnavailable(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """The node did not answer, or answered nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    """A node's URL (it may carry a key: never shown) and how long to wait."""

    url: str = field(default="", repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """The EIP-3009 transfer to look for; hex in lower case, `since_s` unix seconds before which it
    cannot have been used.
    """

    asset: str
    payer: str
    nonce: str
    to: str
    value: int
    since_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnswer:
    """A proof, with the transaction that holds it."""

    proof: Proof
    transaction: str | None = None


class Chain:
    """One JSON-RPC node."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._http = httpx.AsyncClient(timeout=settings.timeout_s, trust_env=False)

    async def close(self) -> None:
        """Close the pool."""
        await self._http.aclose()

    async def proof(self, wanted: Authorization, *, now_s: int) -> ChainAnswer:
        """Whether an authorization was used for exactly the transfer that was signed.

        Looks at blocks up to the node's latest, from a margin before `since_s`. Raises
        RpcUnavailable.
        """
        head = _quantity(await self._call("eth_blockNumber", []))
        age = max(0, now_s - wanted.since_s) // _BLOCK_SECONDS + _MARGIN_BLOCKS
        topics = [
            [AUTHORIZATION_USED, AUTHORIZATION_CANCELED],
            _word(wanted.payer),
            wanted.nonce,
        ]
        span = {"fromBlock": hex(max(0, head - age)), "toBlock": hex(head)}
        logs = _logs(
            await self._call("eth_getLogs", [{"address": wanted.asset, "topics": topics} | span])
        )
        if not logs:
            return ChainAnswer(proof=Proof.UNUSED)
        found = logs[0]
        if found.topics[:1] == (AUTHORIZATION_CANCELED,):
            return ChainAnswer(proof=Proof.CANCELLED, transaction=found.transaction)
        receipt = await self._call("eth_getTransactionReceipt", [found.transaction])
        if not isinstance(receipt, dict):
            raise RpcUnavailable("The node has no receipt for a transaction that it named.")
        paid = any(_moves(log, wanted) for log in _logs(receipt.get("logs")))
        proof = Proof.PAID if paid else Proof.OTHER
        return ChainAnswer(proof=proof, transaction=found.transaction)

    async def _call(self, method: str, params: list[object]) -> object:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            response = await self._http.post(self._settings.url, json=body)
            reply = strictjson.loads(response.content[:_REPLY_MAX])
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RpcUnavailable(f"The node did not answer {method}.") from error
        except strictjson.StrictJsonError as error:
            raise RpcUnavailable(f"The node's reply to {method} is not JSON.") from error
        if not isinstance(reply, dict) or "result" not in reply:
            raise RpcUnavailable(f"The node refused {method}.")
        return reply["result"]


def _quantity(value: object) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
        raise RpcUnavailable("The node's block number is malformed.")
    return int(value, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One event log as the node tells it; hex in lower case."""

    address: str
    topics: tuple[str, ...]
    data: str
    transaction: str


def _logs(value: object) -> tuple[Log, ...]:
    if not isinstance(value, list):
        raise RpcUnavailable("The node's logs are malformed.")
    return tuple(_log(item) for item in value)


def _log(item: object) -> Log:
    if not isinstance(item, dict) or not isinstance(item.get("topics"), list):
        raise RpcUnavailable("The node's log is malformed.")
    fields = (item.get("address"), item.get("data"), item.get("transactionHash"), *item["topics"])
    if not all(isinstance(text, str) and _HEX.fullmatch(text) for text in fields):
        raise RpcUnavailable("The node's log holds something that is not hex.")
    address, data, transaction, *topics = (str(text).lower() for text in fields)
    return Log(address=address, data=data, transaction=transaction, topics=tuple(topics))


def _moves(log: Log, wanted: Authorization) -> bool:
    """Whether a log is the Transfer that was signed: token, payer, payee and value, exactly."""
    return (
        log.address == wanted.asset
        and log.topics == (TRANSFER, _word(wanted.payer), _word(wanted.to))
        and log.data == f"0x{wanted.value:064x}"
    )


def _word(address: str) -> str:
    return "0x" + address[2:].lower().rjust(64, "0")
