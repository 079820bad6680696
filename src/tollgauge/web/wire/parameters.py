"""The parameters of paths and queries, as the interface description shows them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from tollgauge.core.endpoint import parse_resource
from tollgauge.web.wire import examples

ResourceQuery = Annotated[
    str,
    Query(
        description="Full endpoint URL starting with https://, as listed in discovery",
        examples=[examples.RESOURCE],
        json_schema_extra={"maxLength": 2048, "pattern": "^https://"},
    ),
]
SearchText = Annotated[
    str,
    Query(
        description="The URL of an endpoint, a host, or words; empty for the form alone",
        examples=["weather forecast"],
        json_schema_extra={"maxLength": 300},
    ),
]
UnmeasuredResource = Annotated[
    str | None,
    Query(
        description="The URL whose id the path names: what to buy a report of while it is unknown",
        examples=[examples.RESOURCE],
        json_schema_extra={"maxLength": 2048, "pattern": "^https://"},
    ),
]
EndpointId = Annotated[
    str,
    Path(
        description="First 16 hex digits of SHA-256 of the canonical resource URL",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra={"pattern": "^[0-9a-f]{16}$"},
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
        json_schema_extra={"pattern": "^[0-9a-f]{16}$"},
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
