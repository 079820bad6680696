"""`tollgauge bench similar`: the speed of finding alternatives among 100,000 endpoints.

One run measures two invented catalogues (bench/catalogue: the usual case and the hard case):
reading the texts and building the index, one search, the free count for all endpoints in one batch,
memory, and the same through a database. The peer is brute force on the same integers: it compares
with every endpoint and must find the same results.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from bench.catalogue import Offer, catalogue
from bench.measurement import Measurement, Report, peak_mb
from tollgauge.core.lists.columns import ColumnBuilder, Columns
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.similarity.inverted_index import SCALE, build_index
from tollgauge.core.similarity.similarity_index import (
    FLOOR,
    Match,
    SimilarityIndex,
)
from tollgauge.core.similarity.tokenizer import ProviderText, TermTable, WeightedTerms, weigh_terms
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.store.endpoints import endpoints

T = TypeVar("T")

SIZE: Final = 100_000
SEARCHES: Final = 400
PEERS: Final = 25
LIMIT: Final = 25


def run(size: int = SIZE) -> Report:
    """Measure a catalogue of `size` endpoints. The goals are for SIZE on 2 cores."""
    usual = measure(tuple(catalogue(size)))
    hard = measure(tuple(catalogue(size, of_few_words=True)))
    database = asyncio.run(through_a_database(tuple(catalogue(size))))
    query = max(usual["query_ms"]["p50"], hard["query_ms"]["p50"])
    build_index = max(usual["build_s"], hard["build_s"], database["first_refresh_s"])
    counts = max(usual["counts_s"], hard["counts_s"])
    return Report(
        measurements=(
            Measurement(name="query p50", figure=query, unit="ms", goal=5),
            Measurement(name="memory", figure=round(peak_mb(), 1), unit="MB", goal=1_500),
            Measurement(name="build", figure=build_index, unit="s", goal=60),
            Measurement(name="counts", figure=counts, unit="s", goal=180),
        ),
        details={"endpoints": size, "usual": usual, "hard": hard, "database": database},
    )


def measure(offers: Sequence[Offer]) -> dict[str, Any]:
    """Compare the index in memory with brute force. Both use one thread, so CPU time is elapsed
    time on an idle processor.
    """
    cpu = [time.process_time()]
    reading, entries = time_call(lambda: [entry_of(offer) for offer in offers])
    building, index = time_call(lambda: index_of(entries))
    cpu.append(time.process_time())
    counting, counts = time_call(lambda: index.count_alternatives(0, index.size))
    cpu.append(time.process_time())
    asked = sample(entries, seed=1)
    taken, answers = _each(asked, lambda entry: _search(index, entry))
    peer = BruteForce.of(entries)
    peers, same = _each(asked[:PEERS], peer.search)
    query, brute = _percentiles(taken), _percentiles(peers)
    return {
        "terms_each": round(sum(len(entry.terms) for entry in entries) / len(entries), 1),
        "read_s": round(reading, 2),
        "index_s": round(building, 2),
        "build_s": round(reading + building, 2),
        "build_cpu_s": round(cpu[1] - cpu[0], 2),
        "query_ms": query,
        "counts_s": round(counting, 2),
        "counts_cpu_s": round(cpu[2] - cpu[1], 2),
        "with_alternatives": sum(better > 0 for _, better in counts),
        "brute_force_query_ms": brute,
        "same_answers": same == answers[:PEERS],
        "faster_than_brute_force": round(brute["p50"] / query["p50"], 1),
        "counts_faster_than_brute_force": round(brute["mean"] / 1_000 * len(entries) / counting, 1),
    }


def _insert(tx: Connection, offers: Sequence[Offer]) -> None:
    endpoints.insert(tx, *[offer.endpoint for offer in offers])
    column = schema.endpoint.c
    tx.execute(
        schema.endpoint.update()
        .where(column.id == sa.bindparam("of"))
        .values(score_tenths=sa.bindparam("tenths"), recommendation="proceed"),
        [{"of": offer.endpoint.id, "tenths": offer.score_tenths} for offer in offers],
    )


async def through_a_database(offers: Sequence[Offer]) -> dict[str, Any]:
    """Measure the same from SQLite, as in the service: read rows, build the index, search."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'bench.db'}")
        try:
            await store.migrate()
            await store.writing(_insert, offers)
            alternatives = Alternatives()
            first = await _measure_wait(alternatives.index.refresh(store))
            again = await _measure_wait(alternatives.index.refresh(store))
            taken = []
            for offer in sample(offers, seed=2):
                asking = alternatives.find(store, offer.endpoint.id, limit=LIMIT, delta_tenths=50)
                taken.append(await _measure_wait(asking))
        finally:
            await store.close()
    return {
        "first_refresh_s": round(first, 2),
        "next_refresh_s": round(again, 2),
        "find_ms": _percentiles(taken),
    }


