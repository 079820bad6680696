"""The dashboard and the alert rules use metrics, labels and label values that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from tollgauge import observe
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Lint, Timings
from tollgauge.core.probe.probe import judge

DOCS = Path(__file__).parents[2] / "docs"
SELECTOR = re.compile(r"\b(tollgauge_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
MATCHER = re.compile(r'(\w+)\s*(!?=)\s*"([^"]*)"')
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


def exported_series() -> dict[str, MetricWrapperBase]:
    """Return the series that the service exports, by name."""
    metrics = [metric for metric in vars(observe).values() if isinstance(metric, MetricWrapperBase)]
    return {
        f"{metric._name}{end}": metric for metric in metrics for end in SUFFIXES[str(metric._type)]
    }


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
    return document


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((DOCS / "prometheus-alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression of both files, with the text that is displayed with its value."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    for rule in alerts():
        yield rule["expr"], rule["annotations"]["summary"].replace("$value", "").replace("{{  ", "")


EXPRESSIONS = tuple(expressions())


@pytest.mark.parametrize(("expression", "shown"), EXPRESSIONS)
def test_expressions_use_existing_series_and_labels(expression: str, shown: str) -> None:
    known = exported_series()
    selectors = SELECTOR.findall(expression)
    assert selectors
    labels = {"le"}
    for name, condition in selectors:
        assert name in known, f"no metric {name}"
        labels |= set(known[name]._labelnames)
        assert set(LABEL.findall(condition)) <= set(known[name]._labelnames), condition
    grouped = {
        label.strip() for group in GROUPING.findall(expression) for label in group.split(",")
    }
    assert grouped <= labels
    assert set(SHOWN.findall(shown)) <= grouped


def test_every_metric_is_on_the_dashboard() -> None:
    text = json.dumps([panel.get("targets") for panel in dashboard()["panels"]])
    shown = {name for name, _ in SELECTOR.findall(text)}
    hidden = {
        metric._name
        for metric in exported_series().values()
        if not any(f"{metric._name}{end}" in shown for end in SUFFIXES[str(metric._type)])
    }
    assert not hidden


def test_panels_do_not_overlap_and_have_unique_names() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels})
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert all(x < 24 for x, _ in places)


def test_network_alert_counts_own_failures_and_not_throttling() -> None:
    (rule,) = (rule for rule in alerts() if rule["alert"] == "TollgaugeOurOwnNetwork")
    counted, all_probes = (MATCHER.findall(text) for _, text in SELECTOR.findall(rule["expr"]))
    assert not all_probes

    def is_counted(result: Answer | Fault) -> bool:
        timings = Timings(total=5)
        exchange = Exchange(
            url="https://a.example/x", method="GET", at=0, result=result, timings=timings
        )
        probe = judge(exchange, Lint(payable=False, compliant=False, version=None))
        labels = {"outcome": probe.outcome.value, "attribution": probe.attribution.value}
        return all((labels[name] == value) is (sign == "=") for name, sign, value in counted)

    assert not is_counted(Answer(status=429))
    assert not is_counted(Answer(status=503))
    assert not is_counted(Fault(kind=FaultKind.CONNECT))
    assert is_counted(Fault(kind=FaultKind.LOCAL))


def test_every_alert_has_a_severity_and_is_in_the_operators_table() -> None:
    page = (DOCS / "operating/monitoring.md").read_text(encoding="utf-8")
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "warn")
        assert rule["annotations"]["summary"].endswith((".", ")."))
        assert f"`{rule['alert']}`" in page
