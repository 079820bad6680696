"""ListedItem: one entry of a directory, in any form that directories use.

Rules (x402 specification, discovery):
- an entry is an object of x402 v1 or v2, or a bare URL, also as `METHOD url`;
- identity is host and path: `http://` on its default port is upgraded; other schemes and addresses
  that are not public are skipped with a reason; path templates are kept;
- an MCP tool is identified by its server and name (core/endpoint/identity);
- an entry without terms that states that it is free is not for sale;
- parsing never raises: an entry becomes a ListedItem or a SkippedItem.

core/directory/declared reads the input, core/lint the terms, core/base/text the texts,
core/directory/page whole documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.text import DESCRIPTION_MAX, NAME_MAX, clean_tags, clean_text
from tollgauge.core.base.units import BASE, LEGACY_NETWORKS, canonical_address
from tollgauge.core.directory.declared import declared_input, read_method
from tollgauge.core.directory.entry_record import EntryStatement, read_statement
from tollgauge.core.endpoint.identity import (
    PUBLIC,
    URL_MAX,
    Perimeter,
    Resource,
    ResourceError,
    Transport,
    agent_url,
    parse_resource,
    tool_url,
)
from tollgauge.core.endpoint.terms import Quote, UnpricedTerms, select_terms
from tollgauge.core.lint.accepts import ENTRIES_MAX, terms_of_accepts
from tollgauge.core.lint.parsing import members

EXCERPT_MAX: Final = 80
UNVERIFIED: Final = "x-unverified"
"""Key of a raw entry whose document declares a 402 response without terms."""
_ADDRESS_MAX: Final = 256
_SCHEME_MAX: Final = 64
_FREE_KEYS: Final = ("type", "mode", "pricingMode", "pricing", "price", "access")

REASONS: Final[Mapping[str, str]] = {
    "not-an-object": "neither an object nor a URL",
    "no-resource": "no resource URL in it",
    "mcp": "an MCP tool without a server URL or a name, or not over streamable HTTP",
    "free": "free of charge",
    "scheme-not-http": "a scheme other than https",
    "not-https": "plain http on a non-default port",
    "not-public": "not on the public internet",
    "invalid-url": "not a URL",
    "too-large": "too large to be read",
    "unreadable": "malformed",
}
"""The reasons to skip an entry, with their meaning."""
UNREADABLE: Final = frozenset({"too-large", "unreadable"})
"""The reasons that leave open which endpoint an entry lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """One readable directory entry.

    Attributes:
        method, body: Declared input, with the resource's query; `body` is JSON.
        quote: The preferred advertised price; None if there is none.
        scheme: The scheme of `quote`; empty without one.
        statement: Quality figures and status that the directory states, if any.
        unpriced: The payee of an entry without a price, if it names one.
        unverified: Its document declares a 402 without terms.
        service_name, description, tags: The provider's texts, untrusted, cleaned by core/base/text.
    """

    resource: Resource
    version: int | None = None
    method: str | None = None
    body: bytes | None = None
    quote: Quote | None = None
    scheme: str = ""
    statement: EntryStatement | None = None
    unpriced: UnpricedTerms | None = None
    unverified: bool = False
    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedItem:
    """One entry that could not be read: `reason` is a key of REASONS, `excerpt` short and safe.

    clients/directories reports `too-large` and `unreadable` for entries that it could not read.
    """

    reason: str
    excerpt: str = ""


def read_item(item: object, perimeter: Perimeter = PUBLIC) -> ListedItem | SkippedItem:
    """Parse one directory entry. Never raises."""
    if isinstance(item, SkippedItem):
        return item
    if isinstance(item, str):
        item = _read_line(item)
    if not isinstance(item, dict):
        return SkippedItem(reason="not-an-object", excerpt=type(item).__name__)
    accepts = _list_accepts(item)
    url = _find_url(item, accepts)
    if not url:
        return SkippedItem(reason="no-resource", excerpt=clean_text(item.get("type"), EXCERPT_MAX))
    declared = declared_input(item)
    excerpt = clean_text(url, EXCERPT_MAX)
    is_tool = declared.transport is Transport.MCP
    if url.lower().startswith("mcp:") or (is_tool and not declared.tool):
        return SkippedItem(reason="mcp", excerpt=excerpt)
    if is_tool:
        url = tool_url(url, declared.tool)
    elif declared.transport is Transport.A2A:
        url = agent_url(url)
    try:
        resource = parse_resource(url, perimeter, upgrade_http=True)
    except ResourceError as error:
        return SkippedItem(reason=_find_reason(error, url), excerpt=excerpt)
    if not accepts and is_free(item):
        return SkippedItem(reason="free", excerpt=excerpt)
    version = _find_version(item, accepts)
    selected = select_terms(terms_of_accepts(accepts, version=version or 2))
    holders = tuple(_list_holders(item, accepts))
    return ListedItem(
        resource=resource if resource.query else _add_query(resource, declared.query),
        version=version,
        method=declared.method,
        body=declared.body,
        quote=selected.quote() if selected else None,
        scheme=clean_text(selected.scheme, _SCHEME_MAX) if selected else "",
        statement=read_statement(item),
        unpriced=None if selected else _find_unpriced(item, accepts),
        unverified=item.get(UNVERIFIED) is True,
        service_name=_find_text(holders, "serviceName", NAME_MAX),
        description=_find_text(holders, "description", DESCRIPTION_MAX),
        tags=next((tags for holder in holders if (tags := clean_tags(holder.get("tags")))), ()),
    )


