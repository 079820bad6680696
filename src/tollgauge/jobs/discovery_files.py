"""Directories that are loaded from files: which source each file belongs to, and in which order.

Rules:
- a crawl is compared with the one before it of its source, so files of one directory must have one
  source: the name that was asked for, else the host of the origin that the document declares, else
  `file:` and the file's name;
- a file that declares no origin and looks like a listing that is known already is not loaded before
  somebody says by a name what it is: a guess would delist what is there, or report no change;
- everything is checked before anything is written;
- a crawl that shrank by more than half waits for a second one that agrees: the same file once more
  is no second crawl;
- files are loaded oldest first where every one says when it was taken, else in the order given.
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
from tollgauge.core.directory.discovery import looks_same
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.endpoint.identity import PUBLIC, Perimeter
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.jobs.discover import NAME_MAX, Progress, Tally, check_newer, record_file
from tollgauge.store.endpoints import crawls

_SUSPICIOUS: Final = "suspicious-file:"
"""What begins the key under which a source's suspicious file is remembered, by its digest."""
FILE: Final = "file:"
"""What the names of sources begin with that are named after a file."""


class UnclearSourceError(TollgaugeError):
    """Files of which nobody can know whether they belong to one directory."""


class RepeatedFileError(TollgaugeError):
    """The file of a suspicious crawl, loaded once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A file and the source it is loaded for. `ids` are its endpoints, empty where the source is
    certain.
    """

    path: Path
    source: str
    ids: frozenset[str]
    listing: DirectoryFile

    @property
    def taken_at(self) -> int | None:
        """The instant that the file names for its content."""
        return self.listing.taken_at


async def load_files(
    store: Store,
    paths: Sequence[Path],
    *,
    source: str | None,
    now: int,
    perimeter: Perimeter = PUBLIC,
    accept_shrink: bool = False,
    progress: Progress | None = None,
) -> tuple[Tally, ...]:
    """One crawl of each file, in the order in which they were loaded. `source` is the name that was
    asked for, for all of them. `accept_shrink` confirms that a directory lists much less than it
    did, also with a file that was loaded before.

    Raises, before anything is written, DirectoryError when a file cannot be read, OldListingError
    when a newer listing of its source was read before, and UnclearSourceError when its source must
    be asked for, RepeatedFileError; and StoreUnavailable.
    """
    planned = [await asyncio.to_thread(_plan, path, source, perimeter) for path in paths]
    if all(plan.taken_at is not None for plan in planned):
        planned.sort(key=lambda plan: plan.taken_at or 0)
    await _check_sources(store, planned)
    await _check_order(store, planned, now=now)
    if not accept_shrink:
        await _check_repeated(store, planned)
    tallies: list[Tally] = []
    for plan in planned:
        tally = await record_file(
            store,
            plan.source,
            plan.listing,
            now=now,
            perimeter=perimeter,
            accept_shrink=accept_shrink,
            progress=progress,
        )
        digest = await asyncio.to_thread(_digest, plan.path) if tally.suspicious else ""
        await store.writing(meta.put, _SUSPICIOUS + plan.source, digest)
        tallies.append(tally)
    return tuple(tallies)


def source_name(origin: str | None, path: Path) -> str:
    """The name of a file's source: the host of the origin that it declares, so that files and
    crawls of one directory are one source, else `file:` and the file's name.
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
    """Raises UnclearSourceError for a file that looks like a listing of another name."""
    unsure = [plan for plan in planned if plan.ids]
    known = await store.reading(crawls.listed_by) if unsure else {}
    for plan in unsure:
        shared = await store.reading(crawls.shared_with, plan.ids)
        if plan.source in known:
            if not shared.get(plan.source):
                raise _unlike(plan, known[plan.source])
            continue
        for name in sorted(shared, key=lambda source: (-shared[source], source)):
            if looks_same(
                len(plan.ids),
                known.get(name, 0),
                shared[name],
                named_alike=_pattern(name.removeprefix(FILE)) == _pattern(plan.path.name),
            ):
                raise _like_source(plan, name, shared[name])
    for one, other in combinations(unsure, 2):
        shares = len(one.ids & other.ids)
        alike = _pattern(one.path.name) == _pattern(other.path.name)
        if one.source != other.source and looks_same(
            len(one.ids), len(other.ids), shares, named_alike=alike
        ):
            raise _like_file(one, other, shares)


async def _check_repeated(store: Store, planned: Sequence[_Planned]) -> None:
    """Raises RepeatedFileError for the file that is a source's suspicious crawl already."""
    for plan in planned:
        suspicious = await store.reading(meta.get, _SUSPICIOUS + plan.source)
        if suspicious and suspicious == await asyncio.to_thread(_digest, plan.path):
            raise RepeatedFileError(
                f"{plan.path.name} was loaded for {plan.source} before, and lists less than half "
                "of what was there: the same file again is no second crawl.",
                hint="Load a newer listing of the directory. If it really shrank, that one agrees; "
                "or confirm it now: --accept-shrink.",
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _check_order(store: Store, planned: Sequence[_Planned], *, now: int) -> None:
    """Raises OldListingError for a file that is older than what its source is read of before it."""
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
        f"{plan.path.name} looks like another crawl of the directory that the source {name} lists: "
        f"it lists {shared} of the {len(plan.ids)} endpoints in the file.",
        hint=f"If it is, load it with --name {shlex.quote(name)}, and what changed is reported. If "
        f"it is a directory of its own, name it: --name {own}.",
    )


def _like_file(one: _Planned, other: _Planned, shared: int) -> UnclearSourceError:
    return UnclearSourceError(
        f"{one.path.name} and {other.path.name} look like crawls of one directory: they share "
        f"{shared} of {len(one.ids)} and {len(other.ids)} endpoints.",
        hint=f"If they are, give them one name, oldest file first: --name "
        f"{shlex.quote(_stem(one.path))}. If not, load them one by one, each with a --name.",
    )


def _unlike(plan: _Planned, count: int) -> UnclearSourceError:
    return UnclearSourceError(
        f"None of the {count} endpoints that {plan.source} lists is in {plan.path.name}.",
        hint="If it is another directory, give it a --name of its own. If it is the same one, say "
        f"so: --name {shlex.quote(plan.source)}.",
    )


def _pattern(name: str) -> str:
    """A file's name without what tells one crawl from the next."""
    return re.sub(r"\d+", "#", name)


def _stem(path: Path) -> str:
    """What files of one directory have in common in their names."""
    stem = path.name.split(".", 1)[0]
    return clean_text(re.sub(r"[-_ .]*\d[-_\dTZ]*$", "", stem) or stem, NAME_MAX)
