"""`GET /docs`: the API guide, with a curl command for every documented route.

One program pays for every paid route, in each language of web/pages/snippets: radio buttons and CSS
select the language. A script (static/copy.js) adds copy buttons; the page works without it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

import orjson

from tollgauge.core.base.units import BASE
from tollgauge.core.sale.payment import Offer
from tollgauge.web.free.downloads import BUNDLE_PATH
from tollgauge.web.free.lint import LINT_PATH
from tollgauge.web.mcp import PATH as MCP_PATH
from tollgauge.web.pages import snippets
from tollgauge.web.pages.render import render
from tollgauge.web.pages.snippets import Language
from tollgauge.web.paid.products import similar, trace, trust
from tollgauge.web.route import Route
from tollgauge.web.wire.examples import RESOURCE

AUTHORIZATION: Final = {"payer": f"0x{'11' * 20}", "nonce": f"0x{'22' * 32}"}
"""Placeholders for the payment trace of a lost response."""
_OVER_HTTP: Final = (Language.PYTHON, Language.TYPESCRIPT, Language.CURL)
_READERS_OWN: Final = frozenset({"delivery"})
"""Fields that only work with the reader's own values; the page omits them from examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocsEntry:
    """A route with its curl command.

    A paid route also has the call of its MCP tool. `larger` lists the larger tiers of the tool.
    """

    route: Route
    anchor: str
    command: str
    tool_call: str = ""
    larger: tuple[Route, ...] = ()


def docs_html(
    routes: tuple[Route, ...],
    *,
    base_url: str,
    resource: str | None,
    report: Offer | None,
    fingerprint: str | None,
    replaceable: str | None = None,
) -> bytes:
    """Render the API guide.

    Args:
        routes: The documented routes.
        base_url: The public address of the service.
        resource: A monitored resource for the examples; None uses a fictitious one.
        report: The offer of a trust report; None if sales are not configured.
        fingerprint: The fingerprint of the signing key; None if responses are not signed.
        replaceable: A resource with better alternatives, for the example of `similar`.
    """
    base, about = base_url.rstrip("/"), resource or RESOURCE
    network = report.network if report else ""
    free = [route for route in routes if route.micro_usd is None]
    sold = [route for route in routes if report and route.micro_usd is not None]
    paid = []
    for _, tiers in groupby(sold, lambda route: route.tool):
        smallest, *larger = tiers
        subject = replaceable if smallest.path == similar.PRODUCT.path else None
        paid.append(_entry(smallest, base, subject or about, larger=tuple(larger)))
    return render(
        "docs.html",
        base_url,
        free=[_entry(route, base, about) for route in free],
        paid=paid,
        programs=_programs(report, base, about) if report else [],
        lost=_lost_programs(report, about) if report else [],
        trace=snippets.post(base + trace.PRODUCT.path, AUTHORIZATION),
        languages=tuple(Language),
        network=network,
        resource=resource,
        command=_shell(about, base, network),
        guard=fingerprint and _guard(about, base, fingerprint),
    )


def _shell(resource: str, base: str, network: str) -> str:
    """Return the command that buys a report."""
    command = ["tollgauge", "buy", resource, "--service", base]
    return shlex.join(command if network == BASE else [*command, "--network", network])


def _guard(resource: str, base: str, fingerprint: str) -> str:
    """Return the commands that install the payment guard and check a resource."""
    lines = (
        ("pip", "install", "./guard/python[evm]"),
        ("export", f"TOLLGAUGE_GUARD_BUNDLE={base}{BUNDLE_PATH}"),
        ("export", f"TOLLGAUGE_GUARD_KEY={fingerprint}"),
        ("tollgauge-guard", "check", resource),
    )
    return "\n".join(shlex.join(line) for line in lines)


def _entry(route: Route, base: str, resource: str, *, larger: tuple[Route, ...] = ()) -> DocsEntry:
    if route.method == "GET":
        query = (route.example or "").replace(RESOURCE, quote(resource, safe="/:"))
        saving = f"-o {route.saved_as} " if route.saved_as else ""
        command = f"curl -s {saving}{shlex.quote(base + route.path + query)}"
    elif route.path == LINT_PATH:
        command = snippets.lint(base + route.path)
    else:
        command = snippets.post(base + route.path, _body(route.example, resource))
    arguments = orjson.dumps(_body(route.tool_example, resource)).decode()
    return DocsEntry(
        route=route,
        anchor=_anchor(route),
        command=command,
        tool_call=f"{route.tool} {arguments}" if route.tool else "",
        larger=larger,
    )


def _programs(report: Offer, base: str, resource: str) -> list[tuple[Language, str]]:
    """Return the program that buys a report, in each language."""
    order, network, tool = {"resource": resource}, report.network, trust.PRODUCT.tool.name
    mcp = snippets.buy(Language.MCP, base + MCP_PATH, order, network=network, tool=tool)
    return [
        *(
            (language, snippets.buy(language, report.resource, order, network=network))
            for language in _OVER_HTTP
        ),
        (Language.MCP, mcp),
    ]


def _lost_programs(report: Offer, resource: str) -> list[tuple[Language, str]]:
    order = {"resource": resource}
    return [
        (language, snippets.render_retry(language, report.resource, order, network=report.network))
        for language in _OVER_HTTP
    ]


def _anchor(route: Route) -> str:
    """Return the anchor of a route: `post-v1-similar` for `POST /v1/similar`."""
    name = "".join(char if char.isalnum() else "-" for char in f"{route.method}{route.path}")
    return "-".join(part for part in name.lower().split("-") if part)


def _body(example: str | None, resource: str) -> Any:
    """Return an example's JSON with its resource replaced."""
    body = orjson.loads(example) if example else {}
    return {
        name: _about(value, resource) for name, value in body.items() if name not in _READERS_OWN
    }


def _about(value: Any, resource: str) -> Any:
    if isinstance(value, list):
        return [_about(item, resource) for item in value]
    return resource if value == RESOURCE else value
