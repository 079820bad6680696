"""WeightedTerms: what an endpoint's provider says of its purpose.

Rules:
- the text is the service name, the description, the tags, the path, and the names of the inputs
  that its listing declares, each cut to a length before it is read;
- a term is a word, a pair of neighbouring words, a whole tag or a whole path segment. Whole tags
  and segments weigh more: they are how providers sort their own services;
- a word that is repeated weighs a little more, however often; and every further term takes weight
  from the others, because the index compares directions and not lengths;
- a term is stored as the CRC-32 of its text: two texts have the same one by chance with a
  probability of one in four billion, which does no harm.

How rare terms are is core/similarity/postings' to count.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit
from zlib import crc32

import orjson

from tollgauge.core.base.text import DESCRIPTION_MAX, NAME_MAX, TAG_MAX, TAGS_MAX
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.similarity.words import words

TERMS_MAX: Final = 256
PATH_MAX: Final = 256
SEGMENTS_MAX: Final = 12
NAMES_MAX: Final = 32
EVERYWHERE: Final = frozenset({"api", "apis", "x402", "http", "https", "www", "com", "paid", "pay"})
"""Path segments that say that something is for sale, not what; versions (`v2`) say as little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a term weighs before its rarity, in tenths of a word that occurs `once`: a word that
    occurs `again` (1 + ln 2, rounded), a `pair` of neighbouring words, a `whole` tag or path
    segment, the name of an `input`.
    """

    once: int = 10
    again: int = 17
    pair: int = 10
    whole: int = 15
    input: int = 5


WEIGHTS: Final = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A provider's words. `names` are the names of declared inputs."""

    service_name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    path: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """Terms packed side by side: `ids` are 32-bit integers in machine order, ascending and
    without repeats, `weights` their bytes in tenths.
    """

    ids: bytes = b""
    weights: bytes = b""

    def __len__(self) -> int:
        return len(self.weights)


def wording_of(endpoint: Endpoint) -> Wording:
    """What an endpoint's provider says of it."""
    return Wording(
        service_name=endpoint.service_name,
        description=endpoint.description,
        tags=endpoint.tags,
        path=urlsplit(endpoint.resource).path,
        names=tuple(_input_names(endpoint.query, endpoint.body))[:NAMES_MAX],
    )


def terms_of(wording: Wording, weights: Weights = WEIGHTS) -> WeightedTerms:
    """The terms of a wording: at most TERMS_MAX, the weightiest first where there are more."""
    segments = _segments(wording.path)
    fields = [
        words(wording.service_name[:NAME_MAX]),
        words(wording.description[:DESCRIPTION_MAX]),
        [word for tag in _tags(wording.tags) for word in words(tag)],
        [word for segment in segments for word in words(segment)],
    ]
    weight_by_id: dict[int, int] = {}
    _add(
        weight_by_id,
        "n",
        (word for name in wording.names for word in words(name[:TAG_MAX])),
        weights.input,
    )
    for field in fields:
        _add(weight_by_id, "b", (f"{one} {two}" for one, two in pairwise(field)), weights.pair)
    _add(weight_by_id, "t", (" ".join(words(tag)) for tag in _tags(wording.tags)), weights.whole)
    _add(weight_by_id, "p", segments, weights.whole)
    counts = Counter(word for field in fields for word in field)
    for word, times in counts.items():
        weight_by_id[_id("w", word)] = weights.once if times == 1 else weights.again
    return _packed(weight_by_id)


def terms_of_question(text: str) -> WeightedTerms:
    """The terms of a question in a person's words: its words and pairs, each of them as a whole tag
    and a whole path segment too, and so the whole question.
    """
    singles = words(text[:DESCRIPTION_MAX])
    pairs = [f"{one} {two}" for one, two in pairwise(singles)]
    wholes = [*singles, *pairs, " ".join(singles)]
    weight_by_id: dict[int, int] = {}
    for kind, texts, weight in (
        ("t", wholes, WEIGHTS.whole),
        ("p", wholes, WEIGHTS.whole),
        ("b", pairs, WEIGHTS.pair),
        ("w", singles, WEIGHTS.once),
    ):
        _add(weight_by_id, kind, texts, weight)
    return _packed(weight_by_id)


def _add(weight_by_id: dict[int, int], kind: str, texts: Iterable[str], weight: int) -> None:
    for text in texts:
        if text:
            weight_by_id[_id(kind, text)] = weight


def _id(kind: str, text: str) -> int:
    # A word of an input's name is the same term as that word in a description.
    return crc32(f"{'w' if kind == 'n' else kind}:{text}".encode("utf-8", "replace"))


def _packed(weight_by_id: dict[int, int]) -> WeightedTerms:
    heaviest = sorted(weight_by_id.items(), key=lambda term: (-term[1], term[0]))[:TERMS_MAX]
    heaviest.sort()
    ids, weights = [id_ for id_, _ in heaviest], [weight for _, weight in heaviest]
    return WeightedTerms(array("I", ids).tobytes(), bytes(weights))


def _tags(tags: tuple[str, ...]) -> list[str]:
    return [tag[:TAG_MAX] for tag in tags[:TAGS_MAX]]


def _segments(path: str) -> list[str]:
    """The parts of a path in lower case, without placeholders and what says nothing."""
    parts = unquote(path[:PATH_MAX], errors="replace").split("/")
    return [
        " ".join(words(part)) or part.lower()
        for part in parts[: SEGMENTS_MAX * 2]
        if part and not _says_nothing(part.lower())
    ][:SEGMENTS_MAX]


def _says_nothing(part: str) -> bool:
    return part in EVERYWHERE or part[0] in "{:" or (part[0] == "v" and part[1:].isdecimal())


def _input_names(query: str, body: bytes | None) -> Iterator[str]:
    """The names of the declared query's and body's fields."""
    yield from (name for name, _ in parse_qsl(query, keep_blank_values=True, max_num_fields=None))
    if body:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if isinstance(document, dict):
            yield from document
