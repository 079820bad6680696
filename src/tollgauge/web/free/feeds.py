"""Feeds: the public incidents of an endpoint and of a provider, as Atom (RFC 4287).

An incident is what a watch with the default sensitivity is told. Entries have stable ids, newest
first; texts from the endpoint are text content, escaped by the XML writer, never markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from fastapi import APIRouter
from starlette.responses import Response

from tollgauge.core import notice
from tollgauge.core.text import clean_text
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints, public
from tollgauge.store.probes import changes
from tollgauge.store.probes.changes import StoredChange
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import ID, EndpointId, unknown_resource
from tollgauge.web.pages.site import Host
from tollgauge.web.wire import openapi

ATOM: Final = "application/atom+xml"
NAMESPACE: Final = "http://www.w3.org/2005/Atom"
ENTRIES: Final = 50
_TEXT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """What the feeds need."""

    store: Store
    base_url: str
    clock: Callable[[], int]

    def router(self) -> APIRouter:
        """The routes with their descriptions."""
        routes = APIRouter(default_response_class=Response, tags=["free"])
        known = {404: "Nothing is known of it"}
        for path, handler, words in (
            ("/endpoint/{id}/feed.xml", self.of_endpoint, "An endpoint's incidents, as Atom"),
            ("/provider/{host}/feed.xml", self.of_provider, "A provider's incidents, as Atom"),
        ):
            routes.add_api_route(
                path,
                handler,
                methods=["GET"],
                summary=words,
                operation_id=f"feed_{handler.__name__}",
                responses=openapi.page(ATOM, own=known),
            )
        return routes

    async def of_endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The feed of one endpoint."""
        async with self.store.read() as tx:
            endpoint = await public.get(tx, id) if ID.fullmatch(id) else None
            if endpoint is None:
                raise unknown_resource()
            found = await changes.public(tx, endpoint_id=id, limit=ENTRIES)
        return self._feed(
            f"/endpoint/{id}", f"Incidents of {endpoint.resource}", endpoint.first_seen, found
        )

    async def of_provider(self, host: Host) -> Response:
        """The feed of a host's endpoints."""
        name = host.lower()
        async with self.store.read() as tx:
            known = await endpoints.of_host(tx, name, limit=1)
            if not known:
                raise Problem(404, "unknown-host", "No endpoint of this host is known.")
            found = await changes.public(tx, host=name, limit=ENTRIES)
        return self._feed(f"/provider/{name}", f"Incidents of {name}", known[0].first_seen, found)

    def _feed(
        self, path: str, title: str, began: int, found: Sequence[tuple[str, StoredChange]]
    ) -> Response:
        url = f"{self.base_url}{path}"
        feed = ET.Element("feed", xmlns=NAMESPACE)
        _add(feed, "id", f"{url}/feed.xml")
        _add(feed, "title", title)
        _add(feed, "updated", notice.iso(max((each.change.at for _, each in found), default=began)))
        ET.SubElement(feed, "link", rel="self", type=ATOM, href=f"{url}/feed.xml")
        ET.SubElement(feed, "link", rel="alternate", type="text/html", href=url)
        author = ET.SubElement(feed, "author")
        _add(author, "name", "tollgauge")
        for resource, each in found:
            self._entry(feed, resource, each)
        body: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
        return Response(body, media_type=ATOM)

    def _entry(self, feed: ET.Element, resource: str, stored: StoredChange) -> None:
        change = stored.change
        entry = ET.SubElement(feed, "entry")
        page = notice.page(self.base_url, stored.endpoint_id)
        _add(entry, "id", f"{page}#flip-{stored.id}")
        _add(entry, "title", f"{change.type}: {resource}")
        _add(entry, "updated", notice.iso(change.at))
        _add(entry, "published", notice.iso(change.at))
        ET.SubElement(entry, "link", rel="alternate", type="text/html", href=page)
        ET.SubElement(entry, "category", term=change.type)
        _add(entry, "summary", clean_text(change.reason, _TEXT_MAX))


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = text
