"""Chain: whether an authorization was used, by a node that the owner of the wallet named.

An EIP-3009 authorization is used if the token says so at any block. It is dead if the token says
that it is unused at a block whose time is past its validity and that is deep enough. Anything else,
an error of the node included, decides nothing.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

import httpx

from tollgauge_guard.entry import Entry
from tollgauge_guard.policy import DOLLAR

DEPTH: Final = 12
"""How many blocks must follow the one that shows a payment of up to DEPTH_MAX unused."""
DEPTH_MAX: Final = DOLLAR
"""A payment above it (micro-dollars) must be unused at the block that the chain calls final."""
_TIMEOUT_S: Final = 3.0
_ANSWER_MAX: Final = 2**20
_AUTHORIZATION_STATE: Final = "0xe94a0102"
"""`authorizationState(address,bytes32)` of EIP-3009."""
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII)
_BOOL: Final = re.compile(r"0x0{63}[01]", re.ASCII)
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]{0,18}", re.ASCII)


class Fate(StrEnum):
    """What a node shows of an authorization."""

    USED = "used"
    DEAD = "dead"
    UNKNOWN = "unknown"


class _NodeError(Exception):
    """The node did not answer, or not as a node does."""


def find_fate(url: str, entry: Entry) -> Fate:
    """Ask a node what became of a payment. Never raises: a node that fails decides nothing."""
    if not _NETWORK.fullmatch(entry.network):
        return Fate.UNKNOWN
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as http:
            return _Node(http, url).fate(entry)
    except (_NodeError, httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return Fate.UNKNOWN


class _Node:
    def __init__(self, http: httpx.Client, url: str) -> None:
        self._http, self._url = http, url

    def fate(self, entry: Entry) -> Fate:
        # A node of another chain would show every authorization unused.
        if _number(self._call("eth_chainId")) != int(entry.network.removeprefix("eip155:")):
            raise _NodeError
        newest = _number(self._call("eth_blockNumber"))
        if self._is_used(entry, "latest"):
            return Fate.USED
        is_small = entry.micro_usd <= DEPTH_MAX
        if is_small and newest < DEPTH:
            return Fate.UNKNOWN
        block = self._call(
            "eth_getBlockByNumber",
            hex(newest - DEPTH) if is_small else "finalized",
            False,  # noqa: FBT003  # no transactions
        )
        if not isinstance(block, dict):
            raise _NodeError
        if _number(block.get("timestamp")) < entry.valid_before:
            return Fate.UNKNOWN
        number = hex(_number(block.get("number")))
        return Fate.USED if self._is_used(entry, number) else Fate.DEAD

    def _is_used(self, entry: Entry, block: str) -> bool:
        data = f"{_AUTHORIZATION_STATE}{entry.payer[2:].rjust(64, '0')}{entry.nonce[2:]}"
        answer = self._call("eth_call", {"to": entry.asset, "data": data}, block)
        # A contract that is not there answers 0x, which does not mean unused.
        if not isinstance(answer, str) or not _BOOL.fullmatch(answer):
            raise _NodeError
        return answer.endswith("1")

    def _call(self, method: str, *parameters: object) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self._http.post(self._url, json=request)
        if not answer.is_success or len(answer.content) > _ANSWER_MAX:
            raise _NodeError
        document = answer.json()
        if not isinstance(document, dict) or document.get("error") is not None:
            raise _NodeError
        return document.get("result")


def _number(value: object) -> int:
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise _NodeError
    return int(value, 16)
