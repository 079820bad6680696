"""ListedItem: one entry of a directory, read from whatever form the directory wrote it in.

Rules (x402 specification, discovery):
- an entry is an object of x402 v1 or v2, or a bare URL, also as `METHOD url`;
- identity is host and path: `http://` on its default port is upgraded, other schemes, MCP tools and
  what is not public are skipped with a reason, a path template is not;
- an entry without terms that says itself that it is free is not for sale;
- reading never raises: an entry becomes a ListedItem or a SkippedItem.

core/directory/declared reads the input, core/lint the terms, core/base/text the texts,
core/directory/page whole documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.text import DESCRIPTION_MAX, NAME_MAX, clean_tags, clean_text
from tollgauge.core.base.units import BASE, legacy_network
from tollgauge.core.directory.declared import as_mapping, declared_input, read_method
from tollgauge.core.endpoint.identity import (
    PUBLIC,
    URL_MAX,
    Perimeter,
    Resource,
    ResourceError,
    parse_resource,
)
from tollgauge.core.endpoint.terms import Quote, UnpricedTerms, preferred
from tollgauge.core.lint import terms_of_accepts
from tollgauge.core.lint.parsing import ENTRIES_MAX

EXCERPT_MAX: Final = 80
UNVERIFIED: Final = "x-unverified"
"""The member of a raw entry whose document states that it answers 402, and no terms."""
_ADDRESS_MAX: Final = 256
_FREE_KEYS: Final = ("type", "mode", "pricingMode", "pricing", "price", "access")

REASONS: Final[Mapping[str, str]] = {
    "not-an-object": "neither an object nor a URL",
    "no-resource": "no resource URL in it",
    "mcp": "a tool of an MCP server, not an HTTP endpoint",
    "free": "free of charge, so nothing is sold",
    "scheme-not-http": "a scheme other than https",
    "not-https": "plain http on a port of its own",
    "not-public": "not on the public internet",
    "invalid-url": "not a URL",
    "too-large": "too large to be read",
    "unreadable": "broken where it stands",
}
"""What each reason to skip an entry means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """One directory entry that could be read.

    `method`, `body` (JSON bytes) and the resource's query are the declared input; `quote` is the
    preferred advertised price, None when the entry names none; then `unpriced` says who is paid, if
    the entry does. `unverified`: its document declares a 402 and no terms. The texts are the
    provider's own and untrusted; core/base/text has cleaned them.
    """

    resource: Resource
    version: int | None = None
    method: str | None = None
    body: bytes | None = None
    quote: Quote | None = None
    unpriced: UnpricedTerms | None = None
    unverified: bool = False
    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedItem:
    """One entry that could not be read: `reason` is one of REASONS, `excerpt` short and safe.

    clients/directories gives `too-large` and `unreadable`, for entries that it could not read.
    """

    reason: str
    excerpt: str = ""


def read_item(item: object, perimeter: Perimeter = PUBLIC) -> ListedItem | SkippedItem:
    """One directory entry. Never raises."""
    if isinstance(item, SkippedItem):
        return item
    if isinstance(item, str):
        item = _from_line(item)
    if not isinstance(item, dict):
        return SkippedItem(reason="not-an-object", excerpt=type(item).__name__)
    accepts = _accepts(item)
    url = _url(item, accepts)
    if not url:
        return SkippedItem(reason="no-resource", excerpt=clean_text(item.get("type"), EXCERPT_MAX))
    declared = declared_input(item)
    excerpt = clean_text(url, EXCERPT_MAX)
    if declared.kind == "mcp" or url.lower().startswith("mcp:"):
        return SkippedItem(reason="mcp", excerpt=excerpt)
    try:
        resource = parse_resource(url, perimeter, upgrade_http=True)
    except ResourceError as error:
        return SkippedItem(reason=_reason(error, url), excerpt=excerpt)
    if not accepts and is_free(item):
        return SkippedItem(reason="free", excerpt=excerpt)
    version = _version(item, accepts)
    quote = preferred(terms_of_accepts(accepts, version=version or 2))
    holders = tuple(_holders(item, accepts))
    return ListedItem(
        resource=resource if resource.query else _with_query(resource, declared.query),
        version=version,
        method=declared.method,
        body=declared.body,
        quote=quote,
        unpriced=None if quote else _unpriced(item, accepts),
        unverified=item.get(UNVERIFIED) is True,
        service_name=_first_text(holders, "serviceName", NAME_MAX),
        description=_first_text(holders, "description", DESCRIPTION_MAX),
        tags=next((tags for holder in holders if (tags := clean_tags(holder.get("tags")))), ()),
    )


