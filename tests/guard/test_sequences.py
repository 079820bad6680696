"""No sequence of offers, redirects, hooks, failures and retries lets a payment out that the rules
refuse. The rules are implemented here again, in another way, and judge what left.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.bundles import Publisher, encode_bundle, row_of
from tests.support.examples import examples
from tests.support.paying_clients import payer_of
from tests.support.sellers import OTHER_TOKEN, Record, entry
from x402 import x402Client
from x402.schemas import PaymentRequired, RecoveredPayloadResult

from tollgauge.demo.chain import ACCOUNTS
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.seller import payee
from tollgauge_guard import MEMORY, GuardedClient, Policy, open_guard

BUYER = ACCOUNTS[1]
GOOD, AVOIDED, STRANGER = "good.example", "avoided.example", "stranger.example"
HOSTS = (GOOD, AVOIDED, STRANGER)
SELLER, THIEF = payee("seller"), payee("thief")
PRICE = 10_000
CENT = 10_000
MAX_DAY, MAX_HOST_DAY = 60_000, 40_000
PUBLISHER = Publisher.new()
NOW = int(time.time())
ADDRESSES = [SELLER.lower()]
BUNDLE = encode_bundle(
    [
        row_of(f"https://{GOOD}/", Record(pay_to=(SELLER,), amount=PRICE), NOW, ADDRESSES),
        row_of(
            f"https://{AVOIDED}/", Record(pay_to=(SELLER,), recommendation="avoid"), NOW, ADDRESSES
        ),
    ],
    NOW,
    payTo=ADDRESSES,
)
SIGNATURE = PUBLISHER.sign(BUNDLE)

CHANGES = (
    {},
    {"payTo": THIEF},
    *({"amount": str(amount)} for amount in (1, 5_000, 2 * PRICE, 2 * PRICE + 1, 10**7)),
    {"asset": OTHER_TOKEN},
    {"network": "eip155:1"},
    {"maxTimeoutSeconds": 10**9},
)
"""Differences between an offer and the one in the bundle."""
PAID_STATUSES = st.sampled_from([200, 307, 402, 500, 0])
"""Statuses of a seller's answer to a payment; 0 closes the connection."""
TRICKS = (
    "changes the payee",
    "changes the amount",
    "changes the token",
    "changes the token and changes it back",
    "replaces the payment",
    "fails before",
    "fails after",
    "recovers with another payment",
    "enriches",
)


def stolen_payment() -> Any:
    """A payment to the thief that the buyer's key has signed."""
    document = {
        "x402Version": 2,
        "resource": {"url": f"https://{GOOD}/"},
        "accepts": [entry("thief", 20_000)],
    }
    required = PaymentRequired.model_validate(document)
    return asyncio.run(payer_of(BUYER).create_payment_payload(required))


