"""Commands that request a URL: `quote` fetches a 402 without paying and prints the decision, and
`unresolved retry` sends an open payment again.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

import httpx
from pydantic import ValidationError
from x402.http.utils import decode_payment_signature_header
from x402.http.x402_http_client_base import x402HTTPClientBase
from x402.schemas.v1 import PaymentRequiredV1

from tollgauge_guard.decision import Allow, Ask, Asked, Decision, Refuse, Spent, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.lookup import look_up
from tollgauge_guard.offer import Offer, read_offer
from tollgauge_guard.payment import SETTLE_MARGIN_S, Event, Payment, State
from tollgauge_guard.purchase import find_offer
from tollgauge_guard.purchase_key import url_digest
from tollgauge_guard.receipt import classify_answer, read_answer
from tollgauge_guard.resource import parse
from tollgauge_guard.units import dollars

_PAYMENT_REQUIRED: Final = 402
_TIMEOUT_S: Final = 30.0


def quote(guard: Guard, options: argparse.Namespace) -> int:
    """Print the decision about each offer of a URL. Returns 0 if one would be paid."""
    offers = _fetch_offers(options.url, options.method, options.data)
    decisions = [decide_now(guard, options.url, offer) for offer in offers]
    for offer, decision in zip(offers, decisions, strict=True):
        row = _describe(offer, decision)
        if options.json:
            print(json.dumps(row))
        else:
            if isinstance(decision, Refuse):  # then the token may be an unknown one
                price = f"{offer.amount} units"
            else:
                price = dollars(decision.terms.exposure)
            print(f"{row['decision']}  {price} to {offer.pay_to} on {offer.network}")
            if row["code"] is not None:
                print(f"       {row['code']}: {row['reason']} {row['remedy']}".rstrip())
    return 0 if any(isinstance(decision, Allow) for decision in decisions) else 1


def decide_now(guard: Guard, url: str, offer: Offer) -> Decision:
    """Decide about an offer of a URL, as if nothing was spent. Raises ResourceError."""
    known = look_up(guard.bundles.current(), parse(url), (), offer.pay_to)
    return decide(known, offer, Asked(url=url), guard.policy, guard.now, Spent())


def retry(guard: Guard, payment: Payment, options: argparse.Namespace) -> int:
    """Send an open payment again to its own URL, after a fresh decision, and print the answer.

    Raises:
        GuardError: it cannot be sent again, or is not paid by an offer of the new 402.
    """
    url, resource = options.url, parse(options.url)
    is_valid = payment.valid_before - guard.now > SETTLE_MARGIN_S
    offers = _fetch_offers(url, options.method, options.data)
    offer = find_offer(payment, url_digest(url), resource.url, offers)
    if payment.state is not State.OPEN or not is_valid or offer is None:
        raise GuardError(
            f"The payment {payment.handle} cannot be sent to {url} again.",
            hint="It must be open and valid, for this URL, and its offer must be in the new 402.",
        )
    decision = decide_now(guard, url, offer)
    if not isinstance(decision, Allow):
        raise GuardError(f"{decision.code}: {decision.reason} Nothing was sent.")
    headers = _encode_headers(str(payment.payload))
    if not guard.change(payment, Event.SEND):
        raise GuardError("Another program is sending this payment. Nothing was sent.")
    try:
        answer = _request(url, options.method, options.data, headers)
    except BaseException:
        guard.journal.change(payment.id, Event.NO_ANSWER, guard.now)
        raise
    read = read_answer(answer.status_code, answer.headers.get)
    settlement = read.transaction or payment.settlement
    hint: dict[str, Any] = {"status": read.status, "settlement": settlement}
    guard.journal.change(payment.id, classify_answer(read), guard.now, **hint)
    print(f"{url} answered {answer.status_code}.", file=sys.stderr)
    print(answer.text)
    return 0 if answer.is_success else 1


def _encode_headers(header: str) -> dict[str, str]:
    """Return the header that carries a payment, by the version of its payload."""
    return x402HTTPClientBase().encode_payment_signature_header(
        decode_payment_signature_header(header)
    )


def _fetch_offers(url: str, method: str, data: str | None) -> list[Offer]:
    """Return the offers of the 402 that answers a request without a payment."""
    answer = _request(url, method, data, {})
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


def _request(url: str, method: str, data: str | None, headers: dict[str, str]) -> httpx.Response:
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as http:
            return http.request(method, url, content=data, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GuardError(f"{url} does not answer ({type(error).__name__}).") from error


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
