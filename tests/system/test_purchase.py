"""Buying a report in the demo world: a real chain, a real facilitator, real sellers on TLS, and the
official clients of both languages.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import trustme
from eth_account import Account
from eth_account.messages import encode_typed_data
from sqlalchemy import Connection
from tests.support.paying_clients import node
from tests.support.storefront import list_only
from tests.support.token_balance import balance
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentRequired

from tollgauge import app
from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.identity import Perimeter, parse_resource
from tollgauge.core.sale.payment import decode
from tollgauge.core.sale.payment_state import Proof, State
from tollgauge.core.score.scoring import recompute
from tollgauge.db import schema
from tollgauge.demo.buyer import buy
from tollgauge.demo.seed import configuration, prepare
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.serving import serve
from tollgauge.demo.world import World
from tollgauge.store.ledger import payments
from tollgauge.store.probes import probes
from tollgauge.web import routes as web
from tollgauge.web.paid import gate, live_probe
from tollgauge.web.paid.products import trust

ROOT = Path(__file__).resolve().parents[2]
WEATHER = "https://weather.example/v1/current"
HOST = "weather.example"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass(frozen=True)
class Business:
    """The running service and its world."""

    world: World
    service: app.Opened
    url: str

    async def income(self) -> int:
        return await balance(self.world.chain, self.world.pay_to)

    async def newest_ticket(self) -> str:
        (row,) = await self.service.store.reading(payments.latest, limit=1)
        return decode(row.header).ticket

    async def header(self) -> str:
        """Return a signed payment for one report."""
        async with httpx.AsyncClient(timeout=30, verify=public_authorities()) as http:
            challenge = await http.post(f"{self.url}/v1/x402-trust")
        client = x402Client()
        signer = EthAccountSigner(Account.from_key(self.world.buyer.key))
        register_exact_evm_client(client, signer, networks="eip155:8453")
        signed = await client.create_payment_payload(
            PaymentRequired.model_validate(challenge.json())
        )
        return base64.b64encode(
            signed.model_dump_json(by_alias=True, exclude_none=True).encode()
        ).decode()

    async def ask(self, resource: object, header: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=30, verify=public_authorities()) as http:
            return await http.post(
                f"{self.url}/v1/x402-trust",
                json={"resource": resource},
                headers={"PAYMENT-SIGNATURE": header},
            )


@contextlib.asynccontextmanager
async def run_service(world: World, **changes: Any) -> AsyncIterator[Business]:
    """Start the service in the world, on its own port."""
    config = configuration(world, port=0, store_url="sqlite://")
    config = replace(config, **changes)
    async with app.open_resources(config) as service:
        services = service.server()
        async with serve(web.create(services)) as port:
            yield Business(world, service, f"http://127.0.0.1:{port}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world() -> AsyncIterator[World]:
    async with World.start(clock=app.now_ms) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def business(world: World) -> AsyncIterator[Business]:
    async with run_service(world) as business:
        list_only(world, "weather", "fx")
        await prepare(business.service, history_days=0, report=lambda *_: None)
        yield business


async def test_official_python_client_buys_a_report(business: Business) -> None:
    before = await business.income()
    bought = await buy(business.url, WEATHER, account=business.world.buyer)
    assert bought.report["resource"] == WEATHER
    assert bought.report["liveProbe"]["outcome"] == "payment-required"
    assert bought.amount == 5_000
    assert await business.income() - before == 5_000
    receipt = await business.world.chain.rpc("eth_getTransactionReceipt", bought.transaction)
    assert receipt["status"] == "0x1"
    assert await business.newest_ticket(), "the client repeats the ticket of its 402"


async def test_official_typescript_client_buys_a_report(business: Business) -> None:
    before = await business.income()
    process = await asyncio.create_subprocess_exec(
        node(),
        str(ROOT / "scripts" / "buy-report.mjs"),
        business.url,
        WEATHER,
        business.world.buyer.key,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    bought = json.loads(out)
    assert bought["status"] == 200
    assert bought["report"]["grade"] in "ABCDF"
    assert await business.income() - before == 5_000
    assert await business.newest_ticket(), "the client repeats the ticket of its 402"


async def test_report_can_be_recomputed_from_its_evidence(business: Business) -> None:
    bought = await buy(business.url, WEATHER, account=business.world.buyer)
    async with httpx.AsyncClient(
        timeout=30, base_url=business.url, verify=public_authorities()
    ) as http:
        evidence = await http.get(f"/evidence/{bought.report['evidence']['digest']}")
    assert hashlib.sha256(evidence.content).hexdigest() == bought.report["evidence"]["digest"]
    again = recompute(evidence.content)
    assert again.score_tenths == round(bought.report["score"] * 10)
    assert again.grade == bought.report["grade"]


async def test_payment_sent_twice_settles_once(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a delay of a busy machine does not matter here
    monkeypatch.setattr(gate, "POLL_DELAYS_S", (0.1,) * 600)
    before = await business.income()
    header = await business.header()
    first, second = await asyncio.gather(
        business.ask(WEATHER, header), business.ask(WEATHER, header)
    )
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert (await business.ask(WEATHER + "/other", header)).status_code == 409
    assert await business.income() - before == 5_000


async def test_invalid_input_with_a_valid_payment_charges_nothing(business: Business) -> None:
    before = await business.income()
    header = await business.header()
    cases = (
        (None, "invalid-input"),
        (7, "resource-invalid"),
        ("", "resource-invalid"),
        ("http://weather.example/v1/current", "resource-not-https"),
        ("https://127.0.0.1/", "resource-not-public"),
        ("https://169.254.169.254/latest", "resource-not-public"),
        ("https://localhost/", "resource-not-public"),
        ("https://user@weather.example/", "resource-invalid"),
    )
    for resource, code in cases:
        answer = await business.ask(resource, header)
        assert (answer.status_code, answer.json()["code"]) == (422, code), resource
        assert answer.headers["content-type"] == "application/problem+json"
    assert await business.income() == before
    assert (await business.ask(WEATHER, header)).status_code == 200, "the payment is still valid"


async def test_report_on_an_unreachable_target_is_charged(business: Business) -> None:
    dead = next(s for s in SELLERS if s.kind == "dead")
    before = await business.income()
    bought = await buy(business.url, dead.url, account=business.world.buyer)
    assert bought.report["liveProbe"]["outcome"] == "connect-failure"
    assert bought.report["stats"]["uptime30d"] == 0
    assert await business.income() - before == 5_000


async def test_unlisted_resource_is_probed_adopted_and_reported(business: Business) -> None:
    resource = "https://weather.example/v9/never-listed"
    header = await business.header()
    bought = await business.ask(resource, header)
    report = bought.json()
    assert (report["resource"], report["stats"]["uptime30d"]) == (resource, 0)
    assert "first-contact" in report["flags"]
    assert report["confidence"] < 0.2
    async with httpx.AsyncClient(timeout=30, verify=public_authorities()) as http:
        known = await http.get(f"{business.url}/trust/snapshot", params={"resource": resource})
        host = await http.get(f"{business.url}/provider/{HOST}")
    assert known.status_code == 404, "it was never seen to sell: only its buyer knows it"
    assert "never-listed" not in host.text
    endpoint = parse_resource(resource, Perimeter(mapped=frozenset({HOST})))
    store = business.service.store
    await store.writing(_age, endpoint.id)
    assert (await business.service.round("prune"))["unlisted"] == 1
    again = await business.ask(resource, header)
    assert again.json() == report, "the ledger stores the response"


def _age(tx: Connection, endpoint_id: str) -> None:
    """Make an endpoint look as if it had been known for more than a week."""
    known = schema.endpoint.update().where(schema.endpoint.c.id == endpoint_id)
    tx.execute(known.values(first_seen=app.now_ms() - 8 * DAY_MS))


async def test_callers_within_ten_seconds_share_one_live_probe(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live_probe.SHARE_MS == 10_000
    for module in (live_probe, trust):  # on a busy machine, three purchases may take longer
        monkeypatch.setattr(module, "SHARE_MS", HOUR_MS)
    resource = "https://fx.example/v2/rates"
    one, other = await asyncio.gather(
        *(buy(business.url, resource, account=business.world.buyer) for _ in range(2))
    )
    third = await buy(business.url, resource, account=business.world.buyer)
    assert one.transaction != other.transaction
    assert one.report["liveProbe"]["at"] == other.report["liveProbe"]["at"]
    assert third.report["liveProbe"]["at"] == one.report["liveProbe"]["at"]
    assert third.report["evidence"] in (one.report["evidence"], other.report["evidence"])


async def test_local_fault_is_503_and_charges_nothing(world: World) -> None:
    dead = next(s for s in SELLERS if s.kind == "dead")
    config = configuration(world, port=0, store_url="sqlite://")
    offline = replace(config.probe, references=(dead.url,))
    async with run_service(world, probe=offline) as lonely:
        before = await lonely.income()
        answer = await lonely.ask(dead.url, await lonely.header())
        assert (answer.status_code, answer.json()["code"]) == (503, "probe-failed-here")
        assert "Retry-After" in answer.headers
        assert await lonely.income() == before


async def test_own_tls_outage_is_503_and_charges_nothing(world: World, tmp_path: Path) -> None:
    """Use trust anchors that verify neither the sellers nor the reference."""
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    config = configuration(world, port=0, store_url="sqlite://")
    assert config.probe.references
    unsure = replace(config.egress, ca_file=str(tmp_path / "other.pem"))
    async with run_service(world, egress=unsure, sources=()) as lonely:
        before = await lonely.income()
        for _ in range(2):
            answer = await lonely.ask(WEATHER, await lonely.header())
            assert (answer.status_code, answer.json()["code"]) == (503, "probe-failed-here")
        assert await lonely.income() == before


async def test_unresolvable_name_without_references_costs_nothing(world: World) -> None:
    """Without references, a faulty local resolver looks like a faulty domain."""

    def nobody(host: str, *_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    config = configuration(world, port=0, store_url="sqlite://")
    alone = replace(config.probe, references=())
    deaf = replace(config.egress, resolver=nobody)
    async with run_service(world, probe=alone, egress=deaf, sources=()) as lonely:
        before = await lonely.income()
        answer = await lonely.ask("https://shop.nowhere.com/x", await lonely.header())
        assert (answer.status_code, answer.json()["code"]) == (503, "probe-failed-here")
        assert await lonely.income() == before


async def test_lost_settlement_is_proven_by_the_chain(business: Business) -> None:
    """Query a real node as the reconciler does, for each of its results."""
    chain = business.service.chain
    assert chain is not None
    header = await business.header()
    assert (await business.ask(WEATHER, header)).status_code == 200
    row = (await business.service.store.reading(payments.latest, limit=1))[0]
    assert row.state is State.SETTLED
    wanted = row.authorization
    for hint in (None, row.transaction):
        paid = await chain.proof(wanted, hint=hint)
        assert (paid.proof, paid.transaction) == (Proof.PAID, row.transaction)
    dearer = await chain.proof(replace(wanted, value=row.amount + 1))
    assert dearer.proof is Proof.OTHER
    unused = await chain.proof(replace(wanted, nonce="0x" + "99" * 32))
    assert unused.proof is Proof.UNUSED
    cancelled = "0x" + "55" * 32
    await cancel(business.world, cancelled)
    answer = await chain.proof(replace(wanted, nonce=cancelled))
    assert answer.proof is Proof.CANCELLED


async def cancel(world: World, nonce: str) -> None:
    """Cancel an authorization of the buyer on chain (EIP-3009)."""
    fields = {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "CancelAuthorization": [
            {"name": "authorizer", "type": "address"},
            {"name": "nonce", "type": "bytes32"},
        ],
    }
    message = encode_typed_data(
        full_message={
            "types": fields,
            "primaryType": "CancelAuthorization",
            "domain": {
                "name": "USD Coin",
                "version": "2",
                "chainId": 8453,
                "verifyingContract": USDC,
            },
            "message": {"authorizer": world.buyer.address, "nonce": bytes.fromhex(nonce[2:])},
        }
    )
    signed = Account.sign_message(message, world.buyer.key)
    words = (
        world.buyer.address[2:].lower().rjust(64, "0"),
        nonce[2:],
        f"{signed.v:064x}",
        f"{signed.r:064x}",
        f"{signed.s:064x}",
    )
    # 0x5a049a70: cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)
    call = {"from": world.buyer.address, "to": USDC, "data": "0x5a049a70" + "".join(words)}
    await world.chain.check(await world.chain.send([call]))


async def test_archive_contains_every_probe_of_the_round(business: Business) -> None:
    from tollgauge.core.endpoint.identity import endpoint_id

    history = await business.service.store.reading(
        probes.history, endpoint_id(WEATHER), since=0, until=app.now_ms()
    )
    assert history
    assert all(result.compliant for result in history), [r.findings for r in history]
