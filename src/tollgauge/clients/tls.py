"""TLS to the nodes and the facilitator: the public certificate authorities are trusted."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def public_authorities() -> ssl.SSLContext:
    """The context of every httpx client; the certificates are read once, which takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)
