"""Nodes that give false, late or malformed replies.

The transactions client does not believe them, and raises only its own errors. The node is a real
HTTP server on loopback; only its replies are scripted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.support.examples import examples

from tollgauge.clients.chain.rpc import Node, RpcError, RpcUnavailable
from tollgauge.clients.chain.transactions import DecoderUnavailable, Transactions
from tollgauge.core.chain.trace.result import Model, TraceStatus
from tollgauge.demo.serving import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")
NETWORK = "eip155:8453"
TX = "0x" + "7a" * 32
BLOCK = "0x" + "b0" * 32
TOKEN = "0x" + "cc" * 20
PAYER, PAYEE = "0x" + "aa" * 20, "0x" + "bb" * 20
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
REFUSED = object()
Answers = dict[str, Any]


def word(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


def answers(**changes: Any) -> Answers:
    """Return an honest node's replies for a payment that another contract made."""
    topics = [_USED, word(PAYER), "0x" + "01" * 32]
    logs = [
        {"address": TOKEN, "topics": topics, "data": "0x", "logIndex": "0x1"},
        {
            "address": TOKEN,
            "topics": [_TRANSFER, word(PAYER), word(PAYEE)],
            "data": f"0x{5:064x}",
            "logIndex": "0x2",
        },
    ]
    place = {"blockNumber": "0x10", "blockHash": BLOCK}
    tx = {"hash": TX, "from": PAYER, "to": PAYEE, "input": "0x12345678", "chainId": "0x2105"}
    honest: Answers = {
        "eth_chainId": "0x2105",
        "eth_getTransactionByHash": tx | place,
        "eth_getTransactionReceipt": {"transactionHash": TX, "status": "0x1", "logs": logs} | place,
        "safe": {"number": "0x20"},
        "finalized": {"number": "0x8"},
        "0x10": {"number": "0x10", "hash": BLOCK, "timestamp": "0x65000000"},
        "debug_traceTransaction": REFUSED,
        "0x95d89b41": "0x" + f"{32:064x}{4:064x}" + "45555243".ljust(64, "0"),
        "0x313ce567": f"0x{6:064x}",
    }
    return honest | changes


def result_of(held: Answers, call: dict[str, Any]) -> Any:
    method, params = call["method"], call["params"]
    if method == "eth_getBlockByNumber":
        return held[params[0]]
    return held[params[0]["data"]] if method == "eth_call" else held[method]


def reply(held: Answers, call: dict[str, Any]) -> dict[str, Any]:
    result = result_of(held, call)
    if result is REFUSED:
        error = {"code": -32601, "message": "the method does not exist"}
        return {"jsonrpc": "2.0", "id": call["id"], "error": error}
    return {"jsonrpc": "2.0", "id": call["id"], "result": result}


@dataclass
class Played:
    """One server that acts as any number of nodes, each at its own path."""

    port: int = 0
    held: dict[str, Answers] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        held = self.held[request.path_params["name"]]
        calls = json.loads(await request.body())
        many = isinstance(calls, list)
        replies = [reply(held, call) for call in (calls if many else [calls])]
        return Response(json.dumps(replies if many else replies[0]))

    def ask(self, *helds: Answers) -> Transactions:
        """Return a client of nodes with these replies."""
        for place, held in enumerate(helds):
            self.held[str(place)] = held
            if place == len(self.nodes):
                self.nodes.append(Node(f"http://127.0.0.1:{self.port}/{place}", timeout_s=3))
        return Transactions({NETWORK: self.nodes[: len(helds)]})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def played() -> AsyncIterator[Played]:
    played = Played()
    route = Route("/{name}", played.answer, methods=["POST"])
    async with serve(Starlette(routes=[route])) as port:
        played.port = port
        yield played
        for node in played.nodes:
            await node.close()


async def test_honest_node_is_believed(played: Played) -> None:
    asks = played.ask(answers())
    trace = await asks.trace(NETWORK, TX)
    [payment] = trace.payments
    assert (payment.payer, payment.payee, payment.amount) == (PAYER, PAYEE, 5)
    assert (payment.token.symbol, payment.token.decimals) == ("EURC", 6)
    # The node offers no call trace, so the payment comes from the logs, without its method.
    assert (payment.method, trace.decoder) == (None, Model.RECEIPT_LOGS)
    assert trace.block is not None
    assert (trace.block.finality, trace.block.at) == ("safe", 0x65000000 * 1_000)


async def test_requested_decoder_that_no_node_offers_is_a_separate_error(played: Played) -> None:
    asks = played.ask(answers())
    with pytest.raises(DecoderUnavailable):
        await asks.trace(NETWORK, TX, Model.CALL_TRACE)


@pytest.mark.parametrize("missing", [None, REFUSED, {"number": "0xzz"}, {"number": 5}, "0x5"])
async def test_finality_is_latest_if_the_node_does_not_state_it(
    played: Played, missing: Any
) -> None:
    asks = played.ask(answers(safe=missing, finalized=missing))
    block = (await asks.trace(NETWORK, TX)).block
    assert block is not None
    assert block.finality == "latest"


