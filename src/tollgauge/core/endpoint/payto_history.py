"""How the payTo of an endpoint has changed since probes first saw one, and whether it varies.

Some sellers name another payTo in each offer. They are recognised only by how they began: the payTo
varied in the first 24 hours of observation, and no payTo has stayed for 7 days. An endpoint whose
payTo once stayed for 7 days is settled: only an announcement that this payTo signed
(core/directory/seller_file) makes it vary or moves it. Otherwise whoever took over an endpoint
could end the alarm about its changed payTo by changing it again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.units import DAY_MS

RECOGNISED_MS: Final = DAY_MS
"""For how long after the first payTo the endpoint can be recognised as varying."""
SETTLED_MS: Final = 7 * DAY_MS
MIN_CHANGES: Final = 2
"""Changes in the first 24 hours that show that the payTo varies: one may be a correction."""


@dataclass(frozen=True, slots=True, kw_only=False)
class PayToHistory:
    """`first_at` is when probes first saw a payTo, `since` when they first saw the present one (ms
    UTC); `changes` counts those of the first 24 hours. `settled` is the payTo that stayed for 7
    days, or to which that one announced to move.
    """

    first_at: int
    since: int
    changes: int = 0
    varies: bool = False
    settled: str | None = None

    def is_varying(self, last_seen: int | None) -> bool:
        """Whether the payTo varies; the present one was last seen at `last_seen` (ms UTC)."""
        stayed = last_seen is not None and last_seen - self.since >= SETTLED_MS
        return self.varies and not stayed

    def changed(
        self,
        before: str,
        after: str,
        *,
        at: int,
        last_seen: int,
        move_announced: bool,
        variation_announced: bool,
    ) -> PayToHistory:
        """Return the history after a change that a probe saw at an instant (ms UTC).

        `last_seen` is when `before` was last seen. `before` may have announced to move to `after`,
        or to name another payTo in each offer.
        """
        settled = self.settled
        if settled is None and last_seen - self.since >= SETTLED_MS:
            settled = before
        changed = replace(self, since=at, varies=self.varies and settled is None, settled=settled)
        if settled is None:
            return _recognise(changed, at=at)
        if settled == before and variation_announced:
            return replace(changed, varies=True, settled=None)
        if settled == before and move_announced:
            return replace(changed, settled=after)
        return changed


def _recognise(history: PayToHistory, *, at: int) -> PayToHistory:
    """Count a change of the first 24 hours."""
    if at > history.first_at + RECOGNISED_MS:
        return history
    changes = history.changes + 1
    return replace(history, changes=changes, varies=history.varies or changes >= MIN_CHANGES)
