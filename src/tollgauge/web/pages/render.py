"""The template engine and the static files of the pages.

Every expression is stripped of invisible characters and then escaped. An undefined name in a
template is an error.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tollgauge.core.base.units import iso_seconds as iso
from tollgauge.core.base.units import known_asset, minute, network_of
from tollgauge.core.endpoint.identity import tool_name
from tollgauge.core.score.calibration import BIN_MIN, groups, qualities, reliability
from tollgauge.monitor.ranking import MORE_MAX, SITE_ROWS
from tollgauge.web.pages import labels
from tollgauge.web.pages.charts import days, pictures
from tollgauge.web.wire.wallet_answers import wallet_path


def render(name: str, base_url: str, **values: Any) -> bytes:
    """Render a template; links in it start with the path of `base_url`. A page has a notice if it
    is `simulated`, or if one of its `rows` is.
    """
    base, rows = base_url.rstrip("/"), values.get("rows", ())
    values["simulated"] = values.get("simulated") or any(row.simulated for row in rows)
    page = ENGINE.get_template(name)
    return page.render(base=base, root=urlsplit(base).path, **values).encode()


def _visible(value: object) -> object:
    """Remove invisible characters from the value of a template expression."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return labels.plain(value)
    return value


def _mark_code(text: str) -> Markup:
    """Mark up the parts of a message between backticks as code."""
    parts = labels.plain(text).split("`")
    code = Markup('<span class="code">{}</span>')
    return Markup("").join(
        code.format(part) if index % 2 and index + 1 < len(parts) else escape(part)
        for index, part in enumerate(parts)
    )


def _dots(host: str) -> Markup:
    """Allow line breaks after the dots of a host."""
    return Markup(".<wbr>").join(labels.plain(host).split("."))


def _chip(grade: str | None) -> Markup:
    """Mark up a grade in its colours; a dash if there is none."""
    chip = Markup('<span class="chip {}"><span class="sr">Grade </span>{}</span>')
    return chip.format(labels.grade_class(grade), grade or labels.DASH)


def _recommendation(value: str) -> Markup:
    """Mark up a recommendation in its colours."""
    return Markup('<span class="rec rec-{}">{}</span>').format(value, value)


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
    engine.filters |= dict(inspect.getmembers(labels, inspect.isfunction))
    engine.filters |= {"dots": _dots, "iso": iso, "minute": minute}
    engine.filters |= {
        "day_rows": days.day_rows,
        "grade_strip": pictures.grade_strip,
        "latency_lines": days.latency_lines,
        "score_line": days.score_line,
        "uptime_bars": days.uptime_bars,
        "uptime_strip": days.uptime_strip,
        "groups": groups,
        "qualities": qualities,
        "reliability": reliability,
        "chip": _chip,
        "network_of": network_of,
        "recommendation": _recommendation,
        "ticked": _mark_code,
        "tool_name": tool_name,
        "wallet_path": wallet_path,
    }
    engine.globals |= {"asset": _asset, "dash": labels.DASH, "meanings": labels.RECOMMENDATIONS}
    engine.globals |= {
        "component_bar": pictures.component_bar,
        "gauge": pictures.gauge,
        "known_asset": known_asset,
        "reliability_diagram": pictures.reliability_diagram,
        "timeline": pictures.timeline,
        "volume_bars": pictures.volume_bars,
    }
    engine.globals |= {"bin_min": BIN_MIN, "more_max": MORE_MAX, "site_rows": SITE_ROWS}
    return engine


ENGINE: Final = _engine()


_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file; the digest in its URL lets caches keep it."""

    media_type: str
    body: bytes
    digest: str


def _load() -> Iterator[tuple[str, StaticFile]]:
    for entry in resources.files("tollgauge.web.pages").joinpath("static").iterdir():
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            body = entry.read_bytes()
            yield entry.name, StaticFile(media_type, body, hashlib.sha256(body).hexdigest()[:12])


ASSETS: Final[dict[str, StaticFile]] = dict(_load())
"""The static files by name."""
