"""`tollgauge status` reports on the service from its database; `tollgauge doctor` checks that the
configured services respond.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    load_config,
    load_existing,
    progress_bar,
    run_async,
    show,
    with_store,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import SECOND_MS, iso_seconds

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.clients.chain.rpc import Node
    from tollgauge.clients.egress.client import Egress
    from tollgauge.config import Config
    from tollgauge.db.disk import Size
    from tollgauge.jobs.loop_settings import Source
    from tollgauge.monitor.status import Figures, Status
    from tollgauge.store.backlog import LastCrawl
    from tollgauge.store.scores.trust_records import StoredBundle


TIMEOUT_S: Final = 20  # per counterparty
BLOCK_LATE_S: Final = 600  # a node whose newest block is older does not follow its chain
_REFRESH_S: Final = 5
_GB: Final = 10**9


def status(
    config: ConfigFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh every 5 seconds until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report the state of the service: queues, failures and configuration advice.

    Reads the configured database and writes nothing; the service need not be running. Exit 1 if
    something needs attention, 2 if the database cannot be read.
    """
    settings = load_existing(config)
    current = _read(settings)
    _show(current, as_json=as_json)
    while watch:
        from rich.console import Console

        time.sleep(_REFRESH_S)
        current = _read(settings)
        Console().clear()  # has an effect only on a terminal
        _show(current, as_json=as_json)
    raise typer.Exit(GOOD if current.good else BAD)


def _show(status: Status, *, as_json: bool) -> None:
    from tollgauge.monitor.status import document

    show(document(status), _lines(status), as_json=as_json)


def _read(config: Config) -> Status:
    from tollgauge.service_status import now_ms, read_status

    return with_store(config, lambda store: read_status(config, store, clock=now_ms))


def _lines(status: Status) -> Iterator[str]:
    figures = status.figures
    probes, scores, deliveries = figures.probes, figures.scores, figures.deliveries
    yield f"{'good' if status.good else 'needs attention'}, {iso_seconds(figures.now)}"
    yield from (f"  ! {sentence}" for sentence in status.problems)
    yield _line(
        "probes",
        f"{figures.probes_a_minute} a minute, {probes.due} of {figures.monitored} due"
        f"{_since(figures, probes.oldest)}, {probes.late} late, last {_at(figures.last_probed)}",
    )
    yield _line("scores", f"{scores.due} due{_since(figures, scores.oldest)}")
    yield _line(
        "deliveries",
        f"{deliveries.queued} queued{_since(figures, deliveries.oldest_due)}, "
        f"{deliveries.dead} given up",
    )
    counts = ", ".join(f"{count} {state}" for state, count in figures.payments.items()) or "none"
    yield _line("payments", f"{counts}; {len(figures.stuck)} stuck")
    for crawl in figures.crawls:
        yield _line(f"crawl {crawl.source}", _crawl(crawl))
    for cursor in figures.chains:
        behind = f"{figures.age_s(cursor.at)} s behind"
        yield _line(f"chain {cursor.chain}", f"block {cursor.number}, {behind}")
    for bundle in figures.bundles:
        yield _line(f"bundle {bundle.variant}", _bundle(bundle))
    for job in figures.jobs:
        failed = f", failed {iso_seconds(job.failed_at)}: {job.error}" if job.failed_at else ""
        ended = f"{iso_seconds(job.ended_at)}, {job.took_ms / SECOND_MS:.1f} s"
        yield _line(f"loop {job.name}", f"{ended}{failed}")
    yield _line("disk", _disk(figures.size))
    yield _line("backup", _at(figures.backup_at))
    yield from (f"  warning: {sentence}" for sentence in status.warnings)


def _line(name: str, text: str) -> str:
    return f"{name:18} {text}"


def _at(at: int | None) -> str:
    return "never" if at is None else iso_seconds(at)


def _since(figures: Figures, oldest: int | None) -> str:
    return "" if oldest is None else f" (for {figures.age_s(oldest)} s)"


def _crawl(crawl: LastCrawl) -> str:
    if crawl.finished_at is None:
        return f"begun {iso_seconds(crawl.started)}, not finished"
    how = "complete" if crawl.complete else "suspicious" if crawl.suspicious else "not whole"
    return f"{iso_seconds(crawl.finished_at)}, {how}, {crawl.listed} listed"


def _bundle(bundle: StoredBundle) -> str:
    signed = "not signed" if bundle.signature is None else "signed"
    size = f"{bundle.records} records, {bundle.size / 1e6:.2f} MB"
    built = f"built in {bundle.took_ms / SECOND_MS:.1f} s"
    return f"{iso_seconds(bundle.as_of)}, {size}, {built}, {signed}"


