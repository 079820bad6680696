"""The signers of offers, verified by a probe with the documents of a real host."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from joserfc.jwk import OKPKey
from joserfc.jws import serialize_compact
from tests.support.lint_envelopes import V2, change_envelope
from tests.support.probe_loop import START, Clock, endpoint
from tests.support.tls_server import Reply, TlsServer, tls_server

from tollgauge.clients.egress.client import Egress
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.probe.probe import PAYABLE_WITH_ERRORS, ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.monitor.probing import Prober

HOST = "api.example.com"
URL = f"https://{HOST}/weather"
DID = f"did:web:{HOST}"
DID_PATH, JWKS_PATH = "/.well-known/did.json", "/.well-known/jwks.json"
KEY = OKPKey.generate_key("Ed25519")
OWNER, OTHER = Account.from_key("0x" + "11" * 32), Account.from_key("0x" + "22" * 32)
PAID = change_envelope(V2, "accepts.0.payTo", OWNER.address)
TERMS = {
    "version": 1,
    "resourceUrl": URL,
    **{
        name: PAID["accepts"][0][name] for name in ("scheme", "network", "asset", "payTo", "amount")
    },
    "validUntil": 0,
}
TEXT = [
    {"name": name, "type": "string"}
    for name in ("resourceUrl", "scheme", "network", "asset", "payTo", "amount")
]
NUMBER = {"name": "version", "type": "uint256"}, {"name": "validUntil", "type": "uint256"}


def jws_offer(key: OKPKey, **changes: object) -> dict[str, object]:
    header = {"alg": "Ed25519", "kid": f"{DID}#key-1"}
    token = serialize_compact(header, json.dumps(TERMS | changes), key, algorithms=["Ed25519"])
    return {"format": "jws", "signature": token}


def wallet_offer(account: Any) -> dict[str, object]:
    domain = {"name": "x402 offer", "version": "1", "chainId": 1}
    message = encode_typed_data(domain, {"Offer": [NUMBER[0], *TEXT, NUMBER[1]]}, TERMS)
    signature = account.sign_message(message).signature.hex()
    return {"format": "eip712", "payload": TERMS, "signature": "0x" + signature}


def reply(document: object) -> Reply:
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def did_document(key: OKPKey) -> Reply:
    method = {"id": f"{DID}#key-1", "publicKeyJwk": key.as_dict(private=False)}
    return reply({"id": DID, "verificationMethod": [method]})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(HOST, tmp_path_factory.mktemp("seller")) as running:
        yield running


@pytest.fixture
async def egress(server: TlsServer) -> AsyncIterator[Egress]:
    server.reset()
    async with server.open_egress(user_agent="tollgauge-test") as egress:
        yield egress


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
def prober(store: Store, egress: Egress) -> Prober:
    return Prober(store=store, egress=egress, clock=Clock(), cadence=Cadence(host_gap_ms=0))


def sell(server: TlsServer, offer: object, **documents: Reply) -> None:
    """A seller that answers 402 with one signed offer, and publishes documents."""
    envelope = copy.deepcopy(PAID)
    extension = {"info": {"offers": [offer]}, "schema": {"type": "object"}}
    envelope["extensions"]["offer-receipt"] = extension
    value = base64.b64encode(json.dumps(envelope).encode()).decode()
    headers = {
        "PAYMENT-REQUIRED": value,
        "Cache-Control": "no-store",
        "Access-Control-Expose-Headers": "PAYMENT-REQUIRED, PAYMENT-RESPONSE",
    }
    files = {DID_PATH: documents.get("did"), JWKS_PATH: documents.get("jwks")}
    server.answer = lambda path: files.get(path, (402, headers, b"")) or (404, {}, b"")


async def probe(prober: Prober) -> ProbeResult:
    seen = await prober.probe_secondary(endpoint(URL))
    assert seen.result.status == 402
    return seen.result


def about_offers(result: ProbeResult) -> list[str]:
    return [finding.rule for finding in result.findings if finding.rule.startswith("signed-offer")]


async def test_offer_of_payto_is_verified_without_another_request(
    server: TlsServer, prober: Prober
) -> None:
    sell(server, wallet_offer(OWNER))
    result = await probe(prober)
    assert (about_offers(result), result.compliance, server.asked) == ([], 100, ["/weather"])


@pytest.mark.parametrize("path", ["did", "jwks"])
async def test_offer_with_a_published_key_is_valid(
    server: TlsServer, prober: Prober, path: str
) -> None:
    jwk = {**KEY.as_dict(private=False), "kid": "key-1"}
    document = did_document(KEY) if path == "did" else reply({"keys": [jwk]})
    sell(server, jws_offer(KEY), **{path: document})
    result = await probe(prober)
    assert (about_offers(result), result.compliance) == ([], 100)
    assert server.asked == ["/weather", DID_PATH, JWKS_PATH]


@pytest.mark.parametrize(
    "offer",
    [
        "garbage",
        jws_offer(KEY, amount="1"),
        jws_offer(OKPKey.generate_key("Ed25519")),
        wallet_offer(OTHER),
    ],
)
async def test_invalid_offer_lowers_compliance(
    server: TlsServer, prober: Prober, offer: object
) -> None:
    sell(server, offer, did=did_document(KEY))
    result = await probe(prober)
    assert about_offers(result) == ["signed-offer-mismatch"]
    assert (result.payable, result.compliant) == (True, False)
    assert result.compliance == PAYABLE_WITH_ERRORS


@pytest.mark.parametrize(
    "document", [(503, {}, b""), (200, {}, b"<html>"), (302, {"Location": "/x"}, b"")]
)
async def test_unreadable_document_leaves_a_note(
    server: TlsServer, prober: Prober, document: Reply
) -> None:
    sell(server, jws_offer(KEY), did=document)
    result = await probe(prober)
    assert (about_offers(result), result.compliance) == (["signed-offer-unchecked"], 100)


@pytest.mark.parametrize(("controller", "rules"), [(OTHER, []), (OWNER, ["mismatch"])])
async def test_controllers_are_read_from_dns(
    server: TlsServer, store: Store, controller: Any, rules: list[str]
) -> None:
    asked = []

    def look_up(name: str) -> list[str]:
        asked.append(name)
        return [f"v=1;controller=did:pkh:eip155:1:{controller.address}"]

    server.reset()
    sell(server, wallet_offer(OTHER))
    async with server.open_egress(texts=look_up) as egress:
        prober = Prober(store=store, egress=egress, clock=Clock(), cadence=Cadence(host_gap_ms=0))
        result = await probe(prober)
    assert about_offers(result) == [f"signed-offer-{rule}" for rule in rules]
    assert asked == [f"_controllers.{HOST}"]


async def test_unavailable_name_server_leaves_a_note(server: TlsServer, store: Store) -> None:
    def fail(_name: str) -> list[str]:
        raise OSError

    server.reset()
    sell(server, wallet_offer(OTHER))
    async with server.open_egress(texts=fail) as egress:
        prober = Prober(store=store, egress=egress, clock=Clock(), cadence=Cadence(host_gap_ms=0))
        result = await probe(prober)
    assert (about_offers(result), result.compliance) == (["signed-offer-unchecked"], 100)


async def test_documents_are_cached_for_an_hour(server: TlsServer, prober: Prober) -> None:
    clock = prober.clock
    assert isinstance(clock, Clock)
    sell(server, jws_offer(KEY), did=did_document(KEY))
    for after, fetched in ((0, 1), (HOUR_MS - 1, 1), (HOUR_MS, 2)):
        clock.now = START + after
        assert about_offers(await probe(prober)) == []
        assert server.asked.count(DID_PATH) == fetched
