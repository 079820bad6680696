"""`tollgauge lint` and `tollgauge probe`: check the 402 of a URL or of a saved response."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from tollgauge.cli.lint_formats import CheckedSource, CiFormat, FailOn, write
from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    exchange_input,
    load_config,
    progress_bar,
    run_async,
    show,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from pathlib import Path

    from tollgauge.config import Config
    from tollgauge.core.probe.exchange import Exchange, Lint
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
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Saved responses, https:// URLs, or -."),
    ] = None,
    config: ConfigFile = None,
    explain: Annotated[
        str, typer.Option("--explain", metavar="RULE", help="Explain a rule instead.")
    ] = "",
    fail_on: Annotated[
        FailOn, typer.Option(help="The least problem that makes the exit code 1.")
    ] = FailOn.UNPAYABLE,
    ci_format: Annotated[
        CiFormat | None, typer.Option("--format", help="Print the result for a CI system.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the 402 of saved responses or live URLs. Exit 1 if no client could pay one of them.

    A saved response is the output of `curl -i`, or JSON {status, headers,
    body, url?, method?}, or the value of a PAYMENT-REQUIRED header, or an
    envelope's JSON. --json prints an array if there are several.

    With --fail-on error or warn, findings of that severity or a higher one
    make the exit code 1, too. --format prints GitHub annotations, SARIF 2.1.0
    or JUnit XML.

    --explain prints a rule's description, its source, an invalid and a valid
    response, and the fix for each framework.
    """
    from tollgauge.web.wire import lint_answers

    if explain:
        _explain(explain, as_json=as_json)
        return
    if not sources:
        raise TollgaugeError(
            "Nothing to check.",
            hint="Name a file, an https:// URL, or - for standard input; or use --explain RULE.",
        )
    if ci_format is not None and as_json:
        raise TollgaugeError("--format cannot be used with --json.", hint="Remove one of them.")
    checked: list[CheckedSource] = []
    lines: list[str] = []
    for source in sources:
        exchange, verdict = lint_source(source, config)
        linted = lint_answers.lint(verdict, exchange)
        checked.append(CheckedSource(source, linted))
        if len(sources) > 1:
            lines += [*([""] if lines else []), source]
        lines += _lint_lines(linted, verdict)
    if ci_format is not None:
        show(None, [write(ci_format, checked, fail_on)], as_json=False)
    else:
        documents = [one.linted.model_dump(by_alias=True) for one in checked]
        show(documents if len(sources) > 1 else documents[0], lines, as_json=as_json)
    raise typer.Exit(BAD if any(one.is_failed(fail_on) for one in checked) else GOOD)


def lint_source(source: str, config: Path | None) -> tuple[Exchange, Lint]:
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


def _exchange(config: Config, url: str) -> tuple[Exchange, Lint]:
    """Probe a URL and lint its response; nothing is stored."""
    with progress_bar() as progress:
        progress(f"asking {url}", 0, 0)
        return run_async(_probe(config, url))


async def _probe(config: Config, url: str) -> tuple[Exchange, Lint]:
    from tollgauge.clients import x402
    from tollgauge.clients.egress.client import Egress
    from tollgauge.core.endpoint.identity import parse_resource
    from tollgauge.monitor.discovery import new_endpoint
    from tollgauge.monitor.probing import lint_exchange
    from tollgauge.service_status import now_ms

    resource = parse_resource(url, config.egress.perimeter)
    now = now_ms()
    endpoint = new_endpoint(resource, now=now, spread_ms=0)
    egress = Egress(config.egress)
    egress.start()
    try:
        exchange = (await x402.exchange(egress, endpoint, now=now)).exchange
        return exchange, await lint_exchange(egress, exchange, x402.OfferKeys())
    finally:
        await egress.close()


def _lint_lines(linted: LintResponse, verdict: Lint) -> Iterator[str]:
    """Format a lint result: errors, then terms and extensions, then the corrected envelope."""
    answers = {True: "yes", False: "no"}
    note = linted.payable_by.names if verdict.evaluated else "not evaluated"
    yield f"payable   {answers[linted.payable]}" + (f" ({note})" if note else "")
    yield f"compliant {answers[linted.compliant]}"
    for finding in linted.findings:
        yield f"{finding.severity:5} {finding.rule}: {finding.message} ({finding.where})"
        yield f"      found {finding.found}, expected {finding.expected}"
    for terms in linted.terms:
        yield f"terms {terms.amount} of {terms.asset} on {terms.network} to {terms.pay_to}"
    for name, support in (linted.extensions or {}).items():
        yield f"extension {name} ({support})"
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
