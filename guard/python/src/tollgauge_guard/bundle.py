"""The bundle: a signed file with the service's records of all endpoints.

A bundle is one zstd frame of lines of JSON: a header, then one array per endpoint, host or payTo,
sorted by key. Unknown members of the header and unknown trailing places of a record are ignored.
A record is found by bisection and only its own line is parsed, so 100,000 records need no more
memory than their text and the positions of their lines.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import zstandard

from tollgauge_guard.errors import GuardError
from tollgauge_guard.record import Conduct, Record, read_conduct, read_record
from tollgauge_guard.resource import DEFAULT_PORTS, Resource
from tollgauge_guard.signature import Keyring, encode_base64url, verify

FORMAT: Final = 2
_KEY_PREFIX: Final = "tollgauge:v2:"
SIZE_MAX: Final = 32 * 2**20
"""Largest compressed bundle in bytes."""
LINES_MAX: Final = 256 * 2**20
"""Largest decompressed bundle in bytes."""
_WINDOW_MAX: Final = 2**27
_KEY: Final = slice(2, 24)
"""Position of the key in the line of a record: after `["`."""
_PLACEHOLDER: Final = re.compile("%7B[^/]+?%7D|(?<=/):[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""A placeholder in the path of a canonical resource: `{id}`, percent-encoded, or `:id`."""


class BundleError(GuardError):
    """Bytes that are not a bundle."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle.

    `variant` is `all`, or `avoid` if it contains only bad endpoints. `as_of` is unix seconds.
    `addresses` are payTo addresses, which records name by index. `lines` is its text, and `starts`
    are the positions of its records.
    """

    variant: str
    as_of: int
    policy_version: int
    count: int
    addresses: tuple[object, ...]
    lines: bytes
    starts: array[int]

    def record(self, resource: Resource, tool: str = "") -> Record | None:
        """Return the record of a resource, or of the template that it matches; None without one.

        With `tool`, the resource is an MCP server, and the record is that of its tool.

        A resource that was requested by plain `http` is looked up as `https`, because anyone on the
        network path can change its content.
        """
        url = resource.url
        if resource.scheme == "http" and resource.port == DEFAULT_PORTS["http"]:
            url = "https" + url.removeprefix("http")
        if tool:
            url = f"{url}#tool={quote(tool, safe='', errors='replace')}"
        row = self._find(url)
        if row is None and not tool and (host := self.conduct(f"host:{resource.host}")) is not None:
            # Sorted, so that both guards choose the same of several templates.
            matching = (name for name in sorted(host.patterns) if _matches(name, url))
            row = next((found for name in matching if (found := self._find(name))), None)
        return None if row is None else read_record(row, self.addresses)

    def conduct(self, name: str) -> Conduct | None:
        """Return the record of `host:<host>` or `payto:<address>`, None if the bundle has none."""
        row = self._find(name)
        return None if row is None else read_conduct(row)

    def _find(self, name: str) -> object | None:
        """Find a line by bisection: its key is a digest, which reveals no name."""
        digest = hashlib.sha256(f"{_KEY_PREFIX}{name}".encode()).digest()[:16]
        target, lines = encode_base64url(digest).encode(), self.lines
        index = bisect_left(
            self.starts, target, key=lambda start: lines[start + _KEY.start : start + _KEY.stop]
        )
        start = self.starts[index] if index < len(self.starts) else len(lines)
        if not lines.startswith(target, start + _KEY.start):
            return None
        # A line of a verified bundle is a JSON array; read_record checks its places.
        line: object = json.loads(lines[start : lines.find(b"\n", start)])
        return line


def read_bundle(body: bytes, signature: str, keys: Keyring, *, now: int | None = None) -> Bundle:
    """Return the bundle of a body that an accepted key signed.

    The signature is verified before anything is decompressed. Raises SignatureError and
    BundleError.
    """
    if len(body) > SIZE_MAX:
        raise BundleError(f"The bundle is larger than {SIZE_MAX >> 20} MB.")
    verify(signature, body, keys, int(time.time()) if now is None else now)
    lines = _decompress(body)
    start = lines.find(b"\n") + 1
    try:
        header = json.loads(lines[:start])
        if header["format"] != FORMAT:
            raise BundleError(
                f"The bundle has format {header['format']!r}, and this guard reads {FORMAT}.",
                hint="Install a newer tollgauge-guard.",
            )
        bundle = Bundle(
            variant=str(header["variant"]),
            as_of=int(header["asOf"]),
            policy_version=int(header["policyVersion"]),
            count=int(header["count"]),
            addresses=tuple(header["payTo"]),
            lines=lines,
            starts=_find_starts(lines, start),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BundleError("The bundle has no header that could be read.") from error
    if len(bundle.starts) != bundle.count:
        found = len(bundle.starts)
        raise BundleError(f"The bundle has {found} records and announces {bundle.count}.")
    return bundle


def _matches(pattern: str, url: str) -> bool:
    """Return whether a URL fills in the placeholders of a template, each with part of a segment."""
    literals = map(re.escape, _PLACEHOLDER.split(pattern))
    return re.fullmatch("[^/]+".join(literals), url) is not None


def _decompress(body: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= LINES_MAX:
            raise BundleError(f"The bundle does not say its size, or more than {LINES_MAX} bytes.")
        return zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX).decompress(
            body, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise BundleError("The bundle is not a complete zstd frame.") from error


def _find_starts(lines: bytes, start: int) -> array[int]:
    """Return the positions of the records. Raises BundleError unless their keys are sorted.

    Otherwise bisection would miss a record, and an endpoint to avoid would count as unknown.
    """
    starts, position, previous = array("L"), start, b""
    while position < len(lines):
        key = lines[position + _KEY.start : position + _KEY.stop]
        if not lines.startswith(b'["', position) or key <= previous:
            raise BundleError("The records of the bundle are not sorted by key.")
        starts.append(position)
        position = lines.find(b"\n", position) + 1
        if position == 0:
            raise BundleError("The last line of the bundle is not complete.")
        previous = key
    return starts
