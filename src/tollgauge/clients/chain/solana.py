"""Reads finalized transactions from the nodes of a Solana network.

Lists of signatures are requested from two nodes and united, because a node may omit some. Of the
transactions, every batch without a token transfer and a sample of the others is compared with a
second node. Raises only RpcError, whatever the nodes send.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tollgauge.clients.chain.nodes import ChainNodes, View
from tollgauge.clients.chain.rpc import Node, RpcCall, RpcError, RpcRefused, RpcUnavailable
from tollgauge.core.base.units import (
    SOLANA_SIGNATURE_PATTERN,
    is_solana_key,
    network_of,
    settlement_token,
)
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import LogError
from tollgauge.core.chain.solana import SolanaTransaction, read_transaction
from tollgauge.core.chain.trace.result import (
    Model,
    Token,
    TracedPayment,
    TraceResult,
    TraceStatus,
)
from tollgauge.core.chain.trace.transaction import Block

PAGE_SIZE: Final = 1_000  # signatures per request
ACCOUNTS_MAX: Final = 64  # token accounts of one owner that are followed
_NO_PAYMENT: Final = (
    "The transaction failed, or moved none of the network's dollar token from an account of "
    "another owner than its fee payer."
)
_SLOT_MAX: Final = 1 << 40
_UNKNOWN_VERSION: Final = -32015
_FINAL: Final = {"commitment": "finalized"}
_TRANSACTION: Final = _FINAL | {"encoding": "json", "maxSupportedTransactionVersion": 0}


class SignatureEntry(NamedTuple):
    """A transaction of an address: `at` is its block's time in ms UTC, None if unknown."""

    text: str
    slot: int
    at: int | None
    failed: bool


class SignaturePage(NamedTuple):
    """Transactions of an address, newest first. `before` continues the list; None at its end.
    `confirmed` if a second node listed them too, or none is configured.
    """

    signatures: list[SignatureEntry]
    before: str | None
    confirmed: bool


async def trace_signature(node: Node, network: str, signature: str) -> TraceResult | None:
    """Return the payments in a network's dollar token of a finalized transaction; None if the node
    does not have it.
    """
    token = settlement_token(network)
    await _check_genesis(node, network)
    value = await node.call("getTransaction", signature, _TRANSACTION)
    if value is None or token is None:
        return None
    try:
        found = read_transaction(value, mint=token.address)
    except LogError as error:
        raise RpcUnavailable(f"{node.name}: {error}") from error
    if found.signature != signature:
        raise RpcUnavailable(f"{node.name} returned another transaction.")
    has_failed = value["meta"]["err"] is not None
    payments = tuple(
        TracedPayment(
            payer=one.sender,
            payee=one.receiver,
            amount=one.value,
            token=Token.on(network, token.address),
            nonce=None,
            form="exact",
        )
        for one in found.transfers
        if one.sender != found.fee_payer
    )
    return TraceResult(
        tx_hash=signature,
        network=network,
        status=TraceStatus.REVERTED if has_failed else TraceStatus.SUCCESS,
        block=Block(number=found.slot, at=found.at, finality="finalized"),
        submitter=found.fee_payer,
        decoder=Model.BALANCE_CHANGES,
        payments=payments,
        reason=None if payments else _NO_PAYMENT,
        proven=True,
    )


async def _check_genesis(node: Node, network: str) -> None:
    """Raise RpcUnavailable if a node belongs to another network."""
    genesis, reference = await node.call("getGenesisHash"), network.partition(":")[2]
    if not isinstance(genesis, str) or not genesis.startswith(reference):
        raise RpcUnavailable(f"{node.name} is not a node of {network}.")


class SolanaNodes(ChainNodes):
    """The nodes of a Solana network. The head of a view is its newest finalized slot."""

    async def _view(self, node: Node) -> View:
        if node not in self._of_this_chain:
            await _check_genesis(node, network_of(self.chain_id))
            self._of_this_chain.add(node)
        slot = _whole(await node.call("getSlot", _FINAL))
        at = 1_000 * _whole(await node.call("getBlockTime", slot))
        return View(node, BlockHeader(slot, b"", b"", at), slot)


