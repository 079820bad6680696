"""Commands that examine one document or URL and store nothing: `probe`, `lint`, `score`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    download,
    exchange_input,
    load_config,
    progress_bar,
    read_input,
    show,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from pathlib import Path

    from tollgauge.config import Config
    from tollgauge.core.probe.exchange import Exchange, Lint
    from tollgauge.core.score.evidence_document import EvidenceError
    from tollgauge.core.score.improvement import Improvement
    from tollgauge.core.score.score import Score
    from tollgauge.web.wire.claims import Difference
    from tollgauge.web.wire.lint_answers import LintEnvelopeResponse, LintResponse

_CONTEXT_LINES: Final = 3  # printed before and after an invalid line of an envelope


def probe(
    url: Annotated[str, typer.Argument(help="An https:// URL; it need not be a known endpoint.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Probe one URL now and print the outcome; store nothing. Exit 1 if it is down."""
    from tollgauge.core.probe.probe import judge
    from tollgauge.web.wire import lint_answers

    exchange, verdict = _exchange(load_config(config), url)
    result = judge(exchange, verdict)
    linted = lint_answers.lint(verdict, exchange)
    document = {
        "url": exchange.url,
        "method": exchange.method,
        "outcome": result.outcome.value,
        "up": result.up,
        "attribution": result.attribution.value,
        "status": result.status,
        "latencyMs": result.timings.total,
        "reason": result.reason or None,
        **linted.model_dump(by_alias=True),
    }
    why = ", ".join(str(part) for part in (result.status, result.reason) if part)
    line = f"{result.outcome.value} ({why}) in {result.timings.total} ms"
    lines = [f"{line} from {exchange.method} {exchange.url}", *_lint_lines(linted, verdict)]
    show(document, lines, as_json=as_json)
    raise typer.Exit(GOOD if result.up else BAD)


