"""`GET /docs`: every documented route, with programs to copy.

A free route has a command for curl. A paid one has a program in each language of
web/pages/snippets; radio buttons choose which is shown, by style alone. The one script
(static/copy.js) adds buttons that copy; without it the text is selected by hand.
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
"""What somebody asks about who lost an answer, for the reader to fill in."""
_OVER_HTTP: Final = (Language.PYTHON, Language.TYPESCRIPT, Language.CURL)
_READERS_OWN: Final = frozenset({"delivery"})
"""Fields of examples that only work with the reader's own values: the page leaves them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocsEntry:
    """A route with its programs; a free one has only `command`. `larger` are routes that the same
    programs can call: those of larger tiers of the same tool.
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
    """How to ask. `report` is the offer of a trust report, None while nothing is sold. Examples ask
    about `resource`, which is monitored here; without one, about an invented one. `fingerprint` is
    that of the key that signs, None while nothing is signed. `replaceable` is a resource that has
    better alternatives, for the example of the route that sells them.
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
    """The command that buys a report."""
    words = ["tollgauge", "buy", resource, "--service", base]
    return shlex.join(words if network == BASE else [*words, "--network", network])


def _guard(resource: str, base: str, fingerprint: str) -> str:
    """The commands that set up the payment guard in a checkout, and ask it."""
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
    """Return the entry of the routes that share a tool."""
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
    """`post-v1-similar` of `POST /v1/similar`."""
    name = "".join(char if char.isalnum() else "-" for char in f"{route.method}{route.path}")
    return "-".join(part for part in name.lower().split("-") if part)


def _body(example: str | None, resource: str) -> Any:
    """An example's JSON, about a resource that is known here."""
    body = orjson.loads(example) if example else {}
    return {
        name: _about(value, resource) for name, value in body.items() if name not in _READERS_OWN
    }


def _about(value: Any, resource: str) -> Any:
    if isinstance(value, list):
        return [_about(item, resource) for item in value]
    return resource if value == RESOURCE else value
