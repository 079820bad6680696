"""Payment in `_meta`: the tools use the gate and the ledger of the paid routes. Tests configure the
facilitator. The tool is real except for its answer, which needs no probe.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from mcp import Client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.http_service import NOW, PAY_TO, WEATHER, Running, configuration, open_service
from tests.support.signing import canonical, header_of

from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.core.sale.payment import canonical_body, decode, request_digest
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import StoreUnavailable
from tollgauge.demo.serving import serve
from tollgauge.store.ledger import payments
from tollgauge.web.mcp import transport
from tollgauge.web.mcp.tools import PAYMENT, RECEIPT, SIGNATURE, Tools, as_header
from tollgauge.web.paid import gate
from tollgauge.web.paid.products import trust
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.response_model import ResponseModel

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = "x402_trust_score"
ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
TX = "0x" + "77" * 32
ARGUMENTS = {"resource": WEATHER, "why": "before paying it"}


class GradeResponse(ResponseModel):
    """The answer of this world."""

    grade: str


def answer_settled() -> Response:
    return JSONResponse({"success": True, "transaction": TX, "network": "eip155:8453"})


@dataclass
class World:
    """The behavior of the facilitator and of the answer; both count their calls."""

    calls: Counter[str] = field(default_factory=Counter)
    verify: Callable[[], Response] = lambda: JSONResponse({"isValid": True})
    settle: Callable[[], Response] = answer_settled
    settle_s: float = 0
    settling: asyncio.Event = field(default_factory=asyncio.Event)
    compute: Callable[[], bytes] = lambda: b'{"grade":"A"}'

    async def facilitator(self, request: Request) -> Response:
        verb = request.url.path.strip("/")
        self.calls[verb] += 1
        if verb == "settle":
            self.settling.set()
            await asyncio.sleep(self.settle_s)
        answer: Response = getattr(self, verb)()
        return answer

    async def answer(self, _dependencies: object, _order: object, _claim: HeldClaim) -> bytes:
        self.calls["compute"] += 1
        return self.compute()


@dataclass
class Sold:
    """The running service and its tools."""

    world: World
    running: Running
    tools: Tools
    nonce: int = 0

    def payment(self, **signed: str) -> dict[str, Any]:
        return payment(nonce=self.nonce, signed=signed)

    async def call(self, payment: object, arguments: Any = None) -> CallToolResult:
        meta = cast("RequestParamsMeta", {PAYMENT: payment})
        async with Client(transport.server(self.tools)) as client:
            return await client.call_tool(TOOL, arguments or ARGUMENTS, meta=meta)

    async def row(self, payment: object) -> payments.LedgerRow:
        row = await self.running.service.store.reading(payments.get, decode(as_header(payment)).id)
        assert row is not None
        return row


@contextlib.asynccontextmanager
async def open_shop(path: Path, world: World) -> AsyncIterator[Sold]:
    verbs = [
        Route(f"/{verb}", world.facilitator, methods=["POST"]) for verb in ("verify", "settle")
    ]
    async with serve(Starlette(routes=verbs)) as port:
        settings = FacilitatorSettings(
            url=f"http://127.0.0.1:{port}", verify_timeout_s=20, settle_timeout_s=20
        )
        config = replace(configuration(store_url=f"sqlite:///{path}"), facilitator=settings)
        async with open_service(config) as running:
            dependencies = running.service.server()
            product = replace(trust.PRODUCT, compute=world.answer, response=GradeResponse)
            tools = Tools(products=(product,), dependencies=dependencies)
            yield Sold(world, running, tools)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(
    tmp_path_factory: pytest.TempPathFactory, empty_sqlite: Path
) -> AsyncIterator[Sold]:
    path = Path(shutil.copy(empty_sqlite, tmp_path_factory.mktemp("mcp") / "ledger.db"))
    async with open_shop(path, World()) as service:
        yield service


@pytest.fixture
def sold(service: Sold) -> Sold:
    """A service with the default behavior, and a new payment."""
    vars(service.world).update(vars(World()))
    service.nonce += 1
    return service


def payment(*, nonce: int = 0, signed: dict[str, str] | None = None) -> dict[str, Any]:
    """A payment that is right in every field that we can see."""
    authorization = {
        "from": "0x" + "cd" * 20,
        "to": PAY_TO,
        "value": "5000",
        "validAfter": "0",
        "validBefore": str(NOW // 1000 + 300),
        "nonce": f"0x{nonce:064x}",
    }
    return {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": "eip155:8453", "asset": ASSET},
        "payload": {"signature": "0x" + "1b" * 65, "authorization": authorization | (signed or {})},
    }


def read_result(result: CallToolResult) -> Any:
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == result.structured_content
    return result.structured_content


def problem(result: CallToolResult) -> tuple[int, str]:
    assert result.is_error
    document = read_result(result)
    return document["status"], document["code"]


async def test_paid_call_returns_answer_and_receipt(sold: Sold) -> None:
    result = await sold.call(sold.payment())
    assert not result.is_error
    assert read_result(result) == {"grade": "A"}
    assert result.meta is not None
    assert result.meta[RECEIPT] == {
        "success": True,
        "transaction": TX,
        "network": "eip155:8453",
        "payer": "0x" + "cd" * 20,
        "amount": "5000",
    }
    assert (await sold.row(sold.payment())).state is State.SETTLED


async def test_paid_call_returns_the_signature_of_its_text(sold: Sold) -> None:
    payment = sold.payment()
    result = await sold.call(payment)
    assert result.meta is not None
    text = cast("TextContent", result.content[0]).text
    header = header_of(result.meta[SIGNATURE], canonical(text.encode()))
    signed = payment["payload"]["authorization"]
    assert header["typ"] == "tollgauge-report"
    assert (header["payer"], header["nonce"]) == (signed["from"], signed["nonce"])
    resource = f"mcp://tool/{TOOL}"
    assert header["requestDigest"] == request_digest("MCP", resource, canonical_body(ARGUMENTS))


async def test_terms_of_a_tool_are_not_signed(sold: Sold) -> None:
    result = await sold.call(None)
    assert result.is_error
    assert SIGNATURE not in (result.meta or {})


async def test_repeated_payment_returns_the_stored_answer(sold: Sold) -> None:
    first = await sold.call(sold.payment())
    turned = dict(reversed(list(ARGUMENTS.items())))
    again = await sold.call(dict(reversed(list(sold.payment().items()))), turned)
    assert read_result(again) == read_result(first)
    assert again.meta == first.meta
    assert sold.world.calls == {"verify": 1, "compute": 1, "settle": 1}


async def test_concurrent_copies_settle_once_and_are_all_answered(
    sold: Sold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "POLL_DELAYS_S", (0.1,) * 600)  # also on a busy machine
    sold.world.settle_s = 0.1
    results = await asyncio.gather(*(sold.call(sold.payment()) for _ in range(20)))
    assert all(read_result(result) == {"grade": "A"} for result in results)
    assert sold.world.calls == {"verify": 1, "compute": 1, "settle": 1}


async def test_payment_is_bound_to_tool_and_arguments(sold: Sold) -> None:
    await sold.call(sold.payment())
    other = await sold.call(sold.payment(), {"resource": WEATHER + "/other"})
    assert problem(other) == (409, "payment-reused")
    over_http = await sold.running.buy(ARGUMENTS, as_header(sold.payment()))
    assert over_http.status_code == 409
    assert sold.world.calls["settle"] == 1


async def test_tool_rejects_the_payment_of_a_route(sold: Sold) -> None:
    answer = await sold.running.buy({"resource": WEATHER}, as_header(sold.payment()))
    assert answer.status_code == 200, answer.text
    reused = await sold.call(sold.payment(), {"resource": WEATHER})
    assert problem(reused) == (409, "payment-reused")


async def test_unknown_settlement_advises_not_to_pay_again(sold: Sold) -> None:
    sold.world.settle = lambda: Response("bad gateway", status_code=502)
    pending = await sold.call(sold.payment())
    assert problem(pending) == (503, "payment-pending")
    document = read_result(pending)
    assert "Do not pay again" in document["detail"]
    assert document["retryAfter"] > 0
    assert document["paymentId"] == (await sold.row(sold.payment())).id
    assert "accepts" not in document
    assert not (pending.meta or {}).get(RECEIPT)


async def test_payment_rejected_by_the_facilitator_returns_terms_and_reason(sold: Sold) -> None:
    sold.world.verify = lambda: JSONResponse(
        {"isValid": False, "invalidReason": "insufficient_funds"}
    )
    refused = await sold.call(sold.payment())
    assert refused.is_error
    assert read_result(refused)["error"] == "insufficient_funds"
    assert read_result(refused)["resource"]["url"] == f"mcp://tool/{TOOL}"
    assert sold.world.calls == {"verify": 1}


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        ({"value": "4999"}, "amount_mismatch"),
        ({"to": "0x" + "ee" * 20}, "recipient_mismatch"),
        ({"validBefore": str(NOW // 1000 - 1)}, "expired"),
    ],
)
async def test_signed_payment_is_compared_before_verification(
    sold: Sold, signed: dict[str, str], reason: str
) -> None:
    assert read_result(await sold.call(sold.payment(**signed)))["error"] == reason
    assert not sold.world.calls


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"url": WEATHER}, "invalid-input"),
        ({"resource": 7}, "resource-invalid"),
        ({"resource": "http://weather.example/"}, "resource-not-https"),
        ({"resource": "https://169.254.169.254/latest"}, "resource-not-public"),
    ],
)
async def test_invalid_arguments_are_not_charged(
    sold: Sold, arguments: dict[str, object], code: str
) -> None:
    assert problem(await sold.call(sold.payment(), arguments)) == (422, code)
    assert not sold.world.calls
    assert not (await sold.call(sold.payment())).is_error


async def test_misspelled_argument_is_rejected_without_a_charge(sold: Sold) -> None:
    misspelt = {"resuorce": WEATHER}
    over_http = await sold.running.buy(misspelt, as_header(sold.payment()))
    document = read_result(await sold.call(sold.payment(), misspelt))
    assert document == over_http.json()
    assert (document["status"], document["code"]) == (422, "unknown-field")
    assert document["notCharged"] is True
    assert document["detail"].startswith("Unknown field resuorce: did you mean resource?")
    assert not sold.world.calls
    assert not (await sold.call(sold.payment())).is_error, "its `why` is ignored"


async def test_number_outside_json_is_rejected(sold: Sold) -> None:
    for odd in (float("nan"), float("inf"), "\ud800"):
        arguments = {"resource": WEATHER, "odd": odd}
        result = await sold.tools.call(TOOL, arguments, {PAYMENT: sold.payment()})
        assert problem(result) == (400, "json-invalid"), odd


@pytest.mark.parametrize(
    "bad",
    [
        base64.b64encode(json.dumps(payment()).encode()).decode(),
        [],
        7,
        {},
        {"x402Version": 1},
        payment() | {"x402Version": True},
        payment() | {"payload": {}},
        payment() | {"padding": "x" * 20_000},
    ],
    ids=["base64", "list", "number", "empty", "v1", "bool", "no-payload", "large"],
)
async def test_invalid_payment_is_rejected_without_verification(sold: Sold, bad: object) -> None:
    result = await sold.call(bad)
    assert result.is_error
    assert read_result(result)["code"] in (
        "payment-invalid",
        "payment-header-invalid",
        "payment-header-too-large",
    )
    assert not sold.world.calls


async def test_internal_errors_do_not_show_exception_texts(sold: Sold) -> None:
    def fails() -> bytes:
        raise RuntimeError("s3cret of a library")

    def raise_unavailable() -> bytes:
        raise StoreUnavailable("s3cret of a driver")

    for compute, status, code in (
        (fails, 500, "internal"),
        (raise_unavailable, 503, "store-unavailable"),
    ):
        sold.world.compute = compute
        result = await sold.call(sold.payment())
        assert problem(result) == (status, code)
        assert "s3cret" not in json.dumps(read_result(result))
        assert "never charged twice" in read_result(result)["detail"]
    sold.world.compute = lambda: b'{"grade":"B"}'
    assert read_result(await sold.call(sold.payment())) == {"grade": "B"}, (
        "the payment is still good"
    )
    assert sold.world.calls["settle"] == 1


async def test_sale_continues_after_its_caller_disconnects(
    tmp_path: Path, empty_sqlite: Path
) -> None:
    """Also if the service is stopped in the meantime."""
    ledger = Path(shutil.copy(empty_sqlite, tmp_path / "ledger.db"))
    world = World(settle_s=0.5)
    async with open_shop(ledger, world) as sold:
        call = asyncio.create_task(sold.call(sold.payment()))
        await asyncio.wait_for(world.settling.wait(), 30)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
    async with open_shop(ledger, world) as sold:
        assert (await sold.row(sold.payment())).state is State.SETTLED
        assert read_result(await sold.call(sold.payment())) == {"grade": "A"}
    assert world.calls == {"verify": 1, "compute": 1, "settle": 1}
