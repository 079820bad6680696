"""JSON of linter results, complete and in brief for agents."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BeforeValidator

from tollgauge.core.lint.diagnosis import Detail, diagnose, stored_details
from tollgauge.core.lint.extensions import describe_support
from tollgauge.core.lint.guide import explain
from tollgauge.core.lint.mcp import PLACES
from tollgauge.core.probe.exchange import LINT_FLAG, Exchange, Lint, OfficialClient
from tollgauge.web.wire.response_model import (
    NULL_IF_EMPTY,
    Amount,
    Dollars,
    OneOf,
    ResponseModel,
    Severity,
    Time,
    absent_if_null,
    from_attribute,
)

RULES_PATH: Final = "/lint/rules"
BRIEF_BYTES: Final = 3_000
"""Maximum size of a brief result, which an MCP result contains twice."""
_BRIEF_TERMS: Final = 3


class PayableByResponse(ResponseModel):
    """The official clients that can pay: the SDKs for TypeScript and Python, and Circle's client
    for Gateway. Spending limits are ignored.
    """

    typescript: bool
    python: bool
    circle: bool

    @property
    def names(self) -> str:
        """The names of the clients that can pay, for people."""
        return ", ".join(one.label for one in OfficialClient if getattr(self, one.value))


PayableBy = Annotated[
    PayableByResponse,
    BeforeValidator(lambda payers: {client.value: client in payers for client in OfficialClient}),
]


ExtensionSupport = Annotated[
    dict[str, Literal["evaluated", "recognised", "unknown"]] | None,
    BeforeValidator(lambda names: describe_support(names) or None),
]


class LintFindingResponse(ResponseModel):
    """A violated rule: how to fix it, its location (`status`, `header`, `body` or a path such as
    `accepts[0].amount`), the found and the expected value, and the rule's page. `found` is
    absent for stored results.
    """

    rule: str
    severity: Severity
    message: str
    where: str
    found: Annotated[str | None, NULL_IF_EMPTY] = absent_if_null()
    expected: str
    page: str | None = absent_if_null()


class LintTermsResponse(ResponseModel):
    """Payment terms as a client reads them. `symbol` and `amountUsd` are null for an unknown token.
    Scheme, version and timeout are absent if they are not stored.
    """

    version: Annotated[int | None, NULL_IF_EMPTY] = absent_if_null()
    scheme: Annotated[str | None, NULL_IF_EMPTY] = absent_if_null()
    network: str
    asset: str
    amount: Amount
    pay_to: str
    max_timeout_seconds: int | None = absent_if_null("timeout_seconds")
    symbol: str | None
    amount_usd: Dollars | None = from_attribute("micro_usd")


class LintLineResponse(ResponseModel):
    """A line of the decoded envelope, with the rules that it violates."""

    text: str
    rules: Annotated[list[str] | None, NULL_IF_EMPTY] = absent_if_null()


class LintEnvelopeResponse(ResponseModel):
    """The decoded envelope, indented; `place` is the part of the response that contains it: the
    header, the body, or the part of an MCP message.
    """

    place: Annotated[str, OneOf(("header", "body", *PLACES))]
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
    official client can pay; `payableBy` states which can, none if no offer can be evaluated.
    `compliant`: a 402 without errors. `version`: version of the envelope that a client uses; null
    without an envelope. `extensions`: the names of its extensions; rules check the content of those
    that are `evaluated`. `resource` and `probedAt` are present for stored results, which have no
    `envelope`. `corrected` is present if a correction can be generated.
    """

    payable: bool
    payable_by: PayableBy
    compliant: bool
    version: int | None
    extensions: ExtensionSupport = absent_if_null()
    findings: list[LintFindingResponse]
    terms: list[LintTermsResponse]
    envelope: LintEnvelopeResponse | None = absent_if_null()
    corrected: LintCorrectedResponse | None = absent_if_null()
    resource: str | None = absent_if_null()
    probed_at: Time | None = absent_if_null()


def lint(result: Lint, exchange: Exchange, *, base_url: str = "") -> LintResponse:
    """Build the result for a response; with a base URL, findings link to the pages of rules."""
    diagnosis = diagnose(exchange, result)
    return _response(
        result,
        diagnosis.details,
        base_url,
        envelope=LintEnvelopeResponse.build(diagnosis) if diagnosis.place else None,
        corrected=diagnosis.correction,
    )


def stored_lint(result: Lint, *, base_url: str, resource: str, at: int | None) -> LintResponse:
    """Build the result for an endpoint's last probe, made at `at` (ms UTC)."""
    return _response(result, stored_details(result), base_url, resource=resource, probed_at=at)


def _response(
    result: Lint, details: tuple[Detail, ...], base_url: str, **given: Any
) -> LintResponse:
    return LintResponse.build(
        result,
        findings=[_finding(detail, base_url) for detail in details],
        terms=[LintTermsResponse.build(terms, terms.quote()) for terms in result.terms],
        **given,
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
    return LintFindingResponse.build(
        detail,
        finding,
        message=finding.message or (known.rule.entry.fix if known else ""),
        page=rule_page(finding.rule, base_url) if base_url else None,
    )
