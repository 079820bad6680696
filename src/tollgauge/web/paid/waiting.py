"""Sales that wait for other hosts: live probes, and tests of destinations.

Whoever runs a slow host could hold every sale of this process with wallets that never settle. So
each kind of waiting has a limit of its own, and so has each site (registrable domain) within it;
what waits for no other host is always sold.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from tollgauge.core.endpoint.site import site
from tollgauge.web.edge.problem import Problem

SITE_SHARE: Final = 4
"""One site may have at most this part of all who wait."""
_RETRY_S: Final = 10


@dataclass(frozen=True, slots=True)
class Waiting:
    """The callers of one process who wait for hosts: `most` at once."""

    most: int
    _sites: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    @contextlib.contextmanager
    def on(self, hosts: Collection[str]) -> Iterator[None]:
        """Wait for some hosts. Raises Problem 503 before anything is asked of them where too many
        callers wait already.
        """
        sites = {site(host) for host in hosts}
        share = max(1, self.most // SITE_SHARE)
        if self._sites.total() + len(sites) > self.most:
            raise _too_many("other hosts")
        for name in sites:
            if self._sites[name] >= share:
                raise _too_many(name)
        self._sites.update(sites)
        try:
            yield
        finally:
            self._sites.subtract(sites)
            for name in sites:
                if not self._sites[name]:
                    del self._sites[name]


def _too_many(whom: str) -> Problem:
    return Problem(
        503,
        "host-busy",
        f"Too many requests wait for {whom}. Nothing was charged; send the same request again.",
        retry_after=_RETRY_S,
    )
