"""Whom we trust to say who a counterparty is that the operator names: the public authorities."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def public_authorities() -> ssl.SSLContext:
    """The context of every client; to read the certificates takes 20 ms, so they are read once."""
    return httpx.create_ssl_context(trust_env=False)