def is_free(terms: Mapping[str, object]) -> bool:
    """Whether an entry, or what an operation says of its payment (`x-payment-info`), says that
    nothing is paid: `free: true`, a word like `type: "free"`, `authMode: "unprotected"`, or a fixed
    price of zero.
    """
    if terms.get("free") is True or _word(terms.get("authMode")) == "unprotected":
        return True
    if any(_word(terms.get(key)) == "free" for key in _FREE_KEYS):
        return True
    if "dynamic" in (_word(terms.get("mode")), _word(terms.get("pricingMode"))):
        return False
    price = terms.get("price", terms.get("amount"))
    if isinstance(price, dict):
        return is_free(price)
    return _is_zero(price)


def _word(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _is_zero(price: object) -> bool:
    if isinstance(price, str):
        digits = price.strip().removeprefix("$").strip()
        return digits.isascii() and "0" in digits and not digits.replace(".", "", 1).strip("0")
    return isinstance(price, int | float) and not isinstance(price, bool) and price == 0


def _from_line(line: str) -> dict[str, object]:
    """The entry that a bare URL is, also as `METHOD url`."""
    first, _, rest = line.strip().partition(" ")
    method = read_method(first)
    return {"resource": rest.strip(), "method": method} if method else {"resource": line}


def _url(item: Mapping[str, object], accepts: list[dict[str, object]]) -> str:
    """The entry's URL: `resource` or `url`, as text or as an object with a `url`; else what the
    first of its v1 terms names.
    """
    values = [item.get("resource"), item.get("url")]
    values += [entry.get("resource") for entry in accepts[:1]]
    for value in values:
        url = as_mapping(value).get("url", value)
        if isinstance(url, str) and url.strip():
            return url.strip()
    return ""


def _accepts(item: Mapping[str, object]) -> list[dict[str, object]]:
    value = item.get("accepts")
    entries = value[:ENTRIES_MAX] if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _unpriced(item: Mapping[str, object], accepts: list[dict[str, object]]) -> UnpricedTerms | None:
    """Who is paid, by the first of the terms (on Base if there is one) that names a receiver."""
    receivers = [terms for terms in map(_receiver, (*accepts, item)) if terms is not None]
    return min(receivers, key=lambda terms: terms.network != BASE, default=None)


def _receiver(entry: Mapping[str, object]) -> UnpricedTerms | None:
    pay_to = _address(entry.get("payTo"))
    if not pay_to:
        return None
    network = clean_text(entry.get("network"), _ADDRESS_MAX)
    return UnpricedTerms(
        network=legacy_network(network) or network,
        asset=_address(entry.get("asset")),
        pay_to=pay_to,
    )


def _address(value: object) -> str:
    text = clean_text(value, _ADDRESS_MAX)
    return text.lower() if text.startswith("0x") else text


def _version(item: Mapping[str, object], accepts: list[dict[str, object]]) -> int | None:
    """The version that the entry states, else the one whose amount its terms carry."""
    stated = item.get("x402Version")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated in (1, 2):
        return stated
    if any("maxAmountRequired" in entry for entry in accepts):
        return 1
    return 2 if any("amount" in entry for entry in accepts) else None


def _reason(error: ResourceError, url: str) -> str:
    """Which of REASONS keeps a URL from being a resource."""
    scheme = url.partition(":")[0].lower()
    if error.code == "resource-not-https" and scheme != "http":
        return "scheme-not-http" if "://" in url else "invalid-url"
    return {"resource-not-https": "not-https", "resource-not-public": "not-public"}.get(
        error.code, "invalid-url"
    )


def _with_query(resource: Resource, query: str) -> Resource:
    fits = len(resource.url) + 1 + len(query) <= URL_MAX
    return replace(resource, query=query) if query and fits else resource


def _holders(
    item: Mapping[str, object], accepts: list[dict[str, object]]
) -> Iterator[Mapping[str, object]]:
    """Every object that may hold the provider's text, nearest first."""
    for holder in (item, *accepts):
        yield holder
        for key in ("resource", "metadata"):
            inner = holder.get(key)
            if isinstance(inner, dict):
                yield inner


def _first_text(holders: Iterable[Mapping[str, object]], key: str, limit: int) -> str:
    for holder in holders:
        if text := clean_text(holder.get(key), limit):
            return text
    return ""
