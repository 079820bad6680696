"""The result of a benchmark: figures with goals, some compared with a peer of the same run.

A ratio to a peer can be compared between machines. An absolute figure cannot.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

BOUNDS: Final = {"most": "at most", "least": "at least"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure. `goal` limits its ratio to the peer's figure, or the figure itself without a
    peer or if the goal `is_absolute`.
    """

    name: str
    figure: float
    unit: str
    goal: float
    bound: Literal["most", "least"] = "most"
    peer: str | None = None
    peer_figure: float | None = None
    is_absolute: bool = False

    @property
    def ratio(self) -> float | None:
        """The figure divided by the peer's. None without a peer or without the peer's figure."""
        return self.figure / self.peer_figure if self.peer_figure else None

    @property
    def met(self) -> bool:
        """Whether the goal is met. False if the peer has no figure."""
        value = self.figure if self.peer is None or self.is_absolute else self.ratio
        if value is None:
            return False
        return value <= self.goal if self.bound == "most" else value >= self.goal

    def document(self) -> dict[str, Any]:
        """Return the figure as a JSON object."""
        of_peer = "" if self.peer is None or self.is_absolute else f" of {self.peer}"
        return {
            "name": self.name,
            "figure": round_figure(self.figure),
            "unit": self.unit,
            "peer": self.peer,
            "peerFigure": None if self.peer_figure is None else round_figure(self.peer_figure),
            "ratio": None if self.ratio is None else round_figure(self.ratio),
            "goal": f"{BOUNDS[self.bound]} {self.goal:g}{of_peer}",
            "met": self.met,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures of one run. `details` contains other results as JSON."""

    measurements: tuple[Measurement, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether every goal is met."""
        return all(measurement.met for measurement in self.measurements)

    def document(self) -> dict[str, Any]:
        """Return the run as a JSON object."""
        return {
            "measurements": [measurement.document() for measurement in self.measurements],
            "details": dict(self.details),
            "met": self.met,
        }


def round_figure(figure: float) -> float:
    """Return a figure with four significant digits, or as an integer from 1,000."""
    return round(figure) if abs(figure) >= 1_000 else float(f"{figure:.4g}")


def peak_mb() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
