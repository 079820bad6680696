"""JSON of linter results, complete and in brief for agents."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson

from tollgauge.core.endpoint.finding import LINT_FLAG, Lint
from tollgauge.core.endpoint.terms import Terms
from tollgauge.core.lint.diagnosis import Detail, diagnose, stored_details
from tollgauge.core.lint.guide import explain
from tollgauge.core.probe.exchange import Exchange
from tollgauge.web.wire.response_model import (
    OneOf,
    ResponseModel,
    Severity,
    absent_if_null,
    iso,
    micro_usd,
)

RULES_PATH: Final = "/lint/rules"
BRIEF_BYTES: Final = 3_000
"""Maximum size of a brief result, which an MCP result contains twice."""
_BRIEF_TERMS: Final = 3


class LintFindingResponse(ResponseModel):
    """A violated rule: how to fix it, where it was found (`status`, `header`, `body` or a path such
    as `accepts[0].amount`), the found and the expected value, and the rule's page. `found` is
    absent for stored results.
    """

    rule: str
    severity: Severity
    message: str
    where: str
    found: str | None = absent_if_null()
    expected: str
    page: str | None = absent_if_null()


class LintTermsResponse(ResponseModel):
    """Payment terms as a client reads them. `symbol` and `amountUsd` are null for an unknown token.
    Scheme, version and timeout are absent if they are not stored.
    """

    version: int | None = absent_if_null()
    scheme: str | None = absent_if_null()
    network: str
    asset: str
    amount: str
    pay_to: str
    max_timeout_seconds: int | None = absent_if_null()
    symbol: str | None
    amount_usd: float | None


class LintLineResponse(ResponseModel):
    """A line of the decoded envelope, with the rules that it violates."""

    text: str
    rules: list[str] | None = absent_if_null()


class LintEnvelopeResponse(ResponseModel):
    """The decoded envelope, indented; `place` is the part of the response that contains it."""

    place: Annotated[str, OneOf(("header", "body"))]
    lines: list[LintLineResponse]


class LintCorrectedResponse(ResponseModel):
    """A corrected envelope. `header` is the value of PAYMENT-REQUIRED; it is absent in version 1,
    which is sent as the body. `remaining` lists rules that only the seller can satisfy: accounts
    and prices are never invented.
    """

    envelope: dict[str, Any]
    header: str | None = absent_if_null()
    remaining: list[str]


class LintResponse(ResponseModel):
    """Linter result for a response to an unpaid request, most severe findings first. `payable`: an
    official client can pay. `compliant`: a 402 without errors. `version`: version of the envelope
    that a client uses; null without an envelope. `resource` and `probedAt` are present for stored
    results, which have no `envelope`. `corrected` is present if a correction can be generated.
    """

    payable: bool
    compliant: bool
    version: int | None
    findings: list[LintFindingResponse]
    terms: list[LintTermsResponse]
    envelope: LintEnvelopeResponse | None = absent_if_null()
    corrected: LintCorrectedResponse | None = absent_if_null()
    resource: str | None = absent_if_null()
    probed_at: str | None = absent_if_null()


def lint(result: Lint, exchange: Exchange, *, base_url: str = "") -> LintResponse:
    """Build the result for a response; with a base URL, findings link to the pages of rules."""
    diagnosis = diagnose(exchange, result)
    envelope = (
        LintEnvelopeResponse(
            place=diagnosis.place,
            lines=[
                LintLineResponse(text=line.text, rules=list(line.rules) or None)
                for line in diagnosis.lines
            ],
        )
        if diagnosis.place
        else None
    )
    better = diagnosis.correction
    corrected = better and LintCorrectedResponse(
        envelope=better.envelope, header=better.header, remaining=list(better.remaining)
    )
    model = _response(result, diagnosis.details, base_url)
    return model.model_copy(update={"envelope": envelope, "corrected": corrected})


def stored_lint(result: Lint, *, base_url: str, resource: str, at: int | None) -> LintResponse:
    """Build the result for an endpoint's last probe, made at `at` (ms UTC)."""
    model = _response(result, stored_details(result), base_url)
    probed_at = None if at is None else iso(at)
    return model.model_copy(update={"resource": resource, "probed_at": probed_at})


def _response(result: Lint, details: tuple[Detail, ...], base_url: str) -> LintResponse:
    return LintResponse(
        payable=result.payable,
        compliant=result.compliant,
        version=result.version,
        findings=[_finding(detail, base_url) for detail in details],
        terms=[_terms(terms) for terms in result.terms],
    )


def rule_page(code: str, base_url: str) -> str | None:
    """Return the page of a rule, by its slug or its flag's code; None if there is no such rule."""
    slug = code.removeprefix(LINT_FLAG)
    return None if explain(slug) is None else f"{base_url.rstrip('/')}{RULES_PATH}/{slug}"


def brief(model: LintResponse) -> bytes:
    """Encode a result in at most BRIEF_BYTES, without the decoded envelope.

    The corrected envelope is dropped first, then the least severe findings and the last terms;
    `moreFindings` and `moreTerms` count the omitted ones.
    """
    document = model.model_dump(by_alias=True, exclude={"envelope"})
    rows, shown = document.pop("findings"), document.pop("terms")
    findings, terms = len(rows), len(shown)
    shown = shown[:_BRIEF_TERMS]
    for row in rows:
        row.pop("page", None)
    while True:
        more = {"moreFindings": findings - len(rows), "moreTerms": terms - len(shown)}
        counts = {name: number for name, number in more.items() if number}
        text = orjson.dumps({**document, "findings": rows, "terms": shown, **counts})
        if len(text) <= BRIEF_BYTES or not (rows or shown):
            return text
        if document.pop("corrected", None) is None:
            (rows or shown).pop()


def _finding(detail: Detail, base_url: str) -> LintFindingResponse:
    finding = detail.finding
    known = explain(finding.rule)
    return LintFindingResponse(
        rule=finding.rule,
        severity=finding.severity.value,
        message=finding.message or (known.rule.fix if known else ""),
        where=finding.where,
        found=detail.found or None,
        expected=detail.expected,
        page=rule_page(finding.rule, base_url) if base_url else None,
    )


def _terms(terms: Terms) -> LintTermsResponse:
    quote = terms.quote()
    return LintTermsResponse(
        version=terms.version or None,
        scheme=terms.scheme or None,
        network=terms.network,
        asset=terms.asset,
        amount=str(terms.amount),
        pay_to=terms.pay_to,
        max_timeout_seconds=terms.timeout_seconds,
        symbol=quote.symbol,
        amount_usd=micro_usd(quote.micro_usd),
    )
