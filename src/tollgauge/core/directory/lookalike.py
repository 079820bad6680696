"""Lookalikes: unlisted paths in the shape of a listed one.

If a host answers 402 on every path, the 402 of a listed path proves nothing. A host could recognise
random paths and answer them with 404, so the test requests a listed path with one segment changed:
each of its letters and digits becomes another one of its kind (docs/gaming.md).

A host may also list any number of paths. If more than SAME_TERMS_MAX of its endpoints have the same
terms, SAMPLE of them are compared by `describe_offer`: if that is equal, only their paths differ,
and any other path could be one of them. The same is true for the items of one service, which should
be listed once, as a path with a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import orjson

from tollgauge.core.lint.reading import read
from tollgauge.core.probe.exchange import Exchange

SAME_TERMS_MAX: Final = 20
"""Endpoints of a host that may have the same terms without a comparison."""
SAMPLE: Final = 3
"""Number of endpoints that are compared."""
PATHS_MAX: Final = 3
"""Maximum number of lookalike paths of one path."""
_ALPHABETS: Final = ("aeiou", "bcdfghjklmnpqrstvwxyz", "0123456789")
_CHANGEABLE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[A-Za-z0-9]")
_HAS_DIGIT: Final = re.compile("[0-9]")
_ROOT: Final = "search"
"""The segment that is changed if the path is the host's root."""


def lookalike_paths(path: str, draw: Callable[[int], int]) -> tuple[str, ...]:
    """Return up to PATHS_MAX paths with one segment changed, the last segment first.

    `draw(n)` returns a random integer from 0 to n - 1, so the paths differ each time.
    """
    segments = path.strip("/").split("/")
    if segments == [""]:
        segments = [_ROOT]
    indices = range(len(segments) - 1, max(len(segments) - 1 - PATHS_MAX, -1), -1)
    return tuple(
        "/"
        + "/".join(
            (*segments[:index], _change_segment(segments[index], draw), *segments[index + 1 :])
        )
        for index in indices
    )


def describe_offer(exchange: Exchange) -> str | None:
    """Return the offer in the 402 of an exchange, as JSON; None without an envelope.

    It consists of the envelope's resource, entries and extensions, without the endpoint's URL and
    path, and without the numbers of its path in texts.
    """
    envelope = read(exchange).envelope
    if not envelope.exists:
        return None
    offer = {name: envelope.document.get(name) for name in ("resource", "accepts", "extensions")}
    text = orjson.dumps(offer, option=orjson.OPT_SORT_KEYS).decode()
    path = urlsplit(exchange.url).path
    for own in (exchange.url, path):
        text = text.replace(own, "") if len(own) > 1 else text
    for number in filter(_HAS_DIGIT.search, path.split("/")):
        # A space before a word occurs only inside texts.
        text = re.sub(rf"(?<=[ #]){re.escape(number)}(?!\w)", "", text)
    return text


def _change_segment(segment: str, draw: Callable[[int], int]) -> str:
    """Return a different segment of the same shape."""

    def other(match: re.Match[str]) -> str:
        text = match.group()
        return text if len(text) > 1 else _draw(text, draw)

    changed = _CHANGEABLE.sub(other, segment)
    return changed if changed != segment else f"{segment}-{_draw('a', draw)}{_draw('t', draw)}"


def _draw(character: str, draw: Callable[[int], int]) -> str:
    """Return another letter or digit of the same kind and case."""
    small = character.lower()
    alphabet = next(letters for letters in _ALPHABETS if small in letters).replace(small, "")
    drawn = alphabet[draw(len(alphabet))]
    return drawn.upper() if character.isupper() else drawn
