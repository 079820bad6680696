"""Deliveries over real TLS to a real receiver, verified with the public library."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from tests.support.receivers import ALERTS, DISCORD, SLACK, Receivers, receivers

from tollgauge.clients import webhooks
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.webhooks import Sealer, SealError, Sent, WatchSettings
from tollgauge.core.watch import alert_text, changes
from tollgauge.core.watch.watch_rules import DestinationKind

KEY = bytes(range(32))
SECRET = webhooks.new_secret(KEY)
TOLD = alert_text.build_event(
    changes.delisting(at=1_795_000_000_000, source="cdp"),
    event_id="evt_0123",
    watch_id="wat_1",
    resource="https://api.example.com/weather",
    page="https://trust.example.com/endpoint/1",
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Receivers]:
    async with receivers(tmp_path) as world:
        yield world


@pytest.fixture
async def egress(world: Receivers) -> AsyncIterator[Egress]:
    client = Egress(world.egress(deadline_ms=3_000))
    client.start()
    yield client
    await client.close()


async def send(egress: Egress, host: str, kind: DestinationKind, path: str = "/hook") -> Sent:
    now = time.time_ns() // 1_000_000
    url = f"https://{host}{path}"
    return await webhooks.send(egress, url=url, kind=kind, event=TOLD, key=KEY, now=now)


async def test_public_library_verifies_a_delivery_with_the_secret(
    world: Receivers, egress: Egress
) -> None:
    assert (await send(egress, ALERTS, DestinationKind.JSON)).ok
    (delivery,) = world.got
    assert Webhook(SECRET).verify(delivery.body, delivery.headers) == json.loads(json.dumps(TOLD))
    assert delivery.headers["webhook-id"] == "evt_0123"
    assert delivery.headers["content-type"] == "application/json"


async def test_public_library_rejects_a_changed_delivery(world: Receivers, egress: Egress) -> None:
    await send(egress, ALERTS, DestinationKind.JSON)
    (delivery,) = world.got
    forged = delivery.body.replace(b"delisting", b"relisting")
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(forged, delivery.headers)
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(delivery.body, delivery.headers)


async def test_x_signature_is_keyed_by_the_hex_hash_of_the_secret(
    world: Receivers, egress: Egress
) -> None:
    await send(egress, ALERTS, DestinationKind.JSON)
    (delivery,) = world.got
    key = hashlib.sha256(SECRET.encode()).hexdigest().encode()
    wanted = hmac.new(key, delivery.body, hashlib.sha256).hexdigest()
    assert delivery.headers["x-signature"] == f"sha256={wanted}"


async def test_slack_gets_blocks_and_no_signature(world: Receivers, egress: Egress) -> None:
    assert (await send(egress, SLACK, DestinationKind.SLACK, "/services/T/B/x")).ok
    (delivery,) = world.got
    assert delivery.path == "/services/T/B/x"
    assert [block["type"] for block in delivery.json["blocks"]][:2] == ["header", "section"]
    assert delivery.json["text"].startswith("Delisted: api.example.com")
    assert "webhook-signature" not in delivery.headers


async def test_discord_gets_an_embed_without_mentions(world: Receivers, egress: Egress) -> None:
    assert (await send(egress, DISCORD, DestinationKind.DISCORD, "/api/webhooks/1/x")).ok
    (delivery,) = world.got
    assert delivery.json["allowed_mentions"] == {"parse": []}
    assert delivery.json["embeds"][0]["url"] == "https://trust.example.com/endpoint/1"


@pytest.mark.parametrize(
    ("status", "kind", "ok", "gone"),
    [
        (200, DestinationKind.JSON, True, False),
        (204, DestinationKind.JSON, True, False),
        (301, DestinationKind.JSON, False, False),
        (404, DestinationKind.JSON, False, False),
        (410, DestinationKind.JSON, False, True),
        (404, DestinationKind.SLACK, False, True),
        (410, DestinationKind.SLACK, False, True),
        (403, DestinationKind.SLACK, False, False),
        (404, DestinationKind.DISCORD, False, True),
        (401, DestinationKind.DISCORD, False, True),
        (429, DestinationKind.DISCORD, False, False),
        (500, DestinationKind.JSON, False, False),
    ],
)
async def test_only_2xx_is_success_and_some_statuses_are_final(
    world: Receivers, egress: Egress, status: int, kind: DestinationKind, ok: bool, gone: bool
) -> None:
    world.answers[ALERTS] = [status]
    sent = await send(egress, ALERTS, kind)
    assert (sent.ok, sent.gone, sent.status) == (ok, gone, status)


async def test_retry_after_is_read_in_both_forms(world: Receivers, egress: Egress) -> None:
    world.answers[ALERTS] = [429, 503, 503]
    world.headers[ALERTS] = {"retry-after": "7"}
    assert (await send(egress, ALERTS, DestinationKind.JSON)).retry_after_ms == 7_000
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    world.headers[ALERTS] = {"retry-after": later}
    waited = (await send(egress, ALERTS, DestinationKind.JSON)).retry_after_ms
    assert waited is not None
    assert 90_000 < waited <= 100_000
    world.headers[ALERTS] = {"retry-after": "soon"}
    assert (await send(egress, ALERTS, DestinationKind.JSON)).retry_after_ms is None


async def test_unresponsive_receiver_fails_within_the_deadline(
    world: Receivers, egress: Egress
) -> None:
    world.stuck.add(ALERTS)
    async with asyncio.timeout(15):
        sent = await send(egress, ALERTS, DestinationKind.JSON)
    assert (sent.ok, sent.error) == (False, "timeout")


async def test_non_public_destination_is_never_contacted(egress: Egress) -> None:
    sent = await send(egress, "169.254.169.254", DestinationKind.JSON)
    assert (sent.ok, sent.error) == (False, "address-not-public")


def test_sealed_secret_opens_only_in_its_own_row() -> None:
    sealer = Sealer.of("k" * 32)
    sealed = sealer.seal(b"https://hooks.slack.com/services/x", context="destination:1")
    assert b"slack" not in sealed
    assert sealer.open(sealed, context="destination:1") == b"https://hooks.slack.com/services/x"
    for other, context in ((sealer, "destination:2"), (Sealer.of("j" * 32), "destination:1")):
        with pytest.raises(SealError):
            other.open(sealed, context=context)
    assert sealed != sealer.seal(b"https://hooks.slack.com/services/x", context="destination:1")


def test_new_key_opens_secrets_sealed_with_the_old_one() -> None:
    old, new = "o" * 32, "n" * 40
    sealed = Sealer.of(old).seal(b"x", context="c")
    both = Sealer.of(f"{new}, {old}")
    assert both.open(sealed, context="c") == b"x"
    assert Sealer.of(new).open(both.seal(b"y", context="c"), context="c") == b"y"


def test_short_key_is_rejected_and_a_missing_key_is_allowed() -> None:
    with pytest.raises(ValueError, match="32 characters"):
        WatchSettings(key="short")
    assert not WatchSettings().sealer.ready


def test_secret_contains_its_own_key() -> None:
    assert webhooks.secret_key(SECRET) == KEY
    assert webhooks.secret_key(SECRET.removeprefix("whsec_")) is None
    assert webhooks.secret_key("whsec_AAAA") is None
