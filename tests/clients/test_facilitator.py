"""The facilitator client against false, oversized and malformed replies."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tollgauge.clients.facilitator import (
    SILENT,
    Facilitator,
    FacilitatorSettings,
    FacilitatorUnavailable,
    Refused,
    SettledReply,
    Unclear,
)
from tollgauge.core.sale.payment import Payment, decode
from tollgauge.demo.serving import serve

PAYER = "0x" + "cd" * 20
OTHER = "0x" + "ee" * 20
TX = "0x" + "77" * 32
NETWORK = "eip155:8453"
SETTLED = {"success": True, "transaction": TX, "network": NETWORK}
LONG = 20_000_000


def payment(**more: Any) -> Payment:
    document = {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": NETWORK, "asset": "0x" + "ab" * 20},
        "payload": {
            "signature": "0x" + "1b" * 65,
            "authorization": {
                "from": PAYER,
                "to": OTHER,
                "value": "5000",
                "validAfter": "0",
                "validBefore": "1800000300",
                "nonce": "0x" + "22" * 32,
            },
        },
    }
    return decode(base64.b64encode(json.dumps(document | more).encode()).decode())


@asynccontextmanager
async def open_facilitator(reply: Response) -> AsyncIterator[tuple[Facilitator, list[Any]]]:
    """A client of a facilitator that always gives the same reply, and the requests that it sent."""
    asked: list[Any] = []

    async def answer(request: Request) -> Response:
        asked.append(await request.json())
        return reply

    played = Starlette(
        routes=[Route(f"/{verb}", answer, methods=["POST"]) for verb in ("verify", "settle")]
    )
    async with serve(played) as port:
        client = Facilitator(FacilitatorSettings(url=f"http://127.0.0.1:{port}"))
        try:
            yield client, asked
        finally:
            await client.close()


SIGNERS = {
    "eip155:*": ["0x" + "AB" * 20, "not an address"],
    "eip155:8453": ["0x" + "cd" * 20],
    "solana:*": ["0x" + "ef" * 20],
}


@asynccontextmanager
async def serve_supported(
    answer: Callable[[Request], Awaitable[Response]], *, timeout_s: float = 10.0
) -> AsyncIterator[Facilitator]:
    """A client of a facilitator that only implements /supported."""
    async with serve(Starlette(routes=[Route("/supported", answer)])) as port:
        url = f"http://127.0.0.1:{port}"
        client = Facilitator(FacilitatorSettings(url=url, verify_timeout_s=timeout_s))
        try:
            yield client
        finally:
            await client.close()


async def test_signers_are_the_addresses_of_evm_chains() -> None:
    async def answer(_: Request) -> Response:
        return JSONResponse({"kinds": [], "extensions": [], "signers": SIGNERS})

    async with serve_supported(answer) as client:
        assert (await client.read_supported()).signers == {"0x" + "ab" * 20, "0x" + "cd" * 20}


async def test_host_is_shown_without_the_credentials_of_its_url() -> None:
    settings = FacilitatorSettings(url="https://name:secret@pay.example/x402")
    client = Facilitator(settings)
    assert client.host == "pay.example"
    await client.close()


async def test_silence_of_supported_does_not_stop_sales() -> None:
    over = asyncio.Event()

    async def answer(_: Request) -> Response:
        await over.wait()
        return JSONResponse({})

    async with serve_supported(answer, timeout_s=0.05) as client:
        for _ in range(SILENT):
            with pytest.raises(FacilitatorUnavailable, match="did not respond"):
                await client.read_supported()
        assert client.takes_sales()
        over.set()


def bomb() -> Response:
    body = b'{"isValid":true,"success":true,"pad":"' + b"x" * LONG + b'"}'
    headers = {"Content-Encoding": "gzip"}
    return Response(gzip.compress(body, 1), headers=headers, media_type="application/json")


def flood() -> Response:
    return JSONResponse({"isValid": True, "pad": "x" * LONG} | SETTLED)


@pytest.mark.parametrize("reply", [bomb, flood])
async def test_oversized_reply_is_not_read_to_its_end(reply: Any) -> None:
    async with open_facilitator(reply()) as (client, _):
        with pytest.raises(FacilitatorUnavailable, match=r"compressed|too long"):
            await client.verify(payment(), {})
        unclear = await client.settle(payment(), {})
    assert isinstance(unclear, Unclear)


@pytest.mark.parametrize("status", [201, 307, 401, 429])
async def test_valid_is_accepted_only_with_status_200(status: int) -> None:
    async with open_facilitator(JSONResponse({"isValid": True}, status_code=status)) as (client, _):
        with pytest.raises(FacilitatorUnavailable, match=str(status)):
            await client.verify(payment(), {})


@pytest.mark.parametrize("text", ["true", "1", 1])
async def test_strings_and_numbers_are_not_true(text: object) -> None:
    async with open_facilitator(JSONResponse({"isValid": text})) as (client, _):
        with pytest.raises(FacilitatorUnavailable, match="malformed"):
            await client.verify(payment(), {})
    async with open_facilitator(JSONResponse(SETTLED | {"success": text})) as (client, _):
        assert isinstance(await client.settle(payment(), {}), Unclear)


async def test_refusal_is_accepted_with_a_4xx_status() -> None:
    refusal = JSONResponse({"isValid": False, "invalidReason": "expired"}, status_code=400)
    async with open_facilitator(refusal) as (client, _):
        assert await client.verify(payment(), {}) == Refused(reason="expired")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"payer": OTHER}, "payer_mismatch"),
        ({"amount": "1"}, "amount_mismatch"),
        ({"network": "eip155:1"}, "network_mismatch"),
    ],
)
async def test_settlement_of_other_terms_is_unclear(fields: dict[str, str], reason: str) -> None:
    async with open_facilitator(JSONResponse(SETTLED | fields)) as (client, _):
        assert await client.settle(payment(), {}) == Unclear(reason=reason, transaction=TX)


async def test_settlement_with_matching_payer_and_amount_is_settled() -> None:
    named = {"payer": PAYER.upper().replace("X", "x"), "amount": "5000"}
    async with open_facilitator(JSONResponse(SETTLED | named)) as (client, _):
        assert await client.settle(payment(), {}) == SettledReply(transaction=TX)


async def test_lone_surrogates_of_a_payer_reach_the_facilitator() -> None:
    odd = payment(extensions={"half": "\ud800"})
    async with open_facilitator(JSONResponse({"isValid": True})) as (client, asked):
        assert await client.verify(odd, {}) is None
    assert asked[0]["paymentPayload"]["extensions"] == {"half": "\ud800"}


async def test_unusable_reply_ends_the_silence_of_a_facilitator() -> None:
    requests, over = 0, asyncio.Event()

    async def silent_then_compressed(_: Request) -> Response:
        nonlocal requests
        requests += 1
        if requests <= SILENT:
            await over.wait()
        return Response(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})

    app = Starlette(routes=[Route("/verify", silent_then_compressed, methods=["POST"])])
    async with serve(app) as port:
        url = f"http://127.0.0.1:{port}"
        client = Facilitator(FacilitatorSettings(url=url, verify_timeout_s=1))
        for _ in range(SILENT):
            with pytest.raises(FacilitatorUnavailable, match="did not respond"):
                await client.verify(payment(), {})
        assert not client.takes_sales()
        with pytest.raises(FacilitatorUnavailable, match="compressed"):
            await client.verify(payment(), {})
        assert client.takes_sales()
        over.set()
        await client.close()
