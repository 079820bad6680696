"""Rejected purchases of a watch, and the rows that a purchase stores."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.support.receivers import ALERTS, SLACK
from tests.support.statements import fetch
from tests.support.watch_service import (
    CREATE,
    RESOURCE,
    WatchService,
    open_watch_service,
    path,
)

from tollgauge.store.watches import watches


async def test_destinations_receive_nothing_before_verification(
    watch_service: WatchService,
) -> None:
    body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    payer_limit = await watch_service.running.http.post(CREATE, json=body)
    assert payer_limit.status_code == 402
    assert watch_service.receivers.got == []


WRONG: list[tuple[Any, str]] = [
    ({}, "resource"),
    ({"endpoint": "http://api.example.com/x"}, "endpoint"),
    ({"endpoint": RESOURCE, "resource": "https://api.example.com/y"}, "endpoint"),
    ({"endpoint": RESOURCE, "events": []}, "events"),
    ({"endpoint": RESOURCE, "events": ["rain"]}, "events[0]"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": 0}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": 11}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": True}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "digest": "daily"}, "digest"),
    ({"endpoint": RESOURCE, "delivery": []}, "delivery"),
    ({"endpoint": RESOURCE, "delivery": {"webhook": "x"}}, "delivery.webhook"),
    (
        {"endpoint": RESOURCE, "delivery": {"webhook_url": "http://a.example.com/"}},
        "delivery.webhook_url",
    ),
    (
        {"endpoint": RESOURCE, "delivery": {"webhook_url": ["https://10.0.0.1/x"]}},
        "delivery.webhook_url[0]",
    ),
    (
        {"endpoint": RESOURCE, "delivery": {"slack_url": ["https://a.example.com/"] * 6}},
        "delivery.slack_url",
    ),
]


async def test_invalid_requests_are_422_before_any_charge(watch_service: WatchService) -> None:
    for body, where in WRONG:
        answer = await watch_service.ask(CREATE, body)
        assert answer.status_code == 422, body
        assert answer.json()["errors"][0]["path"] == where
    assert not watch_service.asked


async def test_watches_are_not_sold_without_a_key_and_old_ones_continue(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'watch_service.db'}"
    async with open_watch_service(url, tmp_path) as watch_service:
        bought = await watch_service.buy()
    async with open_watch_service(url, tmp_path, key="") as watch_service:
        for more in ({}, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}):
            refused = await watch_service.ask(CREATE, {"endpoint": RESOURCE, **more})
            assert (refused.status_code, refused.json()["code"]) == (503, "watches-unavailable")
            assert refused.json()["notCharged"] is True
        assert not watch_service.asked
        assert (await watch_service.poll(bought))["state"] == "active"
        edited = await watch_service.patch(
            bought, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}
        )
        assert (edited.status_code, edited.json()["code"]) == (503, "destinations-unavailable")
        assert (await watch_service.ask(path(bought, "/renew"), {})).status_code == 200


async def test_secrets_are_stored_hashed_and_urls_encrypted(
    watch_service: WatchService,
) -> None:
    url = f"https://{SLACK}/services/T/B/verysecretpath"
    signed = watch_service.payment(ticket="of the 402")
    body = {
        "endpoint": RESOURCE,
        "delivery": {"slack_url": url, "webhook_url": f"https://{ALERTS}/otherpath1234567"},
    }
    answer = await watch_service.ask(CREATE, body, payment=signed)
    bought = answer.json()
    key = base64.b64decode(bought["secret"].removeprefix("whsec_"))
    dump = []
    for table in ("watch", "destination", "delivery", "payment", "watch_event", "flip"):
        for row in (await fetch(watch_service.store, sa.text(f"SELECT * FROM {table}"))).all():
            dump += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    whole = b"\n".join(dump)
    secret = bought["secret"].encode()
    for hidden in (secret, key, key.hex().encode(), b"verysecretpath", b"otherpath"):
        assert hidden not in whole
    assert hashlib.sha256(secret).hexdigest().encode() in whole
    again = await watch_service.ask(CREATE, body, payment=signed)
    assert again.json() == bought
    assert watch_service.asked["/settle"] == 1


async def test_unsettled_payment_does_not_start_a_watch(watch_service: WatchService) -> None:
    watch_service.settles.append(False)
    answer = await watch_service.ask(CREATE, {"endpoint": RESOURCE})
    assert answer.status_code in (402, 503)
    await watch_service.alert()
    latest = await watch_service.store.reading(watches.latest, limit=5)
    assert {watch.state.value for watch in latest} <= {"pending"}
    assert (await watch_service.endpoint()).watched_until == 0
