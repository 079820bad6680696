"""The page of incidents: what changed, with its evidence, by type and by day."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.support.page_reader import BASE, HOSTILE, Reader
from tests.support.watch_service import ID, QUOTE, RESOURCE, WatchService

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.watch import changes as core_changes
from tollgauge.core.watch.changes import Change
from tollgauge.monitor.reports.overview import PAGE_ROWS, Incidents, incidents
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.pages.overview_pages import incidents_html

NOW = 1_795_000_000_000
BROWSER = {"Accept": "text/html"}
OTHER_PAYTO = "0x" + "dd" * 20


def change(kind: str = core_changes.PAYTO, *, at: int = NOW, text: str = "0xab") -> Change:
    return Change(
        type=kind,
        at=at,
        severity=Severity.ERROR,
        reason=f"It changed: {text}",
        before={"payTo": "0xcd", "brokenRules": []},
        after={"payTo": text, "brokenRules": [text]},
        evidence={
            "source": text,
            "outcome": text,
            "probeAt": at,
            "status": 402,
            "rules": [{"rule": text, "severity": "error", "message": text}],
        },
    )


def incident(number: int = 1, *, text: str = "0xab") -> Incident:
    resource = f"https://api.example.com/{text}"
    return Incident(
        id=number, endpoint_id=ID, change=change(text=text), resource=resource, simulated=False
    )


def page(*rows: Incident, kind: str | None = None) -> Reader:
    shown = Incidents(today=NOW // DAY_MS, days=7, kind=kind, rows=rows)
    return Reader(incidents_html(shown, base_url=BASE))


async def insert_change(service: WatchService) -> None:
    """A listed endpoint whose payTo changes, and which then goes down."""
    await service.buy()
    await service.list_it()
    await service.probe()
    await service.probe(quote=replace(QUOTE, pay_to=OTHER_PAYTO))
    for _ in range(2):
        await service.probe(up=False, minutes=30)


async def get(service: WatchService, path: str) -> str:
    answer = await service.running.get(path, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


async def test_incident_is_shown_with_its_evidence(watch_service: WatchService) -> None:
    await insert_change(watch_service)
    shown = await get(watch_service, "/incidents")
    words = Reader(shown.encode()).words
    assert words.index("Down: 2 checks in a row failed") < words.index("Payments go to another")
    assert f"payTo: {QUOTE.pay_to} → became {OTHER_PAYTO}" in words
    assert "Outcome: timeout" in words
    assert "Source: probe" in words
    assert f'href="/endpoint/{ID}"' in shown
    assert RESOURCE in words


async def test_links_filter_incidents_by_type(watch_service: WatchService) -> None:
    await insert_change(watch_service)
    links = re.findall(r'href="(/incidents\?type=[^"]*)"', await get(watch_service, "/incidents"))
    assert {link.partition("=")[2] for link in links} == set(core_changes.EVENTS)
    for link in links:
        shown = await get(watch_service, link)
        kind = link.partition("=")[2]
        assert ("Payments go to another" in shown) == (kind == "payto_change")
        assert ("No incidents of this type since" in shown) == (
            kind not in {"payto_change", "liveness_down"}
        )


async def test_todays_incidents_end_at_midnight(watch_service: WatchService) -> None:
    await insert_change(watch_service)
    watch_service.clock.now += DAY_MS
    assert "Payments go to another" not in await get(watch_service, "/incidents?days=1")
    assert "Payments go to another" in await get(watch_service, "/incidents")


async def test_pages_reach_the_last_incident(watch_service: WatchService) -> None:
    await insert_change(watch_service)
    now, count = watch_service.clock(), 2 * PAGE_ROWS + 3
    new = [(ID, change(at=now - number, text=f"<{number}>")) for number in range(count)]
    await watch_service.store.writing(changes.add, new)
    path: str | None = "/incidents?type=payto_change&days=1"
    seen: list[str] = []
    while path is not None:
        shown = await get(watch_service, path)
        seen += re.findall(r"It changed: <(\d+)>", shown)
        following = re.search(r'rel="next" href="([^"]*)"', shown)
        path = following and following[1]
    assert [int(number) for number in seen] == list(range(count))


async def test_rejects_invalid_queries(watch_service: WatchService) -> None:
    for query in ("type=none", "days=0", "days=91", "days=x", "after=0"):
        answer = await watch_service.running.get(f"/incidents?{query}")
        assert answer.status_code == 422, query
    detail = (await watch_service.running.get("/incidents?days=91")).json()["detail"]
    assert detail == "days must be less than or equal to 90."
    detail = (await watch_service.running.get("/incidents?type=none")).json()["detail"]
    assert detail.startswith("type must be 'payto_change', ")


async def test_unlisted_endpoint_that_never_sold_has_no_public_incident(
    watch_service: WatchService,
) -> None:
    await watch_service.buy()
    await watch_service.store.writing(changes.add, [(ID, change(at=watch_service.clock()))])
    assert "It changed" not in await get(watch_service, "/incidents")
    await watch_service.list_it()
    shown = await watch_service.store.reading(incidents, None, 7, None, now=watch_service.clock())
    assert [row.change.reason for row in shown.rows] == ["It changed: 0xab"]


async def test_feed_has_the_incidents_of_the_page(watch_service: WatchService) -> None:
    await insert_change(watch_service)
    atom = "{http://www.w3.org/2005/Atom}"
    for query, whose, kinds in (
        ("", "all endpoints", ["Down", "payTo address changed"]),
        (
            "?type=payto_change",
            "all endpoints: payTo address changed",
            ["payTo address changed"],
        ),
        ("?type=delisting", "all endpoints: Delisted", []),
    ):
        answer = await watch_service.running.get(f"/incidents/feed.xml{query}")
        assert answer.headers["content-type"] == "application/atom+xml"
        feed = ET.fromstring(answer.content)
        titles = [entry.findtext(f"{atom}title") for entry in feed.iter(f"{atom}entry")]
        assert titles == [f"{kind}: {RESOURCE}" for kind in kinds]
        assert feed.findtext(f"{atom}title") == f"Incidents of {whose}"
        own = next(link for link in feed.iter(f"{atom}link") if link.get("rel") == "self")
        assert (own.get("href") or "").endswith(f"/incidents/feed.xml{query}")
    shown = await get(watch_service, "/incidents?type=payto_change")
    assert 'href="/incidents/feed.xml?type=payto_change"' in shown
    assert (await watch_service.running.get("/incidents/feed.xml?type=x")).status_code == 422


@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_texts_of_an_incident(text: str) -> None:
    reader = page(incident(text=text))
    assert "1337" not in reader.words
    for tag, attrs in reader.elements:
        assert tag not in {"script", "img"}
        assert not [name for name in attrs if name.startswith("on") or name == "style"]
    assert f"/endpoint/{ID}" in {attrs.get("href") for attrs in reader.all("a")}


def test_page_without_incidents_explains_it() -> None:
    assert "No incidents since 2026-11-12" in page().words
    assert "No incidents of this type since" in page(kind="delisting").words


def test_full_page_stays_small() -> None:
    rows = tuple(incident(number, text="0x" + "ab" * 20) for number in range(PAGE_ROWS))
    shown = Incidents(today=NOW // DAY_MS, days=7, kind=None, rows=rows, next_after=1)
    assert len(incidents_html(shown, base_url=BASE)) < 60_000
