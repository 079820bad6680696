"""What a bench says: figures, each beside a peer's of the same run or alone, and whether its goal
is met. A ratio to a peer means the same on any machine; a figure alone does not.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

BOUNDS: Final = {"most": "at most", "least": "at least"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure. `goal` bounds the ratio to the peer's figure where there is a peer, else the
    figure itself.
    """

    name: str
    figure: float
    unit: str
    goal: float
    bound: Literal["most", "least"] = "most"
    peer: str | None = None
    peer_figure: float | None = None

    @property
    def ratio(self) -> float | None:
        """The figure over the peer's; None without a peer, or if the peer has no figure."""
        return self.figure / self.peer_figure if self.peer_figure else None

    @property
    def met(self) -> bool:
        """Whether the goal is met; never where a peer has no figure."""
        value = self.figure if self.peer is None else self.ratio
        if value is None:
            return False
        return value <= self.goal if self.bound == "most" else value >= self.goal

    def document(self) -> dict[str, Any]:
        """The JSON object of this figure."""
        of_peer = "" if self.peer is None else f" of {self.peer}"
        return {
            "name": self.name,
            "figure": rounded(self.figure),
            "unit": self.unit,
            "peer": self.peer,
            "peerFigure": None if self.peer_figure is None else rounded(self.peer_figure),
            "ratio": None if self.ratio is None else rounded(self.ratio),
            "goal": f"{BOUNDS[self.bound]} {self.goal:g}{of_peer}",
            "met": self.met,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of a bench measured; `details` is whatever else is worth to know, as JSON."""

    measurements: tuple[Measurement, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether every goal is met."""
        return all(measurement.met for measurement in self.measurements)

    def document(self) -> dict[str, Any]:
        """The JSON object of the run."""
        return {
            "measurements": [measurement.document() for measurement in self.measurements],
            "details": dict(self.details),
            "met": self.met,
        }


def rounded(figure: float) -> float:
    """A figure with four digits that count, whole from 1,000 on."""
    return round(figure) if abs(figure) >= 1_000 else float(f"{figure:.4g}")


def peak_mb() -> float:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
