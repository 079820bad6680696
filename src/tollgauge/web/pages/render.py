"""The template engine of the pages, and the files that pages load.

Every expression is cleaned of invisible characters and then escaped; a misspelt name in a template
is an error; each function of web/pages/labels is a filter.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tollgauge.core.base.units import iso_seconds as iso
from tollgauge.core.base.units import minute
from tollgauge.monitor.ranking import MORE_MAX, SITE_ROWS
from tollgauge.web.pages import labels


def render(name: str, base_url: str, **values: object) -> bytes:
    """A page from its template; `base` is the public address, and links start with its path."""
    base = base_url.rstrip("/")
    page = _ENGINE.get_template(name)
    return page.render(base=base, root=urlsplit(base).path, **values).encode()


def _visible(value: object) -> object:
    """Applied to every expression of a template: removes invisible characters from a text."""
    if type(value) is str and value.isascii() and value.isprintable():  # most, and there are many
        return value
    if isinstance(value, str) and not isinstance(value, Markup):
        return labels.plain(value)
    return value


def _ticked(text: str) -> Markup:
    """A message of ours with the parts between backticks as code."""
    parts = labels.plain(text).split("`")
    code = Markup('<span class="code">{}</span>')
    return Markup("").join(
        code.format(part) if index % 2 and index + 1 < len(parts) else escape(part)
        for index, part in enumerate(parts)
    )


@lru_cache(maxsize=256)
def _dots(host: str) -> Markup:
    """A host that may break after its dots rather than inside a label."""
    return Markup(".<wbr>").join(labels.plain(host).split("."))


@lru_cache(maxsize=32)
def _chip(grade: str | None) -> Markup:
    """A grade, or a dash without one, in its colours."""
    chip = Markup('<span class="chip {}"><span class="sr">Grade </span>{}</span>')
    return chip.format(labels.grade_class(grade), grade or labels.DASH)


@lru_cache(maxsize=32)
def _recommendation(value: str) -> Markup:
    """A recommendation in its colours."""
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
    engine.filters |= {"chip": _chip, "recommendation": _recommendation, "ticked": _ticked}
    engine.globals |= {"asset": _asset, "dash": labels.DASH, "meanings": labels.RECOMMENDATIONS}
    engine.globals |= {"more_max": MORE_MAX, "site_rows": SITE_ROWS}
    return engine


_ENGINE: Final = _engine()


_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file: its media type, its bytes, and a digest that changes with the bytes."""

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
"""Every asset by its name."""
