"""Words of a provider's text, in the form in which two texts are compared.

Rules:
- compatibility-folded lower case; `getTokenPrice` is three words, digits are words of their own;
- a plural is its singular (`prices`, `price`): the only stemming, because more did not help
  (docs/similarity.md);
- function words, which say nothing of a purpose, are left out;
- scripts without spaces are read as pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces."""
WORD_MAX: Final = 32
"""Longer words are cut: they are addresses, hashes or noise."""

_FUNCTION_WORDS: Final = """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each either etc few for from
    further get gets had has have having he her here hers him his how i if in into is it its just
    like may me might more most must my no nor not now of off on once only or other our out over
    own per same she should so some such than that the their them then there these they this those
    through to too under until up us use used user users uses using very via was we were what when
    where which while who whom why will with within without would you your
"""
FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS.split())


def words(text: str) -> list[str]:
    """The words of a text, in order, with repeats."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    split = _CAMEL.sub(" ", folded).lower()
    return [word for word in _pieces(_WORD.findall(split)) if word]


def _pieces(raw: Iterable[str]) -> Iterator[str]:
    for word in raw:
        if not word.isascii() and _UNSPACED.search(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        else:
            yield _form(word)


@lru_cache(maxsize=65_536)
def _form(word: str) -> str:
    """A word as it is compared; empty for one that says nothing."""
    if len(word) < 2 or word in FUNCTION_WORDS:
        return ""
    return _singular(word[:WORD_MAX])


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