class SolanaReader:
    """The transactions of one network, with the transfers of one token (its `mint`)."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        chain_id: int,
        mint: str,
        check: float,
        rest_s: float,
        seed: int | None = None,
    ) -> None:
        self.nodes: Final = SolanaNodes(nodes, chain_id=chain_id, finality=0, rest_s=rest_s)
        self.chain_id: Final = chain_id
        self.mint: Final = mint
        self._check: Final = check
        self._random: Final = random.Random(seed)  # noqa: S311 (which answers are checked)

    async def close(self) -> None:
        """Close every node's pool."""
        await self.nodes.close()

    async def list_signatures(
        self, views: Sequence[View], address: str, *, before: str, until: str
    ) -> SignaturePage:
        """Return the transactions of an address before one and after another; empty texts mean the
        newest and all.
        """
        limits = {"before": before, "until": until}
        config = {**_FINAL, "limit": PAGE_SIZE} | {key: one for key, one in limits.items() if one}
        answers = await self._ask(views, RpcCall("getSignaturesForAddress", (address, config)))
        pages = [[_signature(row) for row in _rows(answer, PAGE_SIZE)] for answer in answers]
        if before and any(one.text == before for page in pages for one in page):
            raise RpcUnavailable("A node repeats a page of signatures.")
        found: dict[str, SignatureEntry] = {}
        for one in (one for page in pages for one in page):
            known = found.setdefault(one.text, one)
            if known._replace(at=None) != one._replace(at=None):
                raise RpcUnavailable("Two nodes disagree about a signature.")
            if known.at != one.at:  # the transaction has the time too
                found[one.text] = one._replace(at=None)
        ordered = sorted(found.values(), key=lambda one: (-one.slot, one.text))
        # The next page begins where the shorter of two pages ended: no gap, some overlap. Only an
        # empty page ends a list, because a node may return fewer signatures than requested.
        ends = [page[-1] for page in pages if page]
        last = max(ends, key=lambda one: one.slot, default=None)
        confirmed = len(answers) == min(2, self.nodes.count)
        return SignaturePage(ordered, None if last is None else last.text, confirmed)

    async def load(
        self, views: Sequence[View], signatures: Sequence[SignatureEntry]
    ) -> tuple[list[SolanaTransaction], list[str]]:
        """Return transactions, and the signatures whose transaction no node has in a known form."""
        found = await self._load(views[0], signatures)
        absent = [one for one in signatures if one.text not in found]
        has_transfers = any(transaction.transfers for transaction in found.values())
        for other in views[1:]:
            compared = not has_transfers or self._random.random() < self._check
            try:
                second = await self._load(other, signatures if compared else absent)
            except RpcError as error:
                self.nodes.record_failure(other.node, error)
                continue
            if any(found.get(text, one) != one for text, one in second.items()):
                raise RpcUnavailable("Two nodes disagree about a transaction.")
            found |= second
        texts = [one.text for one in signatures]
        return [found[text] for text in texts if text in found], [
            text for text in texts if text not in found
        ]

    async def list_accounts(self, views: Sequence[View], owner: str) -> list[str]:
        """Return the token accounts of an owner."""
        params = (owner, {"mint": self.mint}, _FINAL | {"encoding": "base64"})
        answers = await self._ask(views, RpcCall("getTokenAccountsByOwner", params))
        accounts: dict[str, None] = {}
        for answer in answers:
            rows = _rows(answer.get("value") if isinstance(answer, dict) else None, ACCOUNTS_MAX)
            for row in rows:
                key = row.get("pubkey")
                if not isinstance(key, str) or not is_solana_key(key):
                    raise RpcUnavailable("A token account of the node is malformed.")
                accounts[key] = None
        return list(accounts)

    async def find_history_start(self, view: View) -> int:
        """Return the time of the first block that a node has (ms UTC): 0 if it has all, that of its
        newest block if it cannot tell.
        """
        try:
            first = _whole(await view.node.call("getFirstAvailableBlock"))
            return first and 1_000 * _whole(await view.node.call("getBlockTime", first))
        except (RpcRefused, _MalformedError):
            return view.head.at

    async def _load(
        self, view: View, signatures: Sequence[SignatureEntry]
    ) -> dict[str, SolanaTransaction]:
        calls = [RpcCall("getTransaction", (one.text, _TRANSACTION)) for one in signatures]
        found = {}
        for one, result in zip(signatures, await view.node.each(calls), strict=True):
            if isinstance(result, RpcError):
                if isinstance(result, RpcRefused) and result.code == _UNKNOWN_VERSION:
                    continue
                raise result
            # A node without the result of an old transaction returns it with `meta: null`.
            if result is None or (isinstance(result, dict) and result.get("meta", 0) is None):
                continue
            try:
                transaction = read_transaction(result, mint=self.mint)
            except LogError as error:
                raise RpcUnavailable(f"{view.node.name}: {error}") from error
            # The key of a transfer contains the slot: another slot would count it twice.
            if (transaction.signature, transaction.slot) != (one.text, one.slot):
                raise RpcUnavailable(f"{view.node.name} returned another transaction.")
            found[one.text] = transaction
        return found

    async def _ask(self, views: Sequence[View], call: RpcCall) -> list[Any]:
        """Return the answers of the first node and, if they respond, of the others."""
        answers = [await views[0].node.call(call.method, *call.params)]
        for other in views[1:]:
            try:
                answers.append(await other.node.call(call.method, *call.params))
            except RpcError as error:
                self.nodes.record_failure(other.node, error)
        return answers


class _MalformedError(RpcUnavailable):
    """A number of a reply is missing or malformed."""


def _rows(value: Any, most: int) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise RpcUnavailable("A list of the node is malformed.")
    if len(value) > most:
        raise RpcUnavailable("A list of the node is too long.")
    return value


def _signature(row: dict[str, Any]) -> SignatureEntry:
    text, seconds = row.get("signature"), row.get("blockTime")
    if not isinstance(text, str) or not SOLANA_SIGNATURE_PATTERN.fullmatch(text):
        raise RpcUnavailable("A signature of the node is malformed.")
    at = None if seconds is None else 1_000 * _whole(seconds)
    return SignatureEntry(text, _whole(row.get("slot")), at, row.get("err") is not None)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _SLOT_MAX:
        raise _MalformedError("A number in the node's reply is malformed.")
    return value
