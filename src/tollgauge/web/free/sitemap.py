"""`/robots.txt` and `/sitemap.xml`: which pages there are, for search engines.

`/sitemap.xml` is an index (sitemaps.org): one part for the pages of the site, some for endpoints
and some for providers, each of at most PART_MAX addresses. The parts of the endpoints are those
whose ids begin with the same hex digits: ids are spread evenly (SHA-256), so that how many digits
are needed follows from the kept counts, and a part is read in the order of the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from starlette.responses import PlainTextResponse, Response

from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.monitor import ranking
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.wire.lint_answers import RULES_PATH
from tollgauge.web.wire.parameters import SitemapPart
from tollgauge.web.wire.response_model import day

XML: Final = "application/xml"
PART_MAX: Final = 2_000
"""More take as long as several pages, and anyone may ask for a part."""
EXPECTED: Final = 1_000
"""How many endpoints a part has at most on average: far enough below PART_MAX."""
_DIGITS: Final = "0123456789abcdef"
_ENDPOINTS: Final = re.compile(r"endpoints(?:-([0-9a-f]{1,4}))?\.xml", re.ASCII)
_PROVIDERS: Final = re.compile(r"providers-([1-9][0-9]{0,5})\.xml", re.ASCII)
_PAGES: Final = "pages.xml"
_SCHEMA: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
PATHS: Final = (
    *("/", "/leaderboard", "/endpoints", "/incidents", "/statistics", "/compare", "/methodology"),
    *("/calibration", "/docs", "/lint", RULES_PATH),
    *(f"{RULES_PATH}/{rule.slug}" for rule in ALL_RULES),
)
"""The pages of the site itself."""
_ROBOTS: Final = """\
User-agent: *
Allow: /
Disallow: {root}/compare?
Disallow: {root}/endpoint/*/upgrade
Sitemap: {base_url}/sitemap.xml
"""


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The handlers of both files and of the parts."""

    dependencies: Dependencies

    async def robots(self) -> Response:
        """What crawlers may read."""
        base_url = self.dependencies.base_url
        root = urlsplit(base_url).path
        return PlainTextResponse(_ROBOTS.format(root=root, base_url=base_url))

    async def index(self) -> Response:
        """The parts of the sitemap."""
        counted = await self.dependencies.read_now(ranking.current)
        known = await self.dependencies.store.reading(rated_endpoints.count_hosts)
        names = [
            _PAGES,
            *_endpoint_parts(counted.listed + counted.delisted),
            *(f"providers-{number + 1}.xml" for number in range(-(-known // PART_MAX))),
        ]
        parts = [f"<sitemap>{self._loc(f'/sitemap/{name}')}</sitemap>" for name in names]
        return _document("sitemapindex", parts)

    async def part(self, name: SitemapPart) -> Response:
        """The addresses of one part. Raises Problem 404 for one that cannot be."""
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
        raise Problem(404, "unknown-part", "The sitemap has no such part.")

    def _urls(self, pages: Iterable[tuple[str, int | None]]) -> Response:
        """A part of pages, each with its path and when it was last changed (ms UTC)."""
        return _document(
            "urlset",
            [
                f"<url>{self._loc(path)}</url>"
                if at is None
                else f"<url>{self._loc(path)}<lastmod>{day(at)}</lastmod></url>"
                for path, at in pages
            ],
        )

    def _loc(self, path: str) -> str:
        return f"<loc>{escape(self.dependencies.base_url + path)}</loc>"


def _endpoint_parts(count: int) -> list[str]:
    """The names of the parts of so many endpoints."""
    digits = 0
    while count > EXPECTED * 16**digits:
        digits += 1
    if not digits:
        return ["endpoints.xml"]
    return [f"endpoints-{''.join(prefix)}.xml" for prefix in product(_DIGITS, repeat=digits)]


def _document(root: str, elements: list[str]) -> Response:
    body = "\n".join(
        ['<?xml version="1.0" encoding="UTF-8"?>', f'<{root} xmlns="{_SCHEMA}">', *elements]
    )
    return Response(f"{body}\n</{root}>\n", media_type=XML)
