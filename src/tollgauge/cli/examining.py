"""Commands that judge one thing and store nothing: `probe`, `lint`, `score`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from tollgauge.cli.inputs import exchange_input, load_config, read_input
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, progress_bar, show
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.core.evidence import EvidenceError
    from tollgauge.core.exchange import Exchange
    from tollgauge.core.finding import Lint
    from tollgauge.core.score import Score
    from tollgauge.web.wire import Difference


def probe(url: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """Probe one URL now and say what it is worth; stores nothing. Exit 1 when it is down."""
    from tollgauge.core.lint import lint, lint_json
    from tollgauge.core.probe import judge

    made = _asked(load_config(config), url)
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
    why = ", ".join(str(part) for part in (result.status, result.reason) if part)
    line = f"{result.outcome.value} ({why}) in {result.timings.total} ms"
    lines = [f"{line} from {made.method} {made.url}", *_lint_lines(found)]
    show(document, lines, as_json=as_json)
    raise typer.Exit(GOOD if result.up else BAD)


def lint_command(
    source: Annotated[str, typer.Argument(help="A saved exchange, a https:// URL, or -.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check the 402 of a saved exchange or a live URL. Exit 1 when no client could pay it.

    A saved exchange is what `curl -i` prints, or JSON: {status, headers,
    body, url?, method?}.
    """
    from tollgauge.core.lint import lint, lint_json

    if source.startswith("https://"):
        made = _asked(load_config(config), source)
    else:
        made = exchange_input(source)
    found = lint(made)
    show(lint_json(found), _lint_lines(found), as_json=as_json)
    raise typer.Exit(GOOD if found.payable else BAD)


def score(
    evidence: Annotated[str, typer.Argument(help="An evidence document or a trust report, or -.")],
    as_json: Json = False,
) -> None:
    """Compute a score again from its evidence, and compare a report's claim with it.

    Exit 1 when a report claims anything that its evidence does not give,
    or when an evidence document alone says to avoid the endpoint.
    """
    from tollgauge.core.evidence import EvidenceError
    from tollgauge.web import wire

    try:
        found = wire.checked(read_input(evidence))
    except EvidenceError as error:
        raise _no_evidence(evidence, error) from error
    different = found.differences
    if different is None:
        show(found.given, _score_lines(found.score), as_json=as_json)
        raise typer.Exit(BAD if found.score.recommendation in ("avoid", "not-payable") else GOOD)
    claim = {
        "agrees": not different,
        "differences": [
            {"field": each.field, "claimed": each.claimed, "given": each.given}
            for each in different
        ],
    }
    lines = [*_claim_lines(found.score, different), *_score_lines(found.score)]
    show(found.given | {"claim": claim}, lines, as_json=as_json)
    raise typer.Exit(BAD if different else GOOD)


def _asked(config: Config, url: str) -> Exchange:
    """One probe of a URL that need not be known."""
    with progress_bar() as progress:
        progress(f"asking {url}", 0, 0)
        return asyncio.run(_exchange(config, url))


async def _exchange(config: Config, url: str) -> Exchange:
    from tollgauge import app as root
    from tollgauge.clients import x402
    from tollgauge.clients.egress.client import Egress
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


def _lint_lines(found: Lint) -> Iterator[str]:
    words = {True: "yes", False: "no"}
    yield f"payable   {words[found.payable]}"
    yield f"compliant {words[found.compliant]}"
    for finding in found.findings:
        yield f"{finding.severity.value:5} {finding.rule}: {finding.message} ({finding.where})"
    for terms in found.terms:
        yield f"terms {terms.amount} of {terms.asset} on {terms.network} to {terms.pay_to}"


def _claim_lines(found: Score, different: tuple[Difference, ...]) -> Iterator[str]:
    """What the report claims where that is not so; else that it agrees."""
    for each in different:
        field = "" if each.field == "score" else f"{each.field} "
        claimed, given = _shown(each.claimed), _shown(each.given)
        yield f"report claims {field}{claimed}, evidence gives {given}"
    if not different:
        point = _shown(None if found.score_tenths is None else found.score_tenths / 10)
        yield f"report claims {point}, evidence gives {point}: they agree"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else orjson.dumps(value).decode()


def _score_lines(found: Score) -> Iterator[str]:
    from tollgauge.core.verdict import summary

    yield summary(found)
    for part in found.components:
        yield f"{part.name:10} {part.tenths / 10:6.1f} of 100, weight {part.weight}"
    for flag in found.flags:
        yield f"{flag.severity.value:5} {flag.code}: {flag.message}"
