"""sign-in-with-x: the answer to an earlier payment is requested before a new payment."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from guard.cases.sample_bundle import Row
from tests.support.guard_seller import ACCOUNT, CASES_FOLDER, Answer, Seller, receipt
from x402 import x402Client, x402ClientSync
from x402.mechanisms.evm.exact import ExactEvmScheme

from tollgauge_guard import State, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.sign_in import read_challenge

CASES: list[dict[str, Any]] = json.loads(
    (CASES_FOLDER / "sign_in.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_message_of_the_shared_table(case: dict[str, Any]) -> None:
    required = {"extensions": {"sign-in-with-x": case["extension"]}}
    header = base64.b64encode(json.dumps(required).encode()).decode()
    challenge = read_challenge(header, case["url"], case["address"], case["network"])
    assert (None if challenge is None else challenge.message) == case["message"]


class SignIns:
    """A seller that offers to sign in, and checks the signatures."""

    def __init__(self, seller: Seller) -> None:
        self.seller, self.status = seller, 200
        self.headers: list[str] = []
        self.domain = f"127.0.0.1:{seller.port}"
        seller.change = self.declare

    def declare(self, required: dict[str, Any]) -> None:
        info = {
            "domain": self.domain,
            "uri": required["resource"]["url"],
            "version": "1",
            "nonce": "0123456789abcdef",
            "issuedAt": "2026-01-01T00:00:00Z",
        }
        chains = [{"chainId": "eip155:8453", "type": "eip191"}]
        declared = {"info": info, "supportedChains": chains, "schema": {"type": "object"}}
        required["extensions"] = {"sign-in-with-x": declared}

    def see(self, header: str) -> int:
        fields = json.loads(base64.b64decode(header))
        case = {"info": fields, "supportedChains": [fields]}
        required = base64.b64encode(
            json.dumps({"extensions": {"sign-in-with-x": case}}).encode()
        ).decode()
        challenge = read_challenge(required, fields["uri"], fields["address"], fields["chainId"])
        assert challenge is not None
        signed = encode_defunct(text=challenge.message)
        signer = Account.recover_message(signed, signature=fields["signature"])
        assert signer == fields["address"] == ACCOUNT.address
        self.headers.append(header)
        return self.status


class AsyncWire(httpx.AsyncBaseTransport):
    """Answers requests that signed in; all others go to the seller."""

    def __init__(self, sign_ins: SignIns) -> None:
        self._sign_ins, self._inner = sign_ins, httpx.AsyncHTTPTransport(verify=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        header = request.headers.get("sign-in-with-x")
        status = None if header is None else self._sign_ins.see(header)
        if status == 0:
            raise httpx.ReadError("lost", request=request)
        if status is None or status == httpx.codes.PAYMENT_REQUIRED:
            return await self._inner.handle_async_request(request)
        return httpx.Response(status, content=b"kept for you")

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.parametrize(
    ("status", "text", "payments"), [(200, "kept for you", 1), (402, None, 2), (0, None, 2)]
)
async def test_lost_answer_is_requested_by_signing_in(
    seller: Seller,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    status: int,
    text: str | None,
    payments: int,
) -> None:
    sign_ins = SignIns(seller)
    seller.answer = lambda _call: Answer(503)
    client = x402Client()
    client.register("eip155:*", ExactEvmScheme(ACCOUNT))
    bundle, url = FixedBundle(bundle_of({f"{seller.url}/data": known()})), f"{seller.url}/data"
    async with guarded(
        client, bundle=bundle, transport=AsyncWire(sign_ins), journal=":memory:", sign_in=ACCOUNT
    ) as http:
        await http.get(url)
        assert not sign_ins.headers
        sign_ins.status = status
        seller.answer = lambda _call: receipt()
        answer = await http.get(url)
        assert answer.status_code == 200
        assert text is None or answer.text == text
        payment = http.guard.payment(answer)
        assert payment is not None
        assert payment.state is State.DELIVERED
        assert len(http.guard.journal.payments()) == 1
    assert len(sign_ins.headers) == 1
    assert len(seller.payments) == payments
    assert seller.payments[0] == seller.payments[-1]


@pytest.mark.parametrize("reason", ["no account", "another account", "another site"])
async def test_nothing_is_signed_without_the_owner_or_for_another_site(
    seller: Seller,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    reason: str,
) -> None:
    sign_ins = SignIns(seller)
    if reason == "another site":
        sign_ins.domain = "bank.example.com"
    account = {"no account": None, "another account": Account.from_key("0x" + "12" * 32)}
    seller.answer = lambda _call: Answer(503)
    client = x402Client()
    client.register("eip155:*", ExactEvmScheme(ACCOUNT))
    async with guarded(
        client,
        bundle=FixedBundle(bundle_of({f"{seller.url}/data": known()})),
        transport=AsyncWire(sign_ins),
        journal=":memory:",
        sign_in=account.get(reason, ACCOUNT),
    ) as http:
        for _ in range(2):
            assert (await http.get(f"{seller.url}/data")).status_code == 503
    assert not sign_ins.headers
    assert seller.payments[0] == seller.payments[1]


def test_lost_answer_is_requested_by_a_session(
    seller: Seller,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sign_ins = SignIns(seller)
    seller.answer = lambda _call: Answer(503)
    client = x402ClientSync()
    client.register("eip155:*", ExactEvmScheme(ACCOUNT))
    bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
    http = guarded(client, bundle=bundle, journal=":memory:", sign_in=ACCOUNT)
    http.verify = False
    from requests.adapters import HTTPAdapter

    send = HTTPAdapter.send

    def answer(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        header = request.headers.get("sign-in-with-x")
        response = send(self, request, *args, **kwargs)
        if header is not None:
            response.status_code = sign_ins.see(header)
        return response

    monkeypatch.setattr(HTTPAdapter, "send", answer)
    url = f"{seller.url}/data"
    assert http.post(url, data="city=Oslo").status_code == 503
    found = http.post(url, data="city=Oslo")
    assert found.status_code == 200
    payment = http.guard.payment(found)
    assert payment is not None
    assert payment.state is State.DELIVERED
    assert len(sign_ins.headers) == len(seller.payments) == 1
