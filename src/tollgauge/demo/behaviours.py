"""Behaviours of sellers, correct and faulty: each is a small pure function.

`play` routes a request to the seller's behaviour. A behaviour with one fault modifies the correct
envelope. Responses of the same seller and offer are the same object, so that their lint results can
be cached.

Faults below HTTP (closed ports, bad certificates) are not here: see seller.Wire.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.envelopes import Json, v1_envelope, v2_envelope
from tollgauge.demo.pseudorandom import chance, roll
from tollgauge.demo.seller import (
    Behaviour,
    DemoOffer,
    DemoRequest,
    Reply,
    Seller,
    offer_at,
    on_route,
)

Twist = Callable[[Json], Json]

_JSON: Final = ("content-type", "application/json")
_CAREFUL: Final = (
    _JSON,
    ("cache-control", "no-store"),
    ("access-control-allow-origin", "*"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)
_HUGE: Final = b'{"preview":"' + b"lorem ipsum " * 60_000 + b'"}'
"""Longer than the 512 KB that a prober reads."""


def play(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Return the seller's response to a request at `now`."""
    if not on_route(seller, request.path):
        return problem(404, "No such route")
    if request.method != seller.method:
        return problem(405, "Method not allowed", ("allow", seller.method))
    return seller.behave(seller, request, now)


def problem(status: int, message: str, *headers: tuple[str, str]) -> Reply:
    """Return a JSON error without an envelope."""
    body = json.dumps({"error": message}).encode()
    return Reply(answer=Answer(status=status, headers=(_JSON, *headers), body=body))


# Correct responses