def _disk(disk: Size) -> str:
    used = f"{disk.database / _GB:.2f} GB and {disk.log / _GB:.2f} GB of log"
    if disk.free is None:
        return used
    return f"{used}, {disk.free / _GB:.1f} GB free ({disk.full_percent}% full)"


@dataclass(frozen=True, slots=True)
class StatusCheck:
    """One check: the service that was queried, the verdict, and the reason."""

    name: str
    good: bool
    message: str


def doctor(config: ConfigFile = None, as_json: Json = False) -> None:
    """Send one request to each configured facilitator, node, directory and reference. Exit 1 if
    one of them fails.

    Pays nothing and stores nothing. `config check` validates the settings; `status` reports on
    the service.
    """
    checks = run_async(_checks(load_config(config)))
    lines = [
        f"{'good' if check.good else 'bad '}  {check.name}: {check.message}" for check in checks
    ]
    show([asdict(check) for check in checks], lines or [_NOTHING_CONFIGURED], as_json=as_json)
    raise typer.Exit(GOOD if all(check.good for check in checks) else BAD)


_NOTHING_CONFIGURED: Final = (
    "The configuration names no facilitator, node, directory or reference: there is nothing to "
    "check."
)


async def _checks(config: Config) -> list[StatusCheck]:
    from tollgauge.clients.egress.client import Egress

    egress = Egress(config.egress)
    nodes = [(chain.network, node) for chain in config.chains for node in chain.open()]
    egress.start()
    try:
        with progress_bar() as progress:
            checks = []
            for name, asking in _questions(config, egress, nodes):
                progress(f"asking {name}", 0, 0)
                checks.append(await _check(name, asking))
            return checks
    finally:
        await egress.close()
        for _, node in nodes:
            await node.close()


def _questions(
    config: Config, egress: Egress, nodes: list[tuple[str, Node]]
) -> Iterator[tuple[str, Awaitable[str]]]:
    """Yield each check with its name. A check returns a text, or raises TollgaugeError."""
    if config.facilitator.url:
        yield "facilitator", _facilitator(config)
    for network, node in nodes:
        yield f"node {node.name}", _node(node, network)
    for source in config.sources:
        yield f"directory {source.name}", _directory(egress, source)
    for url in config.references:
        yield f"reference {url}", _reference(egress, url)


async def _check(name: str, asking: Awaitable[str]) -> StatusCheck:
    import asyncio

    try:
        async with asyncio.timeout(TIMEOUT_S):
            return StatusCheck(name, good=True, message=await asking)
    except TimeoutError:
        return StatusCheck(name, good=False, message=f"No response within {TIMEOUT_S} seconds.")
    except TollgaugeError as error:
        return StatusCheck(name, good=False, message=str(error))


async def _facilitator(config: Config) -> str:
    from tollgauge.clients.facilitator import Facilitator
    from tollgauge.core.sale.payment import X402_VERSION

    facilitator, network = Facilitator(config.facilitator), config.sale.network
    try:
        kinds = (await facilitator.read_supported()).kinds
    finally:
        await facilitator.close()
    needed = f"v{X402_VERSION} exact {network}"
    if needed not in kinds:
        others = clean_text(", ".join(sorted(kinds)), limit=200) or "nothing"
        raise TollgaugeError(f"It settles {others}, but not {needed}.")
    return f"it settles exact payments on {network}"


async def _node(node: Node, network: str) -> str:
    from tollgauge.clients.chain.nodes import ChainNodes
    from tollgauge.clients.chain.solana import SolanaNodes
    from tollgauge.core.base.units import chain_number
    from tollgauge.service_status import now_ms

    kind = SolanaNodes if network.startswith("solana:") else ChainNodes
    nodes = kind([node], chain_id=chain_number(network) or 0, finality=0, rest_s=0)
    head = (await nodes.view()).head
    age_s = (now_ms() - head.at) // SECOND_MS
    if age_s > BLOCK_LATE_S:
        raise TollgaugeError(f"Its newest block is {age_s} seconds old: the node is lagging.")
    return f"it follows {network}, at block {head.number}"


async def _directory(egress: Egress, source: Source) -> str:
    from tollgauge.core.directory.page import list_entries
    from tollgauge.jobs.discover import first_page
    from tollgauge.service_status import now_ms

    page = await first_page(egress, source, now=now_ms())
    of = f" of {page.total}" if page.total else ""
    return f"entries on its first page: {len(list_entries(page))}{of}"


async def _reference(egress: Egress, url: str) -> str:
    from tollgauge.clients.egress.request import Request
    from tollgauge.core.probe.exchange import Answer

    result = (await egress.fetch(Request(url=url))).result
    if isinstance(result, Answer):
        return f"it responds with status {result.status}"
    raise TollgaugeError(f"It returns no HTTP response ({result.kind.value}).")
