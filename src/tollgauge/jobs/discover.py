"""The discovery loop: one crawl of one source, page by page, into listings and their events.

Rules:
- each page is recorded in a transaction of its own, with where to go on: a crawl that is cut off
  resumes there;
- a bad entry is counted with its reason and skipped, it never stops a crawl;
- entries that name an endpoint which this crawl has had already are merged into the first;
- only a crawl that read the whole of a listing, and something in it, may delist: a source that
  fails, stops half-way or suddenly lists nothing delists nothing, and the tally says why.

What an entry means is core/listing's reading; what changed is core/discovery's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tollgauge.clients.directories import bazaar, file, openapi
from tollgauge.clients.directories.document import DirectoryError, Step
from tollgauge.clients.egress import Egress
from tollgauge.core.endpoint import PUBLIC, Perimeter
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.listing import ListedItem, SkippedItem, read_item
from tollgauge.core.text import clean_text
from tollgauge.store import discovery
from tollgauge.store.engine import Store

Told = Callable[[int, int], None]
"""Hears how many entries were read, and how many the source says there are (0: it does not)."""

NAME_MAX: Final = 100


class SourceKind(StrEnum):
    """What a source speaks: a paged Bazaar listing, an origin's own documents, or a file."""

    BAZAAR = "bazaar"
    OPENAPI = "openapi"
    FILE = "file"


class SourceError(TollgaugeError):
    """A configured source that cannot be used."""


