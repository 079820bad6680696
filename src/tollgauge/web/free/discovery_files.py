"""Files for machines: `/.well-known/x402`, `/llms.txt`, `/robots.txt`, the sitemap, and Atom feeds.

`/.well-known/x402` lists the paid routes for crawlers, in a convention that is not part of x402.
`/llms.txt` describes the service in Markdown (llmstxt.org). The sitemap is an index (sitemaps.org)
of parts with at most PART_MAX addresses; endpoints are partitioned by the first hex digits of their
IDs, which are evenly distributed (SHA-256). Feeds (RFC 4287) contain incidents: changes that a
watch with the default sensitivity reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import product
from typing import Final, Literal
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
from tollgauge.web.dependencies import Dependencies, unknown_host
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.free.downloads import BUNDLE_PATH
from tollgauge.web.paid.product import PaidDependencies
from tollgauge.web.route import DocumentedRoute
from tollgauge.web.wire.lint_answers import RULES_PATH
from tollgauge.web.wire.parameters import EndpointId, Host, IncidentType, SitemapPart
from tollgauge.web.wire.response_model import ResponseModel
from tollgauge.web.wire.wallet_answers import wallet_path

WELL_KNOWN: Final = "/.well-known/x402"
LLMS: Final = "/llms.txt"


class ResourcesResponse(ResponseModel):
    """The paid routes, each as `POST https://…`."""

    version: Literal[1]
    resources: list[str]


@dataclass(frozen=True, slots=True)
class DiscoveryFiles:
    """Handlers of both files; `routes` are the documented routes."""

    dependencies: PaidDependencies
    routes: tuple[DocumentedRoute, ...]

    async def well_known(self) -> Response:
        """Return the paid routes."""
        return json_response(ResourcesResponse(version=1, resources=self.list_paid_routes()))

    async def llms(self) -> Response:
        """Return the description of the service."""
        return PlainTextResponse(self._text())

    def list_paid_routes(self) -> list[str]:
        """List the paid routes without path parameters."""
        return [
            f"{route.method} {self.dependencies.base_url}{route.path}"
            for route in self._select_paid()
            if "{" not in route.path
        ]

    def _select_paid(self) -> list[DocumentedRoute]:
        sells = bool(self.dependencies.settings.pay_to)
        return [route for route in self.routes if route.micro_usd is not None and sells]

    def _text(self) -> str:
        paid = [f"{self._line(route)}\n" for route in self._select_paid()]
        network = self.dependencies.settings.network
        return _read("llms.txt").format(
            free="\n".join(self._line(route) for route in self.routes if route.micro_usd is None),
            paid="".join(paid),
            how=_read("llms_payment.txt").format(network=network) if paid else _NOT_FOR_SALE,
            base_url=self.dependencies.base_url,
            bundle=BUNDLE_PATH,
            well_known=WELL_KNOWN,
            jwks=JWKS_PATH,
            header=SIGNATURE_HEADER,
        )

    def _line(self, route: DocumentedRoute) -> str:
        query = route.example if route.method == "GET" else ""
        url = f"{self.dependencies.base_url}{route.path}{query}"
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
_PROVIDERS: Final = re.compile(r"providers-([1-9][0-9]{0,5})\.xml", re.ASCII)
_WALLETS: Final = re.compile(r"wallets-([1-9][0-9]{0,5})\.xml", re.ASCII)
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


@dataclass(frozen=True, slots=True)
class Sitemap:
    """Handlers of the files and parts."""

    dependencies: Dependencies

    async def robots(self) -> Response:
        """Return the rules for crawlers."""
        base_url = self.dependencies.base_url
        root = urlsplit(base_url).path
        return PlainTextResponse(_ROBOTS.format(root=root, base_url=base_url))

    async def index(self) -> Response:
        """Return the index of the sitemap."""
        counted = await self.dependencies.read_now(ranking.current)
        known = await self.dependencies.store.reading(rated_endpoints.count_hosts)
        pay_tos = await self.dependencies.store.reading(rated_endpoints.count_pay_tos)
        names = [
            _PAGES,
            *_endpoint_parts(counted.listed + counted.delisted),
            *(f"providers-{number + 1}.xml" for number in range(-(-known // PART_MAX))),
            *(f"wallets-{number + 1}.xml" for number in range(-(-pay_tos // PART_MAX))),
        ]
        parts = [f"<sitemap>{self._loc(f'/sitemap/{name}')}</sitemap>" for name in names]
        return _document("sitemapindex", parts)

    async def part(self, name: SitemapPart) -> Response:
        """Return one part. Raises Problem 404 for an unknown name."""
        reading = self.dependencies.store.reading
        if name == _PAGES:
            return self._urls((path, None) for path in PATHS)
        if (match := _ENDPOINTS.fullmatch(name)) is not None:
            endpoints = await reading(rated_endpoints.with_prefix, match[1] or "", limit=PART_MAX)
            return self._urls((f"/endpoint/{id_}", at) for id_, at in endpoints)
        if (match := _PROVIDERS.fullmatch(name)) is not None:
            offset = (int(match[1]) - 1) * PART_MAX
            providers = await reading(rated_endpoints.hosts, offset=offset, limit=PART_MAX)
            return self._urls((f"/provider/{quote(host)}", None) for host in providers)
        if (match := _WALLETS.fullmatch(name)) is not None:
            offset = (int(match[1]) - 1) * PART_MAX
            pay_tos = await reading(rated_endpoints.pay_tos, offset=offset, limit=PART_MAX)
            paths = filter(None, map(wallet_path, pay_tos))
            return self._urls((path, None) for path in paths)
        raise Problem(404, "unknown-part", "The sitemap has no part with this name.")

    def _urls(self, pages: Iterable[tuple[str, int | None]]) -> Response:
        """Build a part from (path, time of the last change in ms UTC)."""
        return _document(
            "urlset",
            [
                f"<url>{self._loc(path)}</url>"
                if at is None
                else f"<url>{self._loc(path)}<lastmod>{iso_day(at)}</lastmod></url>"
                for path, at in pages
            ],
        )

    def _loc(self, path: str) -> str:
        return f"<loc>{escape(self.dependencies.base_url + path)}</loc>"


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


@dataclass(frozen=True, slots=True)
class Feeds:
    """Handlers of the feeds."""

    dependencies: Dependencies

    async def of_endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """Return the feed of an endpoint."""
        endpoint = await self.dependencies.read_endpoint(rated_endpoints.get_public, id)
        incidents = await self.dependencies.store.reading(
            changes.public, endpoint_id=id, limit=ENTRIES
        )
        return self._feed(f"/endpoint/{id}", endpoint.resource, endpoint.first_seen, incidents)

    async def of_provider(self, host: Host) -> Response:
        """Return the feed of a host."""
        name, store = host.lower(), self.dependencies.store
        best = await store.reading(rated_endpoints.of_host, name, limit=1)
        if not best:
            raise unknown_host()
        incidents = await store.reading(changes.public, host=name, limit=ENTRIES)
        return self._feed(f"/provider/{name}", name, best[0].first_seen, incidents)

    async def of_all(self, type: IncidentType = None) -> Response:  # noqa: A002 - the query's name
        """Return the feed of all endpoints, optionally of one type of incident."""
        read = partial(changes.public_since, since=0, kind=type, limit=ENTRIES)
        incidents = await self.dependencies.store.reading(read)
        name = "all endpoints" if type is None else f"all endpoints: {alert_text.TITLES[type]}"
        query = "" if type is None else f"?type={type}"
        today = day_of(self.dependencies.clock()) * DAY_MS
        return self._feed("/incidents", name, today, incidents, query=query)

    def _feed(
        self,
        path: str,
        name: str,
        first_seen: int,
        incidents: Sequence[Incident],
        *,
        query: str = "",
    ) -> Response:
        url = f"{self.dependencies.base_url}{path}"
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
            self._entry(feed, incident)
        body: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
        return Response(body, media_type=ATOM)

    def _entry(self, feed: ET.Element, incident: Incident) -> None:
        change = incident.change
        entry = ET.SubElement(feed, "entry")
        page = page_url(self.dependencies.base_url, incident.endpoint_id)
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
