"""Files for machines: `/.well-known/x402`, `/llms.txt`, `/robots.txt`, the sitemap, and Atom feeds.

`/.well-known/x402` lists the paid routes for crawlers, in a convention that is not part of x402.
`/llms.txt` describes the service in Markdown (llmstxt.org). The sitemap is an index (sitemaps.org)
of parts with at most PART_MAX addresses; endpoints are partitioned by the first hex digits of their
IDs, which are evenly distributed (SHA-256). Feeds (RFC 4287) contain incidents: changes that a
watch with the default sensitivity reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from itertools import product
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from starlette.responses import PlainTextResponse, Response

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, day_of, dollars, iso_day, iso_seconds
from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.sale.signature import JWKS_PATH, SIGNATURE_HEADER
from tollgauge.core.watch import alert_text
from tollgauge.monitor import ranking
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.dependencies import Service, unknown_host
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.free.downloads import BUNDLE_PATH
from tollgauge.web.route import INVALID_QUERY, UNKNOWN_PAGE, Documented, Route, Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.examples import BASE_URL
from tollgauge.web.wire.lint_answers import RULES_PATH
from tollgauge.web.wire.parameters import EndpointId, Host, IncidentType, SitemapPart
from tollgauge.web.wire.response_model import ResponseModel
from tollgauge.web.wire.wallet_answers import wallet_path

FILES: Final = Routes(tag="free", cached=True)
FEEDS: Final = Routes(tag="free", cached=True)
WELL_KNOWN: Final = "/.well-known/x402"


class ResourcesResponse(ResponseModel):
    """The paid routes, each as `POST https://…`."""

    version: Literal[1]
    resources: list[str]


_EXAMPLE: Final = {"version": 1, "resources": [f"POST {BASE_URL}/v1/x402-trust"]}


@FILES.get(WELL_KNOWN, openapi.free(ResourcesResponse, _EXAMPLE))
async def well_known(service: Service, documented: Documented) -> Response:
    """List the paid routes. Routes with parameters in their path are left out."""
    sold = [
        f"{route.method} {service.base_url}{route.path}"
        for route in _select_sold(service, documented)
        if "{" not in route.path
    ]
    return json_response(ResourcesResponse(version=1, resources=sold))


@FILES.get("/llms.txt", openapi.page("text/plain"))
async def llms(service: Service, documented: Documented) -> Response:
    """Description of the service for language models."""
    paid = [f"{_line(service, route)}\n" for route in _select_sold(service, documented)]
    network = service.settings.network
    text = _read("llms.txt").format(
        free="\n".join(_line(service, route) for route in documented if route.micro_usd is None),
        paid="".join(paid),
        how=_read("llms_payment.txt").format(network=network) if paid else _NOT_FOR_SALE,
        base_url=service.base_url,
        bundle=BUNDLE_PATH,
        well_known=WELL_KNOWN,
        jwks=JWKS_PATH,
        header=SIGNATURE_HEADER,
    )
    return PlainTextResponse(text)


def _select_sold(service: Service, documented: Documented) -> list[Route]:
    sells = bool(service.settings.pay_to)
    return [route for route in documented if route.micro_usd is not None and sells]


def _line(service: Service, route: Route) -> str:
    query = route.example if route.method == "GET" else ""
    url = f"{service.base_url}{route.path}{query}"
    line = f"- [{route.method} {route.path}]({url})"
    if route.micro_usd is None:
        return f"{line}: {route.summary}"
    price = dollars(route.micro_usd)
    return f"{line}: {price}. {route.summary}. Body: `{route.example}`"


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


_NOT_FOR_SALE: Final = """\
Sales are not configured on this server: its operator has not set a payment address.
"""


XML: Final = "application/xml"
PART_MAX: Final = 2_000
"""Maximum addresses per part. Larger parts would be expensive to answer, and are public."""
PART_SIZE: Final = 1_000
"""Maximum average number of endpoints per part, far enough below PART_MAX."""
_DIGITS: Final = "0123456789abcdef"
_ENDPOINTS: Final = re.compile(r"endpoints(?:-([0-9a-f]{1,4}))?\.xml", re.ASCII)
_LIST: Final = re.compile(r"(providers|wallets)-([1-9][0-9]{0,5})\.xml", re.ASCII)
_LISTS: Final[dict[str, tuple[Any, Any, Callable[[str], str]]]] = {
    "providers": (
        rated_endpoints.count_hosts,
        rated_endpoints.hosts,
        lambda host: f"/provider/{quote(host)}",
    ),
    "wallets": (rated_endpoints.count_pay_tos, rated_endpoints.pay_tos, wallet_path),
}
"""Parts of up to PART_MAX rows: functions that count and read the rows, and a row's path."""
_PAGES: Final = "pages.xml"
_SCHEMA: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
PATHS: Final = (
    *("/", "/leaderboard", "/endpoints", "/incidents", "/statistics", "/facilitators"),
    *("/directories", "/compare", "/methodology", "/calibration", "/docs", "/lint", RULES_PATH),
    *(f"{RULES_PATH}/{rule.slug}" for rule in ALL_RULES),
)
"""The fixed pages."""
_ROBOTS: Final = """\
User-agent: *
Allow: /
Disallow: {root}/compare?
Disallow: {root}/endpoint/*/upgrade
Sitemap: {base_url}/sitemap.xml
"""