@dataclass(frozen=True, slots=True)
class Source:
    """A directory to crawl. `location` is a URL, or a path for a file; `name` stands in discovery
    events. `pause_ms` is the pause between two pages, `limit` the entries asked for at once.

    Raises SourceError for a kind that does not exist, or an empty name or location.
    """

    name: str
    kind: str
    location: str
    pause_ms: int = bazaar.PAUSE_MS
    limit: int = bazaar.LIMIT

    def __post_init__(self) -> None:
        if self.kind not in set(SourceKind):
            raise SourceError(
                f"No source is of the kind {self.kind!r}.",
                hint=f"Use one of {', '.join(SourceKind)}.",
            )
        if not all(isinstance(text, str) and text for text in (self.name, self.location)):
            raise SourceError("A source needs a name and a location.")
        if self.kind != SourceKind.FILE and not self.location.startswith("https://"):
            raise SourceError(
                f"The location of {self.name} is no https:// URL.",
                hint=f"A path is for the kind {SourceKind.FILE}.",
            )
        if clean_text(self.name, NAME_MAX) != self.name:
            raise SourceError("A source's name is too long or holds odd characters.")
        if self.pause_ms < 0 or not 1 <= self.limit <= 1_000:
            raise SourceError("A source's pause must not be negative, its limit is 1 to 1000.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one crawl brought. `items` = `new` + `seen` + `merged` + every count in `skipped`.

    `new` endpoints were unknown, `seen` ones known; `skipped` counts entries by reason, `events`
    discovery events by kind. `problem` says why a crawl did not end, empty when it did.
    """

    source: str
    items: int = 0
    new: int = 0
    seen: int = 0
    merged: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    events: tuple[tuple[str, int], ...] = ()
    delisted: int = 0
    complete: bool = False
    problem: str = ""


@dataclass(slots=True)
class _Count:
    """The tally while it grows, and the endpoints that this crawl has had."""

    source: str
    items: int = 0
    new: int = 0
    seen: int = 0
    merged: int = 0
    delisted: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    had: set[str] = field(default_factory=set)

    def take(self, items: tuple[object, ...], perimeter: Perimeter) -> list[ListedItem]:
        """Count a page's entries; what is left to record, each endpoint once a crawl."""
        kept: list[ListedItem] = []
        for raw in items:
            self.items += 1
            item = read_item(raw, perimeter)
            if isinstance(item, SkippedItem):
                self.skipped[item.reason] += 1
            elif item.resource.id in self.had:
                self.merged += 1
            else:
                self.had.add(item.resource.id)
                kept.append(item)
        return kept

    def add(self, page: discovery.PageTally) -> None:
        """Count what a recorded page brought."""
        self.new += page.new
        self.seen += page.seen - page.new
        self.events.update(page.kinds)

    def tally(self, *, complete: bool, problem: str = "") -> Tally:
        return Tally(
            source=self.source,
            items=self.items,
            new=self.new,
            seen=self.seen,
            merged=self.merged,
            skipped=tuple(sorted(self.skipped.items())),
            events=tuple(sorted(self.events.items())),
            delisted=self.delisted,
            complete=complete,
            problem=problem,
        )


async def run(
    store: Store,
    egress: Egress,
    source: Source,
    *,
    now: int,
    perimeter: Perimeter = PUBLIC,
    told: Told | None = None,
) -> Tally:
    """One crawl of a source, from where an unfinished one stopped. `now` is the crawl's instant,
    `told` hears of each page.

    A source that fails is no error of ours: the tally's `problem` says why, and the crawl stays
    unfinished. Raises StoreUnavailable when the database cannot serve.
    """
    crawl = await store.writing(discovery.begin_crawl, source.name, now=now)
    steps = _steps(egress, source, offset=crawl.offset, at=now)
    return await _record(store, crawl, steps, now=now, perimeter=perimeter, told=told)


async def load_file(
    store: Store,
    path: Path,
    *,
    source: str | None,
    now: int,
    perimeter: Perimeter = PUBLIC,
    told: Told | None = None,
) -> Tally:
    """One crawl of a file. Without a `source` it is the host of the facilitator that the file
    names, so that files and crawls of one directory are one source, else `file:<name>`.

    Raises DirectoryError when the file cannot be read, and StoreUnavailable.
    """
    steps = file.pages(path)
    first = await anext(steps)
    name = source or source_name(first.page.facilitator, path)
    crawl = await store.writing(discovery.begin_crawl, name, now=now)
    steps = _again(first, steps)
    return await _record(store, crawl, steps, now=now, perimeter=perimeter, told=told)


def source_name(facilitator: str | None, path: Path) -> str:
    """The name of a file's source."""
    try:
        host = urlsplit(facilitator or "").hostname
    except ValueError:
        host = None
    return clean_text(host, NAME_MAX) or f"file:{clean_text(path.name, NAME_MAX - 5)}"


async def _record(
    store: Store,
    crawl: discovery.Crawl,
    steps: AsyncGenerator[Step, None],
    *,
    now: int,
    perimeter: Perimeter,
    told: Told | None,
) -> Tally:
    count, complete = _Count(crawl.source), False
    try:
        async with aclosing(steps):
            async for step in steps:
                items = count.take(step.page.items, perimeter)
                page = await store.writing(
                    discovery.record_page, crawl, items, next_offset=step.next_offset, now=now
                )
                count.add(page)
                complete = step.page.complete is True
                if told is not None:
                    told(count.items, step.page.total or 0)
    except DirectoryError as error:
        return count.tally(complete=False, problem=str(error))
    complete = complete and (bool(count.had) or crawl.offset > 0)
    count.delisted = await store.writing(discovery.finish_crawl, crawl, complete=complete, now=now)
    if count.delisted:
        count.events["delisted"] += count.delisted
    return count.tally(complete=complete)


def _steps(egress: Egress, source: Source, *, offset: int, at: int) -> AsyncGenerator[Step, None]:
    if source.kind == SourceKind.BAZAAR:
        return bazaar.pages(
            egress,
            source.location,
            at=at,
            offset=offset,
            limit=source.limit,
            pause_ms=source.pause_ms,
        )
    if source.kind == SourceKind.OPENAPI:
        return openapi.pages(egress, source.location, at=at)
    return file.pages(Path(source.location))


async def _again(first: Step, rest: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    yield first
    async for step in rest:
        yield step
