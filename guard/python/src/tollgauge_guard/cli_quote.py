"""The command `quote`: a 402 without a payment, and the decision about each of its offers."""

from __future__ import annotations

import argparse
import json
import time
from typing import Final

import httpx
from pydantic import ValidationError
from x402.http.x402_http_client_base import x402HTTPClientBase
from x402.schemas.v1 import PaymentRequiredV1

from tollgauge_guard.decision import Ask, Asked, Decision, Refuse, Spent, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.lookup import look_up
from tollgauge_guard.offer import Offer, read_offer
from tollgauge_guard.resource import parse

_PAYMENT_REQUIRED: Final = 402
_TIMEOUT_S: Final = 30.0


def quote(guard: Guard, options: argparse.Namespace) -> int:
    """Print the decision about each offer of a URL. Returns 0 if one would be paid."""
    resource = parse(options.url)
    offers = _fetch(options.url, options.method, options.data)
    bundle, now = guard.bundles.current(), int(time.time())
    rows = []
    for offer in offers:
        known = look_up(bundle, resource, (), offer.pay_to)
        asked = Asked(url=options.url)
        decision = decide(known, offer, asked, guard.policy, now, Spent())
        rows.append(_describe(offer, decision))
    for row in rows:
        if options.json:
            print(json.dumps(row))
        else:
            print(f"{row['decision']}  {row['amount']} to {row['payTo']} on {row['network']}")
            if row["code"] is not None:
                print(f"       {row['code']}: {row['reason']} {row['remedy']}".rstrip())
    return 0 if any(row["decision"] == "allow" for row in rows) else 1


def _fetch(url: str, method: str, data: str | None) -> list[Offer]:
    """Return the offers of the 402 that answers a request without a payment."""
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as http:
            answer = http.request(method, url, content=data)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GuardError(f"{url} does not answer ({type(error).__name__}).") from error
    if answer.status_code != _PAYMENT_REQUIRED:
        raise GuardError(f"{url} answers {answer.status_code}, not 402.", hint="Nothing to pay.")
    try:
        body = answer.json()
    except ValueError:
        body = None
    try:
        header = answer.headers.get
        required = x402HTTPClientBase().get_payment_required_response(header, body)
    except (ValueError, ValidationError) as error:
        raise GuardError(f"The 402 of {url} cannot be read.") from error
    named = None if isinstance(required, PaymentRequiredV1) else required.resource
    resource = None if named is None else named.url
    version = required.x402_version
    accepts = [entry.model_dump(by_alias=True) for entry in required.accepts]
    return [read_offer(entry, resource, version) for entry in accepts]


def _describe(offer: Offer, decision: Decision) -> dict[str, object]:
    reasons: dict[str, object] = {"code": None, "reason": None, "remedy": ""}
    if isinstance(decision, (Ask, Refuse)):
        reasons |= {"code": decision.code, "reason": decision.reason}
    if isinstance(decision, Refuse):
        reasons["remedy"] = decision.remedy
    return {
        "scheme": offer.scheme,
        "network": offer.network,
        "amount": offer.amount,
        "payTo": offer.pay_to,
        "decision": type(decision).__name__.lower(),
        **reasons,
    }
