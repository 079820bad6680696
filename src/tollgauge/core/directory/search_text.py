"""The meaning of a search text: an endpoint's URL, a provider's host, a payTo address, or words
that describe a purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.core.endpoint.identity import (
    Perimeter,
    Resource,
    ResourceError,
    canonical_host,
    parse_resource,
)
from tollgauge.core.lint.accounts import evm_address, solana_key


@dataclass(frozen=True, slots=True)
class Host:
    """A provider's host."""

    name: str


@dataclass(frozen=True, slots=True)
class PayTo:
    """An address that sellers are paid at; hex is lower case."""

    address: str


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a purpose."""

    text: str


Named = Resource | Host | PayTo | Words


def with_scheme(text: str) -> str:
    """Return a URL with its scheme, which pages often omit."""
    return text if "://" in text else f"https://{text}"


def read_search_text(text: str, perimeter: Perimeter) -> Named:
    """Parse a search text.

    With a scheme it is a URL; without one, a single word with a dot is a host, or a URL if a path
    follows; an EVM address or a Solana key is a payTo. Any other text is words.

    Raises:
        ResourceError: A URL, host or address is not on the public internet.
    """
    text = text.strip()
    if "://" in text:
        return parse_resource(text, perimeter, upgrade_http=True)
    if address := evm_address(text) or solana_key(text):
        return PayTo(address)
    authority, slash, path = text.partition("/")
    if "." not in authority.strip(".") or any(char.isspace() for char in text):
        return Words(text)
    try:
        if slash and path:
            return parse_resource(with_scheme(text), perimeter)
        return Host(canonical_host(authority, authority.partition(":")[0], perimeter))
    except ResourceError as error:
        if error.code == "resource-not-public":
            raise
        return Words(text)
