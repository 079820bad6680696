"""The trust report: how long callers share the report of a probe, and how it is signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support import http_service, paid_service
from tests.support.databases import on_sqlite
from tests.support.http_service import NOW, WEATHER, Running, configuration, open_service
from tests.support.ledger_world import held_claim
from tests.support.paid_service import PaidService, header
from tests.support.probe_rows import record_probe
from tests.support.signing import KEY, OTHER_KEY, canonical, header_of
from tests.support.statements import execute

from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.core.sale.signature import SIGNATURE_HEADER
from tollgauge.db import schema
from tollgauge.monitor.reports.trust_reports import TrustReport, live
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import attempts
from tollgauge.store.scores import scores
from tollgauge.web import routes
from tollgauge.web.paid.live_probe import SHARE_MS
from tollgauge.web.paid.products import trust
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import short, trust_report

TRUST = "/v1/x402-trust"
ORDER = {"resource": WEATHER, "evidence": "full"}
ENDPOINT = Endpoint(
    id=endpoint_id(WEATHER),
    resource=WEATHER,
    host="weather.example",
    first_seen=NOW - 1_000,
    last_seen=NOW - 1_000,
)
PROBE = ProbeResult(
    at=NOW,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    status=402,
    timings=Timings(total=80),
)


@pytest.fixture
async def running(database: str) -> AsyncIterator[Running]:
    async with open_service(configuration(store_url=database)) as service:
        yield service


async def buy_report(running: Running, *, verified_after_ms: int) -> dict[str, object]:
    """The report of a sale whose payment is claimed now and verified after a while."""
    sale = trust.PRODUCT.sale(running.service.server())
    order = sale.validate({"resource": WEATHER})
    claim = await held_claim(running.service.store, now=running.clock())
    seen = await running.service.store.reading(sale.check, order)
    await execute(
        running.service.store, schema.score.delete()
    )  # only the report read with the claim is left
    running.clock.now += verified_after_ms
    body = await sale.compute(order, HeldClaim(store=claim.store, row=claim.row, seen=seen))
    report: dict[str, object] = orjson.loads(body)
    return report


async def sell_report(running: Running) -> bytes:
    """Store a report of the probe as an earlier sale did."""

    def sell(tx: Connection) -> TrustReport:
        endpoints.insert(tx, ENDPOINT)
        record_probe(tx, ENDPOINT.id, PROBE)
        earlier = live(tx, ENDPOINT, PROBE, cadence=NORMAL, now=NOW + 100)
        scores.save(tx, earlier.row)
        return earlier

    running.clock.now += 1_000
    report = await running.service.store.writing(sell)
    return dump(short(trust_report(report, base_url=running.service.base_url)))


async def test_report_read_with_the_claim_is_returned(running: Running) -> None:
    before = orjson.loads(await sell_report(running))
    assert await buy_report(running, verified_after_ms=SHARE_MS - 2_000) == before


async def test_recent_probe_without_a_score_is_scored_and_not_repeated(running: Running) -> None:
    before = orjson.loads(await sell_report(running))
    await execute(running.service.store, schema.score.delete())
    report = await buy_report(running, verified_after_ms=SHARE_MS - 2_000)
    assert report["liveProbe"] == before["liveProbe"]
    assert report["evidence"] != before["evidence"]  # as of a later time


async def test_probe_that_expired_during_verification_is_repeated(
    running: Running,
) -> None:
    before = orjson.loads(await sell_report(running))
    report = await buy_report(running, verified_after_ms=SHARE_MS - 1_000)
    assert report["liveProbe"] != before["liveProbe"]


@pytest.fixture
async def shop(database: str) -> AsyncIterator[PaidService]:
    """A service that can sell the report of a probe that it has just made."""
    async with paid_service.open_paid_service(database, PaidService) as service:
        await sell_report(service.running)
        yield service


async def test_paid_report_is_signed_and_bound_to_its_payment(shop: PaidService) -> None:
    payment = shop.payment(TRUST)
    answer = await shop.post(TRUST, ORDER, paid=header(payment))

    assert answer.status_code == 200
    assert "document" in answer.json()["evidence"]
    signed = payment["payload"]["authorization"]
    body = json.dumps(ORDER, sort_keys=True, separators=(",", ":")).encode()
    parts = [hashlib.sha256(part).digest() for part in (b"POST", TRUST.encode(), body)]
    assert header_of(answer.headers[SIGNATURE_HEADER], canonical(answer.content)) == {
        "alg": "EdDSA",
        "b64": False,
        "crit": ["b64"],
        "kid": KEY.fingerprint,
        "typ": "tollgauge-report",
        "iat": shop.running.clock() // 1000,
        "requestDigest": hashlib.sha256(b"\n".join(parts)).hexdigest(),
        "payer": signed["from"],
        "nonce": signed["nonce"],
    }


async def test_repeated_payment_returns_the_same_signed_report(shop: PaidService) -> None:
    paid = header(shop.payment(TRUST))
    first = await shop.post(TRUST, ORDER, paid=paid)
    shop.running.clock.now += 60_000
    again = await shop.post(TRUST, ORDER, paid=paid)

    assert again.content == first.content
    one, other = (
        header_of(a.headers[SIGNATURE_HEADER], canonical(a.content)) for a in (first, again)
    )
    assert (one.pop("iat"), other.pop("iat")) == (NOW // 1000 + 1, NOW // 1000 + 61)
    assert one == other


@on_sqlite
async def test_report_sold_under_an_old_key_is_signed_by_the_current_key(
    shop: PaidService,
) -> None:
    paid = header(shop.payment(TRUST))
    first = await shop.post(TRUST, ORDER, paid=paid)
    rotated = replace(shop.running.service.server(), signing_key=OTHER_KEY)
    async with http_service.client(routes.create(rotated)) as http:
        again = await http.post(TRUST, json=ORDER, headers={"PAYMENT-SIGNATURE": paid})

    assert again.content == first.content
    header_of(again.headers[SIGNATURE_HEADER], canonical(again.content), OTHER_KEY)


@on_sqlite
async def test_unpaid_responses_are_not_signed(shop: PaidService) -> None:
    unpaid = await shop.running.http.post(TRUST, json=ORDER)
    invalid = await shop.post(TRUST, {})

    assert (unpaid.status_code, invalid.status_code) == (402, 422)
    assert SIGNATURE_HEADER not in unpaid.headers
    assert SIGNATURE_HEADER not in invalid.headers


@on_sqlite
async def test_report_is_sold_unsigned_without_a_key(shop: PaidService) -> None:
    unsigned = replace(shop.running.service.server(), signing_key=None)
    async with http_service.client(routes.create(unsigned)) as http:
        paid = header(shop.payment(TRUST))
        answer = await http.post(TRUST, json=ORDER, headers={"PAYMENT-SIGNATURE": paid})

    assert answer.status_code == 200
    assert SIGNATURE_HEADER not in answer.headers


@on_sqlite
async def test_paid_answer_that_cannot_be_signed_is_sent_unsigned(shop: PaidService) -> None:
    paid = header(shop.payment(TRUST))
    assert (await shop.post(TRUST, ORDER, paid=paid)).status_code == 200
    body = b'{"count":9007199254740993}'  # has no canonical form
    await execute(shop.store, sa.update(attempts.payment_answer).values(body=body))

    again = await shop.post(TRUST, ORDER, paid=paid)

    assert (again.status_code, again.content) == (200, body)
    assert SIGNATURE_HEADER not in again.headers
