"""What the directories share: a step of a crawl, the error of a source, and a careful JSON reader.

Rules: a directory is an untrusted source that must not stop a crawl with one odd text (lone
surrogates, NaN, endless digits are read), nor hurt the reader (depth is counted before parsing).
What the entries mean is core's reading.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from tollgauge.clients.egress.client import Egress, Request, RequestError
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.strictjson import depth
from tollgauge.core.directory.page import DirectoryPage
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault

DEPTH_MAX: Final = 200
RECORDED_AT_ONCE: Final = 1_000
"""How many entries are recorded in one transaction: fewer cost more, as most pages of a large
database's indexes are written with each; more would hold up other writers.
"""
_DIGITS_MAX: Final = 400


class DirectoryError(TollgaugeError):
    """A source that could not be read to its end. The message says where it failed and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One page of a crawl. A crawl that stops after it goes on at `next_offset`; the last step's
    `page.complete` says whether the whole listing was read.
    """

    page: DirectoryPage
    next_offset: int


async def ask(egress: Egress, url: str, *, at: int) -> Answer | Fault:
    """What a GET of a directory's URL brings. Raises DirectoryError for a URL that egress does
    not ask: directories are public https URLs too.
    """
    request = Request(url=url, method="GET", headers=(("accept", "application/json"),))
    try:
        return (await egress.fetch(request, at=at)).result
    except (ResourceError, RequestError) as error:
        raise DirectoryError(f"The source's URL cannot be asked: {error}") from error


def parse_document(data: bytes) -> object:
    """The value of a JSON text. Raises DirectoryError when it is none, or is nested deeper than
    DEPTH_MAX.
    """
    if depth(data) > DEPTH_MAX:
        raise DirectoryError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")
    try:
        return json.loads(data.decode("utf-8-sig", "replace"), parse_int=integer)
    except (ValueError, RecursionError) as error:
        raise DirectoryError("The text is not JSON.") from error


def looks_like_json(data: bytes) -> bool:
    """Whether a text starts as a JSON object or array does."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def integer(text: str) -> int | float:
    """The whole number of a text; infinity for one with more digits than Python reads at once."""
    return int(text) if len(text) <= _DIGITS_MAX else float("inf")
