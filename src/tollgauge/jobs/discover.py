"""The discovery loop: crawl a source page by page into listings and their events.

Pages are recorded in batches, each with the offset to continue from: an interrupted crawl resumes
there, and everything read before a failure is kept. Invalid entries are counted by reason and
skipped; repeated entries of a crawl are merged into the first. A failed or incomplete crawl delists
nothing.

monitor/discovery decides what an entry and a crawl change; jobs/discovery_files assigns files to
sources.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tollgauge.clients.directories import bazaar, file, openapi
from tollgauge.clients.directories.document import STEP_SIZE, DirectoryError, Step
from tollgauge.clients.directories.file import DirectoryFile
from tollgauge.clients.egress.client import Egress
from tollgauge.core.base.units import Clock, iso_seconds
from tollgauge.core.directory.listing import ListedItem, SkippedItem, read_item
from tollgauge.core.directory.page import DirectoryPage, list_entries
from tollgauge.core.endpoint.identity import PUBLIC, Perimeter
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import Source, SourceKind
from tollgauge.monitor import discovery
from tollgauge.monitor.discovery import CrawlEnding
from tollgauge.store.endpoints import crawls
from tollgauge.store.endpoints.crawls import Crawl

Progress = Callable[[int, int], None]
"""Called after each page with the number of entries read and the number that the source announces
(0 if it announces none).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlOptions:
    """The time of a crawl (ms UTC), and how it is made.

    Attributes:
        perimeter: The hosts that may be probed.
        accept_shrink: Confirm that a source lists far fewer entries (`discovery.end_crawl`).
        progress: Called after each page.
    """

    now: int
    perimeter: Perimeter = PUBLIC
    accept_shrink: bool = False
    progress: Progress | None = None


EXAMPLES_MAX: Final = 3  # skipped entries shown per reason


class OldListingError(DirectoryError):
    """A file that is older than the last listing read from its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(CrawlEnding):
    """Counts and result of one crawl. `items` = `new` + `seen` + `merged` + all of `skipped`.

    - `new` endpoints were unknown before, `seen` ones were known; `unverified` of both declare a
      402 without terms.
    - `skipped` counts entries by reason; `examples` contains some entries per reason.
    - `events` counts discovery events by kind.
    """

    source: str
    items: int = 0
    new: int = 0
    seen: int = 0
    merged: int = 0
    unverified: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()
    events: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Count:
    """Counts of a running crawl, the IDs of its endpoints and the entries not yet recorded.

    `figures` are the numeric fields of Tally by name.
    """

    source: str
    figures: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    unrecorded: list[ListedItem] = field(default_factory=list)
    unrecorded_skips: list[str] = field(default_factory=list)

    def take(self, items: tuple[object, ...], perimeter: Perimeter) -> None:
        """Count a page's entries and keep those to record, each endpoint once per crawl."""
        for raw in items:
            item = read_item(raw, perimeter)
            if isinstance(item, SkippedItem):
                self.skipped[item.reason] += 1
                self.unrecorded_skips.append(item.reason)
                shown = self.examples.setdefault(item.reason, [])
                if item.excerpt and len(shown) < EXAMPLES_MAX and item.excerpt not in shown:
                    shown.append(item.excerpt)
            elif item.resource.id in self.ids:
                self.figures["merged"] += 1
            else:
                self.ids.add(item.resource.id)
                self.figures["unverified"] += item.unverified
                self.unrecorded.append(item)
        self.figures["items"] += len(items)

    def add(self, page: discovery.PageTally) -> None:
        """Count a recorded page."""
        self.unrecorded.clear()
        self.unrecorded_skips.clear()
        self.figures.update(new=page.new, seen=page.seen - page.new)
        self.events.update(page.kinds)

    def tally(self, ending: CrawlEnding) -> Tally:
        """Return the counts with the crawl's result."""
        events = self.events + Counter(delisted=ending.delisted)
        return Tally(
            source=self.source,
            skipped=tuple(sorted(self.skipped.items())),
            examples=tuple((name, tuple(shown)) for name, shown in sorted(self.examples.items())),
            events=tuple(sorted(events.items())),
            **asdict(ending),
            **dict[str, Any](self.figures),
        )


