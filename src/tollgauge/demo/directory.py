"""The Bazaar listing of the demo market, as a facilitator publishes it.

`items_at` is pure: it returns the listing at a time, with the current prices, payees and members.
Like a real directory it mixes v1 and v2 items and ISO and Unix times, and contains some unusable
entries. Its pages are small, independently of the limit that a crawler requests.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.envelopes import Json, bazaar, v1_entry, v2_entry
from tollgauge.demo.pseudorandom import roll
from tollgauge.demo.seller import DOMAIN, DemoOffer, DemoRequest, Seller, is_listed, offer_at
from tollgauge.demo.sellers import SELLERS

DIRECTORY_HOST: Final = f"directory.{DOMAIN}"
DIRECTORY_PATH: Final = "/discovery/resources"
PAGE_MAX: Final = 25
_BARE_NETWORK: Final = "wrong-network"

MALFORMED: Final[tuple[Any, ...]] = (
    {"type": "http", "x402Version": 2, "accepts": [], "lastUpdated": 1_767_429_328},
    {"resource": "agents://bridge-club/table/4", "type": "http", "x402Version": 2, "accepts": []},
    {"resource": "http://localhost:3000/api/paid", "type": "http", "x402Version": 1},
    {"resource": "https://10.0.0.8/pay", "type": "http", "x402Version": 1, "accepts": "none"},
    None,
)
"""Unusable entries as in real directories: no resource, not a URL, a loopback address, a private
address, an empty entry."""


def items_at(at: int, *, present: int, sellers: tuple[Seller, ...] = SELLERS) -> list[Any]:
    """Return the directory's entries at `at`; `present` is the end of the history (both ms UTC)."""
    items: list[Any] = [
        _item(seller, at) for seller in sellers if is_listed(seller, at, present=present)
    ]
    for index, odd in enumerate(MALFORMED):
        items.insert((index + 1) * 9, odd)
    return items


def answer(request: DemoRequest, now: int, *, sellers: tuple[Seller, ...] = SELLERS) -> Answer:
    """Return the directory's response to a request at `now`."""
    if request.path != DIRECTORY_PATH or request.method != "GET":
        return _json(404, {"error": "not found"})
    query = parse_qs(request.query)
    limit = min(_number(query, "limit", PAGE_MAX), PAGE_MAX)
    offset = _number(query, "offset", 0)
    items = items_at(now, present=now, sellers=sellers)
    page = {
        "x402Version": 2,
        "items": items[offset : offset + limit],
        "pagination": {"limit": limit, "offset": offset, "total": len(items)},
    }
    return _json(200, page)


def _item(seller: Seller, at: int) -> Json:
    offer = offer_at(seller, at)
    if seller.listed_amount is not None:
        offer = DemoOffer(amount=seller.listed_amount, pay_to=offer.pay_to)
    updated = at // DAY_MS * DAY_MS - roll("updated", seller.host, at // DAY_MS) % (6 * HOUR_MS)
    return (
        _v1_item(seller, offer, updated)
        if seller.version == 1
        else _v2_item(seller, offer, updated)
    )


def _v1_item(seller: Seller, offer: DemoOffer, updated: int) -> Json:
    url = seller.url.replace("https://", "http://") if seller.listed_http else seller.url
    when = datetime.fromtimestamp(updated / 1000, UTC)
    return {
        "resource": url,
        "type": "http",
        "x402Version": 1,
        "accepts": [v1_entry(seller, offer) | {"resource": url}],
        "lastUpdated": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "metadata": {},
    }


def _v2_item(seller: Seller, offer: DemoOffer, updated: int) -> Json:
    entry = v2_entry(seller, offer)
    if seller.kind == _BARE_NETWORK:
        entry["network"] = "base"
    item: Json = {
        "resource": seller.url,
        "type": "http",
        "x402Version": 2,
        "accepts": [entry],
        "lastUpdated": updated // 1000,
        "description": seller.description,
        "mimeType": "application/json",
        "serviceName": seller.name,
        "tags": list(seller.tags),
    }
    if seller.declares:
        item["extensions"] = {"bazaar": bazaar(seller)}
    return item


def _number(query: dict[str, list[str]], key: str, default: int) -> int:
    text = query.get(key, [""])[0]
    return int(text) if text.isdecimal() and len(text) < 10 else default


def _json(status: int, value: object) -> Answer:
    headers = (("content-type", "application/json"), ("cache-control", "max-age=60"))
    return Answer(status=status, headers=headers, body=json.dumps(value).encode())
