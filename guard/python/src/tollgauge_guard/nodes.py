"""Nodes: read from the owner's JSON-RPC nodes what happened to a payment.

There is no default node, and without one nothing is assumed dead. A node that fails, answers for
another chain or in another form proves nothing. Chain time is used, never the local clock.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import httpx

from tollgauge_guard.errors import GuardError
from tollgauge_guard.evidence import (
    MAX_SHALLOW_EXPOSURE,
    MIN_DEPTH,
    BlockReading,
    combine,
    prove_evm,
    prove_solana,
)
from tollgauge_guard.payment import Evidence, Payment

PERMIT2: Final = "0x000000000022d473030f116ddee9f6b43ac78ba3"
_TIMEOUT_S: Final = 3.0
_MAX_ANSWER_BYTES: Final = 4 * 2**20
_AUTHORIZATION_STATE: Final = "0xe94a0102"  # authorizationState(address,bytes32)
_NONCE_BITMAP: Final = "0x4fe02b44"  # nonceBitmap(address,uint256)
_TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII)
_WORD: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_EVM: Final = re.compile(r"eip155:[1-9][0-9]{0,18}", re.ASCII)
_LOG_BLOCKS: Final = 5_000
_MAX_SIGNATURES: Final = 1_000
_SOLANA: Final = "solana:"


@dataclass(frozen=True, slots=True)
class Reading:
    """The evidence of the nodes, and the settled amount (atomic units) if they show one."""

    evidence: Evidence
    settled: int | None = None


class _NodeError(Exception):
    """The node did not answer, or not as a node of this network does."""


_FAILURES: Final = (_NodeError, httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError)


class NodeReader:
    """Reads payments from nodes, which are named by network (CAIP-2).

    Args:
        nodes: one URL or several; with several, all of them must show a payment dead.
        transport: for requests to the nodes.

    Raises:
        GuardError: a value is not an HTTP URL.
    """

    def __init__(
        self,
        nodes: Mapping[str, str | Sequence[str]] | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = transport
        self._nodes = {
            network: (urls,) if isinstance(urls, str) else tuple(urls)
            for network, urls in (nodes or {}).items()
        }
        for url in (url for urls in self._nodes.values() for url in urls):
            if not isinstance(url, str) or not url.startswith(("http://", "https://")):
                raise GuardError(f"{url!r} is not the URL of a node.")

    def has(self, network: str) -> bool:
        """Whether the owner named a node of this network."""
        return bool(self._nodes.get(network))

    def read(self, payment: Payment) -> Reading:
        """Read a payment from all nodes of its network. Never raises."""
        readings = [self._read(url, payment) for url in self._nodes.get(payment.network, ())]
        amounts = (reading.settled for reading in readings if reading.settled is not None)
        evidence = combine(reading.evidence for reading in readings)
        # The highest amount: a node must not reduce the spent amount.
        return Reading(evidence, max(amounts, default=None))

    def last_valid_height(self, network: str) -> int | None:
        """Return the Solana height until which a payment signed now is valid, None if unknown.

        Several nodes: the highest, because it is an upper bound.
        """
        heights = []
        for url in self._nodes.get(network, ()):
            try:
                with self._client() as http:
                    answer = _call(http, url, "getLatestBlockhash", {"commitment": "processed"})
                heights.append(int(answer["value"]["lastValidBlockHeight"]))
            except (*_FAILURES, KeyError, TypeError):
                return None
        return max(heights, default=None)

    def _read(self, url: str, payment: Payment) -> Reading:
        if payment.nonce is None:
            return Reading(Evidence.UNKNOWN)
        try:
            with self._client() as http:
                if payment.method in ("eip3009", "permit2") and _EVM.fullmatch(payment.network):
                    return _EvmNode(http, url, payment).read()
                if payment.method == "solana" and payment.network.startswith(_SOLANA):
                    return _read_solana(http, url, payment)
        except _FAILURES:
            pass
        return Reading(Evidence.UNKNOWN)

    def _client(self) -> httpx.Client:
        return httpx.Client(timeout=_TIMEOUT_S, transport=self._transport, verify=self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Created once, not by each client: it reads all certificate authorities, in 22 ms."""
        return httpx.create_ssl_context()


