"""Feeds: the public incidents of an endpoint, of a provider and of all, as Atom (RFC 4287).

An incident is a change that a watch with the default sensitivity reports. Entries have stable ids,
newest first; texts from the endpoint are text content, escaped by the XML writer, never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from xml.etree import ElementTree as ET

from starlette.responses import Response

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, day_of, iso_seconds
from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.watch import notice
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.dependencies import Dependencies, unknown_host
from tollgauge.web.wire.parameters import EndpointId, Host, IncidentType

ATOM: Final = "application/atom+xml"
NAMESPACE: Final = "http://www.w3.org/2005/Atom"
ENTRIES: Final = 50
_TEXT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Feeds:
    """The handlers of the feeds."""

    dependencies: Dependencies

    async def of_endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The feed of one endpoint."""
        endpoint = await self.dependencies.read_endpoint(rated_endpoints.get_public, id)
        incidents = await self.dependencies.store.reading(
            changes.public, endpoint_id=id, limit=ENTRIES
        )
        return self._feed(f"/endpoint/{id}", endpoint.resource, endpoint.first_seen, incidents)

    async def of_provider(self, host: Host) -> Response:
        """The feed of a host's endpoints."""
        name, store = host.lower(), self.dependencies.store
        best = await store.reading(rated_endpoints.of_host, name, limit=1)
        if not best:
            raise unknown_host()
        incidents = await store.reading(changes.public, host=name, limit=ENTRIES)
        return self._feed(f"/provider/{name}", name, best[0].first_seen, incidents)

    async def of_all(self, type: IncidentType = None) -> Response:  # noqa: A002 - the query's name
        """The feed of all endpoints, of one type of incident if that is named."""
        read = partial(changes.public_since, since=0, kind=type, limit=ENTRIES)
        incidents = await self.dependencies.store.reading(read)
        name = "all endpoints" if type is None else f"all endpoints: {notice.TITLES[type]}"
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
        title = notice.TITLES.get(change.type, change.type)
        _add(entry, "title", f"{title}: {incident.resource}")
        _add(entry, "updated", iso_seconds(change.at))
        _add(entry, "published", iso_seconds(change.at))
        ET.SubElement(entry, "link", rel="alternate", type="text/html", href=page)
        ET.SubElement(entry, "category", term=change.type)
        _add(entry, "summary", clean_text(change.reason, _TEXT_MAX))


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = text
