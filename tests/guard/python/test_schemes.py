"""Payments by Permit2, upto, Solana and batch-settlement, as the official clients sign them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import BASE, PAYEE, Row
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from tests.support.guard_seller import (
    ACCOUNT,
    CASES_FOLDER,
    OTHER_PAYEE,
    Answer,
    Seller,
    receipt,
)
from x402 import x402Client
from x402.extensions.sign_in_with_x import (
    SIGN_IN_WITH_X,
    parse_siwx_header,
    verify_siwx_signature,
)
from x402.mechanisms.evm.batch_settlement.client.scheme import BatchSettlementEvmScheme
from x402.mechanisms.evm.exact import ExactEvmScheme
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.mechanisms.svm import constants as svm
from x402.mechanisms.svm.exact import ExactSvmScheme
from x402.mechanisms.svm.mint_cache import MintMetadata
from x402.mechanisms.svm.signers import KeypairSigner
from x402.schemas import PaymentPayload

from tollgauge_guard import (
    Code,
    GuardedClient,
    PaymentRefusedError,
    Policy,
    State,
    guarded,
)
from tollgauge_guard.authorization import SignedError
from tollgauge_guard.budget import Exposure
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.nodes import NodeReader, Reading
from tollgauge_guard.payment import Evidence, Payment
from tollgauge_guard.signed import read_signed

SOLANA = svm.SOLANA_MAINNET_CAIP2
SOLANA_WALLET = Keypair.from_seed(b"\x11" * 32)
SOLANA_PAYEE = str(Keypair.from_seed(b"\x12" * 32).pubkey())
FEE_PAYER = str(Keypair.from_seed(b"\x13" * 32).pubkey())
FACILITATOR = "0x402085c248EeA27D92E8b30b2C58ed07f9E20001"
USDC_EXTRA = {"name": "USD Coin", "version": "2"}
Open = Callable[..., GuardedClient]


def wallet() -> x402Client:
    """A client with every scheme that the guard supports; no node is queried when it signs."""
    client = x402Client()
    client.register("eip155:*", ExactEvmScheme(ACCOUNT))
    client.register("eip155:*", UptoEvmScheme(ACCOUNT))
    client.register("eip155:*", BatchSettlementEvmScheme(ACCOUNT))
    solana = ExactSvmScheme(KeypairSigner(SOLANA_WALLET))
    mint, program = svm.USDC_MAINNET_ADDRESS, Pubkey.from_string(svm.TOKEN_PROGRAM_ADDRESS)
    solana._mint_cache[SOLANA, mint] = MintMetadata(decimals=6, token_program=program)
    solana._clients[SOLANA] = None  # type: ignore[assignment]  # the offer has a blockhash
    client.register("solana:*", solana)
    client.set_spend_controls(False)
    return client


@pytest.fixture
def opened(seller: Seller, known: Callable[..., Row], bundle_of: Callable[..., Bundle]) -> Open:
    def make(**options: Any) -> GuardedClient:
        bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
        usual: dict[str, Any] = {"journal": ":memory:"}
        transport = httpx.AsyncHTTPTransport(verify=False)
        client = options.pop("client", None) or wallet()
        return guarded(client, bundle=bundle, transport=transport, **usual | options)

    return make


def by_permit2(offer: dict[str, Any]) -> None:
    offer["extra"] = USDC_EXTRA | {"assetTransferMethod": "permit2"}


def by_upto(offer: dict[str, Any]) -> None:
    offer["scheme"] = "upto"
    offer["extra"] = USDC_EXTRA | {
        "assetTransferMethod": "permit2",
        "facilitatorAddress": FACILITATOR,
    }


def by_channel(offer: dict[str, Any]) -> None:
    offer |= {"scheme": "batch-settlement", "amount": "1000"}
    offer["extra"] = USDC_EXTRA | {"receiverAuthorizer": OTHER_PAYEE, "withdrawDelay": 900}


def by_solana(offer: dict[str, Any]) -> None:
    offer |= {"network": SOLANA, "asset": svm.USDC_MAINNET_ADDRESS, "payTo": SOLANA_PAYEE}
    offer["extra"] = {"feePayer": FEE_PAYER, "recentBlockhash": "1" * 32}


async def pay(http: GuardedClient, url: str) -> Payment:
    answer = await http.get(url)
    assert answer.status_code == 200
    payment = http.guard.payment(answer)
    assert payment is not None
    assert payment.state is State.DELIVERED
    return payment


@pytest.mark.parametrize(
    ("ask", "scheme", "method", "exposure"),
    [
        (by_permit2, "exact", "permit2", 5_000),
        (by_upto, "upto", "permit2", 5_000),
        (by_channel, "batch-settlement", "channel", 5_000),
        (by_solana, "exact", "solana", 5_000),
    ],
)
async def test_payload_of_official_client_is_read_and_paid(
    seller: Seller,
    opened: Open,
    ask: Callable[[dict[str, Any]], None],
    scheme: str,
    method: str,
    exposure: int,
) -> None:
    seller.ask = ask
    path = "/other" if ask is by_solana else "/data"
    async with opened() as http:
        payment = await pay(http, f"{seller.url}{path}")
    assert (payment.scheme, payment.method) == (scheme, method)
    assert payment.exposure == exposure
    assert len(seller.payments) == 1


@pytest.mark.parametrize("ask", [by_permit2, by_upto, by_channel, by_solana])
async def test_open_payment_of_any_scheme_is_sent_again(
    seller: Seller, opened: Open, ask: Callable[[dict[str, Any]], None]
) -> None:
    seller.ask, seller.answer = ask, lambda _call: Answer(503)
    async with opened() as http:
        for _ in range(2):
            await http.get(f"{seller.url}/other")
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/other")).status_code == 200
        assert len(http.guard.journal.payments()) == 1
    first, *others = seller.payments
    assert others == [first, first]


class SignInWire(httpx.AsyncHTTPTransport):
    """Answers requests that signed in, if the official extension accepts their signature."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.signed_in: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        header = request.headers.get(SIGN_IN_WITH_X)
        if header is None:
            return await super().handle_async_request(request)
        proof = parse_siwx_header(header)
        assert (await verify_siwx_signature(proof)).is_valid
        self.signed_in.append(proof.address)
        return httpx.Response(200, text="kept for you")


