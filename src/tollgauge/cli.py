"""The command line: each command a few lines that call down.

Exit codes: 0 good, 1 the thing examined is bad, 2 we failed or were misused (contract.md,
section 10). Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import signal
import sys
import zlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tollgauge import app as root
from tollgauge.clients import x402
from tollgauge.clients.egress import Egress
from tollgauge.clients.transactions import Transactions
from tollgauge.config import Config, load
from tollgauge.core.endpoint import Endpoint, parse_resource
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.exchange import Exchange
from tollgauge.core.finding import Lint
from tollgauge.core.lint import exchange_from_capture, lint, lint_json
from tollgauge.core.payment import State
from tollgauge.core.probe import judge
from tollgauge.core.score import Score
from tollgauge.core.scoring import recompute
from tollgauge.core.trace import (
    DEFAULT_NETWORK,
    TX_HASH,
    TraceResult,
    named_model,
    named_network,
    trace_files,
    trace_json,
)
from tollgauge.core.verdict import summary
from tollgauge.jobs.discover import Source, Tally, load_file
from tollgauge.jobs.discover import run as crawl
from tollgauge.observe import configure_logs
from tollgauge.store import endpoints, outbox, payments, watches
from tollgauge.store.payments import Attempt, LedgerRow
from tollgauge.web import wire

GOOD, BAD, FAILED = 0, 1, 2
INPUT_MAX = 16 * 1024 * 1024

app = typer.Typer(
    name="tollgauge",
    help="Trust and reliability scores for pay-per-call (x402) endpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")
watch_app = typer.Typer(help="Look after watches and their deliveries.", no_args_is_help=True)
app.add_typer(watch_app, name="watch")

errors = Console(stderr=True, highlight=False)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TOLLGAUGE_CONFIG", help="The TOML file to read."),
]


def main() -> None:
    """The entry point: every error of ours becomes a message and an exit code."""
    try:
        app()
    except TollgaugeError as error:
        errors.print(f"[bold]tollgauge:[/] {_plain(str(error))}", soft_wrap=True)
        if error.hint:
            errors.print(f"  {_plain(error.hint)}", soft_wrap=True)
        sys.exit(FAILED)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


@app.command()
def run(config: ConfigFile = None) -> None:
    """API, pages and workers together, on one machine."""
    _forever(_run(_load(config), serve=True, only=None))


@app.command()
def serve(config: ConfigFile = None) -> None:
    """API and pages only; workers run elsewhere."""
    _forever(_run(_load(config), serve=True, only=()))


@app.command()
def work(
    config: ConfigFile = None,
    only: Annotated[str, typer.Option(help="Names of loops, separated by commas.")] = "",
) -> None:
    """Workers only: discover, probe, score, settle, prune."""
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    _forever(_run(_load(config), serve=False, only=names or None))


@app.command()
def mcp(config: ConfigFile = None) -> None:
    """Tools for an agent on this machine: MCP over standard input and output."""
    # Nothing can interrupt a read of standard input, and the ledger is made for a sudden end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_mcp(_load(config)))


@app.command()
def migrate(config: ConfigFile = None) -> None:
    """Bring the database to the newest version."""
    asyncio.run(_migrate(_load(config)))
    errors.print("The database is up to date.")


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="One round, then stop.")] = False,
    history_days: Annotated[
        int, typer.Option(min=0, max=90, help="Days of simulated past to load first.")
    ] = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to serve.")] = 8402,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the database here instead of in memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The whole business on this machine: sellers, a directory, a chain, the service, a sale."""
    # The demo's parts (a chain, an EVM library) are heavy: only this command loads them.
    from tollgauge.demo import command

    configure_logs(json_lines=False, level="error" if once else "warning")
    options = command.Options(once=once, history_days=history_days, port=port, folder=folder)
    with _progress() as progress:

        def show(found: dict[str, Any], base_url: str) -> None:
            progress("", 1, 1)
            if as_json:
                _print_json(found)
            else:
                _print_demo(found, base_url, stays=not once)

        asyncio.run(command.play(options, progress=progress, show=show))