def perfect_v2(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Correct x402 v2: the header, its extension, CORS, and no caching."""
    return Reply(answer=_v2(seller, offer_at(seller, now), request.path))


def perfect_v1(seller: Seller, _request: DemoRequest, now: int) -> Reply:
    """Correct x402 v1: the envelope in the body."""
    return Reply(answer=_v1(seller, offer_at(seller, now)))


def dual(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """A v2 header for new clients and a v1 body for old ones."""
    offer = offer_at(seller, now)
    body = _v1(seller, offer).body
    return Reply(answer=_v2(seller, offer, request.path, body=body))


def header_only(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """A v2 header with an empty body."""
    return Reply(answer=_v2(seller, offer_at(seller, now), request.path, body=b""))


def plain_v2(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Payable v2 without CORS, cache headers or discovery metadata: warnings, but no errors."""
    return Reply(
        answer=_v2(
            seller, offer_at(seller, now), request.path, twist=_without_bazaar, headers=(_JSON,)
        )
    )


# One fault


def twist_envelope(twist: Twist) -> Behaviour:
    """Return a behaviour with one change in the v2 envelope."""

    def behave(seller: Seller, request: DemoRequest, now: int) -> Reply:
        return Reply(answer=_v2(seller, offer_at(seller, now), request.path, twist=twist))

    return behave


def bare_network(envelope: Json) -> Json:
    """The network's v1 name in a v2 envelope."""
    return _with_entry(envelope, network="base")


def no_domain_name(envelope: Json) -> Json:
    """Without the EIP-712 name: only the official Python client can sign."""
    return _with_entry(envelope, extra={"version": "2"})


def wrong_domain_name(envelope: Json) -> Json:
    """The symbol instead of the EIP-712 name: signatures for Base's USDC do not verify."""
    return _with_entry(envelope, extra={"name": "USDC", "version": "2"})


def decimal_amount(envelope: Json) -> Json:
    """Dollars instead of atomic units."""
    return _with_entry(envelope, amount="0.01")


def v1_amount_field(envelope: Json) -> Json:
    """The amount's v1 name in a v2 envelope."""
    entry = dict(envelope["accepts"][0])
    entry["maxAmountRequired"] = entry.pop("amount")
    return envelope | {"accepts": [entry]}


def text_version(envelope: Json) -> Json:
    """The version as a string."""
    return envelope | {"x402Version": "2"}


def internal_url(envelope: Json) -> Json:
    """The internal address behind the proxy as the resource."""
    resource = envelope["resource"] | {"url": "http://10.0.3.7:8080/v1/track"}
    return envelope | {"resource": resource}


def nothing_accepted(envelope: Json) -> Json:
    """A 402 with an empty `accepts`."""
    return envelope | {"accepts": []}


def base64url(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """The header in the URL-safe alphabet without padding, which official clients reject."""
    answer = _v2(seller, offer_at(seller, now), request.path)
    headers = tuple(
        (name, value.translate(str.maketrans("+/", "-_", "=")))
        if name == "payment-required"
        else (name, value)
        for name, value in answer.headers
    )
    return Reply(answer=Answer(status=402, headers=headers, body=answer.body))


def huge_body(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """A correct header with a body that is too long to read."""
    return Reply(answer=_v2(seller, offer_at(seller, now), request.path, body=_HUGE))


# Responses without payment terms


def slow(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """A correct response after several seconds."""
    answer = _v2(seller, offer_at(seller, now), request.path)
    return Reply(answer=answer, delay_ms=1_800 + roll(seller.host, now // MINUTE_MS) % 1_400)


def flap(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Randomly up or down in each period of ten minutes."""
    if chance(330, "flap", seller.host, now // (10 * MINUTE_MS)):
        return problem(503, "upstream connect error or disconnect/reset before headers")
    return perfect_v2(seller, request, now)


def fail_with(status: int, message: str, *headers: tuple[str, str]) -> Behaviour:
    """Return a behaviour with a constant error."""

    def behave(_seller: Seller, _request: DemoRequest, _now: int) -> Reply:
        return problem(status, message, *headers)

    return behave


def validate_first(status: int, field: str) -> Behaviour:
    """Return a behaviour that validates the input before it requests payment."""

    def behave(seller: Seller, request: DemoRequest, now: int) -> Reply:
        if field not in request.query and field.encode() not in request.body:
            return problem(status, f"Missing required field: {field}")
        return perfect_v2(seller, request, now)

    return behave


def throttle(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Rate limited most of the time."""
    if chance(700, "throttle", seller.host, now // (30 * MINUTE_MS)):
        return problem(429, "Too many requests", ("retry-after", "900"))
    return perfect_v2(seller, request, now)


def redirect(seller: Seller, _request: DemoRequest, _now: int) -> Reply:
    """Redirects to a host that is not listed."""
    target = f"https://new-{seller.host}{seller.path}"
    return Reply(answer=Answer(status=308, headers=(("location", target),)))


def give_away(seller: Seller, _request: DemoRequest, _now: int) -> Reply:
    """Returns its product without payment."""
    return Reply(answer=Answer(status=200, headers=(_JSON,), body=seller.example.encode()))


def challenge_page(_seller: Seller, _request: DemoRequest, _now: int) -> Reply:
    """A bot challenge in front of the paid route."""
    body = b"<!doctype html><title>Just a moment...</title><p>Checking your browser.</p>"
    headers = (("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store"))
    return Reply(answer=Answer(status=403, headers=headers, body=body))


# Construction of responses


def _without_bazaar(envelope: Json) -> Json:
    return {key: value for key, value in envelope.items() if key != "extensions"}


def _with_entry(envelope: Json, **changes: object) -> Json:
    return envelope | {"accepts": [envelope["accepts"][0] | changes]}


def _keep(envelope: Json) -> Json:
    return envelope


@lru_cache(maxsize=2048)
def _v2(
    seller: Seller,
    offer: DemoOffer,
    path: str,
    *,
    twist: Twist = _keep,
    headers: tuple[tuple[str, str], ...] = _CAREFUL,
    body: bytes = b"{}",
) -> Answer:
    envelope = twist(v2_envelope(seller, offer, path))
    text = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False)
    header = ("payment-required", base64.b64encode(text.encode()).decode())
    return Answer(status=402, headers=(*headers, header), body=body)


@lru_cache(maxsize=2048)
def _v1(seller: Seller, offer: DemoOffer) -> Answer:
    body = json.dumps(v1_envelope(seller, offer), separators=(",", ":")).encode()
    return Answer(status=402, headers=_CAREFUL, body=body)
