"""JsonReader: a JSON text of any length, read a value at a time.

Rules: lists and objects are gone through without holding more than one of their values, and what is
read ahead; the text is read as `document.parse_document` reads one (odd numbers and bytes that are
no UTF-8 pass, depth is counted before parsing).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from tollgauge.clients.directories.document import DEPTH_MAX, DirectoryError, integer
from tollgauge.core.base.strictjson import depth

VALUE_MAX: Final = 64 * 1024 * 1024
"""The most characters of a value that is read whole."""
_CHUNK: Final = 256 * 1024
_ENDS: Final = frozenset(" \t\n\r,]}")
"""What may stand after a number."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WORDS: Final = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_ESCAPE_SIZE: Final = 6
"""Characters of an escape such as \\u00e9."""
_DECODER: Final = json.JSONDecoder(parse_int=integer)


class NotJsonError(DirectoryError):
    """A text that is no JSON, or is nested too deep."""


class EndsEarlyError(NotJsonError):
    """A JSON text whose end is missing. `rest` is the value that is not whole, empty between two
    values.
    """

    def __init__(self, line: int, rest: str) -> None:
        super().__init__(
            f"The JSON ends early at line {line}.", hint="Save the document again, to its end."
        )
        self.rest = rest


class JsonReader:
    """A JSON text from its start on. Raises NotJsonError where it is none, and DirectoryError for
    a value of more than VALUE_MAX characters.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes_decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._text = ""
        self._at = 0
        self._level = 0
        self._newlines = 0
        self._line = 1

    def next_mark(self) -> str:
        """The first character of what comes next, which is not taken; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def value(self) -> object:
        """The next value, whole."""
        self.next_mark()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._read_more():
                    continue
                if isinstance(error, json.JSONDecodeError) and _is_cut(error):
                    rest, self._at = self._text[self._at :], len(self._text)
                    raise EndsEarlyError(self._line, rest) from error
                raise NotJsonError("The text is not JSON.") from error
            number = isinstance(value, int | float)
            if number and self._text[end : end + 1] not in _ENDS and self._read_more():
                continue  # it may go on
            self._at = end
            return value

    def array(self) -> Iterator[object]:
        """The values of the list that comes next."""
        for _ in self._parts("[", "]"):
            yield self.value()

    def members(self) -> Iterator[str]:
        """The names of the object that comes next. The caller reads the value after each name."""
        for _ in self._parts("{", "}"):
            name = self.value() if self.next_mark() in ('"', "") else None
            if not isinstance(name, str):
                raise NotJsonError("The text is not JSON.")
            self._take(":")
            yield name

    def end(self) -> None:
        """Raises NotJsonError if anything but space is left."""
        if self.next_mark():
            raise NotJsonError("The text is not JSON.")

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        self._level += 1
        if self.next_mark() != closing:
            yield
            while self.next_mark() == ",":
                self._take(",")
                yield
        self._take(closing)
        self._level -= 1

    def _take(self, mark: str) -> None:
        if not self.next_mark():
            raise EndsEarlyError(self._line, "")
        if self.next_mark() != mark:
            raise NotJsonError("The text is not JSON.")
        self._at += 1

    def _read_more(self) -> bool:
        """Read at least as much again as is not taken yet; False at the end of the text."""
        rest = self._text[self._at :]
        if len(rest) > VALUE_MAX:
            raise DirectoryError(
                f"The JSON holds a value of more than {VALUE_MAX} characters.",
                hint="List each endpoint as an entry of its own.",
            )
        data = self._file.read(max(_CHUNK, len(rest)))
        text = self._bytes_decoder.decode(data, final=not data)
        if written := text.rstrip():
            self._line = self._newlines + written.count("\n") + 1
        self._newlines += text.count("\n")
        self._text = rest + text
        self._at = 0
        if depth(self._text.encode()) + self._level > DEPTH_MAX:
            raise NotJsonError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")
        return bool(data)


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Whether a text is only broken because it stops: within a string, an escape or a word, or
    where something must follow.
    """
    rest = error.doc[error.pos :].rstrip()
    if error.msg.startswith("Unterminated string") or not rest:
        return True
    if error.msg.startswith("Invalid \\u"):
        return len(rest) < _ESCAPE_SIZE
    return any(word.startswith(rest) for word in _WORDS)
