"""`tollgauge discover`: load a directory into the store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    load_config,
    note,
    progress_bar,
    show,
    with_service,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.app import Opened
    from tollgauge.jobs.discover import Tally
    from tollgauge.jobs.loop_settings import Source


def discover(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL",
            help="Files, or the https:// URL of a directory.",
            show_default=False,
        ),
    ],
    config: ConfigFile = None,
    name: Annotated[str, typer.Option(help="Source name in discovery events, for all files.")] = "",
    kind: Annotated[
        Literal["bazaar", "openapi"], typer.Option(help="Format of the directory at a URL.")
    ] = "bazaar",
    accept_shrink: Annotated[
        bool,
        typer.Option("--accept-shrink", help="Accept a directory that shrank by more than half."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Load a directory into the store. Exit 1 if it could not be read completely, or
    shrank so much that it needs confirmation; 2 if nothing was loaded.

    A directory is a Bazaar listing, an origin's own documents (--kind
    openapi), or files: JSON, OpenAPI, CSV, Markdown or one URL per line,
    optionally gzipped. Several files are successive crawls, oldest first;
    changes between crawls of a directory are reported if both have the
    same name. --accept-shrink confirms that the directory really shrank:
    endpoints that it no longer lists are delisted immediately, including
    those from a file that was loaded before.
    """
    _check_sources(sources)
    settings, directory = load_config(config), _directory(sources[0], name, kind)
    with progress_bar() as progress:
        progress("reading", 0, 0)
        load = partial(
            _discover,
            sources=sources,
            directory=directory,
            name=name,
            accept_shrink=accept_shrink,
            progress=partial(progress, "entries read"),
        )
        tallies = with_service(settings, load)
    documents = [_document(tally) for tally in tallies]
    show(
        documents if len(sources) > 1 else documents[0],
        itertools.chain.from_iterable(map(_lines, tallies)),
        as_json=as_json,
    )
    for tally in tallies:
        if not tally.complete and not as_json:
            note(tally.problem or _INCOMPLETE)
    raise typer.Exit(GOOD if all(tally.complete for tally in tallies) else BAD)


def _check_sources(sources: list[str]) -> None:
    """Raise TollgaugeError unless `sources` are existing files or one https:// URL."""
    for source in sources:
        scheme, is_url, _ = source.partition("://")
        if is_url and scheme.lower() != "https":
            raise TollgaugeError(
                f"{source} is not an https:// URL. Directories are fetched only over https.",
                hint="Save the response, and give the file.",
            )
        if is_url and len(sources) > 1:
            raise TollgaugeError(
                "Several URLs cannot be combined.", hint="Give one URL, or only files."
            )
        if not is_url and not Path(source).exists():
            raise TollgaugeError(
                f"The file {source} does not exist.",
                hint="Give a file, or the https:// URL of a directory.",
            )


def _document(tally: Tally) -> dict[str, object]:
    mappings = {name: dict(getattr(tally, name)) for name in ("skipped", "examples", "events")}
    return asdict(tally) | mappings | {"problem": tally.problem or None}


_INCOMPLETE: Final = "The source is empty, or states that it is incomplete."


def _lines(tally: Tally) -> Iterator[str]:
    from tollgauge.core.directory.listing import REASONS

    for key in ("source", "items", "new", "seen", "merged", "delisted"):
        yield f"{key:10} {getattr(tally, key)}"
    if tally.unverified:
        yield f"{'unverified':10} {tally.unverified} with a declared 402 and no x-payment-info"
    examples = dict(tally.examples)
    for reason, count in tally.skipped:
        entries = ", ".join(examples.get(reason, ()))
        meaning = f"{reason}: {REASONS.get(reason, reason)}"
        yield f"{'skipped':10} {count} {meaning}{f' ({entries})' if entries else ''}"
    for event, count in tally.events:
        yield f"{'events':10} {count} {event}"
    whole = "yes" if tally.complete else "no: endpoints missing from it are not delisted"
    yield f"complete   {whole}"


async def _discover(
    service: Opened,
    *,
    sources: list[str],
    directory: Source | None,
    name: str,
    **options: Any,
) -> tuple[Tally, ...]:
    from tollgauge.jobs.discover import CrawlOptions, run
    from tollgauge.jobs.discovery_files import load_files

    perimeter = service.config.egress.perimeter
    crawl = CrawlOptions(now=service.clock(), perimeter=perimeter, **options)
    if directory is None:
        paths = [Path(source) for source in sources]
        return await load_files(service.store, paths, crawl, source=name or None)
    return (await run(service.store, service.egress, directory, crawl),)


def _directory(source: str, name: str, kind: str) -> Source | None:
    """Return the directory at a URL, None for a file."""
    from pydantic import ValidationError

    from tollgauge.jobs.loop_settings import Source, SourceKind

    _, is_url, rest = source.partition("://")
    name = name or rest.split("/", 1)[0]
    try:
        return Source(name=name, kind=SourceKind(kind), location=source) if is_url else None
    except ValidationError as error:
        raise TollgaugeError(f"{name!r} is not a valid source name: use --name.") from error
