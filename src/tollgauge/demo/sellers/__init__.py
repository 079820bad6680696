"""Sellers: the demo market, one row an endpoint.

All names, texts and prices are invented. A module for each group: `correct` sellers, `changing`
ones (slow, flapping, other prices), `mistaken` ones (one well-known mistake each), `unpayable`
ones, `alternatives`: several sellers of the same thing, and `tricks`: who games the score.
"""

from __future__ import annotations

from typing import Final

from tollgauge.demo.seller import Seller
from tollgauge.demo.sellers.alternatives import ALTERNATIVES
from tollgauge.demo.sellers.changing import CHANGING
from tollgauge.demo.sellers.correct import CORRECT
from tollgauge.demo.sellers.mistaken import MISTAKEN
from tollgauge.demo.sellers.tricks import TRICKS
from tollgauge.demo.sellers.unpayable import UNPAYABLE

__all__ = ["SELLERS"]

SELLERS: Final[tuple[Seller, ...]] = (
    CORRECT + CHANGING + MISTAKEN + UNPAYABLE + ALTERNATIVES + TRICKS
)
"""All sellers of the demo market."""