class Sellers(httpx.AsyncBaseTransport):
    """Hosts in memory. `left` are the payments that left: the URL that the program `asked`, the one
    that they left for, the payment, and the offer that was made there.
    """

    def __init__(self) -> None:
        self.offers: dict[str, Any] = dict.fromkeys(HOSTS, entry("seller", PRICE))
        self.claims: dict[str, str] = {host: host for host in HOSTS}
        self.moved: dict[str, str] = {}
        self.paid_status = 200
        self.asked = ""
        self.left: list[tuple[str, httpx.URL, Any, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if header := request.headers.get("payment-signature"):
            payment = json.loads(base64.b64decode(header))
            self.left.append((self.asked, request.url, payment, self.offers[host]))
            if self.paid_status == 0:
                raise httpx.ReadError("on purpose", request=request)
            location = {"location": f"https://{AVOIDED}/"} if self.paid_status == 307 else {}
            return httpx.Response(self.paid_status, headers=location)
        if host in self.moved:
            return httpx.Response(307, headers={"location": f"https://{self.moved[host]}/"})
        document = {
            "x402Version": 2,
            "resource": {"url": f"https://{self.claims[host]}/"},
            "accepts": [self.offers[host]],
        }
        packed_document = base64.b64encode(json.dumps(document).encode()).decode()
        return httpx.Response(402, headers={"payment-required": packed_document})


class Tricks:
    """Hooks around the guard's, and an extension, each of which acts while its trick is on."""

    key = "tricks"

    def __init__(self) -> None:
        self.on = ""
        self.stolen = stolen_payment()

    def early(self, client: x402Client) -> None:
        client.on_after_payment_creation(self._change_back)

    def late(self, client: x402Client) -> None:
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self._after)
        client.on_payment_creation_failure(self._recover)
        client.register_extension(self)  # type: ignore[arg-type]

    def _before(self, context: Any) -> None:
        offer = context.selected_requirements
        if self.on == "fails before":
            raise RuntimeError("on purpose")
        if self.on == "changes the payee":
            offer.pay_to = THIEF
        if self.on == "changes the amount":
            offer.amount = "9000"
        if self.on in ("changes the token", "changes the token and changes it back"):
            offer.asset = OTHER_TOKEN

    def _change_back(self, context: Any) -> None:
        if self.on == "changes the token and changes it back":
            context.payment_payload.accepted.asset = USDC

    def _after(self, context: Any) -> None:
        if self.on == "replaces the payment":
            context.payment_payload.payload.update(self.stolen.payload)
        if self.on == "fails after":
            raise RuntimeError("on purpose")

    def _recover(self, _context: Any) -> RecoveredPayloadResult | None:
        is_on = self.on == "recovers with another payment"
        return RecoveredPayloadResult(payload=self.stolen) if is_on else None

    def enrich_payment_payload(self, payload: Any, _required: Any) -> Any:
        if self.on == "enriches":
            return payload.model_copy(update={"payload": self.stolen.payload})
        return payload


class GuardedProgram(RuleBasedStateMachine):
    """A program that pays, sellers that change, and other code in the same program."""

    def __init__(self) -> None:
        super().__init__()
        self.sellers, self.tricks = Sellers(), Tricks()
        self.client = payer_of(BUYER)
        self.tricks.early(self.client)
        guard = open_guard(
            bundle=(BUNDLE, SIGNATURE),
            key=PUBLISHER.jwk,
            policy=Policy(max_day=MAX_DAY, max_host_day=MAX_HOST_DAY),
            journal=MEMORY,
        )
        self.http = GuardedClient(guard, self.client, transport=self.sellers, follow_redirects=True)
        self.tricks.late(self.client)

    @rule(host=st.sampled_from(HOSTS), other=st.sampled_from(HOSTS))
    def claim(self, host: str, other: str) -> None:
        self.sellers.claims[host] = other

    @rule(host=st.sampled_from(HOSTS), other=st.sampled_from(HOSTS))
    def move(self, host: str, other: str) -> None:
        self.sellers.moved[host] = other
        if host == other:
            del self.sellers.moved[host]

    @rule(status=PAID_STATUSES)
    def answer_payments(self, status: int) -> None:
        self.sellers.paid_status = status

    @rule(trick=st.sampled_from(("", *TRICKS)))
    def play(self, trick: str) -> None:
        self.tricks.on = trick

    @rule(
        host=st.sampled_from((GOOD, *HOSTS)),
        change=st.sampled_from(CHANGES),
        queries=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    )
    def ask(self, host: str, change: dict[str, Any], queries: list[int]) -> None:
        self.sellers.offers[host] = entry("seller", PRICE) | change
        for query in queries:
            self.sellers.asked = f"https://{host}/?n={query}"
            self._quietly(self.http.get(self.sellers.asked))

    @rule(host=st.sampled_from(HOSTS))
    def ask_with_a_payment_of_its_own(self, host: str) -> None:
        text = self.tricks.stolen.model_dump_json(by_alias=True, exclude_none=True)
        header = base64.b64encode(text.encode()).decode()
        headers = {"PAYMENT-SIGNATURE": header}
        self.sellers.asked = f"https://{host}/"
        self._quietly(self.http.get(self.sellers.asked, headers=headers))

    def _quietly(self, call: Coroutine[Any, Any, Any]) -> None:
        """Ignore failures of a call: only sent payments matter."""
        with contextlib.suppress(Exception):
            asyncio.run(call)

    @invariant()
    def everything_that_left_was_allowed(self) -> None:
        spent: dict[str, tuple[str, int]] = {}
        repeats: dict[str, set[str]] = {}
        for asked, url, payment, offer in self.sellers.left:
            given = payment["payload"]["authorization"]
            value, nonce = int(given["value"]), given["nonce"]
            if nonce not in spent:  # an unanswered one is sent again, whatever the new 402 requests
                assert (given["to"], given["value"]) == (offer["payTo"], offer["amount"])
            assert may_be_paid(url.host, given["to"], value)
            assert int(given["validBefore"]) <= time.time() + 3_600 + 5
            assert payment["accepted"]["asset"] == USDC
            assert is_for_usdc(payment["payload"])
            spent[nonce] = (url.host, value)
            repeats.setdefault(asked, set()).add(nonce)
        assert sum(value for _, value in spent.values()) <= MAX_DAY
        for host in HOSTS:
            assert sum(value for at, value in spent.values() if at == host) <= MAX_HOST_DAY
        assert all(len(nonces) <= 3 for nonces in repeats.values())


@pytest.mark.parametrize("other", [AVOIDED, STRANGER])
def test_lost_payment_does_not_follow_a_new_redirect(other: str) -> None:
    program = GuardedProgram()
    program.answer_payments(500)
    program.ask(GOOD, {}, [1])
    (_, _, lost, _) = program.sellers.left.pop()
    program.move(GOOD, other)
    program.ask(GOOD, {}, [1])
    assert lost not in [payment for _, _, payment, _ in program.sellers.left]
    program.everything_that_left_was_allowed()


def may_be_paid(host: str, pay_to: str, value: int) -> bool:
    match host:
        case "good.example":
            return pay_to == SELLER and value <= 2 * PRICE
        case "stranger.example":
            return value <= CENT
        case _:
            return False


def is_for_usdc(payload: Any) -> bool:
    """Whether the buyer signed the authorization for USDC on Base."""
    kinds = ("address", "address", "uint256", "uint256", "uint256", "bytes32")
    given = payload["authorization"]
    names = ("from", "to", "value", "validAfter", "validBefore", "nonce")
    fields = [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
    domain = {"name": "USD Coin", "version": "2", "chainId": 8453, "verifyingContract": USDC}
    message = {
        name: int(given[name]) if kind == "uint256" else given[name]
        for name, kind in zip(names, kinds, strict=True)
    }
    signable = encode_typed_data(domain, {"TransferWithAuthorization": fields}, message)
    return bool(Account.recover_message(signable, signature=payload["signature"]) == BUYER.address)


TestGuardedProgram = GuardedProgram.TestCase
TestGuardedProgram.settings = settings(max_examples=examples(90), stateful_step_count=20)
