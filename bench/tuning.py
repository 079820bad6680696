"""Cross-validation of the term weights: are they overfitted to the labels?

    python -m bench.tuning LABELS.jsonl [--splits N]

Weights are chosen on a part of the labelled services (bench/relevance) and measured on the rest: on
random halves of every catalogue, and on one catalogue after the other. The default weights and
equal weights are measured on the same rest for comparison. Figures are nDCG@5, means over
catalogues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.relevance import Matrix, Service, alike_terms, quality, read_labels
from tollgauge.core.similarity.tokenizer import WEIGHTS, Weights, weigh_terms

PLAIN: Final = Weights(again=10, pair=10, whole=10, input=10)
GRID: Final = tuple(
    Weights(again=again, pair=pair, whole=whole)
    for again, pair, whole in itertools.product((10, 17, 21), (5, 8, 10), (10, 13, 15, 18, 20))
)
SPLITS: Final = 20

Places = Sequence[int]
Judge = Callable[[Weights, Places], float]


def run(services: Sequence[Service], splits: int = SPLITS) -> dict[str, Any]:
    """Measure both ways of leaving labels out."""
    judge = judge_of(services)
    halves = [choose(judge, *pair) for pair in itertools.islice(split(services), splits)]
    everything = range(len(services))
    asked = quality(services, alike_terms([weigh_terms(service.wording) for service in services]))
    sources = {source: choose(judge, *leave_out(services, source)) for source in asked}
    return {
        "all_labels": {
            "best": max(judge(weights, everything) for weights in GRID),
            "default": judge(WEIGHTS, everything),
            "plain": judge(PLAIN, everything),
        },
        "halves": {"splits": splits, **_means(halves)},
        "source_left_out": {**_means(list(sources.values())), "each": sources},
    }


def judge_of(services: Sequence[Service]) -> Judge:
    """Return a function that computes the mean nDCG@5 of weights on some of the services.

    Document frequencies are those of all services: the service also counts unlabelled endpoints.
    """
    known: dict[Weights, Matrix] = {}

    def judge(weights: Weights, places: Places) -> float:
        if weights not in known:
            terms = [weigh_terms(service.wording, weights) for service in services]
            known[weights] = alike_terms(terms).astype(np.float32)
        some = list(places)
        rows = quality([services[at] for at in some], known[weights][np.ix_(some, some)])
        return statistics.mean(row.ndcg for row in rows.values())

    return judge


def choose(judge: Judge, on: Places, rest: Places) -> dict[str, Any]:
    """Choose the best weights on some services, and measure these, the default and equal
    weights.
    """
    best = max(GRID, key=lambda weights: judge(weights, on))
    return {
        "chosen": asdict(best),
        "seen": judge(best, on),
        "unseen": judge(best, rest),
        "default": judge(WEIGHTS, rest),
        "plain": judge(PLAIN, rest),
    }


def split(services: Sequence[Service]) -> Iterator[tuple[Places, Places]]:
    """Yield random halves of every catalogue without end. Each half is used both ways."""
    dice = random.Random(402)  # noqa: S311 - the same halves every time
    while True:
        left: list[int] = []
        right: list[int] = []
        for source in sorted({service.source for service in services}):
            places = [at for at, service in enumerate(services) if service.source == source]
            dice.shuffle(places)
            left += places[: len(places) // 2]
            right += places[len(places) // 2 :]
        yield left, right
        yield right, left


def leave_out(services: Sequence[Service], source: str) -> tuple[Places, Places]:
    """Return the positions of all other catalogues, and those of one."""
    numbered = list(enumerate(services))
    return (
        [at for at, service in numbered if service.source != source],
        [at for at, service in numbered if service.source == source],
    )


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = ("seen", "unseen", "default", "plain")
    return {name: statistics.mean(row[name] for row in rows) for name in names}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="bench.tuning")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args(arguments)
    figures = run(read_labels(options.labels), options.splits)
    sys.stdout.write(f"{json.dumps(figures, indent=1)}\n")


if __name__ == "__main__":
    main()
