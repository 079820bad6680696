"""The parameters of paths and queries, as the interface description shows them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import ID_PATTERN, URL_MAX, parse_resource
from tollgauge.core.watch.changes import EVENTS, PAYTO
from tollgauge.core.watch.watch_rules import CHANGES_MS
from tollgauge.web.wire import examples
from tollgauge.web.wire.request_model import ENDPOINT_URL, NETWORK
from tollgauge.web.wire.response_model import OneOf

_ID_FORM: Final = {"pattern": f"^{ID_PATTERN.pattern}$"}
_URL_FORM: Final = {"maxLength": URL_MAX, "pattern": "^https://"}

ResourceQuery = Annotated[
    str,
    Query(
        description=ENDPOINT_URL,
        examples=[examples.RESOURCE],
        json_schema_extra=_URL_FORM,
    ),
]
OfferedPayTo = Annotated[
    str | None,
    Query(
        alias="payTo",
        description="The address that the offer asks to pay",
        examples=[examples.PAY_TO],
    ),
]
OfferedAmount = Annotated[
    str | None,
    Query(description="Its amount in atomic units, as decimal text", examples=["10000"]),
]
OfferedNetwork = Annotated[
    str | None,
    Query(description=NETWORK, examples=["eip155:8453"], json_schema_extra={"maxLength": 64}),
]
SearchText = Annotated[
    str,
    Query(
        description="A URL, a host, a payTo address, or words; empty for the form alone",
        examples=["weather forecast"],
        json_schema_extra={"maxLength": 300},
    ),
]
UnmeasuredResource = Annotated[
    str | None,
    Query(
        description="The URL whose id the path names: what to buy a report of while it is unknown",
        examples=[examples.RESOURCE],
        json_schema_extra=_URL_FORM,
    ),
]
EndpointId = Annotated[
    str,
    Path(
        description="First 16 hex digits of SHA-256 of the canonical resource URL",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra=_ID_FORM,
    ),
]
Digest = Annotated[
    str,
    Path(
        description="SHA-256 of the canonical evidence, as `evidence.digest` of a report names it",
        examples=["0" * 64],
        json_schema_extra={"pattern": "^[0-9a-f]{64}$"},
    ),
]
Host = Annotated[str, Path(description="A host name", examples=["api.example.com"])]
AfterEndpoint = Annotated[
    str | None,
    Query(
        description="Id of the last endpoint of the page before; without it the first page",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra=_ID_FORM,
    ),
]
SitemapPart = Annotated[
    str, Path(description="The file of one part, as the index names it", examples=["pages.xml"])
]
Compared = Annotated[
    str | None,
    Query(
        description="An endpoint to compare, by its URL or its id",
        examples=[examples.RESOURCE],
    ),
]
IncidentType = Annotated[
    Annotated[str, OneOf(EVENTS)] | None,
    Query(description="The type of incidents to show; without it all", examples=[PAYTO]),
]
IncidentDays = Annotated[
    int,
    Query(
        description="How many UTC days to show, today included",
        ge=1,
        le=CHANGES_MS // DAY_MS,
        examples=[7],
    ),
]
AfterIncident = Annotated[
    int | None,
    Query(
        description="Number of the last incident of the page before; without it the first page",
        ge=1,
        le=2**53 - 1,
        examples=[1_000],
    ),
]
PolicyVersion = Annotated[
    str,
    Path(
        description="The version of a policy",
        examples=["1"],
        json_schema_extra={"pattern": "^[1-9][0-9]{0,8}$"},
    ),
]
_SLUG: Final = {"maxLength": 64, "pattern": "^[a-z0-9-]+$"}
LintRule = Annotated[
    str,
    Path(description="A rule of the linter", examples=["amount-form"], json_schema_extra=_SLUG),
]
LintExample = Annotated[
    str | None,
    Query(
        description="A rule of the linter, whose wrong example fills the form",
        examples=["amount-form"],
        json_schema_extra=_SLUG,
    ),
]
LintedEndpoint = Annotated[
    str | None,
    Query(
        description="The id of a monitored endpoint, whose last probe is shown",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra=_ID_FORM,
    ),
]
