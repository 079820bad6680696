"""`tollgauge discover`: load a directory into the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tollgauge import app as root
from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, print_json
from tollgauge.config import Config
from tollgauge.jobs.discover import Source, Tally, load_file
from tollgauge.jobs.discover import run as crawl


def discover(
    source: Annotated[str, typer.Argument(help="A file, or the https:// URL of a directory.")],
    config: ConfigFile = None,
    name: Annotated[str, typer.Option(help="The source's name in discovery events.")] = "",
    kind: Annotated[str, typer.Option(help="bazaar or openapi, for a URL.")] = "bazaar",
    as_json: Json = False,
) -> None:
    """Load a directory into the store. Exit 1 when it could not be read to its end."""
    tally = asyncio.run(_discover(load_config(config), source, name, kind))
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
    if as_json:
        print_json(document)
    else:
        for key, value in document.items():
            print(f"{key:10} {value}")
    raise typer.Exit(BAD if tally.problem else GOOD)


async def _discover(config: Config, source: str, name: str, kind: str) -> Tally:
    perimeter = config.egress.perimeter
    async with root.opened(config) as service:
        now = service.clock()
        if source.startswith("https://"):
            wanted = Source(name=name or _host(source), kind=kind, location=source)
            return await crawl(service.store, service.egress, wanted, now=now, perimeter=perimeter)
        path = Path(source)
        return await load_file(
            service.store, path, source=name or None, now=now, perimeter=perimeter
        )


def _host(url: str) -> str:
    return url.split("://", 1)[1].split("/", 1)[0]
