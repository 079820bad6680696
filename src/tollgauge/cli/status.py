"""`tollgauge status`: how the service does, from its database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from tollgauge.cli.inputs import load_existing
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, show
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.config import Config

_EVERY_S: Final = 5
_GB: Final = 10**9


def status(
    config: ConfigFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every 5 seconds, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say how the service does: what waits, what fails, what is unwise.

    It reads the database that the configuration names and writes nothing; no process has to run.
    Exit 1 when something needs attention, 2 when the database cannot tell.
    """
    settings = load_existing(config)
    document = _read(settings)
    show(document, _lines(document), as_json=as_json)
    while watch:
        time.sleep(_EVERY_S)
        document = _read(settings)
        Console().clear()  # of a terminal only
        show(document, _lines(document), as_json=as_json)
    raise typer.Exit(GOOD if document["good"] else BAD)


def _read(config: Config) -> dict[str, Any]:
    from tollgauge.app import now_ms, read_status
    from tollgauge.db.engine import Store

    async def read() -> dict[str, Any]:
        store = Store.open(config.store.url, pool_size=1)
        try:
            if not await store.reading(_is_current):
                raise TollgaugeError(
                    "The database's tables are not those of this version.",
                    hint="Run `tollgauge migrate`; every start does so too.",
                )
            return await read_status(config, store, clock=now_ms)
        finally:
            await store.close()

    return asyncio.run(read())


def _is_current(tx: Any) -> bool:
    from tollgauge.db.migrations import version, versions

    return version(tx) == versions()[-1]


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    probes, scores, deliveries = status["probes"], status["scores"], status["deliveries"]
    yield f"{'good' if status['good'] else 'needs attention'}, {status['at']}"
    yield from (f"  ! {sentence}" for sentence in status["attention"])
    yield _line(
        "probes",
        f"{probes['perMinute']} a minute, {probes['due']} of {probes['monitored']} due"
        f"{_since(probes)}, {probes['late']} late, last {probes['last'] or 'never'}",
    )
    yield _line("scores", f"{scores['due']} due{_since(scores)}")
    yield _line(
        "deliveries",
        f"{deliveries['queued']} queued{_since(deliveries)}, {deliveries['dead']} given up",
    )
    states = status["payments"]["byState"]
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "none"
    yield _line("payments", f"{counts}; {len(status['payments']['stuck'])} stuck")
    for crawl in status["crawls"]:
        yield _line(f"crawl {crawl['source']}", _crawl(crawl))
    for chain in status["chains"]:
        yield _line(
            f"chain {chain['chain']}", f"block {chain['block']}, {chain['lagSeconds']} s behind"
        )
    for bundle in status["bundles"]:
        yield _line(f"bundle {bundle['variant']}", _bundle(bundle))
    for job in status["jobs"]:
        failed = f", failed {job['failedAt']}: {job['error']}" if job["failedAt"] else ""
        yield _line(f"loop {job['name']}", f"{job['endedAt']}, {job['seconds']:.1f} s{failed}")
    yield _line("disk", _disk(status["disk"]))
    yield _line("backup", status["backupAt"] or "never")
    yield from (f"  unwise: {sentence}" for sentence in status["unwise"])


def _line(name: str, text: str) -> str:
    return f"{name:18} {text}"


def _since(queue: Mapping[str, Any]) -> str:
    return "" if queue["oldestSeconds"] is None else f" (for {queue['oldestSeconds']} s)"


def _crawl(crawl: Mapping[str, Any]) -> str:
    if crawl["finishedAt"] is None:
        return f"begun {crawl['startedAt']}, not finished"
    how = "complete" if crawl["complete"] else "suspicious" if crawl["suspicious"] else "not whole"
    return f"{crawl['finishedAt']}, {how}, {crawl['listed']} listed"


def _bundle(bundle: Mapping[str, Any]) -> str:
    signed = "signed" if bundle["signed"] else "not signed"
    size = f"{bundle['records']} records, {bundle['bytes'] / 1e6:.2f} MB"
    return f"{bundle['at']}, {size}, built in {bundle['buildSeconds']:.1f} s, {signed}"


def _disk(disk: Mapping[str, Any]) -> str:
    used = f"{disk['databaseBytes'] / _GB:.2f} GB and {disk['logBytes'] / _GB:.2f} GB of log"
    if disk["freeBytes"] is None:
        return used
    return f"{used}, {disk['freeBytes'] / _GB:.1f} GB free ({disk['fullPercent']} % full)"
