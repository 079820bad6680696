"""Similarity: which endpoints serve a similar purpose, by what their providers say of them.

`terms` reads a provider's text into weighted terms; `index` finds the endpoints whose terms are
most alike. How good that is on labelled services, and what else was tried: docs/similarity.md.
"""

from __future__ import annotations

from tollgauge.core.similarity.index import COUNT_MAX, FLOOR, Entry, Index, Match
from tollgauge.core.similarity.terms import Terms, Wording, terms_of, wording_of

__all__ = [
    "COUNT_MAX",
    "FLOOR",
    "Entry",
    "Index",
    "Match",
    "Terms",
    "Wording",
    "terms_of",
    "wording_of",
]
