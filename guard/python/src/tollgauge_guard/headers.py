"""Headers that must not leave: credentials for another origin, payments, and hop-by-hop headers."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, Final

from tollgauge_guard.receipt import PAYMENT_HEADERS
from tollgauge_guard.resource import ResourceError, parse

_CREDENTIALS: Final = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"),
        *("x-auth-token", "sign-in-with-x", *PAYMENT_HEADERS),
    }
)
"""Headers that never follow a redirect to another origin."""
_HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        "proxy-connection",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1)."""


def drop_credentials(hops: Sequence[str], url: str, headers: MutableMapping[str, Any]) -> None:
    """Remove the credentials from a redirected request to another origin than the first one.

    Args:
        hops: the URLs that redirected to it.
        url: its URL.
        headers: its headers, which are changed.
    """
    if not hops or _is_same_origin(hops[0], url):
        return
    for name in [name for name in headers if name.lower() in _CREDENTIALS]:
        del headers[name]


def drop_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers without payments, and without those of one connection (RFC 9110)."""
    kept = list(headers)
    named = {
        token.strip().lower()
        for name, value in kept
        if name.lower() == "connection"
        for token in value.split(",")
    }
    dropped = _HOP_BY_HOP | PAYMENT_HEADERS | named | {"sign-in-with-x"}
    return [(name, value) for name, value in kept if name.lower() not in dropped]


def _is_same_origin(first: str, other: str) -> bool:
    """Whether two URLs have one origin.

    From `http` to `https` on the default ports is not a change: a party that can read the second
    could read the first.
    """
    try:
        asked, landed = parse(first), parse(other)
    except ResourceError:
        return False
    is_upgrade = (asked.scheme, landed.scheme) == ("http", "https") and asked.names_host_of(landed)
    return asked.origin == landed.origin or is_upgrade
