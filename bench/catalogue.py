"""Invented catalogues of endpoints. The same arguments give the same catalogue.

A few hosts list most of the endpoints, as in real directories. Each host covers a few topics. An
endpoint's text mixes terms of its topic with common terms whose frequency follows Zipf's law. With
`of_few_words`, all texts use the same few hundred terms: the hard case, because all texts are
similar.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote

HOSTS: Final = 5_000
TOPICS: Final = 300
FEW: Final = 600
_LETTERS: Final = ("bcdfghjklmnpqrstvwz", "aeiou")
_PRICES: Final = (1_000, 5_000, 10_000, 50_000, 250_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An endpoint and its score in tenths."""

    endpoint: Endpoint
    score_tenths: int


def catalogue(size: int, *, of_few_words: bool = False) -> Iterator[Offer]:
    """Yield `size` endpoints of HOSTS hosts, or of fewer hosts in a small catalogue."""
    dice = random.Random(402)  # noqa: S311 - a reproducible catalogue
    common = _words(dice, FEW if of_few_words else 20_000)
    frequency = list(accumulate(1 / (rank + 8) for rank in range(len(common))))
    topics = [dice.sample(common[-len(common) * 9 // 10 :], 24) for _ in range(TOPICS)]
    hosts = max(2, min(HOSTS, size // 20))
    share = list(accumulate(1 / (rank + 1) for rank in range(hosts)))
    for number in range(size):
        host = dice.choices(range(hosts), cum_weights=share)[0]
        topic = topics[(host * 7 + dice.randrange(3)) % TOPICS]
        everyday = dice.choices(common, cum_weights=frequency, k=dice.randint(6, 24))
        text = [*everyday, *dice.sample(topic, dice.randint(4, 10))]
        yield _offer(dice, number, host=host, topic=topic, text=text)


def _offer(
    dice: random.Random, number: int, *, host: int, topic: Sequence[str], text: list[str]
) -> Offer:
    dice.shuffle(text)
    name = f"host-{host}.example.com"
    resource = f"https://{name}/v1/{topic[0]}/{dice.choice(topic)}-{number}"
    quote = Quote(
        network="eip155:8453",
        asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        amount=dice.choice(_PRICES),
        pay_to=f"0x{host % 3_000:040x}",
    )
    endpoint = Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=name,
        first_seen=0,
        last_seen=0,
        service_name=f"{topic[0]} {topic[host % 24]}",
        description=" ".join(text),
        tags=(topic[0], dice.choice(topic)),
        sources=("bench",),
        quote=quote,
    )
    return Offer(endpoint=endpoint, score_tenths=dice.randint(200, 950))


def _words(dice: random.Random, size: int) -> list[str]:
    chosen: dict[str, None] = {}
    while len(chosen) < size:
        syllables = range(dice.randint(2, 4))
        word = "".join(dice.choice(_LETTERS[0]) + dice.choice(_LETTERS[1]) for _ in syllables)
        chosen[word] = None
    return list(chosen)
