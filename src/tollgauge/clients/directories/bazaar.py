"""A Bazaar directory over HTTP: `GET {facilitator}/discovery/resources`, page by page.

Rules (x402 specification, discovery):
- requests are sequential with a pause between them. `Retry-After` is honoured up to a minute; a
  longer one is an error, and the crawl continues later from the same offset;
- a page that exceeds the body limit, or is broken, is requested again in halves, until the one bad
  entry is skipped and counted;
- a directory changes while it is read: if pages overlap or the total grew, its head is read again;
  if the total shrank, entries may have been missed, so the listing is not complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from tollgauge.clients.directories.document import (
    DirectoryError,
    Step,
    ask,
    looks_like_json,
    parse_document,
)
from tollgauge.clients.egress.client import Egress
from tollgauge.core.directory.listing import SkippedItem
from tollgauge.core.directory.page import DirectoryPage, is_page, read_page
from tollgauge.core.probe.exchange import Answer, Fault, FaultKind, retry_after_ms

LIMIT: Final = 100
PAUSE_MS: Final = 1_000
WAIT_MAX_MS: Final = 60_000
ITEMS_MAX: Final = 1_000_000
_TRIES: Final = 4
_HEAD_PAGES: Final = 5
_IN_A_ROW: Final = 5
_LISTING: Final = "/discovery/resources"
_LASTING: Final = frozenset({FaultKind.NOT_PUBLIC, FaultKind.TLS_INVALID, FaultKind.DNS_NOT_FOUND})


async def pages(
    egress: Egress,
    location: str,
    *,
    at: int,
    offset: int = 0,
    limit: int = LIMIT,
    pause_ms: int = PAUSE_MS,
) -> AsyncGenerator[Step, None]:
    """Yield the pages of a listing from `offset` on.

    Args:
        egress: Sends the requests.
        location: The facilitator's base URL or that of the listing; its query is kept.
        at: Start of the crawl (milliseconds UTC).
        offset: Index of the first entry.
        limit: Entries per page.
        pause_ms: Pause between two requests.

    Raises:
        DirectoryError: The source fails or ignores paging.
    """
    reader = _Reader(egress, location, at=at, limit=limit, pause_ms=pause_ms)
    start = resume = offset
    ended = False
    while not ended:
        page = await reader.page(offset)
        reader.check(page, offset)
        offset += len(page.items)
        ended = _is_last_page(page, offset, reader.limit)
        if ended and not start and not reader.moved:
            yield Step(page=replace(page, complete=reader.whole(offset)), next_offset=offset)
            return
        # A source that fails may send only broken pages. The next crawl reads them again, so that
        # their entries are not delisted.
        resume = resume if _is_skipped(page) else offset
        yield Step(page=replace(page, complete=None), next_offset=resume)
    async for page in reader.head(pages_max=1 if start else _HEAD_PAGES):
        yield Step(page=page, next_offset=offset)
    caught_up = reader.caught_up if start == 0 else offset > start
    whole = reader.whole(offset) and not reader.shrank and caught_up
    yield Step(page=DirectoryPage(complete=whole), next_offset=offset)


def _is_last_page(page: DirectoryPage, offset: int, limit: int) -> bool:
    if not page.items:
        return True
    if page.total is not None:
        return offset >= page.total
    return not _is_skipped(page) and len(page.items) < min(limit, page.limit or limit)


def _is_skipped(page: DirectoryPage) -> bool:
    """Return whether a page is one entry that could not be read."""
    return len(page.items) == 1 and isinstance(page.items[0], SkippedItem)


def page_url(location: str, *, limit: int, offset: int) -> str:
    """Return the URL of one page. Raises DirectoryError if `location` is not a URL."""
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise DirectoryError("The source's location is not a URL.") from error
    path = parts.path.rstrip("/")
    path = path if path.endswith(_LISTING) else path + _LISTING
    paging = urlencode({"limit": limit, "offset": offset})
    query = f"{parts.query}&{paging}" if parts.query else paging
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


class _Reader:
    """The requests of one crawl, and its observations about the listing.

    `limit` decreases to the page size that fits. `caught_up`: reading the head again reached
    entries that the crawl already had.
    """

    def __init__(
        self, egress: Egress, location: str, *, at: int, limit: int, pause_ms: int
    ) -> None:
        self.limit = self._first_limit = limit
        self.caught_up = False
        self._egress = egress
        self._location = location
        self._at = at
        self._pause_ms = pause_ms
        self._asked = False
        self._overlapped = False
        self._skips = self._stale = 0
        self._totals: list[int] = []
        self._seen: set[int] = set()

    @property
    def moved(self) -> bool:
        """Whether pages overlapped or the total changed."""
        return self._overlapped or len(set(self._totals)) > 1

    @property
    def shrank(self) -> bool:
        """Whether the total fell: later entries moved up, so some may have been missed."""
        return any(after < before for before, after in pairwise(self._totals))

    def whole(self, offset: int) -> bool:
        """Return whether the entries up to an offset are all, by the directory's total."""
        return not self._totals or offset >= self._totals[-1]

    def check(self, page: DirectoryPage, offset: int) -> None:
        """Record a page at an offset. Raises DirectoryError if continuing is useless."""
        fresh = self.fresh(page)
        self._skips = self._skips + 1 if _is_skipped(page) else 0
        self._stale = self._stale + 1 if page.items and not fresh else 0
        if self._skips > _IN_A_ROW:
            raise DirectoryError(f"No entry before {offset} could be read.")
        if self._stale > _IN_A_ROW or (self._stale and len(page.items) >= self.limit > 1):
            raise DirectoryError(
                f"The page at {offset} repeats earlier ones: the source ignores paging."
            )
        if offset + len(page.items) > ITEMS_MAX:
            raise DirectoryError(f"The listing has more than {ITEMS_MAX} entries.")
        self._overlapped = self._overlapped or len(fresh) < len(page.items)
        if page.total is not None:
            self._totals.append(page.total)

    def fresh(self, page: DirectoryPage) -> tuple[object, ...]:
        """Return the entries of a page that are new to this crawl, and remember them."""
        fresh: list[object] = []
        for item in page.items:
            key = hash(repr(item))
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(item)
        return tuple(fresh)

    async def page(self, offset: int) -> DirectoryPage:
        """Return the page at an offset with as many entries as fit; a single one may be skipped.

        The reduced limit is kept, except after a single entry: the next ones may be small again.
        """
        while True:
            url = page_url(self._location, limit=self.limit, offset=offset)
            answer = await self._get(url)
            page = _read(answer, offset)
            if page is None and self.limit > 1:
                self.limit //= 2
                continue
            if self.limit == 1:
                self.limit = self._first_limit
            if page is not None:
                return page
            reason = "too-large" if answer.truncated else "unreadable"
            return DirectoryPage(items=(SkippedItem(reason=reason, excerpt=f"entry {offset}"),))

    async def head(self, *, pages_max: int) -> AsyncIterator[DirectoryPage]:
        """Yield the new entries at the listing's head, up to a page with a known entry. Entries
        that change while a directory is read move to its head.
        """
        offset = 0
        for _ in range(pages_max):
            page = await self.page(offset)
            fresh = self.fresh(page)
            yield replace(page, items=fresh, complete=None)
            self.caught_up = len(fresh) < len(page.items) or not page.items
            if self.caught_up:
                return
            offset += len(page.items)

    async def _get(self, url: str) -> Answer:
        problem, wait = "", self._pause_ms if self._asked else 0
        for attempt in range(_TRIES):
            if wait > WAIT_MAX_MS:
                raise DirectoryError(f"{problem} It asks for a pause of {wait // 1000} s.")
            await asyncio.sleep(wait / 1_000)
            self._asked = True
            result = await ask(self._egress, url, at=self._at)
            if isinstance(result, Answer) and result.status == 200:
                return result
            problem, requested = _problem(result, now=self._at)
            wait = max(self._pause_ms * 2 ** (attempt + 1), requested)
        raise DirectoryError(problem)


def _read(answer: Answer, offset: int) -> DirectoryPage | None:
    """Return the page in a response; None if it was cut or is broken JSON. Raises DirectoryError if
    the response is not a page, or not the requested one.
    """
    if answer.truncated:
        return None
    if not looks_like_json(answer.body):
        raise DirectoryError("The source answered 200 with something that is not JSON.")
    try:
        document = parse_document(answer.body)
    except DirectoryError:
        return None
    if not is_page(document):
        raise DirectoryError("The source answered 200 without a list of entries.")
    page = read_page(document)
    if page.offset not in (None, offset):
        raise DirectoryError(f"The source answered offset {page.offset} for offset {offset}.")
    return page


def _problem(result: Answer | Fault, *, now: int) -> tuple[str, int]:
    """Return the problem of a response, and the pause that the directory requests (milliseconds).
    Raises DirectoryError if another attempt is useless.
    """
    if isinstance(result, Fault):
        text, lasting = f"The source cannot be reached ({result.kind}).", result.kind in _LASTING
        requested = None
    else:
        text = f"The source answered {result.status}."
        lasting = result.status != 429 and result.status < 500
        requested = retry_after_ms(result.header("retry-after"), now=now)
    if lasting:
        raise DirectoryError(text)
    return text, requested or 0
