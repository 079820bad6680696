"""Tokenizer: the weighted terms of a provider's text, and of a search query.

- Fields: the service name, the description, the tags, the path, and the names of declared inputs,
  each cut to a maximum length.
- Terms: words, the first STEM letters of longer words, pairs of neighbouring words (bigrams), whole
  tags and whole path segments. Whole tags and segments weigh more: providers use them to sort their
  own services. A repeated word weighs a little more, however often it occurs.
- Normalisation: NFKC and lower case; `getTokenPrice` is three words; a plural becomes its singular,
  the only stemming (docs/similarity.md); stop words are dropped; scripts without spaces are read as
  character bigrams.
- A term is stored as the CRC-32 of its text. A collision has a probability of one in four billion
  and does no harm.

core/similarity/inverted_index computes the inverse document frequencies.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit
from zlib import crc32

import orjson

from tollgauge.core.base.text import DESCRIPTION_MAX, NAME_MAX, TAG_MAX, TAGS_MAX
from tollgauge.core.endpoint.identity import tool_name

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces."""
WORD_MAX: Final = 32
"""Longer words are cut: they are addresses, hashes or noise."""

_STOP_WORDS: Final = """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each either etc few for from
    further get gets had has have having he her here hers him his how i if in into is it its just
    like may me might more most must my no nor not now of off on once only or other our out over
    own per same she should so some such than that the their them then there these they this those
    through to too under until up us use used user users uses using very via was we were what when
    where which while who whom why will with within without would you your
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
TERMS_MAX: Final = 256
STEM: Final = 5
"""Letters that words of the same origin share, such as *transcribe* and *transcription*."""
PATH_MAX: Final = 256
SEGMENTS_MAX: Final = 12
NAMES_MAX: Final = 32
GENERIC_SEGMENTS: Final = frozenset(
    {"api", "apis", "x402", "http", "https", "www", "com", "paid", "pay"}
)
"""Path segments that describe no purpose; versions (`v2`) do not either."""


def tokenize(text: str) -> list[str]:
    """Return the words of a text, in order, with repeats."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    split = _CAMEL.sub(" ", folded).lower()
    return [word for word in _split_unspaced(_WORD.findall(split)) if word]


