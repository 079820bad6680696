"""Commands that judge one thing and store nothing: `probe`, `lint`, `score`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from tollgauge.cli.inputs import json_input, load_config, read_input
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, print_json
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.core.evidence import EvidenceError
    from tollgauge.core.exchange import Exchange
    from tollgauge.core.finding import Lint
    from tollgauge.core.score import Score


def probe(url: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """Probe one URL now and say what it is worth; stores nothing. Exit 1 when it is down."""
    from tollgauge.core.lint import lint, lint_json
    from tollgauge.core.probe import judge

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
        why = ", ".join(str(each) for each in (result.status, result.reason) if each)
        line = f"{result.outcome.value} ({why}) in {result.timings.total} ms"
        print(f"{line} from {made.method} {made.url}")
        _print_lint(found)
    raise typer.Exit(GOOD if result.up else BAD)


def lint_command(
    source: Annotated[str, typer.Argument(help="A captured exchange, a https:// URL, or -.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check the 402 of a captured exchange or a live URL. Exit 1 when no client could pay it."""
    from tollgauge.core.lint import exchange_from_capture, lint, lint_json

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
    from tollgauge.core.evidence import EvidenceError
    from tollgauge.core.scoring import recompute
    from tollgauge.web import wire

    try:
        found = recompute(read_input(evidence))
    except EvidenceError as error:
        raise _no_evidence(evidence, error) from error
    if as_json:
        print_json(orjson.loads(wire.dump(wire.score_alone(found))))
    else:
        _print_score(found)
    raise typer.Exit(BAD if found.recommendation in ("avoid", "not-payable") else GOOD)


async def _exchange(config: Config, url: str) -> Exchange:
    """One probe of a URL that need not be known."""
    from tollgauge import app as root
    from tollgauge.clients import x402
    from tollgauge.clients.egress import Egress
    from tollgauge.core.endpoint import Endpoint, parse_resource

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


def _no_evidence(source: str, error: EvidenceError) -> TollgaugeError:
    """What a person can do about a document that is no evidence."""
    name = "Standard input" if source == "-" else source
    where = "" if error.path == "$" else f" at {error.path}"
    words = str(error).removeprefix(f"{error.path}: ")
    return TollgaugeError(
        f"{name} is no evidence that a score could be computed from{where}: {words}",
        hint="Give a whole trust report as POST /v1/x402-trust answers it, or its "
        "`evidence.document`; docs/evidence.schema.json has the form.",
    )


def _print_lint(found: Lint) -> None:
    words = {True: "yes", False: "no"}
    print(f"payable   {words[found.payable]}\ncompliant {words[found.compliant]}")
    for finding in found.findings:
        print(f"{finding.severity.value:5} {finding.rule}: {finding.message} ({finding.where})")
    for terms in found.terms:
        print(f"terms {terms.amount} of {terms.asset} on {terms.network} to {terms.pay_to}")


def _print_score(found: Score) -> None:
    from tollgauge.core.verdict import summary

    print(summary(found))
    for part in found.components:
        print(f"{part.name:10} {part.tenths / 10:6.1f} of 100, weight {part.weight}")
    for flag in found.flags:
        print(f"{flag.severity.value:5} {flag.code}: {flag.message}")
