"""What a person hands to a command: the configuration, a file, standard input."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config

INPUT_MAX: Final = 16 * 1024 * 1024


def load_config(path: Path | None) -> Config:
    """The configuration: a named file, else tollgauge.toml of this folder, and the environment."""
    # The settings live beside their consumers, which are the whole service: --help needs none.
    from tollgauge.config import load

    default = Path("tollgauge.toml")
    if path is None and default.exists():
        path = default
    return load(path, os.environ)


def read_input(source: str) -> bytes:
    """The bytes of a file (unpacked where its name ends in .gz), or of standard input for -.

    Raises TollgaugeError for what cannot be read or is too large.
    """
    try:
        data = sys.stdin.buffer.read(INPUT_MAX + 1) if source == "-" else _file(Path(source))
    except (OSError, EOFError, zlib.error) as error:
        raise TollgaugeError(
            f"{source} cannot be read.",
            hint="Give a whole file, or - for standard input; a URL starts with https://.",
        ) from error
    if len(data) > INPUT_MAX:
        raise TollgaugeError(f"{source} is larger than {INPUT_MAX // 1024 // 1024} MB.")
    return data


def _file(path: Path) -> bytes:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as stream:
        return bytes(stream.read(INPUT_MAX + 1))


def json_input(source: str) -> object:
    """The JSON of a captured exchange. Raises TollgaugeError."""
    try:
        return orjson.loads(read_input(source))
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.",
            hint="A captured exchange is {status, headers, body, url?, method?}.",
        ) from error


def captured(source: str) -> object | None:
    """A captured JSON-RPC object, or None where no file was named."""
    if not source:
        return None
    try:
        document: object = orjson.loads(read_input(source))
        return document
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.", hint="Save what the node answered, as it came."
        ) from error
