"""Load directories from files: choose each file's source and the order of loading.

A crawl is compared with the previous one of its source, so all files of a directory must have the
same source: the given name, otherwise the host of the origin that the file declares, otherwise
`file:` and the file name. Everything is checked before anything is written.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tollgauge.clients.directories import file
from tollgauge.clients.directories.file import DirectoryFile
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import clean_text
from tollgauge.core.directory.discovery import is_same_directory
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.jobs.discover import CrawlOptions, Tally, check_newer, record_file
from tollgauge.jobs.loop_settings import NAME_MAX
from tollgauge.store.endpoints import crawls

_SUSPICIOUS: Final = "suspicious-file:"  # prefix of the `meta` key of a suspicious file's digest
FILE: Final = "file:"  # prefix of the names of sources that are named after a file


class UnclearSourceError(TollgaugeError):
    """It is not clear whether files belong to the same directory."""


class RepeatedFileError(TollgaugeError):
    """The file of a suspicious crawl was loaded a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A file and its source. `ids` contains its endpoints if the source is uncertain."""

    path: Path
    source: str
    ids: frozenset[str]
    listing: DirectoryFile

    @property
    def taken_at(self) -> int | None:
        """The time that the file states for its content."""
        return self.listing.taken_at


async def load_files(
    store: Store, paths: Sequence[Path], options: CrawlOptions, *, source: str | None
) -> tuple[Tally, ...]:
    """Crawl each file and return the tallies in the order of loading.

    Files are loaded oldest first if all state their time, otherwise in the given order.

    Args:
        store: The store.
        paths: The files.
        options: `accept_shrink` also accepts a file that was loaded before.
        source: The name of the source of all files, if given.

    Raises:
        DirectoryError: A file cannot be read. All errors except StoreUnavailable are raised before
            anything is written.
        OldListingError: A newer listing of the source was already read.
        UnclearSourceError: The caller must name the source.
        RepeatedFileError: The file is the suspicious crawl that needs a second one to agree.
        StoreUnavailable: The database cannot serve.
    """
    perimeter = options.perimeter
    planned = [await asyncio.to_thread(_plan, path, source, perimeter) for path in paths]
    if all(plan.taken_at is not None for plan in planned):
        planned.sort(key=lambda plan: plan.taken_at or 0)
    await _check_sources(store, planned)
    await _check_order(store, planned, now=options.now)
    if not options.accept_shrink:
        await _check_repeated(store, planned)
    tallies: list[Tally] = []
    for plan in planned:
        tally = await record_file(store, plan.source, plan.listing, options)
        digest = await asyncio.to_thread(_digest, plan.path) if tally.suspicious else ""
        await store.writing(meta.put, _SUSPICIOUS + plan.source, digest)
        tallies.append(tally)
    return tuple(tallies)


def source_name(origin: str | None, path: Path) -> str:
    """Return the name of a file's source: the host of its declared origin, so that files and crawls
    of a directory share a source, otherwise `file:` and the file name.
    """
    try:
        parts = urlsplit(origin or "")
        host = parts.hostname
    except ValueError:
        host = None
    return clean_text(host, NAME_MAX) or FILE + clean_text(path.name, NAME_MAX - len(FILE))


def _plan(path: Path, source: str | None, perimeter: Perimeter) -> _Planned:
    listing = file.read(path)
    name = source or source_name(listing.origin, path)
    unsure = source is None and name.startswith(FILE)
    ids = frozenset(_ids(listing, perimeter)) if unsure else frozenset()
    return _Planned(path=path, source=name, ids=ids, listing=listing)


def _ids(listing: DirectoryFile, perimeter: Perimeter) -> Iterator[str]:
    for raw in listing.items:
        item = read_item(raw, perimeter)
        if isinstance(item, ListedItem):
            yield item.resource.id


async def _check_sources(store: Store, planned: Sequence[_Planned]) -> None:
    """Raise UnclearSourceError for a file that resembles the listing of a different source.

    A wrong guess would delist existing endpoints or report no change.
    """
    unsure = [plan for plan in planned if plan.ids]
    known = await store.reading(crawls.count_listed) if unsure else {}
    for plan in unsure:
        shared = await store.reading(crawls.count_shared, plan.ids)
        if plan.source in known:
            if not shared.get(plan.source):
                raise _unlike(plan, known[plan.source])
            continue
        for name in sorted(shared, key=lambda source: (-shared[source], source)):
            if is_same_directory(
                len(plan.ids),
                known.get(name, 0),
                shared[name],
                named_alike=_pattern(name.removeprefix(FILE)) == _pattern(plan.path.name),
            ):
                raise _like_source(plan, name, shared[name])
    for one, other in combinations(unsure, 2):
        shares = len(one.ids & other.ids)
        alike = _pattern(one.path.name) == _pattern(other.path.name)
        if one.source != other.source and is_same_directory(
            len(one.ids), len(other.ids), shares, named_alike=alike
        ):
            raise _like_file(one, other, shares)


async def _check_repeated(store: Store, planned: Sequence[_Planned]) -> None:
    """Raise RepeatedFileError for a file that is its source's pending suspicious crawl.

    A second crawl must agree with a suspicious one; the same file is not a second crawl.
    """
    for plan in planned:
        suspicious = await store.reading(meta.get, _SUSPICIOUS + plan.source)
        if suspicious and suspicious == await asyncio.to_thread(_digest, plan.path):
            raise RepeatedFileError(
                f"{plan.path.name} was already loaded for {plan.source} and lists fewer than half "
                "of its endpoints. Loading it again does not confirm that.",
                hint="Load a newer listing of the directory, or confirm that the directory shrank "
                "with --accept-shrink.",
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _check_order(store: Store, planned: Sequence[_Planned], *, now: int) -> None:
    """Raise OldListingError for a file older than a listing that is read before it."""
    last = {
        name: await store.reading(crawls.last_taken, name)
        for name in {plan.source for plan in planned}
    }
    for plan in planned:
        check_newer(plan.source, plan.taken_at, last=last[plan.source])
        last[plan.source] = now if plan.taken_at is None else min(plan.taken_at, now)


def _like_source(plan: _Planned, name: str, shared: int) -> UnclearSourceError:
    own = shlex.quote(_stem(plan.path))
    return UnclearSourceError(
        f"{plan.path.name} looks like another crawl of the source {name}, which lists {shared} of "
        f"its {len(plan.ids)} endpoints.",
        hint=f"If it is, load it with --name {shlex.quote(name)} to report the changes. If it is "
        f"a different directory, name it: --name {own}.",
    )


def _like_file(one: _Planned, other: _Planned, shared: int) -> UnclearSourceError:
    return UnclearSourceError(
        f"{one.path.name} and {other.path.name} look like crawls of one directory: they share "
        f"{shared} of {len(one.ids)} and {len(other.ids)} endpoints.",
        hint=f"If they are, load them with one name, oldest first: --name "
        f"{shlex.quote(_stem(one.path))}. If not, load each with a different --name.",
    )


def _unlike(plan: _Planned, count: int) -> UnclearSourceError:
    return UnclearSourceError(
        f"{plan.path.name} contains none of the {count} endpoints that {plan.source} lists.",
        hint="If it is a different directory, load it with a different --name. If it is the same "
        f"one, confirm it: --name {shlex.quote(plan.source)}.",
    )


def _pattern(name: str) -> str:
    """Return a file name with its digits masked, the same for all crawls of a directory."""
    return re.sub(r"\d+", "#", name)


def _stem(path: Path) -> str:
    """Return the common part of the names of a directory's files."""
    stem = path.name.split(".", 1)[0]
    return clean_text(re.sub(r"[-_ .]*\d[-_\dTZ]*$", "", stem) or stem, NAME_MAX)
