"""Feeds show public incidents and are found from their pages."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

from tests.support.watch_service import (
    ID,
    QUOTE,
    RESOURCE,
    WatchService,
)


async def test_feeds_show_public_incidents(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    await watch_service.list_it()
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    for _ in range(2):
        await watch_service.probe(up=False, minutes=30)
    for url in (f"/endpoint/{ID}/feed.xml", "/provider/API.example.com/feed.xml"):
        answer = await watch_service.running.get(url)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/atom+xml"
        assert "etag" in answer.headers
        feed = ET.fromstring(answer.content)
        atom = "{http://www.w3.org/2005/Atom}"
        titles = [entry.findtext(f"{atom}title") for entry in feed.iter(f"{atom}entry")]
        assert titles == [f"Down: {RESOURCE}", f"payTo address changed: {RESOURCE}"]
        terms = [entry.get("term") for entry in feed.iter(f"{atom}category")]
        assert terms == ["liveness_down", "payto_change"]
        ids = [entry.text for entry in feed.iter(f"{atom}id")]
        assert len(ids) == len(set(ids)) == 3
    assert bought["watch_id"] not in answer.text
    for url in ("/endpoint/0000000000000000/feed.xml", "/provider/none.example/feed.xml"):
        assert (await watch_service.running.get(url)).status_code == 404


async def test_pages_link_their_feeds(watch_service: WatchService) -> None:
    await watch_service.buy()
    await watch_service.list_it()
    for page in (f"/endpoint/{ID}", "/provider/api.example.com"):
        answer = await watch_service.running.get(page, headers={"Accept": "text/html"})
        match = re.search(r'<link rel="alternate" type="application/atom\+xml"[^>]*>', answer.text)
        assert match is not None, page
        href = re.search(r'href="([^"]+)"', match.group())
        assert href is not None
        assert href.group(1).endswith(f"{page}/feed.xml")
        assert (await watch_service.running.get(href.group(1))).status_code == 200
    board = await watch_service.running.get("/leaderboard", headers={"Accept": "text/html"})
    assert "application/atom+xml" not in board.text
