"""Other code in the same program cannot get a payment out that the guard did not allow.

Each attack is a hook, an extension, or a request of the program itself. It is played once without
the guard, to show that it works, and once with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import pytest_asyncio
from tests.support.guarded_clients import guarded_httpx, setup_of
from tests.support.paying_clients import SCRIPT, ask_each, node_answer, payer_of, trusting_transport
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import OTHER_TOKEN, entry
from x402 import x402Client
from x402.http.clients.httpx import x402_httpx_transport
from x402.schemas import (
    PaymentCreatedContext,
    PaymentCreationContext,
    PaymentCreationFailureContext,
    PaymentPayload,
    PaymentRequired,
    RecoveredPayloadResult,
)

from tollgauge.demo.chain import TestAccount
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.seller import payee

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

THIEF = payee("thief")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


class Attack:
    """Code in the same program as the guard: `early` registers before it, `late` after it."""

    name: ClassVar[str] = ""

    def __init__(self, stolen: PaymentPayload) -> None:
        self.stolen = stolen
        """A valid payment to the thief, signed by the same key."""

    def early(self, client: x402Client) -> None:
        """Register before the guard does."""

    def late(self, client: x402Client) -> None:
        """Register after the guard did."""


class ChangesOffer(Attack):
    """A hook changes the selected offer after the guard has judged it."""

    changes: ClassVar[dict[str, Any]] = {}

    def late(self, client: x402Client) -> None:
        client.on_before_payment_creation(self.change)

    def change(self, context: PaymentCreationContext) -> None:
        for name, value in self.changes.items():
            setattr(context.selected_requirements, name, value)


class AnotherPayee(ChangesOffer):
    changes: ClassVar[dict[str, Any]] = {"pay_to": THIEF}


class AnotherAmount(ChangesOffer):
    changes: ClassVar[dict[str, Any]] = {"amount": "9000000"}


class AnotherToken(ChangesOffer):
    changes: ClassVar[dict[str, Any]] = {"asset": OTHER_TOKEN}


class LongerValidity(ChangesOffer):
    changes: ClassVar[dict[str, Any]] = {"max_timeout_seconds": 10**8}


class TokenForTheSignatureAlone(AnotherToken):
    """The token is changed for the signature, and changed back before the guard looks again."""

    def early(self, client: x402Client) -> None:
        client.on_after_payment_creation(self.change_back)

    def change_back(self, context: PaymentCreatedContext) -> None:
        accepted = getattr(context.payment_payload, "accepted", None)
        assert accepted is not None
        accepted.asset = USDC


class NetworkForTheSignatureAlone(TokenForTheSignatureAlone):
    changes: ClassVar[dict[str, Any]] = {"network": "eip155:1"}

    def change_back(self, context: PaymentCreatedContext) -> None:
        accepted = getattr(context.payment_payload, "accepted", None)
        assert accepted is not None
        accepted.network = "eip155:8453"


class AnotherPayment(Attack):
    """A hook puts another payment, well signed, in place of the one that was made."""

    def late(self, client: x402Client) -> None:
        client.on_after_payment_creation(self.replace)

    def replace(self, context: PaymentCreatedContext) -> None:
        context.payment_payload.payload = self.stolen.payload


class AnotherPaymentInPlace(AnotherPayment):
    """The same, in the object that the guard has seen."""

    def replace(self, context: PaymentCreatedContext) -> None:
        context.payment_payload.payload.update(self.stolen.payload)


class RecoversWithAnother(Attack):
    """A hook fails on purpose, and the hook of failures brings another payment."""

    def late(self, client: x402Client) -> None:
        client.on_after_payment_creation(self.fail)
        client.on_payment_creation_failure(self.recover)

    def fail(self, _context: PaymentCreatedContext) -> None:
        raise RuntimeError("on purpose")

    def recover(self, _context: PaymentCreationFailureContext) -> RecoveredPayloadResult:
        return RecoveredPayloadResult(payload=self.stolen)


class ExtensionEnriches(Attack):
    """An extension of the client puts another payment into the payload."""

    key = "attack"

    def late(self, client: x402Client) -> None:
        client.register_extension(self)  # type: ignore[arg-type]

    def enrich_payment_payload(
        self, payload: PaymentPayload, _required: PaymentRequired
    ) -> PaymentPayload:
        return payload.model_copy(update={"payload": self.stolen.payload})


ATTACKS = (
    AnotherPayee,
    AnotherAmount,
    AnotherToken,
    LongerValidity,
    TokenForTheSignatureAlone,
    NetworkForTheSignatureAlone,
    AnotherPayment,
    AnotherPaymentInPlace,
    RecoversWithAnother,
    ExtensionEnriches,
)


async def payment_to_thief(account: TestAccount) -> PaymentPayload:
    offer = entry("thief", 20_000)
    document = {"x402Version": 2, "resource": {"url": "https://x.example/"}, "accepts": [offer]}
    required = PaymentRequired.model_validate(document)
    payload = await payer_of(account).create_payment_payload(required)
    assert isinstance(payload, PaymentPayload)
    return payload


def open_unguarded(world: SellerWorld, client: x402Client) -> httpx.AsyncClient:
    transport = x402_httpx_transport(client, trusting_transport(world))
    return httpx.AsyncClient(transport=transport, trust_env=False)


@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.__name__)
async def test_attack_obtains_a_payment_only_without_a_guard(
    world: SellerWorld, tmp_path: Path, kind: type[Attack]
) -> None:
    victim, protected = await world.wallet(), await world.wallet()
    for account in (victim, protected):
        attack, client = kind(await payment_to_thief(account)), payer_of(account)
        attack.early(client)
        if account is victim:
            http = open_unguarded(world, client)
        else:
            http = guarded_httpx(world, client, setup_of(world, tmp_path))
        attack.late(client)
        async with http:
            outcomes = await ask_each(http, world, ["known"])
    assert world.list_signed(victim) == {"known"}, outcomes
    assert world.list_signed(protected) == set()
    assert "signed-differs" in outcomes["known"].error


async def test_attacks_in_typescript_obtain_no_payment(world: SellerWorld, tmp_path: Path) -> None:
    victim, protected = await world.wallet(), await world.wallet()
    setup = setup_of(world, tmp_path).for_node()
    guard = {name: setup[name] for name in ("bundle", "key")}
    script = SCRIPT.with_name("attacking_client.mjs")
    url = world.url("known")
    answers = []
    for account, options in ((victim, {}), (protected, {"guard": guard})):
        order = {"key": account.key, "url": url, "thief": THIEF, "otherToken": OTHER_TOKEN}
        answers.append(await node_answer(world, order | options, script))
    attacks = {attack for attack, *_ in answers[0]}
    assert world.list_signed(victim) == attacks
    assert len(attacks) == 9
    assert world.list_signed(protected) == set(), answers[1]
