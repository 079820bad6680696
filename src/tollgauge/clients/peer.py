"""URL and TLS of the operator's own peers: the facilitator and the nodes of the chain."""

from __future__ import annotations

import functools
import ssl
from typing import Annotated
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator


@functools.cache
def public_authorities() -> ssl.SSLContext:
    """Return the TLS context of all httpx clients. Reading the certificates takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


def _web_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # its text may contain a part of the URL, which may be a secret
        valid = False
    if url and (not valid or url.split() != [url]):
        raise ValueError("must be an http:// or https:// URL")
    return url


WebUrl = Annotated[str, AfterValidator(_web_url)]
"""An http or https URL; empty if none is configured."""
