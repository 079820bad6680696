"""Rules about the resource that the envelope describes.

Sources: x402 v2 specification, ResourceInfo; bazaar extension, service metadata. Version 1 keeps
the URL and the description in each entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

from tollgauge.core.base.address import literal_class
from tollgauge.core.lint.reading import Envelope, Reading
from tollgauge.core.lint.rule import error, warning
from tollgauge.core.probe.exchange import OfficialClient

DESCRIPTION_MAX: Final = 500
NAME_MAX: Final = 32
TAGS_MAX: Final = 5
ICON_MAX: Final = 2_048
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+", re.ASCII)
_TEXTS: Final = ("description", "mimeType", "serviceName", "iconUrl")


@dataclass(frozen=True, kw_only=True)
class _Url:
    """The parts of an http(s) URL. `userinfo`: the URL contains a user name."""

    scheme: str
    host: str
    path: str
    userinfo: bool

    @cached_property
    def internal(self) -> bool:
        """Whether the host is only reachable inside its own network."""
        return (
            literal_class(self.host) is not None
            or ":" in self.host
            or "." not in self.host
            or self.host.endswith((".local", ".internal", ".localhost"))
        )


def _split(text: object) -> _Url | None:
    """Return the parts of an absolute http(s) URL; None for any other value."""
    return _split_text(text) if isinstance(text, str) else None


@lru_cache(maxsize=8)  # several rules parse the same two or three URLs of a response
def _split_text(text: str) -> _Url | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        return None
    host = (parts.hostname or "").lower().removesuffix(".")
    if parts.scheme.lower() not in ("http", "https") or not host:
        return None
    return _Url(
        scheme=parts.scheme.lower(),
        host=host,
        path=unquote(parts.path).rstrip("/"),
        userinfo="@" in parts.netloc,
    )


def _list_urls(reading: Reading) -> Iterator[tuple[str, _Url]]:
    """Yield each path of the resource's URL with the parsed URL, if it is valid."""
    for where, text in _list_places(reading.envelope):
        url = _split(text)
        if url is not None:
            yield where, url


def _list_places(envelope: Envelope) -> Iterator[tuple[str, object]]:
    """Yield each path where the envelope's version keeps the resource's URL, with the value."""
    if envelope.version == 2 and "url" in envelope.resource:
        yield "resource.url", envelope.resource["url"]
    if envelope.version == 1:
        for entry in envelope.entries:
            if "resource" in entry.fields:
                yield entry.at("resource"), entry.fields["resource"]


@warning("resource")
def resource_missing(reading: Reading) -> bool:
    """No `resource` in version 2. The specification requires it; clients pay without it."""
    return reading.envelope.version == 2 and reading.envelope.document.get("resource") is None


@error(stops={OfficialClient.PYTHON})
def resource_shape(reading: Reading) -> Iterator[str]:
    """A `resource` of the wrong type, for example the plain URL of version 1. The official Python
    client rejects the whole envelope.
    """
    envelope = reading.envelope
    if envelope.version != 2 or envelope.document.get("resource") is None:
        return
    if not isinstance(envelope.document["resource"], dict):
        yield "resource"
        return
    resource = envelope.resource
    if not isinstance(resource.get("url"), str):
        yield "resource.url"
    yield from (
        f"resource.{key}" for key in _TEXTS if not isinstance(resource.get(key), str | None)
    )
    tags = resource.get("tags")
    if tags is not None and not _is_list_of_texts(tags):
        yield "resource.tags"


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@warning()
def resource_url(reading: Reading) -> Iterator[str]:
    """The URL is empty, relative, an opaque ID, or has another scheme."""
    for where, text in _list_places(reading.envelope):
        is_tool = reading.tool and isinstance(text, str) and text.startswith("mcp://")
        if isinstance(text, str) and not is_tool and _split(text) is None:
            yield where


@warning()
def resource_mismatch(reading: Reading) -> Iterator[str]:
    """The envelope names another host or path than the request. Queries and a trailing slash are
    ignored.
    """
    probed = _split(reading.exchange.url)
    for where, named in _list_urls(reading):
        if probed and (named.host, named.path) != (probed.host, probed.path):
            yield where


@warning()
def resource_http(reading: Reading) -> Iterator[str]:
    """The URL starts with http although the resource was requested over https."""
    probed = _split(reading.exchange.url)
    for where, named in _list_urls(reading):
        if named.scheme == "http" and (probed is None or probed.scheme == "https"):
            yield where


@warning()
def resource_internal(reading: Reading) -> Iterator[str]:
    """Localhost, an IP address, or a name without a dot, while the probe reached another host."""
    probed = _split(reading.exchange.url)
    for where, named in _list_urls(reading):
        if (probed is None or probed.host != named.host) and named.internal:
            yield where


@warning()
def resource_description(reading: Reading) -> Iterator[str]:
    """The description is empty or exceeds the limit of directories."""
    for where, text in _list_descriptions(reading.envelope):
        if text is None or (isinstance(text, str) and not 0 < len(text.strip()) <= DESCRIPTION_MAX):
            yield where


def _list_descriptions(envelope: Envelope) -> Iterator[tuple[str, object]]:
    if envelope.version == 1:
        for entry in envelope.entries:
            yield entry.at("description"), entry.fields.get("description")
    elif isinstance(envelope.document.get("resource"), dict):
        yield "resource.description", envelope.resource.get("description")


@warning("resource.serviceName")
def resource_service_name(reading: Reading) -> bool:
    """A service name that facilitators drop."""
    name = reading.envelope.resource.get("serviceName")
    return isinstance(name, str) and not (len(name) <= NAME_MAX and _PRINTABLE.fullmatch(name))


@warning("resource.tags")
def resource_tags(reading: Reading) -> bool:
    """Too many, too long or repeated tags; case is ignored."""
    tags = reading.envelope.resource.get("tags")
    if not isinstance(tags, list):
        return False
    texts = [tag for tag in tags if isinstance(tag, str)]
    long = any(len(tag) > NAME_MAX or not _PRINTABLE.fullmatch(tag) for tag in texts)
    return len(tags) > TAGS_MAX or long or len({tag.lower() for tag in texts}) < len(texts)


@warning("resource.iconUrl")
def resource_icon(reading: Reading) -> bool:
    """An icon URL that cannot be fetched or that is not safe to fetch."""
    icon = reading.envelope.resource.get("iconUrl")
    if not isinstance(icon, str):
        return False
    url = _split(icon)
    return len(icon) > ICON_MAX or url is None or url.userinfo or url.internal