async def test_receipt_of_a_block_that_the_node_does_not_have_is_pending(played: Played) -> None:
    asks = played.ask(answers(**{"0x10": None}))
    trace = await asks.trace(NETWORK, TX)
    assert (trace.status, trace.block) == (TraceStatus.PENDING, None)


@pytest.mark.parametrize(
    "bend",
    [
        lambda held: {"eth_chainId": "0x1"},
        lambda held: {"eth_chainId": None},
        lambda held: {"eth_getTransactionByHash": None},
        lambda held: {
            "eth_getTransactionByHash": held["eth_getTransactionByHash"] | {"hash": BLOCK}
        },
        lambda held: {
            "eth_getTransactionByHash": held["eth_getTransactionByHash"] | {"input": "0xz"}
        },
        lambda held: {
            "eth_getTransactionByHash": held["eth_getTransactionByHash"] | {"from": None}
        },
        lambda held: {"eth_getTransactionByHash": [1]},
        lambda held: {"eth_getTransactionReceipt": None},
        lambda held: {"eth_getTransactionReceipt": "0x"},
        lambda held: {
            "eth_getTransactionReceipt": held["eth_getTransactionReceipt"]
            | {"transactionHash": BLOCK}
        },
        lambda held: {
            "eth_getTransactionReceipt": held["eth_getTransactionReceipt"] | {"logs": None}
        },
        lambda held: {
            "eth_getTransactionReceipt": held["eth_getTransactionReceipt"] | {"logs": [{}]}
        },
        lambda held: {
            "eth_getTransactionReceipt": held["eth_getTransactionReceipt"] | {"blockHash": None}
        },
        lambda held: {"0x10": held["0x10"] | {"hash": TX}},
        lambda held: {"0x10": held["0x10"] | {"timestamp": None}},
        lambda held: {"0x10": [5]},
    ],
)
async def test_node_that_contradicts_itself_is_skipped(
    played: Played, bend: Callable[[Answers], Answers]
) -> None:
    held = answers() | bend(answers())
    asks = played.ask(held)
    with pytest.raises(RpcUnavailable):
        await asks.trace(NETWORK, TX)
    asks = played.ask(held, answers())
    trace = await asks.trace(NETWORK, TX)
    assert len(trace.payments) == 1


@pytest.mark.parametrize("calls", [{}, [], {"type": "CALL", "calls": 5}, None, "0x"])
async def test_malformed_call_trace_falls_back_to_the_logs(played: Played, calls: Any) -> None:
    asks = played.ask(answers(debug_traceTransaction=calls))
    trace = await asks.trace(NETWORK, TX)
    assert (len(trace.payments), trace.decoder) == (1, Model.RECEIPT_LOGS)
    with pytest.raises(RpcUnavailable):
        await asks.trace(NETWORK, TX, Model.CALL_TRACE)


@pytest.mark.parametrize(
    ("symbol", "decimals"),
    [
        (REFUSED, REFUSED),
        ("0x", "0x"),
        (None, None),
        ([1], {}),
        ("0x" + "00" * 32, "0x" + "ff" * 32),
        (f"0x{32:064x}{2**256 - 1:064x}", "0x01"),
    ],
)
async def test_token_without_metadata_has_no_name(
    played: Played, symbol: Any, decimals: Any
) -> None:
    words = {"0x95d89b41": symbol, "0x313ce567": decimals}
    asks = played.ask(answers(**words))
    [payment] = (await asks.trace(NETWORK, TX)).payments
    assert (payment.token.symbol, payment.token.decimals) == (None, None)


async def test_metadata_of_a_token_is_cleaned_and_shortened(played: Played) -> None:
    hostile = "\u202e<b>US\x00DC" + "A" * 500
    raw = hostile.encode()
    symbol = f"0x{32:064x}{len(raw):064x}" + raw.hex()
    old = "0x" + b"MKR".ljust(32, b"\0").hex()
    for reply_of, wanted in ((symbol, "<b>USDCAAAAAAAAA"), (old, "MKR")):
        asks = played.ask(answers(**{"0x95d89b41": reply_of}))
        [payment] = (await asks.trace(NETWORK, TX)).payments
        shown = payment.token.symbol
        assert shown is not None
        assert len(shown) <= 16
        assert "\u202e" not in shown
        assert "\x00" not in shown
        assert shown[:3] == wanted[:3]


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from([TX, BLOCK, PAYER, "0x", "0x10", "0x2105", _USED]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hash", "input", "from", "logs", "number", "blockNumber", "type"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changes=st.dictionaries(st.sampled_from(sorted(answers())), junk, max_size=4),
    model=st.sampled_from([None, *Model]),
)
async def test_no_reply_raises_an_unexpected_exception(
    played: Played, changes: Answers, model: Model | None
) -> None:
    asks = played.ask(answers() | changes)
    with contextlib.suppress(RpcError, DecoderUnavailable):
        await asks.trace(NETWORK, TX, model)
