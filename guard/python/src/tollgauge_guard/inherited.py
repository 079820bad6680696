"""Inherited: the records whose refusals and questions count for a resource besides its own.

They are those of the URLs that redirected to it, and of other ways to write one of these paths. The
bundle has only hashes of its resources, so other paths of a host are not found in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tollgauge_guard.bundle import Bundle
from tollgauge_guard.record import Record
from tollgauge_guard.resource import Resource, ResourceError, parse, variants


def inherited(bundle: Bundle, resource: Resource, hops: Iterable[str]) -> tuple[Record, ...]:
    """What a bundle knows of the URLs that redirected to a resource, and of all path variants."""
    others = dict.fromkeys(_with_variants((resource, *_readable(hops))))
    others.pop(resource, None)
    found = (bundle.record(other) for other in others)
    return tuple(record for record in found if record is not None)


def _with_variants(resources: Iterable[Resource]) -> Iterator[Resource]:
    for resource in resources:
        yield resource
        yield from variants(resource)


def _readable(urls: Iterable[str]) -> Iterator[Resource]:
    for url in urls:
        try:
            yield parse(url)
        except ResourceError:
            continue  # no record has such a URL