def lint(
    source: Annotated[str, typer.Argument(help="A saved response, an https:// URL, or -.")] = "",
    config: ConfigFile = None,
    explain: Annotated[
        str, typer.Option("--explain", metavar="RULE", help="Explain a rule instead.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Check the 402 of a saved response or a live URL. Exit 1 if no client could pay it.

    A saved response is the output of `curl -i`, or JSON {status, headers,
    body, url?, method?}, or the value of a PAYMENT-REQUIRED header, or an
    envelope's JSON.

    --explain prints a rule's description, its source, an invalid and a valid
    response, and the fix for each framework.
    """
    from tollgauge.web.wire import lint_answers

    if explain:
        _explain(explain, as_json=as_json)
        return
    if not source:
        raise TollgaugeError(
            "Nothing to check.",
            hint="Name a file, an https:// URL, or - for standard input; or use --explain RULE.",
        )
    exchange, verdict = _lint_source(source, config)
    linted = lint_answers.lint(verdict, exchange)
    show(linted.model_dump(by_alias=True), _lint_lines(linted, verdict), as_json=as_json)
    raise typer.Exit(GOOD if verdict.payable else BAD)


def _lint_source(source: str, config: Path | None) -> tuple[Exchange, Lint]:
    """Read a saved response or fetch a URL, and lint it."""
    from tollgauge.core.endpoint.identity import ResourceError
    from tollgauge.core.lint.judge import lint as judge

    piped = f"To check its response, run: curl -si {shlex.quote(source)} | tollgauge lint -"
    if source.startswith("http://"):
        raise TollgaugeError(f"{source} is not an https:// URL.", hint=piped)
    if not source.startswith("https://"):
        exchange = exchange_input(source)
        return exchange, judge(exchange)
    try:
        return _exchange(load_config(config), source)
    except ResourceError as error:
        raise TollgaugeError(str(error), hint=piped) from error


def _explain(slug: str, *, as_json: bool) -> None:
    """Print the explanation of a rule."""
    from tollgauge.core.lint.guide import explain, find_similar_rule
    from tollgauge.core.probe.exchange import LINT_FLAG

    explanation = explain(slug.removeprefix(LINT_FLAG))
    if explanation is None:
        near = find_similar_rule(slug)
        raise TollgaugeError(
            f"The linter has no rule {slug}.",
            hint=f"Did you mean {near}?" if near else "docs/lint-rules.md lists the rules.",
        )
    show(explanation.document(), explanation.lines(), as_json=as_json)


def score(
    evidence: Annotated[str, typer.Argument(help="An evidence document, a trust report, or -.")],
    as_json: Json = False,
) -> None:
    """Recompute a score from its evidence, and compare it with a report's claim.

    If a report contains only a reference to its evidence, the evidence is
    downloaded from the URL in the report and checked against its digest.

    Exit 1 if a report claims anything that its evidence does not confirm,
    or if the advice for an evidence document is to avoid the endpoint.
    """
    from tollgauge.core.score.advice import AVOIDED
    from tollgauge.core.score.evidence_document import EvidenceError
    from tollgauge.web.wire.claims import checked, evidence_url, with_evidence
    from tollgauge.web.wire.scores import ImprovementResponse

    document = read_input(evidence)
    try:
        if url := evidence_url(document):
            document = with_evidence(document, download(url))
        check = checked(document)
    except EvidenceError as error:
        raise _no_evidence(evidence, error) from error
    differences = check.differences
    raising = [
        ImprovementResponse.build(row).model_dump(by_alias=True) for row in check.improvements
    ]
    given = check.given | {"improvements": raising}
    score_lines = (*_score_lines(check.score), *_improvement_lines(check.improvements))
    if differences is None:
        show(given, score_lines, as_json=as_json)
        raise typer.Exit(BAD if check.score.recommendation in AVOIDED else GOOD)
    claim = {
        "agrees": not differences,
        "differences": [
            {"field": item.field, "claimed": item.claimed, "given": item.given}
            for item in differences
        ],
    }
    lines = [*_claim_lines(check.score, differences), *score_lines]
    show(given | {"claim": claim}, lines, as_json=as_json)
    raise typer.Exit(BAD if differences else GOOD)


def _exchange(config: Config, url: str) -> tuple[Exchange, Lint]:
    """Probe a URL and lint its response; nothing is stored."""
    with progress_bar() as progress:
        progress(f"asking {url}", 0, 0)
        return asyncio.run(_probe(config, url))


async def _probe(config: Config, url: str) -> tuple[Exchange, Lint]:
    from tollgauge import app as root
    from tollgauge.clients import x402
    from tollgauge.clients.egress.client import Egress
    from tollgauge.core.endpoint.identity import parse_resource
    from tollgauge.core.lint.judge import lint as judge
    from tollgauge.monitor.discovery import new_endpoint
    from tollgauge.monitor.offer_keys import OfferKeys

    resource = parse_resource(url, config.egress.perimeter)
    now = root.now_ms()
    endpoint = new_endpoint(resource, now=now, spread_ms=0)
    egress = Egress(config.egress)
    egress.start()
    try:
        exchange = (await x402.exchange(egress, endpoint, now=now)).exchange
        return exchange, await OfferKeys().check(egress, exchange, judge(exchange))
    finally:
        await egress.close()


def _no_evidence(source: str, error: EvidenceError) -> TollgaugeError:
    """Return an error that names the invalid part of a document."""
    name = "Standard input" if source == "-" else source
    where = "" if error.path == "$" else f" at {error.path}"
    words = str(error).removeprefix(f"{error.path}: ")
    return TollgaugeError(
        f"{name} is not valid evidence{where}: {words}",
        hint="Give a whole trust report from POST /v1/x402-trust, or its `evidence.document`. "
        "The schema is in docs/evidence.schema.json.",
    )


def _lint_lines(linted: LintResponse, verdict: Lint) -> Iterator[str]:
    """Format a lint result: errors first, then the terms, then the corrected envelope."""
    answers = {True: "yes", False: "no"}
    evaluated = "" if verdict.evaluated else " (not evaluated)"
    yield f"payable   {answers[linted.payable]}{evaluated}"
    yield f"compliant {answers[linted.compliant]}"
    for finding in linted.findings:
        yield f"{finding.severity:5} {finding.rule}: {finding.message} ({finding.where})"
        yield f"      found {finding.found}, expected {finding.expected}"
    for terms in linted.terms:
        yield f"terms {terms.amount} of {terms.asset} on {terms.network} to {terms.pay_to}"
    if linted.envelope is not None:
        yield from _marked_lines(linted.envelope)
    if linted.corrected is not None and not linted.compliant:
        yield from ("", "The corrected envelope (check amount and payTo before you use it):")
        yield orjson.dumps(linted.corrected.envelope, option=orjson.OPT_INDENT_2).decode()
        if linted.corrected.remaining:
            yield f"Still to correct by hand: {', '.join(linted.corrected.remaining)}"


def _marked_lines(envelope: LintEnvelopeResponse) -> Iterator[str]:
    """Print the invalid lines of the decoded envelope with their context."""
    lines = envelope.lines
    marked = [index for index, line in enumerate(lines) if line.rules]
    near = {
        at for index in marked for at in range(index - _CONTEXT_LINES, index + _CONTEXT_LINES + 1)
    }
    if marked:
        yield from ("", f"The decoded envelope, from the {envelope.place}:")
    for index, line in enumerate(lines):
        if index in near:
            rules = ", ".join(line.rules or ())
            yield f"> {line.text}  <- {rules}" if rules else f"  {line.text}"
        elif index - 1 in near:
            yield "  …"


def _claim_lines(score: Score, differences: tuple[Difference, ...]) -> Iterator[str]:
    """List each claim that the evidence contradicts, or state that the score agrees."""
    for item in differences:
        field = "" if item.field == "score" else f"{item.field} "
        claimed, given = _text(item.claimed), _text(item.given)
        yield f"report claims {field}{claimed}, evidence gives {given}"
    if not differences:
        points = _text(None if score.score_tenths is None else score.score_tenths / 10)
        yield f"report claims {points}, evidence gives {points}: they agree"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else orjson.dumps(value).decode()


def _score_lines(score: Score) -> Iterator[str]:
    from tollgauge.core.score.advice import summary
    from tollgauge.web.pages.labels import chance

    yield summary(score)
    now, day = score.payable_now_permille, score.payable_24h_permille
    if now is not None and day is not None:
        yield f"payable    {chance(now)} in half an hour, {chance(day)} in 24 hours"
    for component in score.components:
        points = component.tenths / 10
        yield f"{component.name:10} {points:6.1f} of 100, weight {component.weight}"
    for flag in score.flags:
        yield f"{flag.severity.value:5} {flag.code}: {flag.message}"


def _improvement_lines(improvements: tuple[Improvement, ...]) -> Iterator[str]:
    """List what would raise the score, one item per line."""
    from tollgauge.web.pages.labels import within

    if improvements:
        yield "what would raise this score:"
    for row in improvements:
        points, points_then = row.points_tenths / 10, row.score_tenths / 10
        when = within(row.in_days)
        yield f"{points:+6.1f} to {points_then:.1f} {row.grade} {when} ({row.code}): {row.fix}"