def _split_unspaced(raw: Iterable[str]) -> Iterator[str]:
    for word in raw:
        if not word.isascii() and _UNSPACED.search(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        else:
            yield _normalise(word)


@lru_cache(maxsize=16_384)
def _normalise(word: str) -> str:
    """Return the normalised form of a word; empty for a stop word."""
    if len(word) < 2 or word in STOP_WORDS:
        return ""
    return _make_singular(word[:WORD_MAX])


def _make_singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Term weights before the idf, in tenths: a word that occurs `once` or `again` (1 + ln 2,
    rounded), the `stem` of a word, a `pair` of neighbouring words, a `whole` tag or path segment,
    the name of an `input`; and a pair or whole text in a query (`asked`). A query does not know
    which of its words are tags or segments: with their full weight, a common word that is one would
    count more than the rare word of the query.
    """

    once: int = 10
    again: int = 17
    stem: int = 5
    pair: int = 10
    whole: int = 15
    input: int = 5
    asked: int = 5


WEIGHTS: Final = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderText:
    """The text that a provider wrote: these fields of its endpoint."""

    resource: str = ""
    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    query: str = ""
    body: bytes | None = None

    @property
    def path(self) -> str:
        """The path of the URL, and the tool's name."""
        return "/".join(filter(None, (urlsplit(self.resource).path, tool_name(self.resource))))

    @property
    def names(self) -> list[str]:
        """The names of declared inputs."""
        return list(_list_input_names(self.query, self.body))[:NAMES_MAX]


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """Terms packed side by side: `ids` are 32-bit integers in machine order, ascending and
    without repeats, `weights` their bytes in tenths.
    """

    ids: bytes = b""
    weights: bytes = b""

    def __len__(self) -> int:
        return len(self.weights)


class TermTable:
    """The terms of many endpoints in one block of memory, which the index reads as arrays.

    Attributes:
        ids, weights: As in WeightedTerms, one endpoint after another.
        ends: The number of terms before each endpoint, and of all.
    """

    def __init__(self) -> None:
        self.ids: Final = bytearray()
        self.weights: Final = bytearray()
        self.ends: Final = array("q", [0])

    def append(self, terms: WeightedTerms) -> None:
        """Add the terms of the next endpoint."""
        self.ids.extend(terms.ids)
        self.weights.extend(terms.weights)
        self.ends.append(len(self.weights))

    def __getitem__(self, at: int) -> WeightedTerms:
        begin, end = self.ends[at], self.ends[at + 1]
        return WeightedTerms(bytes(self.ids[4 * begin : 4 * end]), bytes(self.weights[begin:end]))


def weigh_terms(text: ProviderText, weights: Weights = WEIGHTS) -> WeightedTerms:
    """Return the terms of a text; if there are more than TERMS_MAX, the heaviest."""
    segments = _list_segments(text.path)
    fields = [
        tokenize(text.service_name[:NAME_MAX]),
        tokenize(text.description[:DESCRIPTION_MAX]),
        [word for tag in _cut(text.tags) for word in tokenize(tag)],
        [word for segment in segments for word in tokenize(segment)],
    ]
    weight_by_id: dict[int, int] = {}
    _add(
        weight_by_id,
        "n",
        (word for name in text.names for word in tokenize(name[:TAG_MAX])),
        weights.input,
    )
    for field in fields:
        _add(weight_by_id, "b", (f"{one} {two}" for one, two in pairwise(field)), weights.pair)
    _add(weight_by_id, "t", (" ".join(tokenize(tag)) for tag in _cut(text.tags)), weights.whole)
    _add(weight_by_id, "p", segments, weights.whole)
    counts = Counter(word for field in fields for word in field)
    _add(weight_by_id, "s", _list_stems(counts), weights.stem)
    for word, times in counts.items():
        weight_by_id[_hash_term("w", word)] = weights.once if times == 1 else weights.again
    return _pack(weight_by_id)


def weigh_query(text: str) -> WeightedTerms:
    """Return the terms of a search query: its words, stems and pairs, and words, pairs and all of
    it as tags and as path segments.
    """
    singles = tokenize(text[:DESCRIPTION_MAX])
    pairs = [f"{one} {two}" for one, two in pairwise(singles)]
    wholes = [*singles, *pairs, " ".join(singles)]
    weight_by_id: dict[int, int] = {}
    for kind, texts, weight in (
        ("t", wholes, WEIGHTS.asked),
        ("p", wholes, WEIGHTS.asked),
        ("b", pairs, WEIGHTS.asked),
        ("s", _list_stems(singles), WEIGHTS.stem),
        ("w", singles, WEIGHTS.once),
    ):
        _add(weight_by_id, kind, texts, weight)
    return _pack(weight_by_id)


def _list_stems(words: Iterable[str]) -> Iterator[str]:
    return (word[:STEM] for word in words if len(word) >= STEM)


def _add(weight_by_id: dict[int, int], kind: str, texts: Iterable[str], weight: int) -> None:
    for text in texts:
        if text:
            weight_by_id[_hash_term(kind, text)] = weight


def _hash_term(kind: str, text: str) -> int:
    # A word of an input's name is the same term as that word in a description.
    return crc32(f"{'w' if kind == 'n' else kind}:{text}".encode("utf-8", "replace"))


def _pack(weight_by_id: dict[int, int]) -> WeightedTerms:
    heaviest = sorted(weight_by_id.items(), key=lambda term: (-term[1], term[0]))[:TERMS_MAX]
    heaviest.sort()
    ids, weights = [id_ for id_, _ in heaviest], [weight for _, weight in heaviest]
    return WeightedTerms(array("I", ids).tobytes(), bytes(weights))


def _cut(tags: tuple[str, ...]) -> list[str]:
    return [tag[:TAG_MAX] for tag in tags[:TAGS_MAX]]


def _list_segments(path: str) -> list[str]:
    """The parts of a path in lower case, without placeholders and generic segments."""
    parts = unquote(path[:PATH_MAX], errors="replace").split("/")
    return [
        " ".join(tokenize(part)) or part.lower()
        for part in parts[: SEGMENTS_MAX * 2]
        if part and not _is_generic(part.lower())
    ][:SEGMENTS_MAX]


def _is_generic(part: str) -> bool:
    return part in GENERIC_SEGMENTS or part[0] in "{:" or (part[0] == "v" and part[1:].isdecimal())


def _list_input_names(query: str, body: bytes | None) -> Iterator[str]:
    """The names of the declared query's and body's fields."""
    yield from (name for name, _ in parse_qsl(query, keep_blank_values=True, max_num_fields=None))
    if body:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if isinstance(document, dict):
            yield from document
