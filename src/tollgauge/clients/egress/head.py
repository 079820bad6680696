"""Parser of the header lines of an HTTP/1 response, which libcurl passes one by one.

Interim responses (1xx) are counted and dropped, trailers are counted and ignored.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name (RFC 9110 section 5.6.2)."""
_LENGTH_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = len(str(_LENGTH_MAX))


class Head:
    """The header read so far. `cap` limits all lines together, in bytes.

    `complete`: the header of the final response has ended. `oversize`: the cap was exceeded.
    `malformed`: a line that common clients reject.
    """

    def __init__(self, cap: int) -> None:
        self._room = cap
        self._interim = False
        self._started = False
        self.headers: list[tuple[str, str]] = []
        self.complete = False
        self.oversize = False
        self.malformed = False

    @property
    def empty(self) -> bool:
        """Whether no line was received."""
        return not (self._started or self._interim or self.complete)

    def feed(self, line: bytes) -> bool:
        """Read one line; False ends the transfer."""
        self._room -= len(line)
        if self._room < 0:
            self.oversize = True
            return False
        if not self.complete:
            self._read(line.rstrip(b"\r\n"))
        return not self.malformed

    def _read(self, line: bytes) -> None:
        if not self._started:
            status = line.split(b" ", 2)[1:2]
            self._interim = status != [] and status[0][:1] == b"1" and status[0] != b"101"
            self._started = True
        elif not line:
            self.complete = not self._interim
            self._started = False
        elif not self._interim:
            name, _, value = line.partition(b":")
            # Clients differ on names that are not tokens; Node and h11 reject the response.
            self.malformed = not _TOKEN.fullmatch(name)
            self.headers.append((name.decode("latin-1").lower(), _text(value)))

    def framed(self) -> bool:
        """Whether the end of the body is marked; otherwise it is the end of the stream."""
        return any(name in ("content-length", "transfer-encoding") for name, _ in self.headers)

    def contradicts_itself(self) -> bool:
        """Whether there are several different content lengths (RFC 9112 section 6.3)."""
        return len({value for name, value in self.headers if name == "content-length"}) > 1

    def length_too_large(self) -> bool:
        """Whether a content length is 2^63 or more, which clients cannot represent."""
        lengths = [value.lstrip("0") for name, value in self.headers if name == "content-length"]
        return any(
            length.isdecimal() and (len(length) > _DIGITS_MAX or int(length) > _LENGTH_MAX)
            for length in lengths
        )

    def framed_twice(self) -> bool:
        """Whether a content length and a transfer encoding both define the end of the body."""
        return {"content-length", "transfer-encoding"} <= {name for name, _ in self.headers}


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("latin-1")
