"""The pages of docs/reference; the short ones are made here: commands, metrics, flags, policies."""

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
from docs.markdown import generated, table
from tollgauge import observe
from tollgauge.cli import app
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.scoring import FLAG_RULES

_COMMAND_LIST: Final = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?")
"""Each command has a section of its own; the list cuts their sentences short."""
_OWN_TABLES: Final = ("version", "rows", "grades", "caps", "forecast_caps")
"""Fields of a policy that have a table of their own, here or in the methodology."""


def reference() -> dict[str, str]:
    """The pages of the reference, by file name."""
    return {
        "reference/api.md": api(),
        "reference/commands.md": commands(),
        "reference/configuration.md": configuration(),
        "reference/metrics.md": metrics(),
        "reference/flags.md": flags(),
        "reference/policies.md": policies(),
    }


def commands() -> str:
    """docs/reference/commands.md, from the commands themselves."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tollgauge")
    servers = _listed(without_json(app))
    introduction = (
        f"Commands print text, or JSON with `--json`; {servers} print no result: "
        "they serve until they are stopped. A command exits with 0 (good), 1 (what was "
        "examined is bad) or 2 (the command failed, or was used wrongly). Results go to standard "
        "output, everything else to standard error."
    )
    body = _COMMAND_LIST.sub("", text.partition("\n")[2]).strip()
    return generated("Command line", "the commands", f"{introduction}\n\n{body}\n")


def without_json(typer_app: typer.Typer) -> tuple[str, ...]:
    """The commands that have no option `--json`."""

    def names(command: Any, path: str) -> Iterator[str]:
        parts = getattr(command, "commands", {})
        for name, part in parts.items():
            yield from names(part, f"{path} {name}".strip())
        if not parts and all("--json" not in option.opts for option in command.params):
            yield path

    return tuple(names(typer.main.get_command(typer_app), ""))


def _listed(names: tuple[str, ...]) -> str:
    """`a`, `b` and `c`."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def metrics() -> str:
    """docs/reference/metrics.md, from their declarations in observe."""
    declared = [
        metric for metric in vars(observe).values() if isinstance(metric, MetricWrapperBase)
    ]
    rows = [
        (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), words)
        for name, kind, labels, words in sorted(map(_metric, declared))
    ]
    introduction = (
        "`/metrics` of `server.admin_port` answers in the Prometheus text format; `serve`, `work` "
        "and `run` each have one. A histogram has the series `_bucket`, `_sum` and `_count`. "
        "[Operating](../operating/monitoring.md) has alert rules and a dashboard."
    )
    page = table(("metric", "type", "labels", "what it says"), rows)
    return generated("Metrics", "src/tollgauge/observe.py", f"{introduction}\n\n{page}\n")


def _metric(metric: MetricWrapperBase) -> tuple[str, str, tuple[str, ...], str]:
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = tuple(metric._labelnames)  # noqa: SLF001 - the library says it nowhere else
    return name, family.type, labels, family.documentation


def flags() -> str:
    """docs/reference/flags.md: the flags of the policy."""
    limits = {cap.code: f"{cap.limit_tenths / 10:g}" for cap in POLICY.caps}
    rows = [
        (f"`{rule.code}`", rule.severity.value, rule.words, rule.fix, limits.get(rule.code, ""))
        for severity in Severity
        for rule in sorted(FLAG_RULES, key=lambda rule: rule.code)
        if rule.severity is severity
    ]
    introduction = (
        "What a report, a snapshot or a page can say of an endpoint under policy "
        f"{POLICY.version}. Where the last column has a number, the flag limits the score to it. "
        "`lint:<rule>` is a flag for each finding of the latest envelope; its severity and fix are "
        "those of the [lint rule](../lint-rules.md)."
    )
    head = ("flag", "severity", "fires when", "what a seller can do", "cap")
    return generated(
        "Flags",
        "core/score/probe_flags and core/score/listing_flags",
        f"{introduction}\n\n{table(head, rows)}\n",
    )


def policies() -> str:
    """docs/reference/policies.md: every number of the policy."""
    others = [field.name for field in fields(Policy) if field.name not in _OWN_TABLES]
    introduction = (
        "Every number that a score depends on. What they mean is in the "
        "[methodology](../methodology.md) and in `core/score/policy.py`, "
        "whose field names these are. "
        f"Scores are made by policy {POLICY.version}."
    )
    sections = (
        introduction,
        "## Weights\n\nIn points of 100.",
        _two_columns("component", POLICY.weights.items()),
        "## Grades\n\nThe least score of each; below the last one is F.",
        _two_columns("grade", POLICY.grades),
        "## Caps\n\nThe score that a flag limits to.",
        _two_columns("flag", [(cap.code, f"{cap.limit_tenths / 10:g}") for cap in POLICY.caps]),
        "What the forecast limits is in the [methodology](../methodology.md#forecast).",
        "## Other numbers",
        _two_columns("field", [(name, _number(getattr(POLICY, name), name)) for name in others]),
    )
    return generated("Policy table", "core/score/policy.py", "\n\n".join(sections) + "\n")


def _two_columns(what: str, rows: Iterable[tuple[str, object]]) -> str:
    return table((what, "value"), [(f"`{name}`", value) for name, value in rows])


def _number(value: Any, name: str) -> str:
    """A number or a table of numbers."""
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
