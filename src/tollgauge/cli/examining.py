"""Commands that judge one thing and store nothing: `probe`, `lint`, `score`, `trace`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import orjson
import typer

from tollgauge import app as root
from tollgauge.cli.inputs import captured, json_input, load_config, read_input
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, print_json
from tollgauge.clients import x402
from tollgauge.clients.egress import Egress
from tollgauge.clients.transactions import Transactions
from tollgauge.config import Config
from tollgauge.core.endpoint import Endpoint, parse_resource
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.exchange import Exchange
from tollgauge.core.finding import Lint
from tollgauge.core.lint import exchange_from_capture, lint, lint_json
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
from tollgauge.web import wire


def probe(url: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """Probe one URL now and say what it is worth; stores nothing. Exit 1 when it is down."""
    made = asyncio.run(_exchange(load_config(config), url))
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
        print_json(document)
    else:
        line = f"{result.outcome.value} ({result.status or result.reason}) in "
        print(f"{line}{result.timings.total} ms from {made.method} {made.url}")
        _print_lint(found)
    raise typer.Exit(GOOD if result.up else BAD)


def lint_command(
    source: Annotated[str, typer.Argument(help="A captured exchange, a https:// URL, or -.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check the 402 of a captured exchange or a live URL. Exit 1 when no client could pay it."""
    if source.startswith("https://"):
        made = asyncio.run(_exchange(load_config(config), source))
    else:
        made = exchange_from_capture(json_input(source))
    found = lint(made)
    if as_json or not sys.stdout.isatty():
        print_json(lint_json(found))
    else:
        _print_lint(found)
    raise typer.Exit(GOOD if found.payable else BAD)


def score(
    evidence: Annotated[str, typer.Argument(help="An evidence document or a trust report, or -.")],
    as_json: Json = False,
) -> None:
    """Compute a score again from its evidence. Exit 1 when the advice is to avoid."""
    found = recompute(read_input(evidence))
    if as_json:
        print_json(orjson.loads(wire.dump(wire.score_alone(found))))
    else:
        _print_score(found)
    raise typer.Exit(BAD if found.recommendation in ("avoid", "not-payable") else GOOD)


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
        sent, told, made = (captured(source) for source in (tx, receipt, calls))
        found = trace_files(sent, told, model, calls=made, network=network)
    else:
        found = asyncio.run(_trace(load_config(config), txhash, network, model))
    if as_json:
        print_json(trace_json(found))
    else:
        _print_trace(found)
    raise typer.Exit(GOOD if found.payments else BAD)


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
