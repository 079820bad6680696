"""Requests and links that the watch routes share (docs/watching.md)."""

from __future__ import annotations

import re
from typing import Annotated, Final, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import iso_seconds
from tollgauge.core.endpoint.identity import URL_MAX, Perimeter, ResourceError, parse_resource
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.changes import EVENTS
from tollgauge.core.watch.watch_rules import DestinationKind, Target, WatchRequest, WatchState
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.wire.request_model import RequestModel, invalid, refuse
from tollgauge.web.wire.response_model import OneOf, ResponseModel

ID: Final = re.compile(r"wat_[0-9a-f]{24}", re.ASCII)
ID_PATTERN: Final = f"^{ID.pattern}$"
"""ID as a JSON Schema pattern."""
EXAMPLE_ID: Final = "wat_0123456789abcdef01234567"

WholeSecond = Annotated[str, BeforeValidator(iso_seconds)]
"""ISO 8601 without milliseconds, from milliseconds UTC."""
WatchStateName = Annotated[
    str, OneOf([state for state in WatchState if state is not WatchState.PENDING])
]
"""State of a watch; it is not visible before its payment has settled."""


class SnakeCaseResponse(ResponseModel):
    """A JSON object with snake_case names, as in the published clients."""

    model_config = ConfigDict(alias_generator=None)


def links(base_url: str, watch_id: str, *names: str) -> dict[str, str]:
    """Return the named URLs of a watch. Default: all."""
    watch_url = f"{base_url}/v1/watch/{watch_id}"
    urls = {
        "poll_url": f"{watch_url}/events",
        "renew_url": f"{watch_url}/renew",
        "rotate_url": f"{watch_url}/rotate",
        "edit_url": watch_url,
        "cancel_url": watch_url,
    }
    return {name: urls[name] for name in names or urls}


_KINDS: Final = {
    "webhook_url": (DestinationKind.JSON,),
    "slack_url": (DestinationKind.SLACK, DestinationKind.DISCORD),
}
_NEW: Final = WatchRequest()
_NAME_MAX: Final = 90


def check_count(count: int, *, path: str = "delivery") -> None:
    """Check the number of destinations. Raises Problem 422."""
    if count > rules.DESTINATIONS_MAX:
        raise invalid(path, f"At most {rules.DESTINATIONS_MAX} destinations in total.")


def _targets(value: object, info: ValidationInfo[Perimeter]) -> tuple[Target, ...]:
    """Validate the destinations of a field: a URL, or a list of URLs."""
    if isinstance(value, str):
        return (_target(value, info, path=""),)
    if not isinstance(value, list):
        refuse(invalid("", f"{info.field_name} must be a URL or a list of URLs."))
    if len(value) > rules.FIELD_MAX:
        refuse(invalid("", f"{info.field_name} takes at most {rules.FIELD_MAX} URLs."))
    return tuple(_target(url, info, path=f"[{index}]") for index, url in enumerate(value))


def _target(url: object, info: ValidationInfo[Perimeter], *, path: str) -> Target:
    """Validate a destination, and keep only its canonical URL."""
    try:
        canonical = parse_resource(url, info.context).probe_url
    except ResourceError as error:
        message = str(error).replace("resource", "destination")
        problem = Problem(
            422,
            error.code.replace("resource", "destination"),
            f"{message} Nothing was charged.",
            errors=(Invalid(path=path, message=message),),
            extra={"notCharged": True},
        )
        refuse(problem)
    kind = rules.kind_of(canonical, slack=info.field_name == "slack_url")
    return Target(url=canonical, kind=kind, field=f"delivery.{info.field_name}{path}")


_Url = Annotated[str, Field(min_length=12, max_length=URL_MAX, pattern="^https://")]
_Destinations = Annotated[
    tuple[Target, ...],
    PlainValidator(
        _targets,
        json_schema_input_type=_Url | Annotated[list[_Url], Field(max_length=rules.FIELD_MAX)],
    ),
]


class Delivery(RequestModel):
    """The destinations of alerts."""

    model_config = ConfigDict(extra="forbid")

    webhook_url: _Destinations | None = Field(
        None, description="Receives signed JSON; Slack and Discord URLs receive their own format"
    )
    slack_url: _Destinations | None = Field(
        None, description="Receives the format of Slack, at any host"
    )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The destinations without duplicates."""
        targets: dict[str, Target] = {}
        for target in (*(self.webhook_url or ()), *(self.slack_url or ())):
            targets.setdefault(target.url, target)
        return tuple(targets.values())

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: object) -> object:
        # An unknown name is an error: the buyer would pay for a watch that alerts no one.
        unknown = value.keys() - cls.model_fields.keys() if isinstance(value, dict) else ()
        if unknown:
            known = " and ".join(cls.model_fields)
            name = clean_text(min(unknown), limit=_NAME_MAX)
            refuse(invalid(f".{name}", f"delivery accepts only {known}."))
        return value

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        try:
            check_count(len(self.targets), path="")
        except Problem as problem:
            refuse(problem)
        return self


class WatchFields(RequestModel):
    """The editable fields of a watch, with the names of the published clients."""

    events: Annotated[list[Annotated[str, OneOf(EVENTS)]], Field(min_length=1), FailFast()] = Field(
        default_factory=lambda: [*EVENTS],
        description="Event types to report. Default: all types",
    )
    liveness_sensitivity_n: Annotated[
        int, Field(ge=rules.SENSITIVITY_MIN, le=rules.SENSITIVITY_MAX)
    ] = Field(
        rules.SENSITIVITY_DEFAULT, description="Consecutive failed checks that make an outage"
    )
    digest: bool = Field(
        default=False,
        description="Also send daily counts of checks and events to each destination",
    )
    delivery: Delivery | None = Field(
        None, description="Destinations of alerts, at most 10. Without any, poll for events"
    )

    def watch_request(self, now: WatchRequest = _NEW) -> WatchRequest:
        """Return the settings of the watch; omitted fields keep the values of `now`."""
        given = self.model_fields_set
        return WatchRequest(
            events=tuple(event for event in EVENTS if event in self.events)
            if "events" in given
            else now.events,
            sensitivity=self.liveness_sensitivity_n
            if "liveness_sensitivity_n" in given
            else now.sensitivity,
            digest=self.digest if "digest" in given else now.digest,
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The destinations in the request."""
        return self.delivery.targets if self.delivery else ()

    @property
    def replaced_kinds(self) -> frozenset[DestinationKind]:
        """The formats whose destinations an edit replaces (merge patch, RFC 7396).

        A field that `delivery` omits keeps its destinations; a null `delivery` replaces all. The
        field of a stored URL is not known: signed JSON counts as `webhook_url`, the formats of
        Slack and Discord as `slack_url`.
        """
        fields = self.delivery.model_fields_set if self.delivery else _KINDS
        return frozenset(kind for field in fields for kind in _KINDS[field])
