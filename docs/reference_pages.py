"""The pages of docs/reference. Commands, metrics, flags and policies are defined here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any, Final

import typer
from prometheus_client.metrics import MetricWrapperBase
from typer.cli import get_docs_for_click

from docs.api import api
from docs.configuration import configuration
from docs.markdown import add_title, table
from tollgauge import observe
from tollgauge.cli import app
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.scoring import FLAG_RULES

# Removed: each command has its own section, and the list truncates their descriptions.
_COMMAND_LIST: Final = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?")
_OWN_TABLES: Final = ("version", "rows", "grades", "caps", "forecast_caps")
"""Fields of a policy with a separate table, here or in the methodology."""


def reference() -> dict[str, str]:
    """Return the pages of the reference by file name."""
    return {
        "reference/api.md": api(),
        "reference/commands.md": commands(),
        "reference/configuration.md": configuration(),
        "reference/metrics.md": metrics(),
        "reference/flags.md": flags(),
        "reference/policies.md": policies(),
    }


def commands() -> str:
    """Return docs/reference/commands.md, generated from the commands."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tollgauge")
    servers = _join_names(without_json(app))
    introduction = (
        f"Commands print text, or JSON with `--json`; {servers} run until they are stopped and "
        "print no result. Exit codes: 0 success, 1 the examined object failed, 2 the command "
        "failed or was misused. Results go to standard output, messages to standard error."
    )
    body = _COMMAND_LIST.sub("", text.partition("\n")[2]).strip()
    return add_title("Command line", "the commands", f"{introduction}\n\n{body}\n")


def without_json(typer_app: typer.Typer) -> tuple[str, ...]:
    """Return the commands that have no option `--json`."""

    def names(command: Any, path: str) -> Iterator[str]:
        parts = getattr(command, "commands", {})
        for name, part in parts.items():
            yield from names(part, f"{path} {name}".strip())
        if not parts and all("--json" not in option.opts for option in command.params):
            yield path

    return tuple(names(typer.main.get_command(typer_app), ""))


def _join_names(names: tuple[str, ...]) -> str:
    """`a`, `b` and `c`."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def metrics() -> str:
    """Return docs/reference/metrics.md, generated from the declarations in observe."""
    declared = [
        metric for metric in vars(observe).values() if isinstance(metric, MetricWrapperBase)
    ]
    rows = [
        (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), words)
        for name, kind, labels, words in sorted(map(_metric, declared))
    ]
    introduction = (
        "`/metrics` on `server.admin_port` uses the Prometheus text format; each `serve`, `work` "
        "and `run` process has it. A histogram has the series `_bucket`, `_sum` and `_count`. "
        "Alert rules and a dashboard are in [Operating](../operating/monitoring.md)."
    )
    page = table(("metric", "type", "labels", "description"), rows)
    return add_title("Metrics", "src/tollgauge/observe.py", f"{introduction}\n\n{page}\n")


def _metric(metric: MetricWrapperBase) -> tuple[str, str, tuple[str, ...], str]:
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = tuple(metric._labelnames)  # noqa: SLF001 - the library has no public accessor
    return name, family.type, labels, family.documentation


def flags() -> str:
    """Return docs/reference/flags.md: the flags of the policy."""
    limits = {cap.code: f"{cap.limit_tenths / 10:g}" for cap in POLICY.caps}
    rows = [
        (f"`{rule.code}`", rule.severity.value, rule.words, rule.fix, limits.get(rule.code, ""))
        for severity in Severity
        for rule in sorted(FLAG_RULES, key=lambda rule: rule.code)
        if rule.severity is severity
    ]
    introduction = (
        f"Flags in reports, snapshots and pages under policy {POLICY.version}. A number in the "
        "last column is the maximum score of an endpoint with that flag. Each finding of the "
        "latest envelope also raises the flag `lint:<rule>`; its severity and fix are those of "
        "the [lint rule](../lint-rules.md)."
    )
    head = ("flag", "severity", "condition", "fix", "cap")
    return add_title(
        "Flags",
        "core/score/probe_flags and core/score/listing_flags",
        f"{introduction}\n\n{table(head, rows)}\n",
    )


def policies() -> str:
    """Return docs/reference/policies.md: every number of the policy."""
    others = [field.name for field in fields(Policy) if field.name not in _OWN_TABLES]
    introduction = (
        "Every number that scores depend on. The [methodology](../methodology.md) explains them; "
        "the names are those of the fields in `core/score/policy.py`. "
        f"The current policy is {POLICY.version}."
    )
    sections = (
        introduction,
        "## Weights\n\nIn points of 100.",
        _two_columns("component", POLICY.weights.items()),
        "## Grades\n\nThe minimum score of each grade; below the last one the grade is F.",
        _two_columns("grade", POLICY.grades),
        "## Caps\n\nThe maximum score with a flag.",
        _two_columns("flag", [(cap.code, f"{cap.limit_tenths / 10:g}") for cap in POLICY.caps]),
        "Caps by forecast are in the [methodology](../methodology.md#forecast).",
        "## Other numbers",
        _two_columns("field", [(name, _number(getattr(POLICY, name), name)) for name in others]),
    )
    return add_title("Policy table", "core/score/policy.py", "\n\n".join(sections) + "\n")


def _two_columns(what: str, rows: Iterable[tuple[str, object]]) -> str:
    return table((what, "value"), [(f"`{name}`", value) for name, value in rows])


def _number(value: Any, name: str) -> str:
    """Format a number or a table of numbers."""
    if name.endswith("_ms"):
        return f"{value // DAY_MS} d" if value % DAY_MS == 0 else f"{value // HOUR_MS} h"
    if isinstance(value, tuple):
        return ", ".join(_items(value))
    if isinstance(value, Fraction):
        return f"{float(value):g}"
    return f"{value:,}"


def _items(values: tuple[Any, ...]) -> Iterator[str]:
    for value in values:
        yield f"{value[0]:,} → {value[1]:,}" if isinstance(value, tuple) else f"{value:,}"
