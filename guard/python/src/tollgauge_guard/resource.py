"""Resource: a URL in the one form by which the bundle knows it.

The canonical form is scheme, host (lower case, IDNA A-label, no trailing dot), port if it is not
the scheme's default, and path (percent-encoding normalised, dot segments removed, case kept); no
query and no fragment (RFC 3986 section 6.2, IDNA 2008 with UTS 46). For public https URLs it equals
the service's, as guard/cases/resources.json checks for both. Addresses, single labels and `http`
are read as well: the bundle does not list them, but a request may go there.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

import idna

from tollgauge_guard.errors import GuardError

URL_MAX: Final = 8_192
"""Longest URL in characters."""
DEFAULT_PORTS: Final = {"https": 443, "http": 80}
MCP: Final = "mcp"
"""The scheme of an MCP tool in its 402: `mcp://tool/NAME`."""
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
_ASCII_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_UNRESERVED: Final = (string.ascii_letters + string.digits + "-._~").encode()
_ESCAPE: Final = re.compile("(%[0-9A-Fa-f]{2})")
_PATH_SAFE: Final = "/:@!$&'()*+,;=-._~"
_ESCAPED_DELIMITER: Final = re.compile("%(23|25|2F|3B|3F)")
"""Escapes of `#`, `%`, `/`, `;` and `?`, which some servers decode before they route a request."""
_PARAMETERS: Final = re.compile(";[^/]*")
_SLASHES: Final = re.compile("/{2,}")


class ResourceError(GuardError):
    """A text that is not the URL of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A URL in canonical form."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Scheme, host, and the port if it is not the scheme's default."""
        port = "" if DEFAULT_PORTS.get(self.scheme) in (None, self.port) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"

    @property
    def url(self) -> str:
        """The canonical text, whose hash is in the bundle."""
        return f"{self.origin}{self.path}"

    def names_host_of(self, other: Resource) -> bool:
        """Whether both have one host and port.

        An `http` URL on its default port counts as `https`: sellers behind a TLS proxy do not know
        that the client used TLS.
        """
        return self._secured == other._secured or (self.host, self.port, self.scheme) == (
            other.host,
            other.port,
            other.scheme,
        )

    @property
    def _secured(self) -> tuple[str, int]:
        is_plain = self.scheme == "http" and self.port == DEFAULT_PORTS["http"]
        return self.host, DEFAULT_PORTS["https"] if is_plain else self.port


def parse(text: object) -> Resource:
    """Return the canonical form of a URL with the scheme `https`, `http` or `mcp`.

    Raises ResourceError for anything else.
    """
    if not isinstance(text, str) or not text or len(text) > URL_MAX:
        raise ResourceError(f"A URL must be a text of 1 to {URL_MAX} characters.")
    return _parse(text)


@lru_cache(maxsize=256)  # the steps of a payment parse the same URL about twenty times
def _parse(text: str) -> Resource:
    if _BAD_CHARACTERS.search(text):
        raise ResourceError(
            "The URL holds spaces, control or invisible characters, or backslashes."
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ResourceError("The text is not a URL.") from error
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS and scheme != MCP:
        raise ResourceError("The URL must start with https://, http:// or mcp://.")
    if "@" in parts.netloc:
        raise ResourceError("The URL must not carry user information.")
    return Resource(
        scheme=scheme,
        host=_canonical_host(parts.netloc, parts.hostname or ""),
        port=DEFAULT_PORTS.get(scheme, 0) if port is None else port,
        path=_canonical_path(parts.path),
    )


def variants(resource: Resource) -> tuple[Resource, ...]:
    """Return other paths by which a server may know the resource, without the resource itself.

    They are: without parameters (`;x=1`), repeated slashes and escaped delimiters; in lower case;
    with and without a trailing slash. The cases are in guard/cases/variants.json.
    """
    found: dict[str, None] = {}
    path, plain = resource.path, _plain_path(resource.path)
    for written in dict.fromkeys((path, path.lower(), plain, plain.lower())):
        bare = written.rstrip("/")
        for ending in (bare, f"{bare}/"):
            found[_canonical_path(ending)] = None
    found.pop(path, None)
    return tuple(replace(resource, path=other) for other in found)


def _plain_path(path: str) -> str:
    decoded = _ESCAPED_DELIMITER.sub(lambda escape: chr(int(escape[1], 16)), path)
    decoded = re.split("[?#]", decoded, maxsplit=1)[0]
    return _SLASHES.sub("/", _PARAMETERS.sub("", decoded))


def _canonical_host(netloc: str, hostname: str) -> str:
    if netloc.startswith("["):
        return f"[{hostname.lower()}]"
    host = _DOTS.sub(".", hostname).removesuffix(".").lower()
    if not host or "%" in host:
        raise ResourceError("The URL has no host that could be read.")
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
    return "".join(
        _canonical_escape(piece) if _ESCAPE.fullmatch(piece) else quote(piece, safe=_PATH_SAFE)
        for piece in _ESCAPE.split(_remove_dots(path or "/"))
    )


def _canonical_escape(escape: str) -> str:
    byte = unquote_to_bytes(escape)
    return byte.decode() if byte in _UNRESERVED else escape.upper()


def _remove_dots(path: str) -> str:
    """Return a path without its dot segments, also escaped ones (RFC 3986 section 5.2.4)."""
    out: list[str] = []
    segments = path.split("/")[1:]
    for position, segment in enumerate(segments):
        plain = segment.replace("%2e", ".").replace("%2E", ".")
        if plain == "..":
            if out:
                out.pop()
        elif plain != ".":
            out.append(segment)
            continue
        if position == len(segments) - 1:
            out.append("")
    return "/" + "/".join(out)