class _EvmNode:
    def __init__(self, http: httpx.Client, url: str, payment: Payment) -> None:
        self._http, self._url, self._payment = http, url, payment

    def read(self) -> Reading:
        payment = self._payment
        # A node of another chain would show every authorization unused.
        if _number(self._call("eth_chainId")) != int(payment.network.removeprefix("eip155:")):
            raise _NodeError
        newest = _number(self._call("eth_blockNumber"))
        if self._is_used("latest"):
            return Reading(Evidence.USED, self._find_settlement(newest))
        block = self._read_block(newest)
        # EIP-3009 requires block.timestamp < validBefore, Permit2 block.timestamp <= deadline.
        dead_from = payment.valid_before + (payment.method == "permit2")
        evidence = prove_evm(
            latest=False, block=block, dead_from=dead_from, exposure=payment.exposure
        )
        return Reading(evidence)

    def _read_block(self, newest: int) -> BlockReading | None:
        is_small = self._payment.exposure <= MAX_SHALLOW_EXPOSURE
        if is_small and newest < MIN_DEPTH:
            return None
        tag = hex(newest - MIN_DEPTH) if is_small else "finalized"
        try:
            block = self._call("eth_getBlockByNumber", tag, False)  # noqa: FBT003  # hashes only
            if not isinstance(block, dict):
                return None
            number, timestamp = _number(block.get("number")), _number(block.get("timestamp"))
            if is_small and number != newest - MIN_DEPTH:
                return None
            return BlockReading(
                timestamp=timestamp,
                depth=newest - number,
                is_finalized=not is_small,
                is_used=self._is_used(hex(number)),
            )
        except _NodeError:
            return None

    def _is_used(self, block: str) -> bool:
        payment, nonce = self._payment, int(str(self._payment.nonce), 16)
        if payment.method == "eip3009":
            data = f"{_AUTHORIZATION_STATE}{_address(payment.payer)}{nonce:064x}"
            word = self._word({"to": payment.asset, "data": data}, block)
            # A contract that is not there answers 0x, which does not mean unused.
            if word > 1:
                raise _NodeError
            return word == 1
        data = f"{_NONCE_BITMAP}{_address(payment.payer)}{nonce >> 8:064x}"
        return bool(self._word({"to": PERMIT2, "data": data}, block) >> (nonce & 0xFF) & 1)

    def _word(self, call: dict[str, str], block: str) -> int:
        answer = self._call("eth_call", call, block)
        if not isinstance(answer, str) or not _WORD.fullmatch(answer):
            raise _NodeError
        return int(answer, 16)

    def _find_settlement(self, newest: int) -> int | None:
        """Return the amount that an `upto` payment moved, None if it was not found."""
        payment = self._payment
        if payment.scheme != "upto":
            return None
        wanted = {
            "address": payment.asset,
            "fromBlock": hex(max(0, newest - _LOG_BLOCKS)),
            "toBlock": "latest",
            "topics": [
                _TRANSFER,
                f"0x{_address(payment.payer)}",
                f"0x{_address(payment.pay_to)}",
            ],
        }
        try:
            for log in self._call("eth_getLogs", wanted):
                transaction = self._call("eth_getTransactionByHash", log["transactionHash"])
                # The nonce in the call data binds a transfer to this payment.
                if str(payment.nonce)[2:] in str(transaction["input"]).lower():
                    return min(_number(log["data"]), payment.amount)
        except (_NodeError, KeyError, TypeError):
            pass
        return None

    def _call(self, method: str, *parameters: object) -> Any:
        return _call(self._http, self._url, method, *parameters)


def _read_solana(http: httpx.Client, url: str, payment: Payment) -> Reading:
    try:
        known = json.loads(payment.evidence or "")
        account, signature = str(known["account"]), str(known["signature"])
        genesis = str(_call(http, url, "getGenesisHash"))
        if genesis[:32] != payment.network.removeprefix(_SOLANA):
            raise _NodeError
        # The height is read first: what lands after it is too late, what landed before is scanned.
        height = _call(http, url, "getBlockHeight", {"commitment": "finalized"})
        is_found = _scan_solana(http, url, account, signature, payment.at)
    except (KeyError, TypeError) as error:
        raise _NodeError from error
    finalized = height if type(height) is int else None
    evidence = prove_solana(
        is_found=is_found, finalized_height=finalized, last_valid_height=payment.valid_height
    )
    return Reading(evidence)


def _scan_solana(
    http: httpx.Client, url: str, account: str, signature: str, since: int
) -> bool | None:
    """Look for the payer's signature in the transactions of a token account, newest first.

    The ID of a transaction is the signature of the fee payer, which is not known here. Returns None
    if not all transactions since then could be read.
    """
    options = {"commitment": "confirmed", "limit": _MAX_SIGNATURES}
    rows = _call(http, url, "getSignaturesForAddress", account, options)
    for row in rows:
        at = row.get("blockTime")
        if at is not None and at < since - 600:  # block times are estimates
            return False
        detail = {
            "commitment": "confirmed",
            "encoding": "json",
            "maxSupportedTransactionVersion": 0,
        }
        transaction = _call(http, url, "getTransaction", row["signature"], detail)
        if transaction is None:
            return None
        if signature in transaction["transaction"]["signatures"]:
            # A failed transaction moved nothing and cannot land again.
            return transaction["meta"]["err"] is None
    return None if len(rows) >= _MAX_SIGNATURES else False


def _call(http: httpx.Client, url: str, method: str, *parameters: object) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    answer = http.post(url, json=request)
    if not answer.is_success or len(answer.content) > _MAX_ANSWER_BYTES:
        raise _NodeError
    document = answer.json()
    if not isinstance(document, dict) or document.get("error") is not None:
        raise _NodeError
    return document.get("result")


def _number(value: object) -> int:
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise _NodeError
    return int(value, 16)


def _address(address: str) -> str:
    return address[2:].rjust(64, "0")
