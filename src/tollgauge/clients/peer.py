"""What the clients of the operator's own peers share: URL, TLS, and a circuit breaker.

Peers are the facilitator and the nodes of the chain. A peer that stays silent is left alone: after
SILENT consecutive calls without an answer the breaker opens, and one call per TRIAL_S passes until
any answer, good or bad, closes it. Errors do not open it: whoever can make a peer fail must not be
able to shut it off for others.
"""

from __future__ import annotations

import functools
import ssl
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator

SILENT: Final = 5
TRIAL_S: Final = 2.0


class Breaker:
    """The state of one kind of call to one peer. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._silent = 0
        self._trial_at = 0.0

    def passes(self, now_s: float) -> bool:
        """Whether a call may be made now; while the breaker is open, a yes is the trial."""
        if self._silent < SILENT:
            return True
        if now_s < self._trial_at:
            return False
        self._trial_at = now_s + TRIAL_S
        return True

    def answered(self) -> None:
        """Record an answer of the peer."""
        self._silent = 0

    def stayed_silent(self, now_s: float) -> None:
        """Record a call that ended without an answer."""
        self._silent += 1
        if self._silent == SILENT:
            self._trial_at = now_s + TRIAL_S


@functools.cache
def public_authorities() -> ssl.SSLContext:
    """The context of every httpx client; the certificates are read once, which takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


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