async def run(store: Store, egress: Egress, source: Source, options: CrawlOptions) -> Tally:
    """Crawl a source, continuing an unfinished crawl.

    A source that fails does not raise: the tally's `problem` states the reason and the crawl
    remains unfinished.

    Raises:
        StoreUnavailable: The database cannot serve.
    """
    if source.kind == SourceKind.FILE:
        try:
            listing = await asyncio.to_thread(file.read, Path(source.location))
            return await record_file(store, source.name, listing, options)
        except DirectoryError as error:
            return Tally(source=source.name, problem=str(error))
    crawl = await store.writing(crawls.begin_crawl, source.name, now=options.now)
    steps = _steps(egress, source, offset=crawl.offset, now=options.now)
    return await _record(store, crawl, steps, options)


def _steps(egress: Egress, source: Source, *, offset: int, now: int) -> AsyncGenerator[Step, None]:
    """Yield the pages of a source that is not a file, from `offset`."""
    if source.kind == SourceKind.OPENAPI:
        return openapi.pages(egress, source.location, at=now)
    return bazaar.pages(
        egress,
        source.location,
        at=now,
        offset=offset,
        limit=source.limit,
        pause_ms=source.pause_ms,
    )


async def first_page(egress: Egress, source: Source, *, now: int) -> DirectoryPage:
    """Read the first page of a source without storing it.

    Raises:
        DirectoryError: The source cannot be read.
    """
    if source.kind == SourceKind.FILE:
        steps = file.steps(await asyncio.to_thread(file.read, Path(source.location)))
    else:
        steps = _steps(egress, source, offset=0, now=now)
    async with aclosing(steps):
        async for step in steps:
            return step.page
    return DirectoryPage()


async def run_all(
    store: Store, egress: Egress, sources: Iterable[Source], *, clock: Clock, perimeter: Perimeter
) -> dict[str, object]:
    """Crawl every source. The tally contains a summary or the problem of each."""
    tally: dict[str, object] = {}
    for source in sources:
        options = CrawlOptions(now=clock(), perimeter=perimeter)
        crawl = await run(store, egress, source, options)
        tally[source.name] = crawl.problem or f"{crawl.new} new of {crawl.items}"
    return tally


async def record_file(
    store: Store, source: str, listing: DirectoryFile, options: CrawlOptions
) -> Tally:
    """Crawl a file's listing for the named source.

    Entries are dated with the time that the file states.

    Raises:
        OldListingError: A newer listing of the source was already read.
        StoreUnavailable: The database cannot serve.
    """
    check_newer(source, listing.taken_at, last=await store.reading(crawls.last_taken, source))
    crawl = await store.writing(
        crawls.begin_file, source, taken_at=listing.taken_at, now=options.now
    )
    return await _record(store, crawl, file.steps(listing), options, file_problem=listing.problem)


def check_newer(source: str, taken_at: int | None, *, last: int | None) -> None:
    """Reject a file that is older than the last listing of its source, whose changes it would
    revert.

    Raises:
        OldListingError: The file is older.
    """
    if taken_at is not None and last is not None and taken_at < last:
        raise OldListingError(
            f"The file is from {iso_seconds(taken_at)}, but a listing of {source} from "
            f"{iso_seconds(last)} was already loaded.",
            hint="Load the files of a directory oldest first, or give this one its own --name.",
        )


async def _record(
    store: Store,
    crawl: Crawl,
    steps: AsyncGenerator[Step, None],
    options: CrawlOptions,
    *,
    file_problem: str = "",
) -> Tally:
    now, progress = options.now, options.progress
    count, whole, problem = _Count(crawl.source), False, ""
    offset = recorded = crawl.offset
    skips = 0  # before `offset`, not yet recorded

    async def record() -> None:
        count.add(
            await store.writing(
                discovery.record_page,
                crawl,
                count.unrecorded,
                next_offset=offset,
                now=now,
                skipped=count.unrecorded_skips,
            )
        )

    try:
        async with aclosing(steps):
            async for step in steps:
                count.take(list_entries(step.page), options.perimeter)
                if step.next_offset > offset:
                    skips = len(count.unrecorded_skips)
                offset, whole = step.next_offset, step.page.complete is True
                if offset - recorded >= STEP_SIZE:
                    await record()
                    recorded, skips = offset, 0
                if progress is not None:
                    progress(count.figures["items"], step.page.total or 0)
    except DirectoryError as error:
        # The next crawl reads the entries after `offset` again and counts their skips then.
        problem = str(error)
        del count.unrecorded_skips[skips:]
    if offset > recorded or count.unrecorded:
        await record()
    if problem:
        return count.tally(CrawlEnding(problem=problem))
    ending = await discovery.end_crawl(
        store, crawl, whole=whole, accept_shrink=options.accept_shrink, now=now
    )
    return count.tally(replace(ending, problem=ending.problem or file_problem))