@pytest.mark.parametrize("statement", [None, "Sign in to your purchase"])
async def test_lost_answer_to_a_solana_payment_is_requested_by_signing_in(
    seller: Seller, bundle_of: Callable[..., Bundle], statement: str | None
) -> None:
    def declare(required: dict[str, Any]) -> None:
        info: dict[str, Any] = {"domain": f"127.0.0.1:{seller.port}", "version": "1"}
        info |= {"uri": required["resource"]["url"], "nonce": "0123456789abcdef"}
        info |= {"issuedAt": "2026-01-01T00:00:00Z", "requestId": "7"}
        info |= {} if statement is None else {"statement": statement}
        chains = [{"chainId": BASE, "type": "eip191"}, {"chainId": SOLANA, "type": "ed25519"}]
        required["extensions"] = {SIGN_IN_WITH_X: {"info": info, "supportedChains": chains}}

    seller.ask, seller.change, wire = by_solana, declare, SignInWire()
    seller.answer = lambda _call: Answer(503)
    account, bundle = KeypairSigner(SOLANA_WALLET), FixedBundle(bundle_of({}))
    async with guarded(
        wallet(), bundle=bundle, transport=wire, journal=":memory:", sign_in=account
    ) as http:
        assert (await http.get(f"{seller.url}/other")).status_code == 503
        answer = await http.get(f"{seller.url}/other")
        payment = http.guard.payment(answer)
    assert answer.text == "kept for you"
    assert payment is not None
    assert payment.state is State.DELIVERED
    assert wire.signed_in == [payment.payer] == [account.address]
    assert len(seller.payments) == 1


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], Callable[[Any], None]]] = {
    "Permit2: another recipient": (
        by_permit2,
        lambda signed: signed["permit2Authorization"]["witness"].update(to=OTHER_PAYEE),
    ),
    "Permit2: another spender": (
        by_permit2,
        lambda signed: signed["permit2Authorization"].update(spender=OTHER_PAYEE),
    ),
    "Permit2: a higher amount": (
        by_permit2,
        lambda signed: signed["permit2Authorization"]["permitted"].update(amount="6000"),
    ),
    "Permit2: a later deadline": (
        by_permit2,
        lambda signed: signed["permit2Authorization"].update(deadline="99999999999"),
    ),
    "Permit2: another nonce": (
        by_permit2,
        lambda signed: signed["permit2Authorization"].update(nonce="7"),
    ),
    "upto: another facilitator": (
        by_upto,
        lambda signed: signed["permit2Authorization"]["witness"].update(facilitator=OTHER_PAYEE),
    ),
    "channel: another receiver": (
        by_channel,
        lambda signed: signed["channelConfig"].update(receiver=OTHER_PAYEE),
    ),
    "channel: a higher deposit": (
        by_channel,
        lambda signed: signed["deposit"].update(amount="5001"),
    ),
    "channel: a voucher of another channel": (
        by_channel,
        lambda signed: signed["voucher"].update(channelId="0x" + "11" * 32),
    ),
    "something in addition": (by_permit2, lambda signed: signed.update(more={})),
}


