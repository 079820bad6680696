"""Buys responses as an agent does, with the official x402 client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from tollgauge.clients import purchase
from tollgauge.clients.purchase import Order
from tollgauge.clients.spending import Limits
from tollgauge.core.sale.payment import REPORT_PATH, WATCH_PATH
from tollgauge.demo.chain import NETWORK, TestAccount

_PRICE_MAX: Final = 1_000_000
"""Maximum price of a response in atomic USDC: one dollar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtAnswer:
    """A paid response: its JSON (`report`), its settlement transaction, the payer's address and the
    amount in atomic USDC.
    """

    report: dict[str, Any]
    transaction: str
    payer: str
    amount: int


async def buy(base_url: str, resource: str, *, account: TestAccount) -> BoughtAnswer:
    """Buy the trust report of `resource` from the service at `base_url`.

    Raises PurchaseError if the response is not a paid report.
    """
    return await buy_answer(base_url, REPORT_PATH, {"resource": resource}, account=account)


async def watch(
    base_url: str, resource: str, *, webhook: str, account: TestAccount
) -> BoughtAnswer:
    """Buy a watch of `resource` with alerts to a webhook. Raises PurchaseError."""
    order = {"endpoint": resource, "delivery": {"webhook_url": webhook}}
    return await buy_answer(base_url, WATCH_PATH, order, account=account)


async def buy_answer(
    base_url: str, path: str, body: dict[str, Any], *, account: TestAccount
) -> BoughtAnswer:
    """Buy the product of the service at `base_url` at a path.

    Raises PurchaseError if the response is not the product.
    """
    bought = await purchase.buy(
        Order(url=f"{base_url.rstrip('/')}{path}", body=body),
        key=account.key,
        limits=Limits(network=NETWORK, max_amount=_PRICE_MAX),
    )
    return BoughtAnswer(
        report=orjson.loads(bought.body),
        transaction=bought.transaction,
        payer=account.address,
        amount=bought.payment.value,
    )
