"""The lint of an answer as JSON, and in short for agents."""

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
"""What a lint takes at most as an agent gets it, which is twice in one answer."""
_BRIEF_TERMS: Final = 3


class LintFindingResponse(ResponseModel):
    """One place where a rule fired: what to write instead, where in the answer (`status`, `header`,
    `body` or a path such as `accepts[0].amount`), what was found there and what was expected, and
    the rule's page. `found` is absent where the answer was not kept.
    """

    rule: str
    severity: Severity
    message: str
    where: str
    found: str | None = absent_if_null()
    expected: str
    page: str | None = absent_if_null()


class LintTermsResponse(ResponseModel):
    """One way to pay, as a client reads it. `symbol` and `amountUsd` are null for a token that is
    not known; scheme, version and time-out are left out where they are not stored.
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
    """A line of the decoded envelope, with the rules that found something there."""

    text: str
    rules: list[str] | None = absent_if_null()


class LintEnvelopeResponse(ResponseModel):
    """The decoded envelope, indented; `place` is where the answer has it."""

    place: Annotated[str, OneOf(("header", "body"))]
    lines: list[LintLineResponse]


class LintCorrectedResponse(ResponseModel):
    """An envelope to send instead. `header` is the value of PAYMENT-REQUIRED, absent in version 1,
    which is sent as the body. `remaining` are rules that only the seller can satisfy: accounts and
    prices are never made up.
    """

    envelope: dict[str, Any]
    header: str | None = absent_if_null()
    remaining: list[str]


class LintResponse(ResponseModel):
    """What the linter says of an answer to an unpaid request, the most severe findings first.
    `payable`: a stock client could pay. `compliant`: a 402 without an error. `version`: of the
    envelope that a client would use, null without one. `resource` and `probedAt` are present where
    the answer is a stored one; of that the findings are kept, not the answer, so there is no
    `envelope`. `corrected` is present where something can be corrected.
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
    """What the linter said of an answer that is at hand. Findings name the pages of their rules if
    a base URL is given.
    """
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
    """What the linter said of an endpoint's last probe, at `at` (ms UTC)."""
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
    """The page of the rule that a flag's code or a slug names; None where there is no such rule."""
    slug = code.removeprefix(LINT_FLAG)
    return None if explain(slug) is None else f"{base_url.rstrip('/')}{RULES_PATH}/{slug}"


def brief(model: LintResponse) -> bytes:
    """A lint as JSON in at most BRIEF_BYTES: the corrected envelope if there is room, the most
    severe findings and the first terms, as many as there is room for; `moreFindings` and
    `moreTerms` count the others. The decoded envelope is left out: whoever asks has it.
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
