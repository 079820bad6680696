"""An origin's own directory: `/openapi.json` with `x-payment-info`, or `/.well-known/x402`.

Rules (OpenAPI 3.1):
- an origin can only list itself: servers and resources on other hosts are ignored;
- an operation is listed if it has `x-payment-info`, and skipped if that states that it is free;
- an operation without it that declares a 402 is listed as unverified: only a probe shows its terms;
- the price in `x-payment-info` has no payTo and no network, so it is a quote only if it also has
  `accepts`, or x402 terms in `protocols`;
- examples of parameters and bodies are the declared input; `$ref` never leaves the document.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urljoin, urlsplit

from tollgauge.clients.directories.document import DirectoryError, Step, ask, parse_document
from tollgauge.clients.egress.client import Egress
from tollgauge.core.base.text import clean_text
from tollgauge.core.directory.declared import FIELDS_MAX, METHODS, SCHEMA_KEYS
from tollgauge.core.directory.listing import EXCERPT_MAX, UNVERIFIED, SkippedItem, is_free
from tollgauge.core.directory.page import DirectoryPage, list_entries, read_page
from tollgauge.core.lint.parsing import members
from tollgauge.core.probe.exchange import Answer, Fault

_REF_HOPS: Final = 8
_REF_MAX: Final = 512  # characters of a `$ref` that is followed
_LIST_MAX: Final = 256  # entries of a list that are read; thousands of operations may refer to it
ITEMS_MAX: Final = 5_000  # entries of a document that are read
_OPENAPI: Final = "/openapi.json"
_WELL_KNOWN: Final = "/.well-known/x402"

_Read = Callable[[Mapping[str, object], str], tuple[object, ...]]


async def pages(egress: Egress, location: str, *, at: int) -> AsyncGenerator[Step, None]:
    """Yield the single page of an origin. `location` is its base URL or that of either document.
    Raises DirectoryError if neither document can be read.
    """
    origin = parse_origin(location)
    problems: list[str] = []
    for path, read in ((_OPENAPI, from_openapi), (_WELL_KNOWN, from_well_known)):
        items, problem = _items(await ask(egress, origin + path, at=at), origin, read)
        if sells(items):
            page = DirectoryPage(items=items, total=len(items), complete=is_whole(items))
            yield Step(page=page, next_offset=len(items))
            return
        problems.append(f"{path}: {problem}")
    raise DirectoryError(f"The origin lists nothing ({'; '.join(problems)}).")


def _items(result: Answer | Fault, origin: str, read: _Read) -> tuple[tuple[object, ...], str]:
    """Return the entries of a document, and the reason if none is for sale."""
    if isinstance(result, Fault):
        return (), result.kind
    if result.status != 200 or result.truncated:
        return (), f"{result.status}{', too large' if result.truncated else ''}"
    try:
        return read(members(parse_document(result.body)), origin), "no paid operation"
    except DirectoryError as error:
        return (), str(error)


def sells(items: tuple[object, ...]) -> bool:
    """Return whether any entry of a document is for sale."""
    return any(not isinstance(item, SkippedItem) for item in items)


def is_whole(items: tuple[object, ...]) -> bool:
    """Return whether a document has fewer entries than the maximum, so that all were read."""
    return len(items) < ITEMS_MAX


def is_openapi(document: object) -> bool:
    """Return whether a document is an OpenAPI description."""
    fields = members(document)
    return isinstance(fields.get("paths"), dict) and "openapi" in fields


def find_server(document: Mapping[str, object]) -> str | None:
    """Return the origin of the first absolute server URL of an OpenAPI document; None without
    one.
    """
    for url in _server_urls(document):
        if url.startswith(("https://", "http://")):
            with contextlib.suppress(DirectoryError):
                return parse_origin(url)
    return None


def _server_urls(document: Mapping[str, object]) -> Iterator[str]:
    """Yield the URLs of a document's servers, without those that contain a variable."""
    servers = document.get("servers")
    for server in servers if isinstance(servers, list) else ():
        url = members(server).get("url")
        if isinstance(url, str) and "{" not in url:
            yield url


def parse_origin(location: str) -> str:
    """Return scheme and authority of a URL. Raises DirectoryError if it lacks either."""
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise DirectoryError("The source's location is not a URL.") from error
    if not parts.scheme or not parts.netloc:
        raise DirectoryError("The source's location is not a URL.")
    return f"{parts.scheme}://{parts.netloc}"


def from_openapi(document: Mapping[str, object], origin: str) -> tuple[object, ...]:
    """Return the paid operations of an OpenAPI document as directory entries; operations marked as
    free are SkippedItems. Never raises.
    """
    base = _base(document, origin)
    service = members(document.get("info")).get("title")
    items: list[object] = []
    for path, method, fields, operation in itertools.islice(
        _find_paid_operations(document), ITEMS_MAX
    ):
        payment = members(operation.get("x-payment-info"))
        if payment and is_free(payment):
            excerpt = clean_text(f"{method} {path}", EXCERPT_MAX)
            items.append(SkippedItem(reason="free", excerpt=excerpt))
            continue
        lists = (fields.get("parameters"), operation.get("parameters"))
        parameters = dict(itertools.islice(_query_parameters(document, lists), FIELDS_MAX))
        named = {"resource": base + path, "method": method, "serviceName": service}
        named |= {} if payment else {UNVERIFIED: True}
        items.append(_entry(document, operation, payment, parameters) | named)
    return tuple(items)


