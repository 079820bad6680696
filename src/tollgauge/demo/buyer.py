"""Buyer: buys an answer the way an agent does, with the official x402 client."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import httpx
from eth_account import Account
from x402 import x402Client
from x402.http import decode_payment_response_header
from x402.http.clients.httpx import x402HttpxClient
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentCreatedContext

from tollgauge.core.errors import TollgaugeError
from tollgauge.demo.chain import NETWORK, TestAccount
from tollgauge.demo.facilitator import RECURSION_LIMIT

sys.setrecursionlimit(min(sys.getrecursionlimit(), RECURSION_LIMIT))
"""Again after these imports (see facilitator.py)."""

REPORT_PATH: Final = "/v1/x402-trust"
WATCH_PATH: Final = "/v1/watch-endpoint-30d"
_TIMEOUT_SECONDS: Final = 40.0


class PurchaseError(TollgaugeError):
    """The answer could not be bought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtAnswer:
    """A paid answer: its JSON (`report`), the transaction that settled it, the payer's address and
    the amount in atomic USDC.
    """

    report: dict[str, Any]
    transaction: str
    payer: str
    amount: int


async def buy(base_url: str, resource: str, *, account: TestAccount) -> BoughtAnswer:
    """Buys the trust report of `resource` from the service at `base_url`.

    Raises PurchaseError when the answer is no paid report.
    """
    return await buy_answer(base_url, REPORT_PATH, {"resource": resource}, account=account)


async def watch(
    base_url: str, resource: str, *, webhook: str, account: TestAccount
) -> BoughtAnswer:
    """Buys a watch of `resource`, whose alerts go to a webhook. Raises PurchaseError."""
    order = {"endpoint": resource, "delivery": {"webhook_url": webhook}}
    return await buy_answer(base_url, WATCH_PATH, order, account=account)


async def buy_answer(
    base_url: str, path: str, body: dict[str, Any], *, account: TestAccount
) -> BoughtAnswer:
    """Buys what the service at `base_url` sells at a path.

    Raises PurchaseError when the answer is not what was paid for.
    """
    signed: list[int] = []

    async def note(context: PaymentCreatedContext) -> None:
        signed.append(int(context.payment_payload.payload["authorization"]["value"]))

    client = x402Client()
    signer = EthAccountSigner(Account.from_key(account.key))
    register_exact_evm_client(client, signer, networks=NETWORK)
    client.on_after_payment_creation(note)
    async with x402HttpxClient(client, timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
        answer = await http.post(f"{base_url.rstrip('/')}{path}", json=body)
    return _bought(answer, signed)


def _bought(answer: httpx.Response, signed: list[int]) -> BoughtAnswer:
    receipt = answer.headers.get("payment-response")
    if answer.status_code != 200 or receipt is None:
        raise PurchaseError(
            f"The service answered {answer.status_code} instead of what was paid for: "
            f"{answer.text[:200]}"
        )
    settled = decode_payment_response_header(receipt)
    return BoughtAnswer(
        report=answer.json(),
        transaction=settled.transaction,
        payer=settled.payer or "",
        amount=int(settled.amount or signed[-1]),
    )
