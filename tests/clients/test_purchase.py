"""Payments that a buyer signs, stores and sends again to a seller with scripted responses."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from x402.schemas import PaymentRequirements

from tollgauge.clients import purchase
from tollgauge.clients.purchase import Order, PendingError, RefusedError, buy
from tollgauge.clients.spending import KeptPayment, KeptPaymentError, Limits, PurchaseError, payable
from tollgauge.core.sale.payment import decode
from tollgauge.demo.serving import closed_port, serve

KEY = "0x" + "42" * 32
BASE = "eip155:8453"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
LIMITS = Limits(network=BASE, max_amount=50_000)
ENTRY: dict[str, Any] = {
    "scheme": "exact",
    "network": BASE,
    "asset": USDC,
    "amount": "5000",
    "payTo": "0x" + "ab" * 20,
    "maxTimeoutSeconds": 300,
    "extra": {"name": "USD Coin", "version": "2"},
}


def entry(**changes: Any) -> PaymentRequirements:
    return PaymentRequirements.model_validate(ENTRY | changes)


@dataclass
class Seller:
    """A seller with scripted responses.

    It answers each payment with the next of `answers` (a status, a problem or a 402's error), and
    then with the goods and a `receipt`. `payments` are those that it received. If `is_sold` is
    given, the last of `answers` waits until the goods are sold. `is_garbled`: its next response is
    not the gzip that it declares.
    """

    url: str = ""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    unpaid: tuple[int, dict[str, str]] | None = None
    payments: list[str] = field(default_factory=list)
    receipt: str = ""
    is_sold: asyncio.Event | None = None
    is_garbled: bool = False

    async def sell(self, request: Request) -> Response:
        signed = request.headers.get("payment-signature")
        if self.is_garbled:
            self.is_garbled = False
            self.payments += [signed] if signed else []
            return Response(b"not gzip", headers={"Content-Encoding": "gzip"})
        if signed is None:
            if self.unpaid:
                status, problem = self.unpaid
                return JSONResponse(problem, status)
            terms = {
                "x402Version": 2,
                "error": "pay",
                "resource": {"url": self.url},
                "accepts": [ENTRY],
            }
            header = base64.b64encode(json.dumps(terms).encode()).decode()
            return Response(status_code=402, headers={"PAYMENT-REQUIRED": header})
        self.payments.append(signed)
        if self.answers:
            status, problem = self.answers.pop(0)
            if self.is_sold and not self.answers:
                await self.is_sold.wait()
            return JSONResponse(problem, status, headers={"Retry-After": "0"})
        if self.is_sold:
            self.is_sold.set()
        headers = {"PAYMENT-RESPONSE": self.receipt} if self.receipt else {}
        return JSONResponse({"goods": True}, headers=headers)

    @property
    def order(self) -> Order:
        return Order(url=self.url, body={"resource": "https://api.example.com/paid"})


@pytest.fixture
async def seller() -> AsyncIterator[Seller]:
    one = Seller()
    routes = [Route("/buy", one.sell, methods=["POST"])]
    async with serve(Starlette(routes=routes)) as port:
        one.url = f"http://127.0.0.1:{port}/buy"
        yield one


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def buy_goods(seller: Seller, file: Path | None = None, **more: Any) -> Any:
    kept = KeptPayment(file) if file else None
    return buy(seller.order, key=KEY, limits=LIMITS, kept=kept, **more)


def test_cheapest_entry_within_the_limits_is_chosen() -> None:
    others = [entry(amount="7000"), entry(network="eip155:10"), entry(scheme="upto", amount="1")]
    assert payable([*others, entry()], LIMITS) == entry()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": "eip155:84532"}, "accepts payments on eip155:84532, not on eip155:8453"),
        ({"scheme": "upto"}, "accepts payments on no network"),
        ({"asset": "0x" + "12" * 20}, "is not the USDC of eip155:8453"),
        ({"extra": {"assetTransferMethod": "permit2"}}, "is not the USDC"),
        ({"amount": "-1"}, "is not the USDC"),
        ({"maxTimeoutSeconds": 86_401}, "a payment that stays valid for more than 24 hours"),
        ({"amount": "50001"}, r"charges \$0\.050001, and the limit is \$0\.05"),
    ],
)
def test_terms_outside_of_the_limits_are_not_paid(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PurchaseError, match=words) as refused:
        payable([entry(**changes)], LIMITS)
    assert "Nothing was paid." in refused.value.hint


async def test_signature_covers_the_offered_terms(seller: Seller) -> None:
    answer = await buy_goods(seller)
    assert json.loads(answer.body) == {"goods": True}
    (header,) = seller.payments
    payment = decode(header)
    assert (payment.value, payment.to, payment.network) == (5_000, "0x" + "ab" * 20, BASE)
    assert payment.payer == purchase.derive_payer(KEY).lower()


async def test_same_payment_is_sent_until_the_outcome_is_known(
    seller: Seller, tmp_path: Path
) -> None:
    seller.answers = [(503, {"detail": "not known yet"}), (429, {}), (500, {})]
    await buy_goods(seller, tmp_path / "kept")
    assert len(seller.payments) == 4
    assert len(set(seller.payments)) == 1


async def test_same_payment_is_sent_again_after_an_unreadable_response(
    seller: Seller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purchase, "PAUSE_S", 0.0)
    kept = tmp_path / "kept"
    seller.answers = [(503, {})] * purchase.MAX_ATTEMPTS
    with pytest.raises(PendingError):
        await buy_goods(seller, kept)
    seller.payments.clear()
    seller.is_garbled = True
    await buy_goods(seller, kept)
    assert len(seller.payments) == 2
    assert len(set(seller.payments)) == 1


async def test_unreadable_price_is_not_paid(seller: Seller) -> None:
    seller.is_garbled = True
    with pytest.raises(PurchaseError, match="DecodingError") as refused:
        await buy_goods(seller)
    assert "Nothing was paid" in refused.value.hint
    assert seller.payments == []


async def test_open_outcome_keeps_the_payment_for_the_next_try(
    seller: Seller, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    seller.answers = [(503, {"detail": "It is pending."})] * purchase.MAX_ATTEMPTS
    with pytest.raises(PendingError, match="It is pending") as pending:
        await buy_goods(seller, kept)
    assert decode(seller.payments[0]).nonce in pending.value.hint
    await buy_goods(seller, kept)
    assert len(set(seller.payments)) == 1
    assert kept.read_text() == seller.payments[0]


async def test_refused_payment_is_replaced_only_after_it_expired(
    seller: Seller, tmp_path: Path
) -> None:
    kept, now_s = tmp_path / "kept", int(time.time())
    refusal = (402, {"error": "invalid_signature"})
    seller.answers = [refusal, refusal, refusal]
    for _ in range(2):
        with pytest.raises(RefusedError, match="refused the payment: invalid_signature"):
            await buy_goods(seller, kept, now_s=now_s)
    assert len(set(seller.payments)) == 1
    await buy_goods(seller, kept, now_s=now_s + 3_600)
    assert len(set(seller.payments)) == 2
    assert kept.read_text() == seller.payments[-1]


async def test_expired_payment_that_was_charged_still_fetches_its_response(
    seller: Seller, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    await buy_goods(seller, kept)
    await buy_goods(seller, kept, now_s=int(time.time()) + 3_600)
    assert len(set(seller.payments)) == 1


async def test_refused_request_leaves_no_payment_behind(seller: Seller, tmp_path: Path) -> None:
    seller.answers = [(422, {"detail": "resource: no public URL"})]
    with pytest.raises(RefusedError, match="returned 422: resource: no public URL") as refused:
        await buy_goods(seller, tmp_path / "kept")
    assert decode(seller.payments[0]).nonce in refused.value.hint
    assert names(tmp_path) == []


async def test_payment_that_may_have_been_charged_is_kept_if_its_request_is_refused(
    seller: Seller, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    seller.answers = [(503, {}), (403, {"detail": "Blocked by a proxy."})]
    with pytest.raises(RefusedError, match="returned 403"):
        await buy_goods(seller, kept)
    seller.answers = [(403, {"detail": "Blocked by a proxy."})]
    with pytest.raises(RefusedError, match="returned 403"):
        await buy_goods(seller, kept)
    await buy_goods(seller, kept)
    assert len(set(seller.payments)) == 1


async def test_payment_settled_without_a_record_is_kept_and_never_replaced(
    seller: Seller, tmp_path: Path
) -> None:
    file = tmp_path / "a.payment"
    problem = {"code": "payment-settled-unknown", "detail": "Contact ops@example.com."}
    seller.answers = [(409, problem), (409, problem)]
    for now_s in (0, 2_000_000_000):
        with pytest.raises(RefusedError, match=r"ops@example\.com") as refused:
            await buy_goods(seller, file, now_s=now_s)
        assert "The payment was charged before" in refused.value.hint
    assert names(tmp_path) == ["a.payment"]
    assert len(set(seller.payments)) == 1


async def test_two_commands_that_replace_one_refused_payment_send_one_new_payment(
    seller: Seller, tmp_path: Path
) -> None:
    kept, later = tmp_path / "kept", int(time.time()) + 3_600
    refusal = (402, {"error": "expired"})
    seller.answers = [refusal]
    with pytest.raises(RefusedError):
        await buy_goods(seller, kept)
    seller.answers, seller.is_sold = [refusal, refusal], asyncio.Event()
    await asyncio.gather(*(buy_goods(seller, kept, now_s=later) for _ in range(2)))
    assert len(set(seller.payments)) == 2


@pytest.mark.parametrize("receipt", ["no base64", "bm8ganNvbg==", "e30="])
async def test_unreadable_receipt_does_not_lose_the_response(seller: Seller, receipt: str) -> None:
    seller.receipt = receipt
    answer = await buy_goods(seller)
    assert (json.loads(answer.body), answer.transaction) == ({"goods": True}, "")


async def test_two_concurrent_commands_send_one_payment(seller: Seller, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    await asyncio.gather(buy_goods(seller, kept), buy_goods(seller, kept))
    assert len(seller.payments) == 2
    assert len(set(seller.payments)) == 1


async def test_payment_that_cannot_be_stored_is_not_sent(seller: Seller, tmp_path: Path) -> None:
    with pytest.raises(KeptPaymentError, match="so it was not sent"):
        await buy_goods(seller, tmp_path / "missing" / "kept")
    assert seller.payments == []


async def test_file_without_a_payment_is_named(seller: Seller, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("something else")
    with pytest.raises(KeptPaymentError, match="contains no payment"):
        await buy_goods(seller, kept)
    assert seller.payments == []


async def test_stored_payment_above_the_cap_is_not_sent_again(
    seller: Seller, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    await buy_goods(seller, kept)
    with pytest.raises(PurchaseError, match=r"the limit is \$0\.004"):
        await buy(
            seller.order,
            key=KEY,
            limits=Limits(network=BASE, max_amount=4_000),
            kept=KeptPayment(kept),
        )
    assert len(seller.payments) == 1


async def test_service_without_sales_states_the_reason(seller: Seller) -> None:
    seller.unpaid = (503, {"detail": "This server sells nothing."})
    with pytest.raises(PurchaseError, match=r"returned 503 .*: This server sells nothing"):
        await buy_goods(seller)


async def test_unreachable_service_is_named() -> None:
    with closed_port() as unused:
        order = Order(url=f"http://127.0.0.1:{unused.getsockname()[1]}/buy", body={})
        with pytest.raises(PurchaseError, match="No service responds at") as down:
            await buy(order, key=KEY, limits=LIMITS)
    assert "TOLLGAUGE_URL" in down.value.hint


def test_every_order_and_payer_has_its_own_file(tmp_path: Path) -> None:
    orders = [Order(url=url, body={"n": n}) for url in ("https://a", "https://b") for n in (1, 2)]
    files = {order.kept_payment(tmp_path, payer) for order in orders for payer in ("0x1", "0x2")}
    assert len(files) == 8
    assert (
        len(
            {
                Order(url="https://a", body=body).kept_payment(tmp_path, "0xAB")
                for body in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
            }
        )
        == 1
    )
