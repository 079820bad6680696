"""A breaker: a peer that stopped answering is left alone, and asked now and then.

Rules:
- SILENT calls in a row that ended without any answer open it; any answer, good or bad, closes it;
- while it is open one call every TRIAL_S passes, so that its recovery is noticed soon and few
  calls hang meanwhile;
- only silence counts: a peer that refuses, or fails at once, costs nothing to ask, and whoever can
  make it fail must not be able to shut it off for others.

Instants are seconds of one clock that never goes back.
"""

from __future__ import annotations

from typing import Final

SILENT: Final = 5
TRIAL_S: Final = 2.0


class Breaker:
    """The state for one kind of call to one peer."""

    def __init__(self) -> None:
        self._silent = 0
        self._trial_at = 0.0

    def passes(self, now_s: float) -> bool:
        """Whether a call may be made now; while the breaker is open, a yes is the trial."""
        if self._silent < SILENT:
            return True
        if now_s < self._trial_at:
            return False
        self._trial_at = now_s + TRIAL_S
        return True

    def answered(self) -> None:
        """The peer said something."""
        self._silent = 0

    def stayed_silent(self, now_s: float) -> None:
        """A call ended without an answer."""
        self._silent += 1
        if self._silent == SILENT:
            self._trial_at = now_s + TRIAL_S
