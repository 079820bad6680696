"""Assets: the files that pages load, read once from the package.

Their names are the whole of what `/static/` serves; the digest is part of the address that pages
use, so that a browser may keep a file for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Final

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
