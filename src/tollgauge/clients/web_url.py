"""The URL of a node or a facilitator, as the operator configures it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def _web_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # its text may hold a part of the URL, which may be a secret
        valid = False
    if url and (not valid or url.split() != [url]):
        raise ValueError("must be a http:// or https:// URL")
    return url


WebUrl = Annotated[str, AfterValidator(_web_url)]
"""Over http or https; empty where none is configured."""