def is_free(terms: Mapping[str, object]) -> bool:
    """Return whether an entry, or the payment information of an operation (`x-payment-info`),
    states that it is free.

    That is `free: true`, a word like `type: "free"`, `authMode: "unprotected"`, or a fixed price of
    zero.
    """
    if terms.get("free") is True or _read_word(terms.get("authMode")) == "unprotected":
        return True
    if any(_read_word(terms.get(key)) == "free" for key in _FREE_KEYS):
        return True
    if "dynamic" in (_read_word(terms.get("mode")), _read_word(terms.get("pricingMode"))):
        return False
    price = terms.get("price", terms.get("amount"))
    if isinstance(price, dict):
        return is_free(price)
    return _is_zero(price)


def _read_word(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _is_zero(price: object) -> bool:
    if isinstance(price, str):
        digits = price.strip().removeprefix("$").strip()
        return digits.isascii() and "0" in digits and not digits.replace(".", "", 1).strip("0")
    return isinstance(price, int | float) and not isinstance(price, bool) and price == 0


def _read_line(line: str) -> dict[str, object]:
    """Return the entry for a bare URL, also as `METHOD url`."""
    first, _, rest = line.strip().partition(" ")
    method = read_method(first)
    return {"resource": rest.strip(), "method": method} if method else {"resource": line}


def _find_url(item: Mapping[str, object], accepts: list[dict[str, object]]) -> str:
    """Return the entry's URL: `resource` or `url`, as string or as an object with a `url`;
    otherwise that of its first v1 terms.
    """
    values = [item.get("resource"), item.get("url")]
    values += [entry.get("resource") for entry in accepts[:1]]
    for value in values:
        url = members(value).get("url", value)
        if isinstance(url, str) and url.strip():
            return url.strip()
    return ""


def _list_accepts(item: Mapping[str, object]) -> list[dict[str, object]]:
    value = item.get("accepts")
    entries = value[:ENTRIES_MAX] if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _find_unpriced(
    item: Mapping[str, object], accepts: list[dict[str, object]]
) -> UnpricedTerms | None:
    """Return the first terms that name a payee, on Base if possible."""
    receivers = [terms for terms in map(_read_receiver, (*accepts, item)) if terms is not None]
    return min(receivers, key=lambda terms: terms.network != BASE, default=None)


def _read_receiver(entry: Mapping[str, object]) -> UnpricedTerms | None:
    pay_to = _read_address(entry.get("payTo"))
    if not pay_to:
        return None
    network = clean_text(entry.get("network"), _ADDRESS_MAX)
    return UnpricedTerms(
        network=LEGACY_NETWORKS.get(network, network),
        asset=_read_address(entry.get("asset")),
        pay_to=pay_to,
    )


def _read_address(value: object) -> str:
    return canonical_address(clean_text(value, _ADDRESS_MAX))


def _find_version(item: Mapping[str, object], accepts: list[dict[str, object]]) -> int | None:
    """Return the version that the entry states, otherwise the one that its amounts imply."""
    stated = item.get("x402Version")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated in (1, 2):
        return stated
    if any("maxAmountRequired" in entry for entry in accepts):
        return 1
    return 2 if any("amount" in entry for entry in accepts) else None


def _find_reason(error: ResourceError, url: str) -> str:
    """Return the key of REASONS for a URL that is not a resource."""
    scheme = url.partition(":")[0].lower()
    if error.code == "resource-not-https" and scheme != "http":
        return "scheme-not-http" if "://" in url else "invalid-url"
    return {"resource-not-https": "not-https", "resource-not-public": "not-public"}.get(
        error.code, "invalid-url"
    )


def _add_query(resource: Resource, query: str) -> Resource:
    fits = len(resource.url) + 1 + len(query) <= URL_MAX
    return replace(resource, query=query) if query and fits else resource


def _list_holders(
    item: Mapping[str, object], accepts: list[dict[str, object]]
) -> Iterator[Mapping[str, object]]:
    """Yield every object that may contain the provider's text, nearest first."""
    for holder in (item, *accepts):
        yield holder
        for key in ("resource", "metadata"):
            inner = holder.get(key)
            if isinstance(inner, dict):
                yield inner


def _find_text(holders: Iterable[Mapping[str, object]], key: str, limit: int) -> str:
    for holder in holders:
        if text := clean_text(holder.get(key), limit):
            return text
    return ""