@dataclass(frozen=True, slots=True)
class BruteForce:
    """The peer: no inverted index, one pass over the terms of all endpoints."""

    entries: list[Entry]
    starts: Any
    term: Any
    step: Any
    places: dict[str, int]
    size: int

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> BruteForce:
        """Use the same vectors as the index."""
        columns, table = _tables(entries)
        order = np.arange(len(entries))
        index = build_index(table, order, columns.texts["host"], candidates=0)
        term, step = zip(*[index.vectorize(entry.terms) for entry in entries], strict=True)
        places = {entry.endpoint.id: place for place, entry in enumerate(entries)}
        starts, size = np.array(table.ends), len(index.vocabulary)
        return cls(list(entries), starts, np.concatenate(term), np.concatenate(step), places, size)

    def search(self, entry: Entry) -> tuple[Match, ...]:
        """Return the matches that SimilarityIndex.find_alternatives must find."""
        own = slice(*self.starts[self.places[entry.endpoint.id] :][:2])
        wanted = np.zeros(self.size, np.int64)
        wanted[self.term[own]] = self.step[own]
        dots = np.add.reduceat(wanted[self.term] * self.step, self.starts[:-1])
        percent = (200 * dots + SCALE * SCALE) // (2 * SCALE * SCALE)
        least = (entry.endpoint.score_tenths or 0) + 50
        rows = [
            (
                -min(int(percent[place]), 100),
                -(other.endpoint.score_tenths or 0),
                other.endpoint.price_micro_usd or 0,
                other.endpoint.id,
            )
            for place in np.flatnonzero(percent >= FLOOR)
            if (other := self.entries[place]).endpoint.host != entry.endpoint.host
            and other.endpoint.pay_to != entry.endpoint.pay_to
            and (other.endpoint.score_tenths or 0) >= least
        ]
        return tuple(Match(row[3], -row[0]) for row in sorted(rows)[:LIMIT])


@dataclass(frozen=True, slots=True)
class Entry:
    """An endpoint and the terms of its texts."""

    endpoint: RatedEndpoint
    terms: WeightedTerms


def index_of(entries: Iterable[Entry]) -> SimilarityIndex:
    """Build the index of entries."""
    return SimilarityIndex(*_tables(list(entries)))


def _tables(entries: Sequence[Entry]) -> tuple[Columns, TermTable]:
    builder, table = ColumnBuilder(), TermTable()
    builder.add(entry.endpoint for entry in entries)
    for entry in entries:
        table.append(entry.terms)
    return Columns(builder), table


def entry_of(offer: Offer) -> Entry:
    """Return an offer as an entry of the index."""
    endpoint = offer.endpoint
    rated = RatedEndpoint(
        id=endpoint.id,
        resource=endpoint.resource,
        host=endpoint.host,
        first_seen=endpoint.first_seen,
        quote=endpoint.quote,
        score_tenths=offer.score_tenths,
        recommendation="proceed",
    )
    text = ProviderText(
        resource=endpoint.resource,
        service_name=endpoint.service_name,
        description=endpoint.description,
        tags=endpoint.tags,
    )
    return Entry(rated, weigh_terms(text))


def _search(index: SimilarityIndex, entry: Entry) -> tuple[Match, ...]:
    return index.find_alternatives(
        entry.terms,
        host=entry.endpoint.host,
        pay_to=entry.endpoint.pay_to,
        least_tenths=(entry.endpoint.score_tenths or 0) + 50,
        limit=LIMIT,
    )


def sample(rows: Sequence[T], *, seed: int) -> list[T]:
    """Return a reproducible random sample of the rows to search for."""
    dice = random.Random(seed)  # noqa: S311 - a reproducible choice
    return dice.sample(rows, min(SEARCHES, len(rows)))


def time_call(work: Callable[[], T]) -> tuple[float, T]:
    """Call `work` and return the CPU seconds and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


async def _measure_wait(work: Any) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _each(
    entries: Sequence[Entry], work: Callable[[Entry], tuple[Match, ...]]
) -> tuple[list[float], list[tuple[Match, ...]]]:
    pairs = [time_call(partial(work, entry)) for entry in entries]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[len(ordered) * 95 // 100],
        "mean": sum(ordered) / len(ordered),
    }
    return {name: round(value * 1_000, 3) for name, value in at.items()}
