"""`tollgauge discover`: load a directory into the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, errors, progress_bar, show
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.jobs.discover import Tally


def discover(
    source: Annotated[str, typer.Argument(help="A file, or the https:// URL of a directory.")],
    config: ConfigFile = None,
    name: Annotated[str, typer.Option(help="The source's name in discovery events.")] = "",
    kind: Annotated[str, typer.Option(help="bazaar or openapi, for a URL.")] = "bazaar",
    as_json: Json = False,
) -> None:
    """Load a directory into the store. Exit 1 when it could not be read to its end.

    A directory is a Bazaar listing, an origin's own documents (--kind
    openapi), or a file: JSON, CSV or one URL a line, also gzipped.
    """
    _check_source(source)
    found = load_config(config)
    with progress_bar() as progress:
        tally = asyncio.run(_discover(found, source, name, kind, progress))
    document = {
        "source": tally.source,
        "items": tally.items,
        "new": tally.new,
        "seen": tally.seen,
        "merged": tally.merged,
        "skipped": dict(tally.skipped),
        "events": dict(tally.events),
        "delisted": tally.delisted,
        "complete": tally.complete,
        "problem": tally.problem or None,
    }
    show(document, _lines(tally), as_json=as_json)
    if not tally.complete and not as_json:
        why = tally.problem or _NOT_WHOLE
        errors.print(why, soft_wrap=True, markup=False)
    raise typer.Exit(GOOD if tally.complete else BAD)


def _check_source(source: str) -> None:
    """Raises TollgaugeError for what is neither a file nor a https:// URL."""
    scheme, found, _ = source.partition("://")
    if found and scheme.lower() != "https":
        raise TollgaugeError(
            f"{source} is no https:// URL, and a directory is asked over https only.",
            hint="Save what it answers, and give the file.",
        )
    if not found and not Path(source).exists():
        raise TollgaugeError(
            f"There is no file {source}.",
            hint="Give a file, or the https:// URL of a directory.",
        )


_NOT_WHOLE: Final = "The source says itself that this is not all of it, or holds nothing."


def _lines(tally: Tally) -> Iterator[str]:
    for key in ("source", "items", "new", "seen", "merged", "delisted"):
        yield f"{key:10} {getattr(tally, key)}"
    for title, counts in (("skipped", tally.skipped), ("events", tally.events)):
        for word, count in counts:
            yield f"{title:10} {count} {word}"
    told = "yes" if tally.complete else "no: what is missing from it is not taken for delisted"
    yield f"complete   {told}"


async def _discover(
    config: Config, source: str, name: str, kind: str, progress: Callable[[str, int, int], None]
) -> Tally:
    from tollgauge import app as root
    from tollgauge.jobs.discover import Source, load_file
    from tollgauge.jobs.discover import run as crawl

    perimeter = config.egress.perimeter
    is_url = "://" in source
    wanted = Source(name=name or _host(source), kind=kind, location=source) if is_url else None

    def told(items: int, total: int) -> None:
        progress("entries read", items, total)

    async with root.opened(config) as service:
        now = service.clock()
        if wanted is not None:
            return await crawl(
                service.store, service.egress, wanted, now=now, perimeter=perimeter, told=told
            )
        path = Path(source)
        return await load_file(
            service.store, path, source=name or None, now=now, perimeter=perimeter, told=told
        )


def _host(url: str) -> str:
    return url.split("://", 1)[1].split("/", 1)[0]
