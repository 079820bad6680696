"""A facilitator that verifies and settles x402 v2 payments on the local chain, over HTTP.

`POST /verify`, `POST /settle` and `GET /supported` follow the x402 v2 specification and use the
official SDK. This module adds the parts that the SDK leaves to an operator:
- the SDK blocks while it waits for the chain, so it runs in threads;
- one transaction is signed and sent at a time, so that a failed one leaves no gap in the nonces;
- an authorization is settled once: a second attempt is rejected and costs no gas;
- gas is paid only for the configured payees, and only for USDC.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from x402 import x402FacilitatorSync
from x402.mechanisms.evm.exact.register import register_exact_evm_facilitator
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from tollgauge.core.base.strictjson import RECURSION_LIMIT
from tollgauge.demo.chain import NETWORK
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.serving import serve
from tollgauge.web.settings import LOOPBACK

# EVM libraries raise the limit, with which deeply nested JSON can crash the process.
sys.setrecursionlimit(min(sys.getrecursionlimit(), RECURSION_LIMIT))

_SDK_LOGS: Final = ("x402.signers", "x402.mechanisms.evm.exact.facilitator")
_THREADS: Final = 16
_BODY_MAX: Final = 64 * 1024
_CONFIRMATION_SECONDS: Final = 30.0

_Answer = TypeVar("_Answer", VerifyResponse, SettleResponse)

PaymentKey = tuple[str, str, str, str]
"""Identifies an authorization: (network, asset, payer, nonce) in lower case."""


class _Signer(FacilitatorWeb3Signer):
    """The SDK's signer with one transaction at a time. It discards its nonce after a failure."""

    def __init__(self, private_key: str, rpc_url: str) -> None:
        super().__init__(private_key, rpc_url, confirmation_timeout_seconds=_CONFIRMATION_SECONDS)
        self._sending = threading.Lock()

    def write_contract(
        self,
        address: str,
        abi: list[dict[str, Any]],
        function_name: str,
        *args: Any,
        data_suffix: str | None = None,
    ) -> str:
        with self._sending:
            try:
                return super().write_contract(
                    address, abi, function_name, *args, data_suffix=data_suffix
                )
            except Exception:
                self._next_nonce = None
                raise


class _OursOnly(logging.Filter):
    """Drops the SDK's log records about rejected payments: the response contains the reason.

    An unreachable chain is a fault of this machine and is logged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        arguments = record.args if isinstance(record.args, tuple) else ()
        return any(isinstance(value, OSError) for value in (raised, *arguments))


class DemoFacilitator:
    """A facilitator, with the authorizations that it settles or has settled."""

    def __init__(
        self,
        *,
        rpc_url: str,
        key: str,
        payees: frozenset[str],
        threads: ThreadPoolExecutor,
        chain_ready: asyncio.Event,
    ) -> None:
        self._sdk = x402FacilitatorSync()
        register_exact_evm_facilitator(self._sdk, _Signer(key, rpc_url), networks=NETWORK)
        self._payees = frozenset(payee.lower() for payee in payees)
        self._threads = threads
        self._chain_ready = chain_ready
        self._settled_keys: set[PaymentKey] = set()

    def app(self) -> Starlette:
        """Return the HTTP application."""
        return Starlette(
            routes=[
                Route("/verify", self._verify, methods=["POST"]),
                Route("/settle", self._settle, methods=["POST"]),
                Route("/supported", self._list_supported, methods=["GET"]),
            ]
        )

    async def _list_supported(self, _request: Request) -> Response:
        return _json(self._sdk.get_supported())

    async def _verify(self, request: Request) -> Response:
        if not self._chain_ready.is_set():
            return JSONResponse({"error": "The chain is not ready."}, status_code=503)
        payment = await _read(request)
        if payment is None:
            return _reject_malformed()
        payload, requirements = payment
        refusal = self._refusal(payload, requirements)
        if refusal:
            return _json(VerifyResponse(is_valid=False, invalid_reason=refusal))
        return _json(await self._run_in_thread(self._sdk.verify, payload, requirements))

    async def _settle(self, request: Request) -> Response:
        payment = await _read(request)
        if payment is None:
            return _reject_malformed()
        payload, requirements = payment
        refusal = self._refusal(payload, requirements)
        if refusal:
            return _json(_build_failure(refusal))
        key = _key(payload, requirements)
        self._settled_keys.add(key)
        settled = await self._run_in_thread(self._sdk.settle, payload, requirements)
        if not settled.success and not settled.transaction:
            self._settled_keys.discard(key)  # no transaction was sent: the payer may retry
        return _json(settled)

    def _refusal(self, payload: PaymentPayload, requirements: PaymentRequirements) -> str:
        """Return the reason why a payment is not accepted, or an empty string."""
        if requirements.network != NETWORK or requirements.asset.lower() != USDC.lower():
            return "unsupported_asset"
        if requirements.pay_to.lower() not in self._payees:
            return "pay_to_not_allowed"
        if _key(payload, requirements) in self._settled_keys:
            return "duplicate_settlement"
        return ""

    async def _run_in_thread(self, work: Callable[..., _Answer], *args: object) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)


@contextlib.asynccontextmanager
async def run_facilitator(
    *, rpc_url: str, key: str, payees: frozenset[str], chain_ready: asyncio.Event | None = None
) -> AsyncIterator[str]:
    """Run a facilitator on loopback; yields its URL. `key` pays the gas.

    It returns 503 for payments until `chain_ready`: while the history is created, the chain's clock
    is in the past.
    """
    if chain_ready is None:
        chain_ready = asyncio.Event()
        chain_ready.set()
    with contextlib.ExitStack() as stack:
        for name in _SDK_LOGS:
            stack.enter_context(_quiet(name))
        threads = stack.enter_context(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="facilitator")
        )
        facilitator = DemoFacilitator(
            rpc_url=rpc_url, key=key, payees=payees, threads=threads, chain_ready=chain_ready
        )
        async with serve(facilitator.app()) as port:
            yield f"http://{LOOPBACK}:{port}"


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Filter a logger until the `with` block ends."""
    logger, ours = logging.getLogger(name), _OursOnly()
    logger.addFilter(ours)
    try:
        yield
    finally:
        logger.removeFilter(ours)


async def _read(request: Request) -> tuple[PaymentPayload, PaymentRequirements] | None:
    """Return the payment of a request, or None if it cannot be parsed."""
    body = await request.body()
    if len(body) > _BODY_MAX:
        return None
    try:
        value = orjson.loads(body)
        payload = PaymentPayload.model_validate(value["paymentPayload"])
        requirements = PaymentRequirements.model_validate(value["paymentRequirements"])
        _key(payload, requirements)
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError, AttributeError):
        return None
    return payload, requirements


def _key(payload: PaymentPayload, requirements: PaymentRequirements) -> PaymentKey:
    authorization = payload.payload["authorization"]
    payer, nonce = authorization["from"].lower(), authorization["nonce"].lower()
    return (str(requirements.network), requirements.asset.lower(), payer, nonce)


def _build_failure(reason: str) -> SettleResponse:
    return SettleResponse(success=False, error_reason=reason, transaction="", network=NETWORK)


def _json(answer: Any) -> Response:
    text = answer.model_dump_json(by_alias=True, exclude_none=True)
    return Response(text, media_type="application/json")


def _reject_malformed() -> Response:
    return JSONResponse({"error": "malformed payment request"}, status_code=400)
