"""`GET /docs`: the API guide, with examples for every documented route.

Free routes have a curl command, paid routes a program in each language of web/pages/snippets. Radio
buttons and CSS select the language. A script (static/copy.js) adds copy buttons; the page works
without it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

import orjson

from tollgauge.core.base.units import BASE
from tollgauge.core.sale.payment import Offer
from tollgauge.web.free.bundle_download import PATH as BUNDLE_PATH
from tollgauge.web.mcp import PATH as MCP_PATH
from tollgauge.web.pages import snippets
from tollgauge.web.pages.render import render
from tollgauge.web.pages.snippets import Language
from tollgauge.web.paid.products import similar, trace
from tollgauge.web.route import DocumentedRoute
from tollgauge.web.wire.examples import RESOURCE

AUTHORIZATION: Final = {"payer": f"0x{'11' * 20}", "nonce": f"0x{'22' * 32}"}
"""Placeholders for the payment trace of a lost response."""
_OVER_HTTP: Final = (Language.PYTHON, Language.TYPESCRIPT, Language.CURL)
_READERS_OWN: Final = frozenset({"delivery"})
"""Fields that only work with the reader's own values; the page omits them from examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocsEntry:
    """A route with its examples.

    A free route has only `command`. `larger` lists the larger tiers of the same tool, which the
    same programs can call.
    """

    route: DocumentedRoute
    anchor: str
    larger: tuple[DocumentedRoute, ...] = ()
    command: str = ""
    programs: tuple[tuple[Language, str], ...] = ()


def docs_html(
    routes: tuple[DocumentedRoute, ...],
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
    paid = [
        _paid(tuple(group), base, about, network, replaceable=replaceable)
        for _, group in groupby(sold, lambda route: route.tool)
    ]
    order = {"resource": about}
    lost = [
        (language, snippets.lost(language, report.resource, order, network=network))
        for language in _OVER_HTTP
        if report
    ]
    trace_url = base + trace.PRODUCT.path
    tracing = [
        (language, snippets.buy(language, trace_url, dict(AUTHORIZATION), network=network))
        for language in _OVER_HTTP
        if report
    ]
    return render(
        "docs.html",
        base_url,
        free=[_free(route, base, about) for route in free],
        paid=paid,
        lost=lost,
        trace=tracing,
        languages=tuple(Language),
        network=network,
        resource=resource,
        command=_shell(about, base, network),
        guard=fingerprint and _guard(about, base, fingerprint),
    )


def _shell(resource: str, base: str, network: str) -> str:
    """Return the command that buys a report."""
    words = ["tollgauge", "buy", resource, "--service", base]
    return shlex.join(words if network == BASE else [*words, "--network", network])


def _guard(resource: str, base: str, fingerprint: str) -> str:
    """Return the commands that install the payment guard and check a resource."""
    lines = (
        ("pip", "install", "./guard/python[evm]"),
        ("export", f"TOLLGAUGE_GUARD_BUNDLE={base}{BUNDLE_PATH}"),
        ("export", f"TOLLGAUGE_GUARD_KEY={fingerprint}"),
        ("tollgauge-guard", "check", resource),
    )
    return "\n".join(shlex.join(line) for line in lines)


def _free(route: DocumentedRoute, base: str, resource: str) -> DocsEntry:
    if route.method == "GET":
        query = (route.example or "").replace(RESOURCE, quote(resource, safe="/:"))
        saving = f"-o {route.saved_as} " if route.saved_as else ""
        command = f"curl -s {saving}{shlex.quote(base + route.path + query)}"
    else:
        command = snippets.post(base + route.path, _body(route.example, resource))
    return DocsEntry(route=route, anchor=_anchor(route), command=command)


def _paid(
    routes: tuple[DocumentedRoute, ...],
    base: str,
    resource: str,
    network: str,
    *,
    replaceable: str | None,
) -> DocsEntry:
    """Build the entry of the routes that share a tool."""
    route, *larger = routes
    if route.path == similar.PRODUCT.path:
        resource = replaceable or resource
    programs = tuple(_programs(route, base, resource, network))
    return DocsEntry(route=route, anchor=_anchor(route), larger=tuple(larger), programs=programs)


def _programs(
    route: DocumentedRoute, base: str, resource: str, network: str
) -> Iterator[tuple[Language, str]]:
    body = _body(route.example, resource)
    for language in _OVER_HTTP:
        yield language, snippets.buy(language, base + route.path, body, network=network)
    if route.tool:
        arguments = _body(route.tool_example, resource)
        yield (
            Language.MCP,
            snippets.buy(
                Language.MCP, base + MCP_PATH, arguments, network=network, tool=route.tool
            ),
        )


def _anchor(route: DocumentedRoute) -> str:
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
