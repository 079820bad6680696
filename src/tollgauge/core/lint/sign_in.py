"""Challenges of the extension `sign-in-with-x`: whether the official client signs them.

The client binds a challenge to the origin that sent the 402 and writes it as an EIP-4361 message,
whose grammar (RFC 3986, RFC 3339) limits each member; npm @x402/extensions 2.27 with
@signinwithethereum/siwe. It selects the first chain with the type of its account's signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Final
from urllib.parse import urlsplit

from tollgauge.core.lint.parsing import members

SIGN_IN: Final = "sign-in-with-x"
_URI_CHARACTER: Final = r"(?:[!#$&-;=?-Z_a-z~]|%[0-9A-Fa-f]{2})"
_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_CHARACTER}*")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)"
    r"(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_REQUIRED: Final = {
    "version": re.compile("1"),
    "nonce": re.compile("[A-Za-z0-9]{8,}"),
    "issuedAt": _TIME,
}
_OPTIONAL: Final = {
    "expirationTime": _TIME,
    "notBefore": _TIME,
    "statement": re.compile(r"[ !#$&-;=?-\[\]_a-z~]*"),
    "requestId": re.compile(r"(?:[!$&-.0-;=@-Z_a-z~]|%[0-9A-Fa-f]{2})*"),
}
_CHAINS: Final = {
    "eip191": re.compile(r"eip155:[0-9]+"),
    "ed25519": re.compile(r"solana:[-_A-Za-z0-9]{1,32}"),
}
"""The chain IDs (CAIP-2) that can have each type of signature."""
_PORTS: Final = {"https": ":443", "http": ":80"}


def find_challenge_faults(extension: Mapping[str, object], url: str) -> Iterator[str]:
    """Yield the paths of the members for which the official client does not sign a challenge.

    Args:
        extension: The members of the extension.
        url: The URL that sent the 402; empty if it is not known, so that no origin is compared.
    """
    info = members(extension.get("info"))
    uri = info.get("uri")
    domain, origin = info.get("domain"), _find_origin(url)
    if not (isinstance(domain, str) and domain) or (url and domain != origin[1]):
        yield "info.domain"
    is_uri = isinstance(uri, str) and _URI.fullmatch(uri)
    if not is_uri or (url and _find_origin(str(uri)) != origin):
        yield "info.uri"
    for name, form in _REQUIRED.items():
        if not _matches(info.get(name), form):
            yield f"info.{name}"
    for name, form in _OPTIONAL.items():
        if info.get(name) not in (None, "") and not _matches(info[name], form):
            yield f"info.{name}"
    resources = info.get("resources")
    listed = resources if isinstance(resources, list) else [None]
    if resources is not None and not all(_matches(one, _URI) for one in listed):
        yield "info.resources"
    yield from _find_chain_faults(extension.get("supportedChains"))


def _find_chain_faults(chains: object) -> Iterator[str]:
    rows = chains if isinstance(chains, list) else []
    forms = [_CHAINS.get(str(members(row).get("type"))) for row in rows]
    if not any(forms):
        yield "supportedChains"
    for index, (row, form) in enumerate(zip(rows, forms, strict=True)):
        if not isinstance(row, dict) or (form and not _matches(row.get("chainId"), form)):
            yield f"supportedChains[{index}]"


def _matches(value: object, form: re.Pattern[str]) -> bool:
    """Return whether a value is a text of a form; a time must also be on a date that exists."""
    found = form.fullmatch(value) if isinstance(value, str) else None
    if found is None or form is not _TIME:
        return found is not None
    try:
        date.fromisoformat(found[1])
    except ValueError:
        return False
    return True


def _find_origin(url: str) -> tuple[str, str]:
    """Return the scheme, and the host with a port that is not the scheme's own."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    host = parts.netloc.rpartition("@")[2].lower()
    return parts.scheme, host.removesuffix(_PORTS.get(parts.scheme, ":"))
