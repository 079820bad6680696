"""`POST /v1/x402-history`: all observations of an endpoint in up to 90 days.

Rules:
- `days` is any number from 1 to 90; the answer is oldest first;
- it contains every stored probe; fields that were not measured are left out;
- payers are those of the last 30 days, at most the MAX_PAYERS who paid most.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator, Field
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, chain_number, iso, usd
from tollgauge.core.directory.discovery import EVENTS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HistoryRow, ProbeJudgement
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.income import Flow
from tollgauge.store.chain import volumes
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import probes
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import Brief, PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import RequestedResource, RequestModel, without_fraction
from tollgauge.web.wire.response_model import OneOf, ResponseModel, absent_if_null

EXAMPLE: Final = {"resource": "https://api.example.com/weather", "days": 7}
MAX_PAYERS: Final = 100
_Shared = tuple[dict[str, Any], dict[str, Any]]
"""The fields of a probe before its latency, and after it."""


class HistoryEventResponse(ResponseModel):
    """A change of listing, price, payTo or network. `before` and `after` are absent for listings;
    for prices they are atomic amounts, followed by the asset if it changed. `announced` is present,
    and true, for a payTo change that the seller announced in advance.
    """

    ts: str
    event: Annotated[str, OneOf(EVENTS)]
    source: str
    before: str | None = None
    after: str | None = None
    announced: bool | None = absent_if_null()


class PayerResponse(ResponseModel):
    """A payer of the payTo by EIP-3009 authorizations, with its USDC payments and refunds."""

    payer: str
    transfers: int
    paid_usd: float
    returned_usd: float


class ProbeResponse(ResponseModel):
    """One probe. `status` is absent without an HTTP response, `latencyMs` while down, `amount`
    without readable terms, `amountUsd` for other tokens than known dollars. `confirms` is present,
    and true, for a probe that only confirmed a failure; such probes are not counted.
    """

    ts: str
    outcome: Annotated[str, OneOf(Outcome)]
    up: bool
    status: int | None = None
    latency_ms: int | None = None
    amount: str | None = None
    amount_usd: float | None = None
    compliant: bool
    attribution: Annotated[str, OneOf(Attribution)]
    confirms: bool | None = None


class HistoryResponse(ResponseModel):
    """The complete history of an endpoint with `from < ts <= to`, oldest first. `simulated` is
    present, and true, if the demo generated part of it. `payers` are the 100 largest payers of the
    30 days before `to`, if the payTo is indexed.
    """

    resource: str
    simulated: bool | None = absent_if_null()
    since: str = Field(alias="from")
    to: str
    days: float
    discovery: list[HistoryEventResponse]
    payers: list[PayerResponse]
    probes: list[ProbeResponse]
    truncated: bool


class HistoryRequest(RequestModel):
    """The endpoint and the number of days."""

    resource: RequestedResource
    days: Annotated[float, Field(ge=1, le=90), AfterValidator(without_fraction)] = Field(
        30, description="Number of days"
    )


_SAME: Final = ("outcome", "status", "up", "compliant", "attribution", "amountUsd")
"""The fields that probes of one span share."""
_COLUMNS: Final = ("from", "to", "probes", "firstProbe", *_SAME, "avgLatencyMs")
_LATEST: Final = 5


def _head(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the first page about the whole history."""
    return {
        **{name: answer[name] for name in ("resource", "from", "to", "days")},
        **{name: len(answer[name]) for name in ("probes", "discovery", "payers")},
        "latestDiscovery": answer["discovery"][-_LATEST:],
    }


def _spans(answer: Mapping[str, Any]) -> list[list[Any]]:
    """Combine consecutive probes that differ only in time and latency into rows of `_COLUMNS`."""
    spans: list[list[Any]] = []
    first = 0
    for same, group in groupby(answer["probes"], lambda probe: [probe.get(k) for k in _SAME]):
        probes = list(group)
        latencies = [probe["latencyMs"] for probe in probes if "latencyMs" in probe]
        average = round(sum(latencies) / len(latencies)) if latencies else None
        span = [probes[0]["ts"], probes[-1]["ts"], len(probes), first, *same, average]
        spans.append(span)
        first += len(probes)
    return spans


async def _answer(
    dependencies: PaidDependencies, request: HistoryRequest, _claim: HeldClaim
) -> bytes:
    """Make the whole answer. Raises Problem 404 for an unknown resource."""
    until = dependencies.clock()
    since = until - round(request.days * DAY_MS)
    stored = await dependencies.store.reading(
        _read_history, request.resource.id, since=since, until=until
    )
    if stored is None:
        raise Problem(
            404,
            "unknown-resource",
            "This resource is not monitored, so it has no history. Nothing was charged.",
        )
    endpoint, events, payers, probes = stored
    head = {
        "resource": endpoint.resource,
        **({"simulated": True} if endpoint.simulated else {}),
        "from": iso(since),
        "to": iso(until),
        "days": request.days,
        "discovery": [_event(event) for event in events],
        "payers": [_payer(payer, flow) for payer, flow in payers],
    }
    return orjson.dumps(head | {"probes": orjson.Fragment(probes), "truncated": False})


