"""Assets: the files that pages load, read once from the package.

Their names are the whole of what `/static/` serves; the digest is part of the address that pages
use, so that a browser may keep a file for ever.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file: its bytes, its media type, and a digest that changes with the bytes."""

    name: str
    media_type: str
    body: bytes
    digest: str


def _load() -> dict[str, Asset]:
    assets: dict[str, Asset] = {}
    for entry in resources.files("tollgauge.web.pages").joinpath("static").iterdir():
        media_type = _MEDIA_TYPES.get(entry.name.rsplit(".", 1)[-1])
        if media_type is not None:
            body = entry.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            assets[entry.name] = Asset(
                name=entry.name, media_type=media_type, body=body, digest=digest
            )
    return assets


ASSETS: Final[dict[str, Asset]] = _load()
"""Every asset by its name."""
