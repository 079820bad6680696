"""`POST /v1/watch-endpoint-30d`: 30 days of alerts.

Rules (docs/watching.md):
- destinations are tested after the payment is verified and before it is settled; a watch begins
  when its payment has settled (store/watches/watch_payments);
- an endpoint that has never asked for payment is probed before the charge. One that answers without
  asking for payment is refused, unless a directory lists it. One that is down is accepted, and the
  answer states that;
- the secret is 256 random bits, shown only in this answer. The ledger stores paid answers for 30
  days, to send them again to the same payment: this one is stored encrypted, so no watch is sold
  without a key;
- anyone can copy a payment without a ticket from the chain: such a request gets the answer without
  the secret, and how the payer gets another one (web/watches/watch_secret).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import ConfigDict, model_validator
from sqlalchemy import Connection

from tollgauge.clients import webhooks
from tollgauge.clients.webhooks import SealError, watch_context
from tollgauge.core.base.units import iso_seconds
from tollgauge.core.endpoint.identity import Endpoint, Listing, Resource
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.probe.outcome import OUTCOMES
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.sale.payment import WATCH_PATH
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import DestinationKind
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payer_limit
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.watches import watch_payments, watches
from tollgauge.store.watches.watches import Destination, Watch
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.paid.delivery_test import DeliveryTester
from tollgauge.web.paid.product import Call, PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import ProbedResource, RequestModel, invalid, refuse
from tollgauge.web.wire.response_model import OneOf, dump, from_attribute
from tollgauge.web.wire.watch_models import (
    SnakeCaseResponse,
    WatchFields,
    WholeSecond,
    links,
)

EXAMPLE: Final[dict[str, Any]] = {
    "endpoint": "https://api.example.com/weather",
    "events": ["payto_change", "price_change", "liveness_down", "liveness_recovered"],
    "liveness_sensitivity_n": 2,
    "delivery": {"webhook_url": "https://alerts.example.com/tollgauge"},
}
_KEEP: Final = "Store the secret: it is shown only once."
_ANSWER_CONTEXT: Final = "answer:watch"
_DOWN: Final = (
    "The endpoint is currently failing ({what}). You will receive an alert when it recovers, but "
    "none about the current outage."
)
_NO_TERMS: Final = (
    "The endpoint responds, but without readable payment terms ({what}). Until it returns terms, "
    "only its liveness and its listing are watched."
)


class TestResponse(SnakeCaseResponse):
    """The result of a destination's connection test; the URL is masked."""

    destination: str
    kind: Annotated[str, OneOf(DestinationKind)]
    ok: bool
    tries: int
    result: str


class DeliveryResponse(SnakeCaseResponse):
    """The results of the connection tests."""

    connection_test: list[TestResponse]


class WatchResponse(SnakeCaseResponse):
    """A new watch. `secret` is the bearer token of later requests and the key of webhook signatures
    (Standard Webhooks). It is shown only once: it is absent if the answer is requested again
    without the payment's ticket, and after a rotation.
    """

    watch_id: str = from_attribute("id")
    secret: str | None = None
    resource: str
    created_at: WholeSecond
    expires_at: WholeSecond
    events: list[str]
    liveness_sensitivity_n: int = from_attribute("sensitivity")
    digest: bool
    poll_url: str
    renew_url: str
    rotate_url: str
    edit_url: str
    cancel_url: str
    next_steps: list[str]
    delivery: DeliveryResponse


class _Watched(RequestModel):
    """The endpoint of a watch; published clients use both names."""

    endpoint: ProbedResource | None = None
    resource: ProbedResource | None = None