@pytest.mark.parametrize("name", TAMPERED)
async def test_payment_that_differs_from_the_allowed_one_is_not_sent(
    seller: Seller, opened: Open, name: str
) -> None:
    seller.ask, change = TAMPERED[name]
    client = wallet()

    def tamper(context: Any) -> None:
        change(context.payment_payload.payload)

    client.on_after_payment_creation(tamper)  # runs before the guard's own
    async with opened(client=client) as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        assert http.guard.journal.payments() == ()
    assert refused.value.code == Code.SIGNED_DIFFERS
    assert not seller.payments


async def test_solana_payment_to_another_account_does_not_leave(
    seller: Seller, opened: Open
) -> None:
    seller.ask = by_solana
    client = wallet()

    def redirect(context: Any) -> None:
        context.payment_payload.accepted.pay_to = FEE_PAYER

    client.on_after_payment_creation(redirect)
    async with opened(client=client) as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/other")
    assert refused.value.code == Code.SIGNED_DIFFERS
    assert not seller.payments


async def test_announced_deposit_is_the_exposure(seller: Seller, opened: Open) -> None:
    def large(offer: dict[str, Any]) -> None:
        by_channel(offer)
        offer["extra"]["minDeposit"] = "5000000"

    seller.ask = large
    async with opened() as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.OVER_CALL_CAP
    assert not seller.payments


async def test_no_second_voucher_of_a_channel_while_a_call_is_unanswered(
    seller: Seller, opened: Open
) -> None:
    seller.ask, seller.answer = by_channel, lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data?other")
    assert refused.value.code == Code.PAYMENT_UNRESOLVED
    assert len(seller.payments) == 1


async def test_wallet_that_can_sign_approvals_does_not_sign_one(
    seller: Seller, opened: Open
) -> None:
    class Signer:
        """A wallet that can read and sign transactions, as the gas extensions need."""

        def __init__(self) -> None:
            self.address, self.transactions = ACCOUNT.address, 0

        def sign_typed_data(self, *_arguments: Any) -> bytes:
            raise AssertionError("nothing may be signed")

        def read_contract(self, *_arguments: Any) -> int:
            return 0

        def sign_transaction(self, _transaction: Any) -> str:
            self.transactions += 1
            return "0x"

        def get_transaction_count(self, _address: str) -> int:
            return 0

        def estimate_fees_per_gas(self) -> tuple[int, int]:
            return 1, 1

    def declare(required: dict[str, Any]) -> None:
        entry = {"info": {"version": "1"}, "schema": {"type": "object"}}
        required["extensions"] = {"erc20ApprovalGasSponsoring": entry}

    seller.ask, seller.change = by_permit2, declare
    client, signer = x402Client(), Signer()
    client.register("eip155:*", ExactEvmScheme(signer))
    async with opened(client=client) as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.EXTENSION_SIGNS
    assert signer.transactions == 0


@pytest.mark.parametrize("scheme", ["auth-capture", "deferred"])
async def test_other_schemes_are_refused_by_name(seller: Seller, opened: Open, scheme: str) -> None:
    class Scheme(ExactEvmScheme):
        pass

    Scheme.scheme = scheme
    seller.ask = lambda offer: offer.update(scheme=scheme)
    client = wallet()
    client.register("eip155:*", Scheme(ACCOUNT))
    async with opened(client=client) as http:
        with pytest.raises(PaymentRefusedError, match=scheme) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.SCHEME_UNSUPPORTED
    assert not seller.payments


def node(answers: dict[str, Any]) -> NodeReader:
    """A Solana node that answers each method with a value, or by a function of its parameters."""

    def respond(request: httpx.Request) -> httpx.Response:
        call = json.loads(request.content)
        found = answers[call["method"]]
        result = found(*call["params"]) if callable(found) else found
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": result})

    return NodeReader({SOLANA: "http://node.example"}, transport=httpx.MockTransport(respond))


GENESIS = SOLANA.removeprefix("solana:") + "xxxxxxxxxxxx"