def _find_paid_operations(
    document: Mapping[str, object],
) -> Iterator[tuple[str, str, Mapping[str, object], Mapping[str, object]]]:
    """Yield each operation with `x-payment-info` or a 402 response: its path, its method in upper
    case, the fields that the operations of the path share, and its own.

    Operations of a path with `x-payment-info` come first, because the first entry of an endpoint is
    used.
    """
    for path, item in members(document.get("paths")).items():
        fields = _resolve(document, item)
        operations = [(name.upper(), members(value)) for name, value in fields.items()]
        for priced in (True, False):
            for method, operation in operations:
                if method not in METHODS or priced != bool(
                    members(operation.get("x-payment-info"))
                ):
                    continue
                if priced or "402" in members(operation.get("responses")):
                    yield path, method, fields, operation


def from_well_known(document: Mapping[str, object], origin: str) -> tuple[object, ...]:
    """Return the entries of a `/.well-known/x402` document. Never raises.

    An entry is an absolute URL of this origin or a path, possibly after a method, or an object
    (core/directory/page).
    """
    page = read_page(document)
    # A path below the base of another origin becomes a URL of that origin, which is ignored.
    base = urljoin(origin + "/", page.base) if page.base else origin
    items: list[object] = []
    for item in list_entries(replace(page, base=base))[:ITEMS_MAX]:
        if isinstance(item, str):
            method, _, rest = item.strip().rpartition(" ")
            url = _resolve_own(rest, origin)
            if url:
                items.append(f"{method} {url}".strip())
            continue
        named = members(item).get("resource") or members(item).get("url")
        if not isinstance(named, str):
            items.append(item)
        elif url := _resolve_own(named, origin):
            items.append({**members(item), "resource": url})
    return tuple(items)


def _base(document: Mapping[str, object], origin: str) -> str:
    """Return the base URL of the document's server if it is of this origin. Default: the origin."""
    for url in _server_urls(document):
        if own := _resolve_own(url, origin):
            return own.rstrip("/")
    return origin


def _resolve_own(url: str, origin: str) -> str | None:
    """Return the full URL of a URL or path; None if it is of another origin."""
    try:
        full = urljoin(origin + "/", url)
        same = urlsplit(full).netloc.lower() == urlsplit(origin).netloc.lower()
    except ValueError:
        return None
    return full if same else None


def _entry(
    document: Mapping[str, object],
    operation: Mapping[str, object],
    payment: Mapping[str, object],
    parameters: Mapping[str, object],
) -> dict[str, object]:
    declared = {"queryParams": parameters, "bodyFields": _body_schema(document, operation)}
    return {
        "type": "http",
        "accepts": payment.get("accepts") or _protocol_terms(payment),
        "description": operation.get("description") or operation.get("summary"),
        "tags": operation.get("tags"),
        "extensions": {"bazaar": {"info": {"input": declared}}},
    }


def _protocol_terms(payment: Mapping[str, object]) -> list[object]:
    """Return the x402 terms in `protocols` (`[{"x402": {…}}]`)."""
    protocols = payment.get("protocols")
    listed = protocols if isinstance(protocols, list) else [protocols]
    terms = (members(members(protocol).get("x402")) for protocol in listed[:_LIST_MAX])
    return [named for named in terms if "payTo" in named]


def _query_parameters(
    document: Mapping[str, object], lists: Iterable[object]
) -> Iterator[tuple[str, object]]:
    """Yield each query parameter of some lists with a schema that contains its example."""
    for listed in lists:
        for entry in listed[:_LIST_MAX] if isinstance(listed, list) else ():
            parameter = _resolve(document, entry)
            if parameter.get("in") == "query" and isinstance(parameter.get("name"), str):
                schema = _resolve(document, parameter.get("schema"))
                example = {"example": parameter["example"]} if "example" in parameter else {}
                yield str(parameter["name"]), {"type": "string", **_read_keys(schema), **example}


def _body_schema(document: Mapping[str, object], operation: Mapping[str, object]) -> object:
    """Return the JSON body's example, or its schema if it has none."""
    content = members(_resolve(document, operation.get("requestBody")).get("content"))
    media = members(content.get("application/json"))
    if isinstance(media.get("example"), dict):
        return {"type": "object", "example": media["example"]}
    schema = _resolve(document, media.get("schema"))
    properties = itertools.islice(members(schema.get("properties")).items(), FIELDS_MAX)
    fields = {name: _read_keys(_resolve(document, field)) for name, field in properties}
    return {**_read_keys(schema), "type": "object", "properties": fields}


def _read_keys(schema: Mapping[str, object]) -> dict[str, object]:
    """Return the part of a schema that core/directory/declared reads. Many operations may refer to
    one large schema, and each entry has a copy.
    """
    return {key: schema[key] for key in SCHEMA_KEYS if key in schema}


def _resolve(document: Mapping[str, object], value: object) -> Mapping[str, object]:
    """Return an object with its `$ref` resolved inside the document; empty if it is broken."""
    for _ in range(_REF_HOPS):
        ref = members(value).get("$ref")
        if not isinstance(ref, str):
            return members(value)
        if not ref.startswith("#/") or len(ref) > _REF_MAX:
            return {}
        value = document
        for part in ref[2:].split("/"):
            value = members(value).get(part.replace("~1", "/").replace("~0", "~"))
    return {}
