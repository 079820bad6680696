"""The lint of an answer as JSON, and in short for agents."""

from __future__ import annotations

from typing import Final

import orjson

from tollgauge.core.finding import LINT_FLAG, Finding, Lint
from tollgauge.core.lint.guide import explained
from tollgauge.core.terms import Terms
from tollgauge.web.wire.figures import iso, micro_usd
from tollgauge.web.wire.shape import Severity, Shape, absent_if_null

RULES_PATH: Final = "/lint/rules"
BRIEF_BYTES: Final = 3_000
"""What a lint takes at most as an agent gets it, which is twice in one answer."""
_BRIEF_TERMS: Final = 3


class LintFindingShape(Shape):
    """One place where a rule fired: what is wrong, what to write instead, where in the answer
    (`status`, `header`, `body` or a path such as `accepts[0].amount`), and the rule's page.
    """

    rule: str
    severity: Severity
    message: str
    fix: str
    where: str
    page: str | None = absent_if_null()


class LintTermsShape(Shape):
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


class LintShape(Shape):
    """What the linter says of an answer to an unpaid request, the most severe findings first.
    `payable`: a stock client could pay. `compliant`: a 402 without an error. `version`: of the
    envelope that a client would use, null without one. `resource` and `probedAt` are present where
    the answer is a stored one; of that the findings are kept, not the answer.
    """

    payable: bool
    compliant: bool
    version: int | None
    findings: list[LintFindingShape]
    terms: list[LintTermsShape]
    resource: str | None = absent_if_null()
    probed_at: str | None = absent_if_null()


def lint(
    result: Lint, *, base_url: str, resource: str | None = None, at: int | None = None
) -> LintShape:
    """A lint as JSON shape; `resource` and `at` (ms UTC) are those of a stored probe."""
    return LintShape(
        payable=result.payable,
        compliant=result.compliant,
        version=result.version,
        findings=[_finding(finding, base_url) for finding in worst_first(result.findings)],
        terms=[_terms(terms) for terms in result.terms],
        resource=resource,
        probed_at=None if at is None else iso(at),
    )


def worst_first(findings: tuple[Finding, ...]) -> list[Finding]:
    """Findings by severity, those of one severity in the order of the rules."""
    return sorted(findings, key=lambda finding: finding.severity.rank)


def rule_page(code: str, base_url: str) -> str | None:
    """The page of the rule that a flag's code or a slug names; None where there is no such rule."""
    slug = code.removeprefix(LINT_FLAG)
    return None if explained(slug) is None else f"{base_url.rstrip('/')}{RULES_PATH}/{slug}"


def brief(shape: LintShape) -> bytes:
    """A lint as JSON in at most BRIEF_BYTES: each rule once with all its places, without the
    explanation, as many of the most severe as there is room for; `moreRules` counts the others.
    """
    rules: dict[str, dict[str, object]] = {}
    places: dict[str, list[str]] = {}
    for finding in shape.findings:
        places.setdefault(finding.rule, []).append(finding.where)
        row = {"rule": finding.rule, "severity": finding.severity, "fix": finding.fix}
        rules.setdefault(finding.rule, row | {"where": places[finding.rule]})
    document = shape.model_dump(by_alias=True, exclude={"findings", "terms"})
    terms = shape.model_dump(by_alias=True, include={"terms"})["terms"]
    rows, shown = list(rules.values()), terms[:_BRIEF_TERMS]
    while True:
        more = {"moreRules": len(rules) - len(rows), "moreTerms": len(terms) - len(shown)}
        counts = {name: number for name, number in more.items() if number}
        text = orjson.dumps({**document, "findings": rows, "terms": shown, **counts})
        if len(text) <= BRIEF_BYTES or not (rows or shown):
            return text
        (rows or shown).pop()


def _finding(finding: Finding, base_url: str) -> LintFindingShape:
    known = explained(finding.rule)
    return LintFindingShape(
        rule=finding.rule,
        severity=finding.severity.value,
        message=known.what if known else finding.message,
        fix=finding.message or (known.rule.fix if known else ""),
        where=finding.where,
        page=rule_page(finding.rule, base_url),
    )


def _terms(terms: Terms) -> LintTermsShape:
    quote = terms.quote()
    return LintTermsShape(
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
