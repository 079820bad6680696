"""Path and query parameters with their OpenAPI descriptions."""

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
        description="payTo address of the offer",
        examples=[examples.PAY_TO],
    ),
]
OfferedAmount = Annotated[
    str | None,
    Query(
        description="Amount of the offer in atomic units, as a decimal string", examples=["10000"]
    ),
]
OfferedNetwork = Annotated[
    str | None,
    Query(description=NETWORK, examples=["eip155:8453"], json_schema_extra={"maxLength": 64}),
]
SearchText = Annotated[
    str,
    Query(
        description="URL, host, payTo address or keywords; empty shows only the form",
        examples=["weather forecast"],
        json_schema_extra={"maxLength": 300},
    ),
]
UnmeasuredResource = Annotated[
    str | None,
    Query(
        description="URL of the endpoint in the path; required if it is not monitored yet",
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
        description="SHA-256 of the canonical evidence: `evidence.digest` of a report",
        examples=["0" * 64],
        json_schema_extra={"pattern": "^[0-9a-f]{64}$"},
    ),
]
Host = Annotated[str, Path(description="Host name", examples=["api.example.com"])]
AfterEndpoint = Annotated[
    str | None,
    Query(
        description="ID of the last endpoint of the previous page. Default: the first page",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra=_ID_FORM,
    ),
]
SitemapPart = Annotated[
    str, Path(description="File name of a part, from the index", examples=["pages.xml"])
]
Compared = Annotated[
    str | None,
    Query(
        description="URL or ID of an endpoint to compare",
        examples=[examples.RESOURCE],
    ),
]
IncidentType = Annotated[
    Annotated[str, OneOf(EVENTS)] | None,
    Query(description="Type of incidents. Default: all types", examples=[PAYTO]),
]
IncidentDays = Annotated[
    int,
    Query(
        description="Number of UTC days, including today",
        ge=1,
        le=CHANGES_MS // DAY_MS,
        examples=[7],
    ),
]
AfterIncident = Annotated[
    int | None,
    Query(
        description="Number of the last incident of the previous page. Default: the first page",
        ge=1,
        le=2**53 - 1,
        examples=[1_000],
    ),
]
PolicyVersion = Annotated[
    str,
    Path(
        description="Policy version",
        examples=["1"],
        json_schema_extra={"pattern": "^[1-9][0-9]{0,8}$"},
    ),
]
_SLUG: Final = {"maxLength": 64, "pattern": "^[a-z0-9-]+$"}
LintRule = Annotated[
    str,
    Path(description="Linter rule", examples=["amount-form"], json_schema_extra=_SLUG),
]
LintExample = Annotated[
    str | None,
    Query(
        description="Linter rule whose invalid example is loaded into the form",
        examples=["amount-form"],
        json_schema_extra=_SLUG,
    ),
]
LintedEndpoint = Annotated[
    str | None,
    Query(
        description="ID of a monitored endpoint; shows the result for its last probe",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra=_ID_FORM,
    ),
]
