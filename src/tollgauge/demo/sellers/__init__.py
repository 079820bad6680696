"""Sellers: the demo market, one row an endpoint.

All names, texts and prices are invented. The rows are grouped by what a prober should find:
sellers who do it right, sellers who change or stumble, one row for each well-known mistake, those
whom nobody can pay, and several sellers of the same thing, between whom a buyer can choose.
"""

from __future__ import annotations

from typing import Final

from tollgauge.demo.seller import Seller
from tollgauge.demo.sellers.mistaken import MISTAKEN
from tollgauge.demo.sellers.restless import RESTLESS
from tollgauge.demo.sellers.right import RIGHT
from tollgauge.demo.sellers.rivals import RIVALS
from tollgauge.demo.sellers.unpayable import UNPAYABLE

__all__ = ["SELLERS"]

SELLERS: Final[tuple[Seller, ...]] = RIGHT + RESTLESS + MISTAKEN + UNPAYABLE + RIVALS
"""Everyone in the demo market."""
