"""ListedItem: one entry of a directory, read from whatever form the directory wrote it in."""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.core.endpoint import Resource
from tollgauge.core.terms import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """One directory entry that could be read.

    `method`, `body` (JSON bytes) and the resource's query are the declared input; `quote` is the
    preferred advertised price, None when the entry names none. Text is the provider's own and
    untrusted: already capped in length, with control and bidi characters removed.
    """

    resource: Resource
    version: int | None = None
    method: str | None = None
    body: bytes | None = None
    quote: Quote | None = None
    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    updated: int | None = None
    upgraded_from_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedItem:
    """One entry that could not be read: `reason` is a stable slug, `excerpt` short and safe."""

    reason: str
    excerpt: str = ""
