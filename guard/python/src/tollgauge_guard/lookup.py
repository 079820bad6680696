"""Lookup: which records of the bundle count for a request.

Every hop counts. The bundle contains only digests of its resources, so other paths of a host are
not found in it, except the usual variants of a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tollgauge_guard.bundle import Bundle
from tollgauge_guard.decision import Known
from tollgauge_guard.record import Conduct
from tollgauge_guard.resource import Resource, ResourceError, parse, variants


def look_up(
    bundle: Bundle | None,
    resource: Resource,
    hops: Iterable[str],
    pay_to: object,
    *,
    tool: str = "",
) -> Known:
    """Return a bundle's records for a resource, its hops and a payTo. With `tool`, the resource is
    an MCP server, which counts like a hop.
    """
    if bundle is None:
        return Known()
    others: dict[Resource, None] = {}
    hosts: dict[str, None] = {}
    for hop in (resource, *_read(hops)):
        others |= dict.fromkeys((hop, *variants(hop)))
        hosts[hop.host] = None
    if not tool:
        others.pop(resource, None)
    found = (bundle.record(other) for other in others)
    name = str(pay_to)
    return Known(
        record=bundle.record(resource, tool),
        inherited=tuple(record for record in found if record is not None),
        host=_find_worst(bundle, hosts),
        payee=bundle.conduct(f"payto:{name.lower() if name.startswith('0x') else name}"),
        as_of=bundle.as_of,
    )


def _find_worst(bundle: Bundle, hosts: Iterable[str]) -> Conduct | None:
    """Return the worst record of several hosts: one whose endpoints are all abusive comes first."""
    found = (bundle.conduct(f"host:{host}") for host in hosts)
    return max(
        (conduct for conduct in found if conduct is not None),
        key=lambda conduct: (conduct.abusive == conduct.endpoints, conduct.abusive),
        default=None,
    )


def _read(urls: Iterable[str]) -> Iterator[Resource]:
    for url in urls:
        try:
            yield parse(url)
        except ResourceError:
            continue  # the bundle has no record of it
