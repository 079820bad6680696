"""Pages of the linter: the form with its result, the list of rules, and one page per rule.

The form works without JavaScript. Input is never stored, and is shown only as escaped text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from itertools import groupby
from typing import Final
from urllib.parse import parse_qsl

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tollgauge.core.directory.search_text import with_scheme
from tollgauge.core.lint.guide import REMEDIES, Explanation, explain
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.lint import EXAMPLE, EXAMPLE_RULE, LINT_PATH, check, lint_stored
from tollgauge.web.pages import snippets
from tollgauge.web.pages.render import render
from tollgauge.web.route import Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.lint_answers import RULES_PATH, LintResponse
from tollgauge.web.wire.parameters import LintedEndpoint, LintExample, LintRule
from tollgauge.web.wire.request_model import invalid

ROUTES: Final = Routes(tag="pages", cached=True)
_PATH: Final = "/lint"
_NOT_IN_HTML: Final = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)}
"""Control characters (HTML, section 13.2.3.5) except tab and line feed."""
_FIELD: Final = "capture"
_URL: Final = re.compile(r"(?:https?://|(?:[a-z0-9-]+\.)+[a-z]{2,}(?=[/:?]|$))\S*", re.IGNORECASE)
"""A URL, with or without scheme. A base64 header value does not match: it has no dots."""
_FORM: Final = {
    "type": "object",
    "properties": {_FIELD: {"type": "string"}},
    "additionalProperties": False,
}
_REQUEST: Final = {
    "requestBody": openapi.body(_FORM, EXAMPLE, media_type="application/x-www-form-urlencoded")
}
_ANSWERS: Final = openapi.page(
    own={
        404: "The resource is not monitored or not probed yet, or the rule does not exist",
        422: "The input is not an HTTP response or a public https URL",
    }
)


@ROUTES.get(_PATH, _ANSWERS)
async def lint_form(
    service: Service, example: LintExample = None, endpoint: LintedEndpoint = None
) -> Response:
    """Linter form. It is empty, with the example of a rule, or with an endpoint's last result.

    Raises Problem 404 for an unknown rule.
    """
    if endpoint is not None:
        return await _result_page(service, "", lint_stored(service, endpoint))
    capture = None if example is None else _explain_rule(example).entry.wrong.capture()
    return _page(service, capture or "")


@ROUTES.post(_PATH, _ANSWERS, request=_REQUEST)
async def lint_submit(service: Service, request: Request) -> Response:
    """Linter result. The form contains a response, or the URL of a monitored endpoint."""
    try:
        text = pasted_text(await request.body())
    except Problem as problem:
        return _page(service, "", problem=problem)
    document = {"capture": text}
    if _URL.fullmatch(text):
        document = {"resource": with_scheme(text)}
    return await _result_page(service, text, check(service, document))


@ROUTES.get(RULES_PATH, _ANSWERS)
async def lint_rules(service: Service) -> Response:
    """List linter rules."""
    return HTMLResponse(rules_html(base_url=service.base_url))


@ROUTES.get(f"{RULES_PATH}/{{slug}}", _ANSWERS)
async def lint_rule(service: Service, slug: LintRule) -> Response:
    """Linter rule. Raises Problem 404 for an unknown rule."""
    known = _explain_rule(slug)
    others = [_explain_rule(rule.slug) for rule in ALL_RULES if rule.slug != slug]
    of_kind = [one.rule.slug for one in others if one.entry.kind == known.entry.kind]
    html = render("lint_rule.html", service.base_url, known=known, neighbours=of_kind)
    return HTMLResponse(html)


async def _result_page(service: Service, text: str, result: Awaitable[LintResponse]) -> Response:
    try:
        return _page(service, text, result=await result)
    except Problem as problem:
        return _page(service, text, problem=problem)


def _page(
    service: Service,
    text: str,
    *,
    result: LintResponse | None = None,
    problem: Problem | None = None,
) -> Response:
    html = lint_html(text, result=result, problem=problem, base_url=service.base_url)
    if problem is None:
        return HTMLResponse(html)
    return HTMLResponse(html, problem.status, problem.headers())


def pasted_text(body: bytes) -> str:
    """Parse the submitted form. Raises Problem 422 if it is empty or has other fields."""
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace")
    if [name for name, _ in pairs] != [_FIELD]:
        raise invalid(_FIELD, "The form must have exactly one field, capture.")
    text = pairs[0][1].replace("\r\n", "\n").strip()
    if not text:
        raise invalid(_FIELD, "Paste an HTTP response, or the URL of a monitored endpoint.")
    return text


def lint_html(
    text: str,
    *,
    result: LintResponse | None = None,
    problem: Problem | None = None,
    base_url: str,
) -> bytes:
    """Render the form with the submitted text, and the result or the problem above it."""
    return render(
        "lint.html",
        base_url,
        capture=_exactly(text or (result and result.resource) or ""),
        result=result,
        explanations={one.rule: _explain_rule(one.rule).what for one in result.findings if one.page}
        if result
        else {},
        corrected=_format_correction(result),
        problem=problem,
        rules=len(ALL_RULES),
        example=EXAMPLE_RULE,
        command=snippets.lint(f"{base_url.rstrip('/')}{LINT_PATH}"),
    )


def rules_html(*, base_url: str) -> bytes:
    """Render the list of rules, grouped by the kind of fix."""
    explanations = [_explain_rule(rule.slug) for rule in ALL_RULES]
    kinds = list(REMEDIES)
    by_kind = sorted(explanations, key=lambda row: kinds.index(row.entry.kind))
    groups = [
        (kind, REMEDIES[kind], list(rows))
        for kind, rows in groupby(by_kind, key=lambda row: row.entry.kind)
    ]
    return render("lint_rules.html", base_url, groups=groups, rules=len(ALL_RULES))


def _format_correction(result: LintResponse | None) -> str:
    """Format the corrected envelope; empty if there is none."""
    if result is None or result.corrected is None:
        return ""
    return json.dumps(result.corrected.envelope, indent=2, ensure_ascii=False)


def _exactly(text: str) -> Markup:
    """Escape a text for its form field, unchanged except for characters that HTML forbids."""
    return escape(text.translate(_NOT_IN_HTML))


def _explain_rule(slug: str) -> Explanation:
    explanation = explain(slug)
    if explanation is None:
        raise Problem(404, "unknown-rule", "No linter rule with this name.")
    return explanation
