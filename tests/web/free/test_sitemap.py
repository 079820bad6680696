"""The sitemap names every public page, and only such."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import pytest_asyncio
from tests.support.http_service import BASE, Running, configuration, open_service
from tests.support.score_rows import endpoint

from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.web import routes
from tollgauge.web.free import discovery_files

pytestmark = pytest.mark.asyncio(loop_scope="module")
_XML = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("sitemap") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


async def locations(running: Running, path: str) -> list[str]:
    answer = await running.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/xml")
    return [str(loc.text) for loc in ET.fromstring(answer.content).iter(f"{_XML}loc")]


async def test_robots_txt_links_the_sitemap(running: Running) -> None:
    text = (await running.get("/robots.txt")).text
    assert f"Sitemap: {BASE}/sitemap.xml" in text.splitlines()


async def test_sitemap_pages_exist_and_are_canonical(running: Running) -> None:
    parts = await locations(running, "/sitemap.xml")
    assert parts == [
        f"{BASE}/sitemap/{name}"
        for name in ("pages.xml", "endpoints.xml", "providers-1.xml", "wallets-1.xml")
    ]
    pages = [page for part in parts for page in await locations(running, part)]
    assert len(pages) == len(set(pages)) > 100
    for page in pages[:20] + pages[-5:]:
        answer = await running.get(page, headers={"Accept": "text/html"})
        assert answer.status_code == 200, page
        assert f'<link rel="canonical" href="{page}">' in answer.text


async def test_sitemap_contains_all_indexable_pages(running: Running) -> None:
    pages = await locations(running, "/sitemap/pages.xml")
    named = [row for row in routes.table(running.service.server()) if row.tag == "pages"]
    for row in named:
        if row.method == "GET" and "{" not in row.path:
            answer = await running.get(row.path, headers={"Accept": "text/html"})
            if '<link rel="canonical"' in answer.text and "noindex" not in answer.text:
                assert f"{BASE}{row.path}" in pages
    assert {f"{BASE}/lint/rules/{rule.slug}" for rule in ALL_RULES} <= set(pages)


async def test_unknown_sitemap_part_returns_404(running: Running) -> None:
    for name in ("x.xml", "endpoints-g.xml", "providers-0.xml", "endpoints-00000.xml", "pages"):
        assert (await running.get(f"/sitemap/{name}")).status_code == 404


async def test_sitemap_parts_contain_each_endpoint_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = [await locations(running, "/sitemap/endpoints.xml")]
    monkeypatch.setattr(discovery_files, "PART_SIZE", 20)
    parts = [
        part for part in await locations(running, "/sitemap.xml?again") if "/endpoints" in part
    ]
    assert len(parts) == 16
    assert [page for part in parts for page in await locations(running, part)] == whole


@pytest.mark.asyncio(loop_scope="function")
async def test_sitemap_omits_endpoints_that_are_not_public(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/listed"))
    await store.writing(endpoints.insert, endpoint("/asked", host="b.com"), adopted=True)
    listed = endpoint("/listed")
    read = await store.reading(rated_endpoints.with_prefix, listed.id[:2], limit=9)
    assert read == ((listed.id, None),)
    assert await store.reading(rated_endpoints.with_prefix, "", limit=9) == ((listed.id, None),)
    assert await store.reading(rated_endpoints.hosts, offset=0, limit=9) == ("a.com",)
    assert await store.reading(rated_endpoints.hosts, offset=1, limit=9) == ()
