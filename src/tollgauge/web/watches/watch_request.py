"""What a request to watch asks for, read and validated field by field.

Rules (docs/watching.md): events are of the published types; `liveness_sensitivity_n` is 1 to
10; destinations are public https URLs, at most 5 a field and 10 in all; an unknown
name inside `delivery` is refused, because a watch that notifies nobody is not what was paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tollgauge.core import watch as rules
from tollgauge.core.changes import EVENTS
from tollgauge.core.endpoint import Perimeter, ResourceError, parse_resource
from tollgauge.core.watch import Kind, Target, WatchRequest
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.paid.catalogue import invalid

WEBHOOK: Final = "webhook_url"
SLACK: Final = "slack_url"
_KINDS: Final = {WEBHOOK: (Kind.JSON,), SLACK: (Kind.SLACK, Kind.DISCORD)}
_URL: Final = {"type": "string", "minLength": 12, "maxLength": 2048, "pattern": "^https://"}


def _urls(words: str) -> dict[str, Any]:
    several = {"type": "array", "items": _URL, "maxItems": rules.FIELD_MAX}
    return {"anyOf": [_URL, several], "description": words}


FIELDS: Final[dict[str, Any]] = {
    "events": {
        "type": "array",
        "items": {"type": "string", "enum": list(EVENTS)},
        "minItems": 1,
        "description": "Which changes to tell; all of them if none are named",
    },
    "liveness_sensitivity_n": {
        "type": "integer",
        "minimum": rules.SENSITIVITY_MIN,
        "maximum": rules.SENSITIVITY_MAX,
        "default": rules.SENSITIVITY_DEFAULT,
        "description": "How many failed checks in a row make an outage",
    },
    "digest": {
        "type": "boolean",
        "default": False,
        "description": "Also send a daily count of checks and events to every destination",
    },
    "delivery": {
        "type": "object",
        "description": "Where to send notices, 10 destinations in all; none: poll",
        "additionalProperties": False,
        "properties": {
            WEBHOOK: _urls("Gets signed JSON; Slack and Discord URLs get their own format"),
            SLACK: _urls("Gets Slack's format, wherever it leads"),
        },
    },
}
"""The JSON Schema of what may be asked, beside which endpoint."""


def watch_request_of(document: Mapping[str, Any], *, now: WatchRequest) -> WatchRequest:
    """What a request listens to; what it leaves out stays as it is `now`. Raises Problem 422."""
    return WatchRequest(
        events=_events(document["events"]) if "events" in document else now.events,
        sensitivity=_sensitivity(document.get("liveness_sensitivity_n", now.sensitivity)),
        digest=_flag(document.get("digest", now.digest)),
    )


def targets_of(document: Mapping[str, Any], perimeter: Perimeter) -> tuple[Target, ...]:
    """The destinations of a request's `delivery`, each once. Raises Problem 422."""
    delivery = document.get("delivery")
    if delivery is None:
        return ()
    if not isinstance(delivery, dict):
        raise invalid("delivery", "delivery must be an object.")
    unknown = sorted(delivery.keys() - {WEBHOOK, SLACK})
    if unknown:
        raise invalid(
            f"delivery.{unknown[0]}"[:100], f"delivery takes {WEBHOOK} and {SLACK}, nothing else."
        )
    targets: dict[str, Target] = {}
    for name in (WEBHOOK, SLACK):
        for path, url in _listed(name, delivery.get(name)):
            target = _target(path, url, perimeter, slack=name == SLACK)
            targets.setdefault(target.url, target)
    check_count(len(targets))
    return tuple(targets.values())


def replaced_kinds(document: Mapping[str, Any]) -> frozenset[Kind]:
    """The formats whose destinations an edit replaces: a field that `delivery` leaves out keeps
    its own, and null names both (a merge patch, RFC 7396). Which field once named a URL is not
    kept: signed JSON counts as `webhook_url`'s, Slack's and Discord's formats as `slack_url`'s.
    """
    named = document.get("delivery", {})
    fields = _KINDS.keys() if named is None else _KINDS.keys() & named.keys()
    return frozenset(kind for field in fields for kind in _KINDS[field])


def check_count(count: int) -> None:
    """Raises Problem 422 for more destinations than a watch may have."""
    if count > rules.DESTINATIONS_MAX:
        raise invalid("delivery", f"At most {rules.DESTINATIONS_MAX} destinations in all.")


def _events(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise invalid("events", "events must be a list of at least one type of event.")
    for index, name in enumerate(value):
        if name not in EVENTS:
            raise invalid(f"events[{index}]", f"The types are {', '.join(EVENTS)}.")
    return tuple(name for name in EVENTS if name in value)


def _sensitivity(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not rules.SENSITIVITY_MIN <= value <= rules.SENSITIVITY_MAX:  # type: ignore[operator]
        raise invalid(
            "liveness_sensitivity_n",
            f"It must be a whole number from {rules.SENSITIVITY_MIN} to {rules.SENSITIVITY_MAX}.",
        )
    return int(value)  # type: ignore[call-overload, no-any-return]


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid("digest", "digest must be true or false.")
    return value


def _listed(name: str, value: object) -> Iterator[tuple[str, object]]:
    path = f"delivery.{name}"
    if value is None:
        return
    if isinstance(value, str):
        yield path, value
        return
    if not isinstance(value, list):
        raise invalid(path, f"{name} must be a URL or a list of URLs.")
    if len(value) > rules.FIELD_MAX:
        raise invalid(path, f"{name} takes at most {rules.FIELD_MAX} URLs.")
    yield from ((f"{path}[{index}]", url) for index, url in enumerate(value))


def _target(path: str, url: object, perimeter: Perimeter, *, slack: bool) -> Target:
    """A destination; only its canonical URL is used from here on."""
    try:
        canonical = parse_resource(url, perimeter).probe_url
    except ResourceError as error:
        message = str(error).replace("resource", "destination")
        raise Problem(
            422,
            error.code.replace("resource", "destination"),
            f"{message} Nothing was charged.",
            errors=(Invalid(path=path, message=message),),
            extra={"notCharged": True},
        ) from error
    return Target(url=canonical, kind=rules.kind_of(canonical, slack=slack), field=path)
