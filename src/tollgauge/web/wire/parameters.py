"""Path and query parameters with their OpenAPI descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import ID_PATTERN, URL_MAX, parse_resource
from tollgauge.core.watch.changes import EVENTS, PAYTO
from tollgauge.core.watch.watch_rules import CHANGES_MS
from tollgauge.web.wire import examples
from tollgauge.web.wire.request_model import ENDPOINT_URL
from tollgauge.web.wire.response_model import OneOf


def path(description: str, example: str, *, alias: str | None = None, **schema: Any) -> Any:
    """Describe a path parameter; `schema` is published and not checked.

    `alias` is its name in the path, if that would shadow a builtin function in the handler.
    """
    extra = schema or None
    return Path(alias=alias, description=description, examples=[example], json_schema_extra=extra)


def query(description: str, example: object, *, alias: str | None = None, **schema: Any) -> Any:
    """Describe a query parameter like `path`."""
    extra = schema or None
    return Query(alias=alias, description=description, examples=[example], json_schema_extra=extra)


_ID: Final = {"pattern": f"^{ID_PATTERN.pattern}$"}
_URL: Final = {"maxLength": URL_MAX, "pattern": "^https://"}
_SLUG: Final = {"maxLength": 64, "pattern": "^[a-z0-9-]+$"}
_EXAMPLE_ID: Final = parse_resource(examples.RESOURCE).id

ResourceQuery = Annotated[str, query(ENDPOINT_URL, examples.RESOURCE, **_URL)]
SearchText = Annotated[
    str,
    query(
        "URL, host, payTo address or keywords; empty shows only the form",
        "weather forecast",
        maxLength=300,
    ),
]
UnmeasuredResource = Annotated[
    str | None,
    query(
        "URL of the endpoint in the path; required if it is not monitored yet",
        examples.RESOURCE,
        **_URL,
    ),
]
EndpointId = Annotated[
    str,
    path(
        "First 16 hex digits of SHA-256 of the canonical resource URL",
        _EXAMPLE_ID,
        alias="id",
        **_ID,
    ),
]
BadgeHistory = Annotated[bool, query("Whether to draw the uptime of the last 30 days", "true")]
Digest = Annotated[
    str,
    path(
        "SHA-256 of the canonical evidence: `evidence.digest` of a report",
        "0" * 64,
        pattern="^[0-9a-f]{64}$",
    ),
]
Host = Annotated[str, path("Host name", "api.example.com")]
DirectoryName = Annotated[str, path("Name of the directory", "cdp")]
WalletAddress = Annotated[str, path("payTo address: EVM hex or a Solana key", examples.PAY_TO)]
AfterEndpoint = Annotated[
    str | None,
    query(
        "ID of the last endpoint of the previous page. Default: the first page", _EXAMPLE_ID, **_ID
    ),
]
SitemapPart = Annotated[str, path("File name of a part, from the index", "pages.xml")]
Compared = Annotated[str | None, query("URL or ID of an endpoint to compare", examples.RESOURCE)]
IncidentType = Annotated[
    Annotated[str, OneOf(EVENTS)] | None,
    query("Type of incidents. Default: all types", PAYTO, alias="type"),
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
Weeks = Annotated[int, Query(description="Number of weeks", ge=1, le=520, examples=[12])]
PolicyVersion = Annotated[str, path("Policy version", "1", pattern="^[1-9][0-9]{0,8}$")]
LintRule = Annotated[str, path("Linter rule", "amount-form", **_SLUG)]
LintExample = Annotated[
    str | None,
    query("Linter rule whose invalid example is loaded into the form", "amount-form", **_SLUG),
]
LintedEndpoint = Annotated[
    str | None,
    query("ID of a monitored endpoint; shows the result for its last probe", _EXAMPLE_ID, **_ID),
]