class CreateRequest(WatchFields, _Watched):
    """A watch of an endpoint."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["endpoint"]}, {"required": ["resource"]}]}
    )

    @model_validator(mode="after")
    def _check_names_one(self) -> Self:
        named = {resource.url for resource in (self.endpoint, self.resource) if resource}
        if not named:
            refuse(invalid("resource", "The resource is missing."))
        if len(named) > 1:
            refuse(invalid("endpoint", "endpoint and resource name different endpoints."))
        return self

    @property
    def watched(self) -> Resource:
        """The endpoint to watch."""
        resource = self.endpoint or self.resource
        assert resource is not None  # noqa: S101 - checked when it was read
        return resource


def _prepare(
    dependencies: PaidDependencies, request: CreateRequest, _call: Call | None
) -> CreateRequest:
    """Raises Problem 503 if no secret can be stored."""
    if not dependencies.sealer.ready:
        raise Problem(
            503,
            "watches-unavailable",
            "This server has no key to keep secrets with (TOLLGAUGE_WATCH_KEY), so it sells no "
            "watches. Nothing was charged.",
            retry_after=3600,
            extra={"notCharged": True},
        )
    return request


def _hosts(request: CreateRequest) -> tuple[str, ...]:
    deliveries = (payer_limit.for_delivery(target.host) for target in request.targets)
    return (payer_limit.for_probe(request.watched.host), *deliveries)


async def _create(
    dependencies: PaidDependencies, request: CreateRequest, claim: HeldClaim
) -> bytes:
    watch_id = f"wat_{secrets.token_hex(12)}"
    key = secrets.token_bytes(webhooks.SECRET_BYTES)
    secret = webhooks.new_secret(key)
    tester = DeliveryTester(dependencies)
    tested = await tester.test(
        request.targets, watch_id=watch_id, resource=request.watched.url, key=key
    )
    warnings = await _check_watchable(dependencies, request.watched, claim)
    now = dependencies.clock()
    sealed_key = None
    if any(target.kind is DestinationKind.JSON for target in request.targets):
        sealed_key = dependencies.sealer.seal(key, context=watch_context(watch_id))
    watch = Watch(
        id=watch_id,
        secret_hash=webhooks.secret_hash(secret),
        sealed_key=sealed_key,
        endpoint_id=request.watched.id,
        created_at=now,
        expires_at=now + rules.PERIOD_MS,
        watch_request=request.watch_request(),
    )
    destinations = tester.seal_targets(request.targets, watch_id=watch_id, now=now)
    await claim.writing(_add, request.watched, watch, destinations, payment_id=claim.payment_id)
    steps = [*warnings, *_next_steps(dependencies.base_url, watch)]
    answer = WatchResponse.build(
        watch,
        watch.watch_request,
        secret=secret,
        resource=request.watched.url,
        next_steps=steps,
        delivery=DeliveryResponse.build(connection_test=tested),
        **links(dependencies.base_url, watch_id),
    )
    sealed = dependencies.sealer.seal(dump(answer), context=_ANSWER_CONTEXT)
    return orjson.dumps({"sealed": sealed.hex()})


def _next_steps(base_url: str, watch: Watch) -> list[str]:
    urls = links(base_url, watch.id)
    return [
        _KEEP,
        f"Poll with GET {urls['poll_url']} and the header Authorization: Bearer <secret>.",
        "Verify deliveries with the secret and any Standard Webhooks library.",
        f"Renew before {iso_seconds(watch.expires_at)} with a paid POST {urls['renew_url']}.",
    ]


def _add(
    tx: Connection,
    resource: Resource,
    watch: Watch,
    destinations: Sequence[Destination],
    *,
    payment_id: str,
) -> None:
    """Add a watch, which its payment will start, and adopt its endpoint."""
    discovery.adopt(tx, resource, source=discovery.REQUESTED, now=watch.created_at)
    watch_payments.create(tx, watch, destinations, payment_id=payment_id)


async def _check_watchable(
    dependencies: PaidDependencies, resource: Resource, claim: HeldClaim
) -> list[str]:
    """Check that a resource can be watched, with a probe if it has never asked for payment.

    Returns warnings about its state for the buyer. Raises Problem 422 if it is not a pay-per-call
    endpoint, 503 if it could not be probed.
    """
    store = dependencies.store
    endpoint = await store.reading(endpoints.get, resource.id)
    state = (await store.reading(changes.change_states, [resource.id])).get(resource.id)
    listed = endpoint is not None and _was_listed(endpoint)
    if state is not None and state.seen_up and (listed or state.quote is not None):
        return [] if state.recent.endswith("1") else [_DOWN.format(what="the last check failed")]
    _, result = await dependencies.live.fresh_result(resource, claim, accept=_check_sells)
    if not listed:
        _check_sells(result)
    if result.quote is not None:
        return []
    what = f"HTTP {result.status}" if result.status else result.outcome.value
    return [(_NO_TERMS if result.up else _DOWN).format(what=what)]


def _was_listed(endpoint: Endpoint) -> bool:
    return endpoint.status is Listing.DELISTED or set(endpoint.sources) != {discovery.REQUESTED}


def _check_sells(result: ProbeResult) -> None:
    """Raise Problem 422 for a response without a payment challenge."""
    private = result.reason == FaultKind.NOT_PUBLIC.value
    if OUTCOMES[result.outcome].sells and not private:
        return
    what = f"HTTP {result.status}" if result.status else "no such public host"
    raise Problem(
        422,
        "nothing-to-watch",
        f"This endpoint has never returned a payment challenge, and does not now ({what}). Check "
        "the URL. Nothing was charged.",
        errors=(Invalid(path="endpoint", message=f"No payment challenge: {what}."),),
        extra={"notCharged": True},
    )


async def _reveal(dependencies: PaidDependencies, body: bytes, *, secret: bool) -> bytes:
    """Decrypt the stored answer, and remove the secret if it may not be shown or was rotated."""
    opened = _open_secret(dependencies, body)
    document = orjson.loads(opened)
    watch = await dependencies.store.reading(watches.get, document["watch_id"])
    hashed = webhooks.secret_hash(document["secret"])
    if secret and (watch is None or hmac.compare_digest(watch.secret_hash, hashed)):
        return opened
    del document["secret"]
    text = rules.rotation_text(document["watch_id"], dependencies.base_url, "<unix seconds>")
    document |= links(dependencies.base_url, document["watch_id"], "rotate_url")
    lost = (
        "The secret was shown once, in the first answer to this payment, or has been rotated. If "
        "you do not have it, rotate it: sign this text with the wallet that paid (personal_sign) "
        f"and POST signed_at and signature to {document['rotate_url']}: {text!r}"
    )
    # _KEEP is missing from an answer that an earlier version stored with another text.
    steps = (step for step in document["next_steps"] if step != _KEEP)
    return orjson.dumps(document | {"next_steps": [lost, *steps]})


def _open_secret(dependencies: PaidDependencies, body: bytes) -> bytes:
    try:
        sealed = bytes.fromhex(orjson.loads(body)["sealed"])
        return dependencies.sealer.open(sealed, context=_ANSWER_CONTEXT)
    except SealError as error:
        raise Problem(
            503,
            "answer-sealed",
            "The stored answer to this payment cannot be decrypted now. Do not pay again: send "
            "the same request with the same payment later.",
            retry_after=3600,
        ) from error


PRODUCT: Final = Product(
    path=WATCH_PATH,
    position=60,
    price="0.200000",
    summary="Change and liveness alerts of an endpoint for 30 days",
    description="Watch a pay-per-call (x402) endpoint for 30 days: alerts on payTo, price, "
    "asset or network changes, spec regressions, directory listings, downtime, slow answers; "
    "checked every 5 minutes; webhooks, Slack, Discord, or polling.",
    request=CreateRequest,
    example=dict(EXAMPLE),
    answer=read_example("watch"),
    response=WatchResponse,
    prepare=_prepare,
    compute=_create,
    tool=ToolSpec(
        name="x402_watch_create",
        title="Watch a pay-per-call endpoint for 30 days",
        description=(
            "Watch a pay-per-call (x402) endpoint for 30 days: alerts on changes of payTo, price, "
            "asset or network, on spec regressions, directory listings, downtime and slow "
            "answers. It is checked every 5 minutes. Alerts go to webhooks, Slack or Discord, or "
            "are read with x402_watch_events. The answer contains the `secret` of the watch, which "
            "is shown only once: store it, and do not repeat it anywhere else."
        ),
    ),
    reveal=_reveal,
    hosts=_hosts,
    refusals={
        422: "Invalid input, an endpoint without a payment challenge, or a destination that failed "
        "its connection test (notCharged: true); nothing was charged"
    },
)
PRODUCTS: Final = (PRODUCT,)