@FILES.get("/robots.txt", openapi.page("text/plain"))
async def robots(service: Service) -> Response:
    """Rules for crawlers."""
    root = urlsplit(service.base_url).path
    return PlainTextResponse(_ROBOTS.format(root=root, base_url=service.base_url))


@FILES.get("/sitemap.xml", openapi.page(XML))
async def index(service: Service) -> Response:
    """Index of the sitemap."""
    counted = await service.read_now(ranking.current)
    names = [_PAGES, *_endpoint_parts(counted.listed + counted.delisted)]
    for kind, (count, _, _) in _LISTS.items():
        size = await service.store.reading(count)
        names += [f"{kind}-{number + 1}.xml" for number in range(-(-size // PART_MAX))]
    parts = [f"<sitemap>{_loc(service, f'/sitemap/{name}')}</sitemap>" for name in names]
    return _document("sitemapindex", parts)


@FILES.get(
    "/sitemap/{name}", openapi.page(XML, own={404: "The sitemap has no part with this name"})
)
async def part(service: Service, name: SitemapPart) -> Response:
    """Part of the sitemap. Raises Problem 404 for an unknown name."""
    reading = service.store.reading
    pages: Iterable[tuple[str, int | None]]
    if name == _PAGES:
        pages = [(path, None) for path in PATHS]
    elif (match := _ENDPOINTS.fullmatch(name)) is not None:
        endpoints = await reading(rated_endpoints.with_prefix, match[1] or "", limit=PART_MAX)
        pages = [(f"/endpoint/{id_}", at) for id_, at in endpoints]
    elif (match := _LIST.fullmatch(name)) is not None:
        _, read, path_of = _LISTS[match[1]]
        rows = await reading(read, offset=(int(match[2]) - 1) * PART_MAX, limit=PART_MAX)
        pages = [(path_of(row), None) for row in rows]
    else:
        raise Problem(404, "unknown-part", "The sitemap has no part with this name.")
    urls = [f"<url>{_loc(service, path)}{_last_change(at)}</url>" for path, at in pages if path]
    return _document("urlset", urls)


def _loc(service: Service, path: str) -> str:
    return f"<loc>{escape(service.base_url + path)}</loc>"


def _last_change(at: int | None) -> str:
    return "" if at is None else f"<lastmod>{iso_day(at)}</lastmod>"


def _endpoint_parts(count: int) -> list[str]:
    """Return the names of the parts for `count` endpoints."""
    digits = 0
    while count > PART_SIZE * 16**digits:
        digits += 1
    if not digits:
        return ["endpoints.xml"]
    return [f"endpoints-{''.join(prefix)}.xml" for prefix in product(_DIGITS, repeat=digits)]


def _document(root: str, elements: list[str]) -> Response:
    body = "\n".join(
        ['<?xml version="1.0" encoding="UTF-8"?>', f'<{root} xmlns="{_SCHEMA}">', *elements]
    )
    return Response(f"{body}\n</{root}>\n", media_type=XML)


ATOM: Final = "application/atom+xml"
NAMESPACE: Final = "http://www.w3.org/2005/Atom"
ENTRIES: Final = 50
_TEXT_MAX: Final = 1_000


@FEEDS.get("/endpoint/{id}/feed.xml", openapi.page(ATOM, own=UNKNOWN_PAGE), name="feed_of_endpoint")
async def endpoint_feed(service: Service, endpoint_id: EndpointId) -> Response:
    """Incidents of an endpoint (Atom)."""
    endpoint = await service.read_endpoint(rated_endpoints.get_public, endpoint_id)
    incidents = await service.store.reading(changes.public, endpoint_id=endpoint_id, limit=ENTRIES)
    path = f"/endpoint/{endpoint_id}"
    return _feed(service, path, endpoint.resource, endpoint.first_seen, incidents)


@FEEDS.get(
    "/provider/{host}/feed.xml", openapi.page(ATOM, own=UNKNOWN_PAGE), name="feed_of_provider"
)
async def provider_feed(service: Service, host: Host) -> Response:
    """Incidents of a provider (Atom)."""
    name, store = host.lower(), service.store
    best = await store.reading(rated_endpoints.of_host, name, limit=1)
    if not best:
        raise unknown_host()
    incidents = await store.reading(changes.public, host=name, limit=ENTRIES)
    return _feed(service, f"/provider/{name}", name, best[0].first_seen, incidents)


@FEEDS.get(
    "/incidents/feed.xml",
    openapi.page(ATOM, own=INVALID_QUERY),
    name="feed_of_all",
    strict_query=True,
)
async def feed(service: Service, kind: IncidentType = None) -> Response:
    """Incidents of all endpoints (Atom). `type` selects one type."""
    incidents = await service.store.reading(changes.public_since, since=0, kind=kind, limit=ENTRIES)
    name = "all endpoints" if kind is None else f"all endpoints: {alert_text.TITLES[kind]}"
    query = "" if kind is None else f"?type={kind}"
    today = day_of(service.clock()) * DAY_MS
    return _feed(service, "/incidents", name, today, incidents, query=query)


def _feed(
    service: Service,
    path: str,
    name: str,
    first_seen: int,
    incidents: Sequence[Incident],
    *,
    query: str = "",
) -> Response:
    url = f"{service.base_url}{path}"
    feed = ET.Element("feed", xmlns=NAMESPACE)
    _add(feed, "id", f"{url}/feed.xml{query}")
    _add(feed, "title", f"Incidents of {name}")
    newest = max((incident.change.at for incident in incidents), default=first_seen)
    _add(feed, "updated", iso_seconds(newest))
    ET.SubElement(feed, "link", rel="self", type=ATOM, href=f"{url}/feed.xml{query}")
    ET.SubElement(feed, "link", rel="alternate", type="text/html", href=f"{url}{query}")
    author = ET.SubElement(feed, "author")
    _add(author, "name", "tollgauge")
    for incident in incidents:
        _entry(service, feed, incident)
    body: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return Response(body, media_type=ATOM)


def _entry(service: Service, feed: ET.Element, incident: Incident) -> None:
    change = incident.change
    entry = ET.SubElement(feed, "entry")
    page = page_url(service.base_url, incident.endpoint_id)
    _add(entry, "id", f"{page}#flip-{incident.id}")
    title = alert_text.TITLES.get(change.type, change.type)
    _add(entry, "title", f"{title}: {incident.resource}")
    _add(entry, "updated", iso_seconds(change.at))
    _add(entry, "published", iso_seconds(change.at))
    ET.SubElement(entry, "link", rel="alternate", type="text/html", href=page)
    ET.SubElement(entry, "category", term=change.type)
    _add(entry, "summary", clean_text(change.reason, _TEXT_MAX))


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = text
