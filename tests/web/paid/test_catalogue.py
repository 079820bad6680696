"""Fields that a paid request has and its route does not know: misspelt ones are refused, others
are nobody's business.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.catalogue import check_names
from tollgauge.web.paid.products import history, renewal, similar, trace, trust, watch
from tollgauge.web.watches import shapes

RESOURCE = "https://api.example.com/weather"


def refused(document: object, body: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        check_names(document, body)
    assert (caught.value.status, caught.value.code) == (422, "unknown-field")
    return caught.value


@pytest.mark.parametrize(
    ("body", "name", "meant"),
    [
        (history.BODY, "day", "days"),
        (history.BODY, "Days", "days"),
        (similar.BODY, "min_score_delta", "minScoreDelta"),
        (similar.BODY, "minScoreDetla", "minScoreDelta"),
        (similar.BODY, "limits", "limit"),
        (trace.BODY, "hint_resource", "hintResource"),
        (trace.BODY, "Network", "network"),
        (watch.BODY, "event", "events"),
        (watch.BODY, "livenessSensitivityN", "liveness_sensitivity_n"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(
    body: dict[str, Any], name: str, meant: str
) -> None:
    given = dict.fromkeys(body.get("required", ["endpoint"]), RESOURCE)
    problem = refused({**given, name: 7}, body)
    assert str(problem) == (f"There is no field {name}: did you mean {meant}? Nothing was charged.")
    assert [error.path for error in problem.errors] == [name]


@pytest.mark.parametrize("name", ["webhook_url", "slack_url"])
def test_a_destination_beside_delivery_is_refused(name: str) -> None:
    """The watch would be sold, and tell nobody."""
    problem = refused({"endpoint": RESOURCE, name: "https://hooks.example.com/x"}, watch.BODY)
    assert "belongs inside delivery" in str(problem)


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (trust.BODY, {"why": "before paying it", "source": "an-agent", "Resource": RESOURCE}),
        (history.BODY, {"days": 7, "day": 1}),
        (similar.BODY, {"metadata": {}, "agent": "x", "session_id": "1"}),
        (renewal.BODY, {"watch_id": shapes.EXAMPLE_ID, "days": 30}),
    ],
)
def test_what_is_near_no_field_that_is_left_out_is_ignored(
    body: dict[str, Any], more: dict[str, Any]
) -> None:
    check_names({"resource": RESOURCE, **more}, body)


@pytest.mark.parametrize("document", [None, [], 7, "resource", {}])
def test_what_has_no_fields_has_no_misspelt_ones(document: object) -> None:
    check_names(document, trust.BODY)


def test_hostile_names_are_cut_and_cleaned() -> None:
    for name in ("re\u202esource", "resource\ud800", "resource\x00", "days\n"):
        problem = refused({name: 1}, history.BODY)
        document = orjson.loads(bytes(problem.response().body))
        assert document["errors"][0]["path"] in ("resource", "days")


def test_the_number_of_names_that_are_compared_has_an_end() -> None:
    check_names({f"x{number}": 0 for number in range(50)} | {"resourcee": 1}, trust.BODY)
    refused({f"x{number}": 0 for number in range(49)} | {"resourcee": 1}, trust.BODY)
    check_names({"resource" * 8_000: 1}, trust.BODY)