def _read_history(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> tuple[Endpoint, tuple[TermChange, ...], tuple[tuple[str, Flow], ...], bytes] | None:
    """Read an endpoint with its events, its payers and its probes, the probes as a JSON array: a
    watched endpoint has 26,000 of them, which would hold up the event loop.
    """
    endpoint = endpoints.get(tx, endpoint_id)
    if endpoint is None:
        return None
    events = listings.events(tx, endpoint_id, since=since, until=until)
    shared: dict[ProbeJudgement, _Shared] = {}
    days = probes.history_rows(tx, endpoint_id, since=since, until=until)
    rows = orjson.dumps([_probe(row, shared) for day in days for row in day])
    return endpoint, events, _payers(tx, endpoint, until=until), rows


def _payers(tx: Connection, endpoint: Endpoint, *, until: int) -> tuple[tuple[str, Flow], ...]:
    quote = endpoint.quote
    chain = None if quote is None else chain_number(quote.network)
    if quote is None or chain is None:
        return ()
    if not volumes.coverages(tx, chain, (quote.pay_to,), as_of=until):
        return ()
    return volumes.payers(tx, chain, quote.pay_to, as_of=until, most=MAX_PAYERS)


def _payer(payer: str, flow: Flow) -> dict[str, Any]:
    return {
        "payer": payer,
        "transfers": flow.transfers,
        "paidUsd": usd(flow.paid),
        "returnedUsd": usd(flow.returned),
    }


def _probe(row: HistoryRow, shared: dict[ProbeJudgement, _Shared]) -> dict[str, Any]:
    """Return a probe as JSON. `shared` caches the fields that probes of one judgement share."""
    at, total_ms, judgement = row
    fields = shared.get(judgement)
    if fields is None:
        fields = shared[judgement] = _shared_fields(judgement)
    verdict, price = fields
    latency = {"latencyMs": total_ms} if judgement.up else {}
    return {"ts": iso(at), **verdict, **latency, **price}


def _shared_fields(judgement: ProbeJudgement) -> _Shared:
    verdict: dict[str, Any] = {
        "outcome": judgement.outcome.value,
        "up": judgement.up,
        "compliant": judgement.compliant,
        "attribution": judgement.attribution.value,
    }
    if judgement.status is not None:
        verdict["status"] = judgement.status
    price: dict[str, Any] = {}
    if judgement.quote is not None:
        price["amount"] = str(judgement.quote.amount)
        if judgement.quote.micro_usd is not None:
            price["amountUsd"] = usd(judgement.quote.micro_usd)
    if judgement.confirms:
        price["confirms"] = True
    return verdict, price


def _event(event: TermChange) -> dict[str, Any]:
    row = {"ts": iso(event.at), "event": event.kind, "source": event.source}
    more = {"before": event.before, "after": event.after, "announced": event.announced}
    return row | {key: value for key, value in more.items() if value}


PRODUCT: Final = Product(
    path="/v1/x402-history",
    position=30,
    price="0.020000",
    summary="The raw observation history of an endpoint",
    description="Observation history of a pay-per-call (x402) endpoint, up to 90 days: every "
    "probe with outcome, latency and quoted amount, every change of listing, price, payTo "
    "and network, and who paid most in the last 30 days.",
    request=HistoryRequest,
    example=dict(EXAMPLE),
    answer=read_example("history"),
    response=HistoryResponse,
    compute=_answer,
    tool=ToolSpec(
        name="x402_history",
        title="Observation history of a pay-per-call endpoint",
        description=(
            "All observations of a pay-per-call (x402) endpoint in up to 90 days. Returns "
            "a table of spans, oldest first, up to 8 KB of rows: consecutive probes with "
            "the same outcome, price and compliance are one row. `answerId` with `offset` returns "
            "the next spans. Add `details` for single `probes`, for `discovery` events (changes of "
            "listing, price, payTo, network) or for the largest `payers`. All of this is free for "
            "30 days."
        ),
        brief=Brief(
            lists=("probes", "discovery", "payers"), columns=_COLUMNS, head=_head, rows=_spans
        ),
    ),
    refusals={404: "This resource is not monitored; nothing was charged"},
)
PRODUCTS: Final = (PRODUCT,)
