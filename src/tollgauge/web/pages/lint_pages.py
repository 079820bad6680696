"""The linter's pages: the form with its result, the index of the rules, and a page for each rule.

What a visitor pastes is shown as text only: in the field that it came from, and where it is an
address or a name of the terms. The form works without JavaScript, and nothing of it is stored.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import parse_qsl

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tollgauge.core.base.units import known_asset
from tollgauge.core.directory.search_text import with_scheme
from tollgauge.core.lint.guide import Explanation, explain
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.remedy import REMEDIES
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.lint import EXAMPLE, EXAMPLE_RULE, LINT_PATH, Linting
from tollgauge.web.pages import labels
from tollgauge.web.pages.render import render
from tollgauge.web.wire.lint_answers import LintResponse, LintTermsResponse
from tollgauge.web.wire.parameters import LintedEndpoint, LintExample, LintRule
from tollgauge.web.wire.request_model import invalid

PATH: Final = "/lint"
_NOT_IN_HTML: Final = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)}
"""Control characters (HTML, section 13.2.3.5), but for tabs and line ends."""
_FIELD: Final = "capture"
_URL: Final = re.compile(r"(?:https?://|(?:[a-z0-9-]+\.)+[a-z]{2,}(?=[/:?]|$))\S*", re.IGNORECASE)
"""A text that is a URL, or one without its scheme; a header's base64 has no dots."""
REQUEST: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {_FIELD: {"type": "string"}},
                    "additionalProperties": False,
                },
                "example": EXAMPLE,
            }
        },
    }
}
"""The form, for the interface description."""
ERRORS: Final = {
    404: "Nothing is known of this resource, it was not probed yet, or there is no such rule",
    422: "What was pasted is neither an answer nor a public https URL",
}


@dataclass(frozen=True, slots=True)
class LintPages:
    """The handlers of the linter's pages."""

    linting: Linting

    async def form(self, example: LintExample = None, endpoint: LintedEndpoint = None) -> Response:
        """The empty form, or with a rule's wrong example, or with the result of what is stored of
        an endpoint. Raises Problem 404 for an unknown rule.
        """
        if endpoint is not None:
            return await self._answered("", self.linting.stored(endpoint))
        capture = None if example is None else _explained(example).entry.wrong.capture()
        return self._page(capture or "")

    async def submit(self, request: Request) -> Response:
        """The form with what the linter says to it, or with what is wrong in it. A URL is looked
        up among the monitored endpoints.
        """
        try:
            text = pasted_text(await request.body())
        except Problem as problem:
            return self._page("", problem=problem)
        document = {"capture": text}
        if _URL.fullmatch(text):
            document = {"resource": with_scheme(text)}
        return await self._answered(text, self.linting.result(document))

    async def rules(self) -> Response:
        """The index of the rules."""
        return HTMLResponse(rules_html(base_url=self._base_url))

    async def rule(self, slug: LintRule) -> Response:
        """The page of a rule. Raises Problem 404."""
        return HTMLResponse(rule_html(_explained(slug), base_url=self._base_url))

    @property
    def _base_url(self) -> str:
        return self.linting.dependencies.base_url

    async def _answered(self, text: str, answer: Awaitable[LintResponse]) -> Response:
        try:
            return self._page(text, result=await answer)
        except Problem as problem:
            return self._page(text, problem=problem)

    def _page(
        self,
        text: str,
        *,
        result: LintResponse | None = None,
        problem: Problem | None = None,
    ) -> Response:
        html = lint_html(text, result=result, problem=problem, base_url=self._base_url)
        if problem is None:
            return HTMLResponse(html)
        return HTMLResponse(html, problem.status, problem.headers())


def pasted_text(body: bytes) -> str:
    """The text in the form. Raises Problem 422 where there is none, or another field."""
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace")
    if [name for name, _ in pairs] != [_FIELD]:
        raise invalid(_FIELD, "The form has one field, capture.")
    text = pairs[0][1].replace("\r\n", "\n").strip()
    if not text:
        raise invalid(_FIELD, "Paste an answer, or the URL of a monitored endpoint.")
    return text


def lint_html(
    text: str,
    *,
    result: LintResponse | None = None,
    problem: Problem | None = None,
    base_url: str,
) -> bytes:
    """The form with the text that was pasted, and the result or the problem above it."""
    address = shlex.quote(f"{base_url.rstrip('/')}{LINT_PATH}")
    return render(
        "lint.html",
        base_url,
        capture=_exactly(text or (result and result.resource) or ""),
        result=result,
        explanations={one.rule: _explained(one.rule).what for one in result.findings if one.page}
        if result
        else {},
        corrected=_corrected(result),
        problem=problem,
        offers=[offer_words(terms) for terms in result.terms] if result else [],
        rules=len(ALL_RULES),
        example=EXAMPLE_RULE,
        command="curl -si https://api.example.com/weather |\n"
        "  jq -Rs '{capture: .}' |\n"
        f"  curl -s {address} -H 'content-type: application/json' -d @-",
    )


def rules_html(*, base_url: str) -> bytes:
    """Every rule, by the kind of its fix."""
    explanations = [_explained(rule.slug) for rule in ALL_RULES]
    kinds = list(REMEDIES)
    by_kind = sorted(explanations, key=lambda row: kinds.index(row.entry.kind))
    groups = [
        (kind, REMEDIES[kind], list(rows))
        for kind, rows in groupby(by_kind, key=lambda row: row.entry.kind)
    ]
    return render("lint_rules.html", base_url, groups=groups, rules=len(ALL_RULES))


def rule_html(explanation: Explanation, *, base_url: str) -> bytes:
    """Everything that is known of a rule."""
    neighbours = [
        rule.slug
        for rule in ALL_RULES
        if _explained(rule.slug).entry.kind is explanation.entry.kind
        and rule.slug != explanation.rule.slug
    ]
    return render(
        "lint_rule.html",
        base_url,
        rule=explanation.rule,
        what=explanation.what,
        entry=explanation.entry,
        remedy=explanation.remedy,
        frameworks=list(explanation.remedy.by_framework()),
        examples=list(zip(explanation.captions, explanation.excerpts, strict=True)),
        loadable=explanation.entry.wrong.capture() is not None,
        neighbours=neighbours,
    )


def offer_words(terms: LintTermsResponse) -> str:
    """What a client would be asked to pay, in words."""
    asset = known_asset(terms.network, terms.asset)
    network = labels.network_title(terms.network)
    if asset is None:
        price = f"{terms.amount} atomic units of the token {terms.asset}"
    else:
        price = f"{labels.token_amount(int(terms.amount), asset.decimals)} {asset.symbol}"
    at_most = "at most " if terms.scheme == "upto" else ""
    timeout = terms.max_timeout_seconds
    within = "" if timeout is None else f", signed for {timeout} seconds"
    scheme = "" if terms.scheme in (None, "exact") else f", by the scheme {terms.scheme}"
    return f"asks {at_most}{price} on {network}, to {terms.pay_to}{scheme}{within}"


def _corrected(result: LintResponse | None) -> str:
    """The corrected envelope as text, empty where there is none."""
    if result is None or result.corrected is None:
        return ""
    return json.dumps(result.corrected.envelope, indent=2, ensure_ascii=False)


def _exactly(text: str) -> Markup:
    """A text for the field that it came from: as it is, so that it can be sent again, but for the
    characters that no HTML may hold.
    """
    return escape(text.translate(_NOT_IN_HTML))


def _explained(slug: str) -> Explanation:
    explanation = explain(slug)
    if explanation is None:
        raise Problem(404, "unknown-rule", "The linter has no such rule.")
    return explanation
