"""The sellers of the demo market, one row per endpoint.

All names, texts and prices are invented. There is one module per group: `correct` sellers,
`changing` ones (slow, flapping, other prices), `mistaken` ones (one common mistake each),
`unpayable` ones, `alternatives` (several sellers of the same product), and `tricks` (sellers that
game the score).
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
