"""Endpoints: the identity, canonical URL and site of a monitored resource.

Rules (RFC 3986, IDNA 2008 with UTS 46):
- identity is host plus path: the canonical resource has no query; its ID is the first 16 hex digits
  of SHA-256 of the canonical text;
- the fragment `#tool=NAME` identifies a tool of an MCP server, and `#a2a` an A2A agent: the bazaar
  extension identifies a tool by its server's URL and its name, and defines no text with both. HTTP
  clients do not send fragments. Any other fragment is removed;
- the declared query is stored with it, for probes;
- only a public https URL is a resource; a `Perimeter` states what else an operator allows;
- core/base/address decides whether an address is public, clients/egress resolves names;
- hosts of one registrable domain are one site: `api.shop.co.uk` and `www.shop.co.uk` belong to
  `shop.co.uk`. The public suffix list (https://publicsuffix.org, in the package publicsuffixlist)
  defines registrable domains, its private part included: two shops of `vercel.app` are two sites.
"""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

import idna
from publicsuffixlist import PublicSuffixList

from tollgauge.core.base.address import literal_class
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.endpoint.terms import KnownOffer, PayToHistory, Quote

URL_MAX: Final = 2_048  # characters
ID_PATTERN: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
"""An endpoint ID (`endpoint_id`)."""
_BAD_CHARACTERS: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff"  # controls, backslash, surrogates
    r"\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # spaces and separators
    # Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties): invisible, and dropped by IDNA
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_DOTS: Final = re.compile(r"[\u3002\uff0e\uff61]")
"""Characters that IDNA reads as dots (UTS 46 section 2.3)."""
_SPECIAL_SUFFIXES: Final = frozenset(
    {"local", "internal", "onion", "test", "localhost", "invalid", "example", "home", "lan"}
    | {"corp", "intranet", "private", "alt", "arpa", "localdomain"}
)
_ASCII_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_UNRESERVED: Final = (string.ascii_letters + string.digits + "-._~").encode()
_ESCAPE: Final = re.compile("(%[0-9A-Fa-f]{2})")
_PATH_SAFE: Final = "/:@!$&'()*+,;=-._~"
_CANONICAL_PATH: Final = re.compile(r"(?:/(?!\.)[A-Za-z0-9:@!$&'()*+,;=._~-]*)+", re.ASCII)
"""A path that is already canonical: no escapes, and no segment that starts with a dot."""
_TEMPLATE: Final = re.compile(r"\{[^/{}]+\}|%7B[^/]+?%7D|/:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

TOOL_MAX: Final = 128  # characters of a tool's name (MCP specification, Tool Names)
_TOOL: Final = "tool="
_AGENT: Final = "a2a"


class ResourceError(TollgaugeError):
    """A text that is not a resource. `code` is `resource-invalid` for a text that is not a URL of
    the right form, `resource-not-https`, or `resource-not-public`.
    """

    def __init__(self, message: str, *, code: str = "resource-invalid") -> None:
        super().__init__(message, hint="Send the full https:// URL as listed in discovery.")
        self.code = code


class Listing(StrEnum):
    """Whether a directory lists an endpoint now. `delisted` ones were listed before, `unlisted`
    ones never: they are known from a request.
    """

    LISTED = "listed"
    DELISTED = "delisted"
    UNLISTED = "unlisted"


class Transport(StrEnum):
    """The protocol by which an endpoint is called. The values are published in JSON."""

    HTTP = "http"
    MCP = "mcp"
    A2A = "a2a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Perimeter:
    """The exceptions that an operator allows beyond the public internet on ports 80 and 443.

    `mapped` are host names that egress maps to loopback addresses, as in the demo; they may be
    special-use names, on any port.
    """

    ports: frozenset[int] = frozenset({80, 443})
    mapped: frozenset[str] = frozenset()


PUBLIC: Final = Perimeter()  # without exceptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A canonical resource and the query that came with it."""

    url: str
    host: str
    port: int
    path: str
    query: str

    @property
    def id(self) -> str:
        """First 16 hex digits of SHA-256 of the canonical URL."""
        return endpoint_id(self.url)

    @property
    def authority(self) -> str:
        """The host, with the port if it is not 443."""
        return urlsplit(self.url).netloc

    @property
    def probe_url(self) -> str:
        """The canonical URL with the declared query, without a fragment."""
        url = self.url.partition("#")[0]
        return f"{url}?{self.query}" if self.query else url

    @property
    def templated(self) -> bool:
        """Whether the path contains an unfilled placeholder (`{id}` or `/:id`)."""
        return bool(_TEMPLATE.search(self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One monitored endpoint as stored. Times are milliseconds UTC.

    Attributes:
        query, method, body: The input that its listing declares.
        learned: The method of the last request that received a 402; None before the first.
        last_seen: When a directory last listed it.
        last_probed: Time of the latest probe, scored or not.
        watched_until: End of the last active watch.
        paused_until: End of the last pause that it requested (Retry-After).
        asked_at: Last sale of a report or a live probe of it.
        listing_changed_at: Last change of its listing in a directory.
        down_since: First scored probe that found it down since it was last up; None while it is up.
        payable: Result of the latest probe that counts for time (core/probe/probe), or None.
        failing_since: First probe in the current series that found it not payable; None if payable.
        payable_since: Start of the latest period in which it was payable; None if it never was.
        unconfirmed_at: Time of a failure that is being confirmed; None otherwise.
        forms: The forms of payment in the last envelope (core/endpoint/terms); empty before any.
        extensions: The names of its extensions.
        offers: The offers of its envelopes in 30 days (core/endpoint/terms); empty before any.
        payto_history: None before a probe saw a payTo.
        quote: The latest advertised price: of a probe if one saw it, of a listing otherwise.
    """

    id: str
    resource: str
    host: str
    query: str = ""
    method: str | None = None
    body: bytes | None = None
    learned: str | None = None
    status: Listing = Listing.LISTED
    first_seen: int
    last_seen: int
    last_probed: int | None = None
    next_due: int = 0
    watched_until: int = 0
    paused_until: int = 0
    asked_at: int | None = None
    listing_changed_at: int | None = None
    down_since: int | None = None
    payable: bool | None = None
    failing_since: int | None = None
    payable_since: int | None = None
    unconfirmed_at: int | None = None
    forms: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    offers: tuple[KnownOffer, ...] = ()
    payto_history: PayToHistory | None = None
    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    quote: Quote | None = None
    quote_at: int | None = None
    templated: bool = False
    simulated: bool = False

    @property
    def pay_to_varies(self) -> bool:
        """Whether each offer names another payTo (core/endpoint/terms)."""
        history = self.payto_history
        return history is not None and history.is_varying(self.quote_at)

    @property
    def probe_url(self) -> str:
        """The URL to probe: the resource with its declared query.

        A query that makes it longer than URL_MAX is omitted, so a long query cannot prevent probes.
        """
        server = self.resource.partition("#")[0]
        url = f"{server}?{self.query}" if self.query else server
        return url if len(url) <= URL_MAX else server


def endpoint_id(resource: str) -> str:
    """Return the ID of a canonical resource."""
    return hashlib.sha256(resource.encode()).hexdigest()[:16]


def page_url(base_url: str, endpoint_id: str) -> str:
    """Return the URL of an endpoint's page."""
    return f"{base_url}/endpoint/{endpoint_id}"


def tool_url(server: str, tool: str) -> str:
    """Return the URL of a tool of an MCP server; `parse_resource` validates it."""
    return f"{server.partition('#')[0]}#{_TOOL}{quote(tool, safe='', errors='replace')}"


def agent_url(url: str) -> str:
    """Return the URL of an A2A agent; `parse_resource` validates it."""
    return f"{url.partition('#')[0]}#{_AGENT}"


def transport_of(resource: str) -> Transport:
    """Return the transport of a canonical resource."""
    mark = resource.partition("#")[2]
    if mark == _AGENT:
        return Transport.A2A
    return Transport.MCP if mark else Transport.HTTP


def tool_name(resource: str) -> str:
    """Return the name of the MCP tool of a canonical resource; empty for other transports."""
    mark = resource.partition("#")[2]
    return unquote(mark.removeprefix(_TOOL)) if mark.startswith(_TOOL) else ""


def _canonical_mark(fragment: str) -> str:
    """Return the canonical form of a fragment, with `#`; empty for a fragment without a meaning."""
    if not fragment.startswith(_TOOL):
        return f"#{_AGENT}" if fragment == _AGENT else ""
    tool = unquote(fragment.removeprefix(_TOOL))
    # `unquote` replaces bytes that are not UTF-8 by U+FFFD.
    if not 0 < len(tool) <= TOOL_MAX or not tool.isprintable() or set(tool) & set(" \\\ufffd"):
        raise ResourceError(
            f"The name of a tool has 1 to {TOOL_MAX} printable characters, without spaces and "
            "backslashes."
        )
    return f"#{_TOOL}{quote(tool, safe='')}"


def parse_resource(
    text: object, perimeter: Perimeter = PUBLIC, *, upgrade_http: bool = False
) -> Resource:
    """Return the canonical resource of a URL.

    Args:
        text: The URL.
        perimeter: Exceptions of the operator.
        upgrade_http: Read `http://` on its default port as the https URL of the same host and path.
            Listings lose the scheme behind TLS proxies, and identity is host plus path.

    Raises:
        ResourceError: The text is not a public https URL.
    """
    if not isinstance(text, str) or not text:
        raise ResourceError("The resource is missing or not a string.")
    if len(text) > URL_MAX:
        raise ResourceError(f"The resource is longer than {URL_MAX} characters.")
    if _BAD_CHARACTERS.search(text):
        raise ResourceError(
            "The resource contains spaces, control or invisible characters, or backslashes."
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ResourceError("The resource is not a URL.") from error
    scheme = parts.scheme.lower()
    if scheme == "http" and upgrade_http and port in (None, 80):
        scheme, port = "https", None
    if scheme != "https":
        raise ResourceError("The resource must start with https://.", code="resource-not-https")
    if "@" in parts.netloc:
        raise ResourceError("The resource must not contain user information.")
    host = canonical_host(parts.netloc, parts.hostname or "", perimeter)
    port = 443 if port is None else port
    if port not in perimeter.ports and host not in perimeter.mapped:
        raise ResourceError(f"Port {port} is not allowed.", code="resource-not-public")
    netloc = host if port == 443 else f"{host}:{port}"
    path = _canonical_path(parts.path)
    resource = Resource(
        url=f"https://{netloc}{path}{_canonical_mark(parts.fragment)}",
        host=host,
        port=port,
        path=path,
        query=quote(parts.query, safe=_PATH_SAFE + "?%"),
    )
    if max(len(resource.probe_url), len(resource.url)) > URL_MAX:
        raise ResourceError(f"The resource is longer than {URL_MAX} characters when encoded.")
    return resource


def canonical_host(netloc: str, hostname: str, perimeter: Perimeter = PUBLIC) -> str:
    """Return a host as a lower-case IDNA A-label without trailing dot.

    Raises ResourceError for addresses in any notation, brackets, single labels and special-use
    names, except names that the perimeter maps.
    """
    host = _DOTS.sub(".", hostname).removesuffix(".").lower()
    if not host:
        raise ResourceError("The resource has no host.")
    if "[" in netloc or "%" in host:
        raise ResourceError("The host must be a name, not an address.", code="resource-not-public")
    if host in perimeter.mapped:
        return host
    ascii_host = _encode_idna(host)
    if ascii_host in perimeter.mapped:
        return ascii_host
    if literal_class(ascii_host) is not None:
        raise ResourceError("The host must be a name, not an address.", code="resource-not-public")
    labels = ascii_host.split(".")
    if len(labels) < 2 or labels[-1] in _SPECIAL_SUFFIXES:
        raise ResourceError(f"{ascii_host} is not a public name.", code="resource-not-public")
    return ascii_host


def _encode_idna(host: str) -> str:
    """Return the IDNA A-label form; names in ASCII may contain underscores, as DNS allows."""
    if len(host) <= 253 and _ASCII_NAME.fullmatch(host) and "xn--" not in host:
        return host
    try:
        label = idna.encode(host, uts46=True, transitional=False).decode().lower()
    except (idna.IDNAError, UnicodeError) as error:
        raise ResourceError("The host is not a valid name.") from error
    if label.endswith("."):
        raise ResourceError("The host ends with more than one dot.")
    return label


def _canonical_path(path: str) -> str:
    """Normalise percent-encoding and remove dot segments, case kept (RFC 3986 section 6.2.2)."""
    if _CANONICAL_PATH.fullmatch(path):
        return path
    return "".join(
        _canonical_escape(piece) if _ESCAPE.fullmatch(piece) else quote(piece, safe=_PATH_SAFE)
        for piece in _ESCAPE.split(_remove_dots(path or "/"))
    )


def _canonical_escape(escape: str) -> str:
    byte = unquote_to_bytes(escape)
    return byte.decode() if byte in _UNRESERVED else escape.upper()


def _remove_dots(path: str) -> str:
    """Remove the dot segments of a path, escaped ones too (RFC 3986 section 5.2.4)."""
    out: list[str] = []
    segments = path.split("/")[1:]
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        plain = segment.replace("%2e", ".").replace("%2E", ".")
        if plain == "..":
            if out:
                out.pop()
        elif plain != ".":
            out.append(segment)
            continue
        if last:
            out.append("")
    return "/" + "/".join(out)


@lru_cache(maxsize=16_384)
def site(host: str) -> str:
    """Return the site of a host, in lower case.

    An address, or a host that is itself a public suffix, is its own site.
    """
    name = host.lower().rstrip(".")
    is_address = ":" in name or name.rpartition(".")[2].isdecimal()
    return name if is_address else _load_suffixes().privatesuffix(name) or name


@cache
def _load_suffixes() -> PublicSuffixList:
    """Load the list on first use: that takes 0.1 s."""
    return PublicSuffixList()
