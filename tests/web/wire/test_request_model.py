"""Models of requests: invalid fields are reported with their paths and the accepted values of the
published schema. Misspelled unknown fields are rejected, other unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.products import history, similar, trace, trust, watch, watch_renewal
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.watch_models import EXAMPLE_ID

RESOURCE = "https://api.example.com/weather"


def read_problem(document: object, request: type[RequestModel]) -> Problem:
    with pytest.raises(Problem) as caught:
        request.read(document)
    assert (caught.value.status, caught.value.code) == (422, "unknown-field")
    return caught.value


@pytest.mark.parametrize(
    ("request_model", "name", "meant"),
    [
        (history.HistoryRequest, "day", "days"),
        (history.HistoryRequest, "Days", "days"),
        (similar.SimilarRequest, "min_score_delta", "minScoreDelta"),
        (similar.SimilarRequest, "minScoreDetla", "minScoreDelta"),
        (similar.SimilarRequest, "limits", "limit"),
        (trace.TraceRequest, "hint_resource", "hintResource"),
        (trace.TraceRequest, "Network", "network"),
        (watch.CreateRequest, "event", "events"),
        (watch.CreateRequest, "livenessSensitivityN", "liveness_sensitivity_n"),
    ],
)
def test_misspelled_field_is_rejected_with_the_intended_name(
    request_model: type[RequestModel], name: str, meant: str
) -> None:
    required = request_model.json_schema().get("required", ["endpoint"])
    problem = read_problem({**dict.fromkeys(required, RESOURCE), name: 7}, request_model)
    assert str(problem) == (f"Unknown field {name}: did you mean {meant}? Nothing was charged.")
    assert [error.path for error in problem.errors] == [name]


@pytest.mark.parametrize("name", ["webhook_url", "slack_url"])
def test_destination_outside_delivery_is_rejected(name: str) -> None:
    """Otherwise a watch without destinations would be sold."""
    problem = read_problem(
        {"endpoint": RESOURCE, name: "https://hooks.example.com/x"}, watch.CreateRequest
    )
    assert "belongs inside delivery" in str(problem)


@pytest.mark.parametrize(
    ("request_model", "more"),
    [
        (
            trust.TrustRequest,
            {"why": "before paying it", "source": "an-agent", "Resource": RESOURCE},
        ),
        (history.HistoryRequest, {"days": 7, "day": 1}),
        (similar.SimilarRequest, {"metadata": {}, "agent": "x", "session_id": "1"}),
        (watch_renewal.RenewalRequest, {"watch_id": EXAMPLE_ID, "days": 30}),
    ],
)
def test_unknown_field_unlike_any_omitted_field_is_ignored(
    request_model: type[RequestModel], more: dict[str, Any]
) -> None:
    request_model.read({"resource": RESOURCE, **more})


@pytest.mark.parametrize("document", [None, [], 7, "resource", {}])
def test_model_without_fields_ignores_all_names(document: object) -> None:
    with pytest.raises(Problem) as caught:
        trust.TrustRequest.read(document)
    assert (caught.value.status, caught.value.code) == (422, "invalid-input")


def test_hostile_field_names_are_shortened_and_cleaned() -> None:
    for name in ("re\u202esource", "resource\ud800", "resource\x00", "days\n"):
        problem = read_problem({name: 1}, history.HistoryRequest)
        document = orjson.loads(bytes(problem.response().body))
        assert document["errors"][0]["path"] in ("resource", "days")


def test_number_of_compared_names_is_limited() -> None:
    trust.TrustRequest.check_names({f"x{number}": 0 for number in range(50)} | {"resourcee": 1})
    read_problem({f"x{number}": 0 for number in range(49)} | {"resourcee": 1}, trust.TrustRequest)
    trust.TrustRequest.check_names({"resource" * 8_000: 1})


@pytest.mark.parametrize(
    ("request_model", "wrong", "words"),
    [
        (history.HistoryRequest, {"days": "7"}, "days must be a number from 1 to 90."),
        (similar.SimilarRequest, {"limit": 2.5}, "limit must be a whole number from 1 to 25."),
        (trace.TraceRequest, {"txHash": "0x1"}, "txHash must be a string that matches ^(0x"),
        (trace.TraceRequest, {"model": "guess"}, "model must be one of receipt-logs, calldata,"),
        (watch.CreateRequest, {"digest": 1}, "digest must be true or false."),
        (watch.CreateRequest, {"events": []}, "events must be a non-empty list."),
        (watch.CreateRequest, {"events": ["x", "y"]}, "events[0] must be one of payto_change,"),
        (watch.CreateRequest, {"delivery": "https://x.com"}, "delivery must be an object."),
        (
            watch.CreateRequest,
            {"delivery": {"url": 1}},
            "delivery accepts only webhook_url and slack",
        ),
    ],
)
def test_errors_describe_the_accepted_values(
    request_model: type[RequestModel], wrong: dict[str, Any], words: str
) -> None:
    given = {"resource": RESOURCE}
    if request_model is trace.TraceRequest:
        given = {"txHash": "0x" + "5a" * 32}
    with pytest.raises(Problem) as caught:
        request_model.read(given | wrong)
    assert (caught.value.status, caught.value.code) == (422, "invalid-input")
    (error,) = caught.value.errors
    assert error.message == str(caught.value)
    assert error.message.startswith(words)


def test_all_invalid_fields_are_reported() -> None:
    with pytest.raises(Problem) as caught:
        similar.SimilarRequest.read({"resource": "http://x.com", "limit": 0, "minScoreDelta": "5"})
    assert caught.value.code == "resource-not-https"
    paths = [error.path for error in caught.value.errors]
    assert paths == ["resource", "limit", "minScoreDelta"]


def test_hostile_delivery_is_rejected_with_a_short_message() -> None:
    names = {f"x{number}\ud800": 0 for number in range(5_000)}
    with pytest.raises(Problem) as caught:
        watch.CreateRequest.read({"resource": RESOURCE, "delivery": names})
    assert len(caught.value.errors) == 1
    assert len(bytes(caught.value.response().body)) < 1_000


def test_published_schema_has_no_titles_nulls_or_references() -> None:
    text = orjson.dumps(watch.CreateRequest.json_schema()).decode()
    for word in ('"title"', "null", "$ref", "$defs"):
        assert word not in text


@pytest.mark.parametrize("request_model", [trust.TrustRequest, watch.CreateRequest])
def test_agent_that_is_never_checked_is_refused_before_a_payment(
    request_model: type[RequestModel],
) -> None:
    with pytest.raises(Problem, match="Send an HTTP endpoint or an MCP tool") as refused:
        request_model.read({"resource": f"{RESOURCE}#a2a"})
    assert (refused.value.status, refused.value.errors[0].path) == (422, "resource")
    assert request_model.read({"resource": f"{RESOURCE}#tool=now"})