@app.command()
def probe(url: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """Probe one URL now and say what it is worth; stores nothing. Exit 1 when it is down."""
    made = asyncio.run(_exchange(_load(config), url))
    found = lint(made)
    result = judge(made, found)
    document = {
        "url": made.url,
        "method": made.method,
        "outcome": result.outcome.value,
        "up": result.up,
        "attribution": result.attribution.value,
        "status": result.status,
        "latencyMs": result.timings.total,
        "reason": result.reason or None,
        **lint_json(found),
    }
    if as_json:
        _print_json(document)
    else:
        line = f"{result.outcome.value} ({result.status or result.reason}) in "
        print(f"{line}{result.timings.total} ms from {made.method} {made.url}")
        _print_lint(found)
    raise typer.Exit(GOOD if result.up else BAD)


@app.command(name="lint")
def lint_command(
    source: Annotated[str, typer.Argument(help="A captured exchange, a https:// URL, or -.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check the 402 of a captured exchange or a live URL. Exit 1 when no client could pay it."""
    if source.startswith("https://"):
        made = asyncio.run(_exchange(_load(config), source))
    else:
        made = exchange_from_capture(_json_input(source))
    found = lint(made)
    if as_json or not sys.stdout.isatty():
        _print_json(lint_json(found))
    else:
        _print_lint(found)
    raise typer.Exit(GOOD if found.payable else BAD)


@app.command()
def score(
    evidence: Annotated[str, typer.Argument(help="An evidence document or a trust report, or -.")],
    as_json: Json = False,
) -> None:
    """Compute a score again from its evidence. Exit 1 when the advice is to avoid."""
    found = recompute(_input(evidence))
    if as_json:
        _print_json(orjson.loads(wire.dump(wire.score_alone(found))))
    else:
        _print_score(found)
    raise typer.Exit(BAD if found.recommendation in ("avoid", "not-payable") else GOOD)


@app.command()
def trace(
    txhash: Annotated[str, typer.Argument(help="A transaction's hash, to ask a node.")] = "",
    network: Annotated[
        str | None, typer.Option(help="The network's name; base-mainnet if none is named.")
    ] = None,
    tx: Annotated[str, typer.Option(help="A captured transaction instead, or -.")] = "",
    receipt: Annotated[str, typer.Option(help="Its captured receipt.")] = "",
    calls: Annotated[str, typer.Option(help="Its captured call trace (callTracer).")] = "",
    model: Annotated[
        str | None, typer.Option(help="A decoder; the cheapest that does if none is named.")
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Decode the payments (EIP-3009) of a transaction. Exit 1 when there is no payment in it."""
    if bool(txhash) == bool(tx) or (txhash and (receipt or calls)):
        raise TollgaugeError(
            "Name either a transaction's hash or captured files.",
            hint="tollgauge trace TXHASH, or tollgauge trace --tx FILE [--receipt FILE].",
        )
    if tx:
        sent, told, made = (_captured(source) for source in (tx, receipt, calls))
        found = trace_files(sent, told, model, calls=made, network=network)
    else:
        found = asyncio.run(_trace(_load(config), txhash, network, model))
    if as_json:
        _print_json(trace_json(found))
    else:
        _print_trace(found)
    raise typer.Exit(GOOD if found.payments else BAD)


@app.command()
def discover(
    source: Annotated[str, typer.Argument(help="A file, or the https:// URL of a directory.")],
    config: ConfigFile = None,
    name: Annotated[str, typer.Option(help="The source's name in discovery events.")] = "",
    kind: Annotated[str, typer.Option(help="bazaar or openapi, for a URL.")] = "bazaar",
    as_json: Json = False,
) -> None:
    """Load a directory into the store. Exit 1 when it could not be read to its end."""
    tally = asyncio.run(_discover(_load(config), source, name, kind))
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
        _print_json(document)
    else:
        for key, value in document.items():
            print(f"{key:10} {value}")
    raise typer.Exit(BAD if tally.problem else GOOD)


@app.command()
def bench(name: str, as_json: Json = False) -> None:
    """Measure the service itself: index, similar, watch. Exit 1 when a limit is not held."""
    # Measurements bring libraries and catalogues that no other command needs.
    from tollgauge import bench as benches

    found = benches.run(name)
    if as_json:
        _print_json(found)
    else:
        for figure, held in found["held"].items():
            limit = found["limits"][figure]
            errors.print(f"{figure} (limit {limit}): {'held' if held else 'NOT held'}")
    sys.exit(GOOD if all(found["held"].values()) else BAD)


@app.command(name="payments")
def payments_command(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """The newest payments of the ledger, and every attempt to verify, settle or prove them."""
    rows, attempts = asyncio.run(_payments(_load(config), limit))
    if as_json:
        _print_json({"payments": [_payment(row, attempts[row.id]) for row in rows]})
        return
    for row in rows:
        words = (row.id, row.state.value, row.amount, row.route, row.transaction or "")
        print(wire.iso(row.created_at), *words)
        for tried in attempts[row.id]:
            print(" ", wire.iso(tried.at), tried.kind, tried.outcome, tried.transaction or "")


@watch_app.command(name="list")
def watch_list(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 50,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of watches.")] = False,
    as_json: Json = False,
) -> None:
    """The newest watches, or the deliveries that were given up. Exit 1 when any was."""
    found = asyncio.run(_watches(_load(config), limit))
    rows = found["dead"] if dead else found["watches"]
    if as_json:
        _print_json(found)
    for row in () if as_json else rows:
        print(" ".join(str(value) for value in row.values() if not isinstance(value, list)))
    raise typer.Exit(BAD if found["dead"] else GOOD)


@watch_app.command(name="show")
def watch_show(watch_id: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """One watch: what it listens to, where to, and its newest deliveries. URLs are masked."""
    found = asyncio.run(_watch(_load(config), watch_id))
    if as_json:
        _print_json(found)
        return
    for key, value in found.items():
        for row in value if isinstance(value, list) else [value]:
            shown = " ".join(map(str, row.values())) if isinstance(row, dict) else row
            print(f"{key:12} {shown}")


@watch_app.command(name="resend")
def watch_resend(
    ids: Annotated[list[str], typer.Argument(help="Dead deliveries (dlv_…), or a watch (wat_…).")],
    config: ConfigFile = None,
) -> None:
    """Queue dead letters again, with all their tries. Exit 1 when there was none."""
    again = asyncio.run(_resend(_load(config), tuple(ids)))
    errors.print(f"{again} queued again.")
    raise typer.Exit(GOOD if again else BAD)


@config_app.command(name="check")
def config_check(config: ConfigFile = None) -> None:
    """Say everything that is wrong with the configuration. Exit 2 when something is."""
    found = _load(config)
    where = found.store.url.split("://", 1)[0]
    sells = "sells reports" if found.sale.pay_to else "sells nothing (sale.pay_to is not set)"
    print(f"good: serves {found.server.base_url}, stores in {where}, {sells}")
    if found.sale.pay_to and not found.rpc.url:
        errors.print(
            "warning: rpc.url is not set, so a settlement that a facilitator leaves unclear "
            "cannot be proven (TOLLGAUGE_RPC_URL)"
        )


def _forever(serving: Coroutine[Any, Any, None]) -> None:
    """Run what stays on the faster event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)


async def _run(config: Config, *, serve: bool, only: tuple[str, ...] | None) -> None:
    configure_logs(json_lines=config.server.json_logs)
    async with root.opened(config) as service:
        jobs = service.jobs()
        if only is not None:
            unknown = set(only) - {job.name for job in jobs}
            if unknown:
                raise TollgaugeError(
                    f"There is no loop named {', '.join(sorted(unknown))}.",
                    hint=f"The loops are {', '.join(job.name for job in jobs)}; "
                    "discover needs [[sources]], and what asks a chain needs a node's URL.",
                )
            jobs = tuple(job for job in jobs if job.name in only)

        def ready() -> None:
            if serve:
                errors.print(f"tollgauge serves {config.server.base_url}")

        await root.run(service, serve=serve, jobs=jobs, on_ready=ready)


async def _mcp(config: Config) -> None:
    configure_logs(json_lines=config.server.json_logs, level="warning")
    async with root.opened(config) as service:
        await root.speak(service)


async def _payments(
    config: Config, limit: int
) -> tuple[tuple[LedgerRow, ...], dict[str, tuple[Attempt, ...]]]:
    async with root.opened(config) as service, service.store.read() as tx:
        rows = await payments.latest(tx, limit=limit)
        return rows, await payments.attempts(tx, [row.id for row in rows])


async def _watches(config: Config, limit: int) -> dict[str, Any]:
    async with root.opened(config) as service, service.store.read() as tx:
        rows = await watches.latest(tx, limit=limit)
        known = await endpoints.get_many(tx, {row.endpoint_id for row in rows})
        depth = await outbox.depth(tx)
        letters = await outbox.dead(tx, limit=limit)
    return {
        "queued": depth.queued,
        "oldestDue": None if depth.oldest_due is None else wire.iso(depth.oldest_due),
        "watches": [
            {
                "watchId": row.id,
                "state": row.state.value,
                "expiresAt": wire.iso(row.expires_at),
                "resource": known[row.endpoint_id].resource,
            }
            for row in rows
        ],
        "dead": [_delivery(each) for each in letters],
    }


async def _watch(config: Config, watch_id: str) -> dict[str, Any]:
    async with root.opened(config) as service, service.store.read() as tx:
        found = await watches.get(tx, watch_id)
        if found is None:
            raise TollgaugeError(
                f"There is no watch {watch_id}.", hint="tollgauge watch list names them."
            )
        endpoint = await endpoints.get(tx, found.endpoint_id)
        targets = (await watches.destinations(tx, [watch_id]))[watch_id]
        sent = await outbox.of_watch(tx, watch_id, limit=50)
        own = await watches.events(tx, watch_id, after=0, limit=500)
    return {
        "watchId": found.id,
        "state": found.state.value,
        "resource": endpoint.resource if endpoint else None,
        "createdAt": wire.iso(found.created_at),
        "expiresAt": wire.iso(found.expires_at),
        "events": ", ".join(found.wish.events),
        "sensitivity": found.wish.sensitivity,
        "destinations": [
            {
                "id": each.id,
                "kind": each.kind.value,
                "url": each.masked,
                "failures": each.failures,
                "disabled": each.disabled_reason or None,
            }
            for each in targets
        ],
        "lifecycle": [{"at": wire.iso(each.at), "type": each.type} for each in own],
        "deliveries": [_delivery(each) for each in sent],
    }


async def _resend(config: Config, ids: tuple[str, ...]) -> int:
    async with root.opened(config) as service, service.store.write() as tx:
        letters = {each for each in ids if not each.startswith("wat_")}
        for watch_id in set(ids) - letters:
            found = await outbox.dead(tx, limit=10_000, watch_id=watch_id)
            letters |= {each.notice.id for each in found}
        return await outbox.resend(tx, letters, now=service.clock())


def _delivery(each: outbox.Delivery) -> dict[str, Any]:
    """A delivery as the operator sees it: where it goes is its watch's to show."""
    return {
        "id": each.notice.id,
        "watchId": each.notice.watch_id,
        "event": each.notice.event_id,
        "type": each.notice.type,
        "state": each.state,
        "attempts": each.attempts,
        "error": each.last_error or None,
        "due": wire.iso(each.due),
    }


def _payment(row: LedgerRow, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    """A payment as the operator sees it: neither what was signed nor the answer that it bought."""
    return {
        "paymentId": row.id,
        "state": row.state.value,
        "reason": row.reason or None,
        "final": row.state is State.SETTLED and row.lease_until == 0,
        "route": row.route,
        "network": row.network,
        "asset": row.asset,
        "amount": str(row.amount),
        "payer": row.payer,
        "payTo": row.pay_to,
        "nonce": row.nonce,
        "transaction": row.transaction,
        "answerStored": row.answer is not None,
        "createdAt": wire.iso(row.created_at),
        "updatedAt": wire.iso(row.updated_at),
        "attempts": [
            {
                "kind": tried.kind,
                "at": wire.iso(tried.at),
                "endedAt": wire.iso(tried.ended_at),
                "outcome": tried.outcome,
                "transaction": tried.transaction,
            }
            for tried in attempts
        ],
    }


async def _migrate(config: Config) -> None:
    async with root.opened(config):
        pass


async def _exchange(config: Config, url: str) -> Exchange:
    """One probe of a URL that need not be known."""
    resource = parse_resource(url, config.egress.perimeter)
    now = root.now_ms()
    endpoint = Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        query=resource.query,
        first_seen=now,
        last_seen=now,
    )
    egress = Egress(config.egress)
    egress.start()
    try:
        return (await x402.exchange(egress, endpoint, now=now)).exchange
    finally:
        await egress.close()


async def _trace(
    config: Config, tx_hash: str, network: str | None, model: str | None
) -> TraceResult:
    if not TX_HASH.fullmatch(tx_hash):
        raise TollgaugeError("A transaction's hash is 0x and 64 hex digits.")
    wanted = named_network(network or DEFAULT_NETWORK)
    decoder = None if model is None else named_model(model)
    fallback = {config.sale.network: config.rpc.url}
    transactions = Transactions(
        config.networks.nodes(fallback=fallback, timeout_s=config.rpc.timeout_s)
    )
    try:
        return await transactions.trace(wanted, tx_hash, decoder)
    finally:
        await transactions.close()


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


def _load(path: Path | None) -> Config:
    default = Path("tollgauge.toml")
    if path is None and default.exists():
        path = default
    return load(path, os.environ)


def _input(source: str) -> bytes:
    try:
        data = sys.stdin.buffer.read(INPUT_MAX + 1) if source == "-" else _file(Path(source))
    except (OSError, EOFError, zlib.error) as error:
        raise TollgaugeError(
            f"{source} cannot be read.",
            hint="Give a whole file, or - for standard input; a URL starts with https://.",
        ) from error
    if len(data) > INPUT_MAX:
        raise TollgaugeError(f"{source} is larger than {INPUT_MAX // 1024 // 1024} MB.")
    return data


def _file(path: Path) -> bytes:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as stream:
        return bytes(stream.read(INPUT_MAX + 1))


def _json_input(source: str) -> object:
    try:
        return orjson.loads(_input(source))
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.",
            hint="A captured exchange is {status, headers, body, url?, method?}.",
        ) from error


def _captured(source: str) -> object | None:
    """A captured JSON-RPC object, or None where no file was named."""
    if not source:
        return None
    try:
        return orjson.loads(_input(source))  # type: ignore[no-any-return]
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.", hint="Save what the node answered, as it came."
        ) from error


def _print_json(document: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.buffer.flush()


def _print_lint(found: Lint) -> None:
    words = {True: "yes", False: "no"}
    print(f"payable   {words[found.payable]}\ncompliant {words[found.compliant]}")
    for finding in found.findings:
        print(f"{finding.severity.value:5} {finding.rule}: {finding.message} ({finding.where})")
    for terms in found.terms:
        print(f"terms {terms.amount} of {terms.asset} on {terms.network} to {terms.pay_to}")


def _print_score(found: Score) -> None:
    print(summary(found))
    for part in found.components:
        print(f"{part.name:10} {part.tenths / 10:6.1f} of 100, weight {part.weight}")
    for flag in found.flags:
        print(f"{flag.severity.value:5} {flag.code}: {flag.message}")


def _print_trace(found: TraceResult) -> None:
    print(f"{found.status or 'unknown outcome'}, decoded from {found.decoder}")
    for payment in found.payments:
        name = payment.token.symbol or payment.token.address
        print(f"{payment.amount} atomic {name} from {payment.payer} to {payment.payee}")
        print(f"  by {payment.method or 'an unknown method'}, nonce {payment.nonce}")
        if payment.suffix:
            print(f"  data suffix 0x{payment.suffix.hex()}")
    if found.reason:
        print(found.reason)


def _print_demo(found: dict[str, Any], base_url: str, *, stays: bool) -> None:
    report, payment = found["report"], found["payment"]
    grades = ", ".join(f"{letter} {count}" for letter, count in found["grades"].items())
    print(f"{found['endpoints']} endpoints listed, {found['probes']} probed, {grades}")
    print(f"bought the report of {report['resource']}: {report['grade']} {report['score']}")
    print(f"paid {int(payment['amount']) / 10**6:.6f} USDC in {payment['transaction']}")
    if stays:
        print(f"\nThe leaderboard is at {base_url}/ until you press Ctrl-C.")
    sys.stdout.flush()


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("{task.description:38}"), BarColumn(), TextColumn("{task.completed}"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("", total=1)

        def report(words: str, done: int, total: int) -> None:
            bar.update(task, description=words, completed=done, total=max(total, 1))

        yield report


def _plain(text: str) -> str:
    """A text without the console's markup."""
    return text.replace("[", "\\[")