@pytest.mark.parametrize(
    ("height", "found", "evidence"),
    [
        (250, None, Evidence.UNUSED),
        (251, None, Evidence.DEAD),
        (251, {"err": None}, Evidence.USED),
        (10, {"err": None}, Evidence.USED),
        (251, {"err": {"InstructionError": [2, "Custom"]}}, Evidence.DEAD),
    ],
)
async def test_solana_payment_is_found_by_the_payer_s_signature(
    seller: Seller, opened: Open, height: int, found: Any, evidence: Evidence
) -> None:
    seller.ask, seller.answer = by_solana, lambda _call: Answer(503)
    block = {"value": {"blockhash": "1" * 32, "lastValidBlockHeight": 250}}
    async with opened() as http:
        http.guard.nodes = node({"getLatestBlockhash": block})
        await http.get(f"{seller.url}/other")
        (payment,) = http.guard.unresolved()
    assert payment.valid_height == 250
    known = json.loads(str(payment.evidence))
    signatures = [] if found is None else [{"signature": "of the fee payer", "blockTime": None}]
    reader = node(
        {
            "getGenesisHash": GENESIS,
            "getBlockHeight": height,
            "getSignaturesForAddress": lambda account, _options: (
                signatures if account == known["account"] else []
            ),
            "getTransaction": {
                "transaction": {"signatures": ["of the fee payer", payment.nonce]},
                "meta": found,
            },
        }
    )
    assert reader.read(payment) == Reading(evidence)
    other = node({"getGenesisHash": "x" * 44})
    assert other.read(payment) == Reading(Evidence.UNKNOWN)


async def test_settled_amount_of_upto_is_read_from_the_log(seller: Seller, opened: Open) -> None:
    seller.ask = by_upto
    async with opened() as http:
        payment = await pay(http, f"{seller.url}/data")
        nonce = str(payment.nonce)
        calls = {
            "eth_chainId": "0x2105",
            "eth_blockNumber": "0x100",
            "eth_call": f"0x{1 << (int(nonce, 16) & 0xFF):064x}",
            "eth_getLogs": [
                {"transactionHash": "0x01", "data": hex(9_999)},
                {"transactionHash": "0x02", "data": hex(1_200)},
            ],
            "eth_getTransactionByHash": lambda name: {
                "input": "0x00" if name == "0x01" else f"0xabcdef{nonce[2:]}"
            },
        }

        def respond(request: httpx.Request) -> httpx.Response:
            call = json.loads(request.content)
            answer: Any = calls[call["method"]]
            result = answer(*call["params"]) if callable(answer) else answer
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": result})

        transport = httpx.MockTransport(respond)
        http.guard.nodes = NodeReader({payment.network: "http://node.example"}, transport=transport)
        for _ in range(2):  # reading the chain again gives nothing more back
            settled = http.guard.resolve(payment.handle)
            assert (settled.state, settled.exposure) == (State.DELIVERED, 1_200)
        assert http.guard.journal.sum_spent(where(payment)).lifetime == 1_200


def where(payment: Payment) -> Exposure:
    return Exposure(
        account=payment.account,
        network=payment.network,
        asset=payment.asset,
        host=payment.host,
        session=payment.session,
        at=payment.at,
    )


async def test_allowed_extension_is_echoed(seller: Seller, opened: Open) -> None:
    """A wallet that cannot sign more pays a seller that sponsors gas."""

    def declare(required: dict[str, Any]) -> None:
        entry = {"info": {"version": "1"}, "schema": {"type": "object"}}
        required["extensions"] = {"eip2612GasSponsoring": entry}

    seller.ask, seller.change = by_permit2, declare
    async with opened(policy=Policy()) as http:
        payment = await pay(http, f"{seller.url}/data")
    assert payment.pay_to == PAYEE


@pytest.mark.parametrize(
    "case",
    json.loads((CASES_FOLDER / "signed.json").read_text(encoding="utf-8")),
    ids=lambda case: case["name"],
)
def test_signed_payment_of_the_shared_table(case: dict[str, Any]) -> None:
    payment, expected = PaymentPayload.model_validate(case["payment"]), case["authorization"]
    if expected is None:
        with pytest.raises(SignedError):
            read_signed(payment)
        return

    signed = read_signed(payment)

    assert {
        "scheme": signed.scheme,
        "method": signed.method,
        "network": signed.network,
        "asset": signed.asset,
        "payer": signed.payer,
        "payTo": signed.pay_to,
        "value": str(signed.value),
        "validBefore": signed.valid_before,
        "nonce": signed.nonce,
        "facilitator": signed.facilitator,
        "exposed": None if signed.exposed is None else str(signed.exposed),
    } == {name: value for name, value in expected.items() if name != "account"}
    if expected["account"] is not None:
        evidence = {"account": expected["account"], "signature": expected["nonce"]}
        assert json.loads(str(signed.evidence)) == evidence
