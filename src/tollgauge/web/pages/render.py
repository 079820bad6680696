"""Render: the template engine of the pages.

Rules: every expression is escaped by the engine, and cleaned of unseen characters before that; a
name that a template misspells is an error; figures become words by the filters of web/pages/labels.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tollgauge.web.pages import labels
from tollgauge.web.pages.assets import ASSETS
from tollgauge.web.pages.charts import days

_REASONS: Final = {
    "ours": "our own network or limits",
    "unknown": "nobody can tell whose fault it was",
}


def render(name: str, base_url: str, **values: object) -> bytes:
    """A page from its template; `base` is the public address, and links start with its path."""
    base = base_url.rstrip("/")
    page = _ENGINE.get_template(name)
    return page.render(base=base, root=urlsplit(base).path, **values).encode()


def _visible(value: object) -> object:
    """What every expression of a template passes: text without unseen characters."""
    return (
        labels.plain(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
    )


def _ticked(text: str) -> Markup:
    """A message of ours with what stands between backticks set as code."""
    parts = labels.plain(text).split("`")
    code = Markup('<span class="code">{}</span>')
    return Markup("").join(
        code.format(part) if index % 2 and index + 1 < len(parts) else escape(part)
        for index, part in enumerate(parts)
    )


def _dots(host: str) -> Markup:
    """A host that may break after its dots rather than inside a label."""
    return Markup(".<wbr>").join(labels.plain(host).split("."))


def _grade_class(grade: str | None) -> str:
    return f"grade-{grade.lower()}" if grade in {"A", "B", "C", "D", "F"} else "grade-none"


def _asset(name: str) -> str:
    return f"/static/{name}?v={ASSETS[name].digest}"


def _engine() -> Environment:
    engine = Environment(
        loader=PackageLoader("tollgauge.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_visible,
    )
    engine.filters.update(
        age=labels.age,
        amount=labels.amount,
        authority=labels.authority_of,
        changes=labels.changes,
        count=labels.count,
        day_date=labels.day_date,
        day_uptime=days.day_uptime,
        dollars=labels.dollars,
        dots=_dots,
        grade_class=_grade_class,
        hundredths=labels.hundredths,
        instant=labels.date,
        iso=labels.iso,
        minute=labels.minute,
        ms=labels.milliseconds,
        network_name=labels.network_name,
        path=labels.path_of,
        percent=labels.percent,
        price=labels.price,
        price_stability=labels.price_stability,
        reason=lambda slug: _REASONS.get(slug, slug.replace("-", " ")),
        tenths=labels.tenths,
        ticked=_ticked,
        verdict=labels.verdict_sentence,
    )
    engine.globals.update(asset=_asset, dash=labels.DASH, meanings=labels.RECOMMENDATIONS)
    return engine


_ENGINE: Final = _engine()
