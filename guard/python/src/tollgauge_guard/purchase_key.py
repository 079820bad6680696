"""The keys by which the journal knows accounts and purchases (guard/cases/purchases.json)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tollgauge_guard.errors import GuardError
from tollgauge_guard.resource import MCP, ResourceError, parse

KEY_MAX: Final = 256
_HEADERS: Final = ("range", "accept", "content-type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """A purchase: the request, identified by keys that do not contain its query or body.

    `wallets` are the addresses of the client's wallets, `account` is their digest.
    """

    account: str
    wallets: tuple[str, ...]
    session: str
    key: str
    host: str
    resource: str
    url_digest: str


def account_id(wallets: Iterable[str]) -> str:
    """Return the account of a client: a digest of its wallets on all networks."""
    names = {wallet.lower() if wallet.startswith("0x") else wallet for wallet in wallets}
    digest = hashlib.sha256("\n".join(sorted(names)).encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def given_key(purchase: str) -> str:
    """Return the key of a purchase that the caller named. Raises GuardError."""
    if not purchase or len(purchase) > KEY_MAX:
        raise GuardError(f"A purchase is named by 1 to {KEY_MAX} characters.")
    return f"key:{purchase}"


def request_key(method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return the key of a purchase that is known by its request only.

    The names of `headers` are looked up in lower case; the mappings of httpx and requests ignore
    case.
    """
    parts = [method.upper(), canonical_url(url)]
    parts += [headers.get(name, "").strip() for name in _HEADERS]
    digests = [hashlib.sha256(part.encode()).digest() for part in parts]
    digests.append(hashlib.sha256(body).digest())
    return f"sha256:{hashlib.sha256(b''.join(digests)).hexdigest()}"


def url_digest(url: str) -> str:
    """Return the hex SHA-256 of a canonical URL with its query."""
    return hashlib.sha256(canonical_url(url).encode()).hexdigest()


def canonical_url(url: str) -> str:
    """Return the canonical resource and the query as it was sent; no fragment is sent."""
    whole = url.partition("#")[0]
    _, mark, query = whole.partition("?")
    try:
        resource = parse(whole)
    except ResourceError:
        return whole  # the decision refuses it
    return resource.url if resource.scheme == MCP else f"{resource.url}{mark}{query}"
