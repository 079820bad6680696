"""The index against brute force, and the rules of the ranking."""

from __future__ import annotations

import gc
import itertools
import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.support.examples import examples
from tests.support.rated_endpoints import IndexedEndpoint, build_index, make_rated

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.lists.rated_endpoint import Filter
from tollgauge.core.similarity.inverted_index import SCALE
from tollgauge.core.similarity.similarity_index import (
    FLOOR,
    MAX_COUNT,
    Match,
)
from tollgauge.core.similarity.tokenizer import ProviderText, WeightedTerms, weigh_query
from tollgauge.core.similarity.tokenizer import weigh_terms as read


def terms(*weights: tuple[int, int]) -> WeightedTerms:
    ordered = sorted(dict(weights).items())
    return WeightedTerms(
        array("I", [one for one, _ in ordered]).tobytes(), bytes(w for _, w in ordered)
    )


def entry(name: str, text: str = "weather forecast", **changes: object) -> IndexedEndpoint:
    advice = "proceed" if changes.pop("offered", True) else "avoid"
    path = str(changes.pop("path", ""))
    values = {"score_tenths": 800, "price": 1_000, "public": False, "recommendation": advice}
    values |= changes
    endpoint = make_rated(name, **values)  # type: ignore[arg-type]
    return IndexedEndpoint(
        endpoint=endpoint, terms=read(ProviderText(description=text, resource=path))
    )


OTHERS = [
    entry(f"other{number}", text, score_tenths=100)
    for number, text in enumerate(("translate texts", "token prices", "resize an image"))
]
ASKED = entry("asked", score_tenths=500)


def search(
    entries: Sequence[IndexedEndpoint], asked: IndexedEndpoint = ASKED, limit: int = 25
) -> list[str]:
    matches = build_index([asked, *OTHERS, *entries]).find_alternatives(
        asked.terms,
        host=asked.endpoint.host,
        pay_to=asked.endpoint.pay_to,
        least_tenths=(asked.endpoint.score_tenths or 0) + 50,
        limit=limit,
    )
    return [match.id for match in matches]


def test_ranking_is_similarity_then_score_then_price_then_id() -> None:
    rows = [
        entry("d"),
        entry("c"),
        entry("free", price=None),
        entry("cheap", price=10),
        entry("good", score_tenths=900, price=None),
        entry("close", "weather forecast wind", score_tenths=990, price=1),
    ]
    expected = ["good", "cheap", "c", "d", "free", "close"]
    assert search(rows) == expected
    assert search(rows[::-1]) == expected
    assert search(rows, limit=2) == expected[:2]


def test_expected_payability_outranks_similarity() -> None:
    rows = [
        entry("doubtful", score_tenths=990, payable_24h_permille=849),
        entry("unknown", score_tenths=980),
        entry("less-alike", "weather forecast wind", payable_24h_permille=850),
        entry("likely", payable_24h_permille=990),
        entry("likelier", score_tenths=700, payable_24h_permille=998),
    ]
    expected = ["likelier", "likely", "less-alike", "doubtful", "unknown"]
    assert search(rows) == expected
    assert search(rows, limit=1) == expected[:1]


def test_only_better_scores_count_and_the_least_difference_is_enough() -> None:
    rows = [entry("equal", score_tenths=500), entry("just", score_tenths=550)]
    rows += [entry("nearly", score_tenths=549), entry("unmeasured", score_tenths=None)]
    assert search(rows) == ["just"]


def test_excludes_same_host_same_payto_and_unoffered_endpoints() -> None:
    asked = entry("asked", score_tenths=500, pay_to="0xaa")
    rows = [
        entry("same-host", host=asked.endpoint.host),
        entry("same-wallet", pay_to="0xaa"),
        entry("avoided", offered=False),
        entry("other-wallet", pay_to="0xbb"),
        entry("no-wallet"),
    ]
    assert search(rows, asked) == ["no-wallet", "other-wallet"]


def test_two_endpoints_without_a_wallet_do_not_share_one() -> None:
    assert search([entry("a", pay_to=None)], ASKED) == ["a"]


def test_endpoint_with_another_purpose_is_not_an_alternative() -> None:
    assert search([entry("x", "mint an nft")]) == []


def test_endpoint_without_text_has_no_alternatives_and_is_not_one() -> None:
    silent = entry("silent", "")
    assert search([silent]) == []
    assert search([entry("a")], replace(ASKED, terms=WeightedTerms())) == []
    assert (
        build_index([]).find_alternatives(
            silent.terms, host="", pay_to=None, least_tenths=0, limit=5
        )
        == ()
    )
    assert build_index([]).count_alternatives(0, 10) == []


def test_one_host_cannot_make_its_words_common_by_listing_more_of_itself() -> None:
    many = [
        entry(f"m{number}", "weather forecast", host="many.example", score_tenths=100)
        for number in range(300)
    ]
    alone = build_index([ASKED, *OTHERS, entry("a", "weather forecast wind")])
    crowd = build_index([ASKED, *OTHERS, entry("a", "weather forecast wind"), *many[:1]])
    crowded = build_index([ASKED, *OTHERS, entry("a", "weather forecast wind"), *many])
    host = ASKED.endpoint.host
    few, many_found, found = (
        index.find_alternatives(ASKED.terms, host=host, pay_to=None, least_tenths=550, limit=5)
        for index in (crowd, crowded, alone)
    )
    assert few == many_found
    assert found


def test_unknown_terms_count_towards_the_query_length() -> None:
    rows = [ASKED, *OTHERS, entry("a")]
    index = build_index(rows)
    asked = read(ProviderText(description="weather forecast zyzzyva quux frobnicate"))
    (match,) = index.find_alternatives(asked, host="", pay_to=None, least_tenths=550, limit=5)
    (exact,) = index.find_alternatives(ASKED.terms, host="", pay_to=None, least_tenths=550, limit=5)
    assert match.id == exact.id
    assert match.percent < exact.percent == 100


def brute(entries: Sequence[IndexedEndpoint], asked: IndexedEndpoint, least: int) -> list[Match]:
    """The rules again, one pair at a time, in exact integers."""
    hosts: dict[int, set[str]] = {}
    for entry in entries:
        for one in array("I", entry.terms.ids):
            hosts.setdefault(one, set()).add(entry.endpoint.host)
    total = len({entry.endpoint.host for entry in entries})

    def direction(entry: IndexedEndpoint) -> dict[int, int]:
        weight = {
            one: tenths * round(64 * (1 + math.log((total + 1) / (len(hosts[one]) + 1))))
            for one, tenths in zip(array("I", entry.terms.ids), entry.terms.weights, strict=True)
        }
        length = math.sqrt(sum(value * value for value in weight.values())) or 1.0
        return {one: round(value * (SCALE / length)) for one, value in weight.items()}

    mine = direction(asked)
    rows = []
    for entry in entries:
        theirs = direction(entry)
        dot = sum(step * theirs.get(one, 0) for one, step in mine.items())
        percent = min((200 * dot + SCALE * SCALE) // (2 * SCALE * SCALE), 100)
        if (
            entry.endpoint.offered
            and entry.endpoint.score_tenths is not None
            and entry.endpoint.score_tenths >= least
            and percent >= FLOOR
            and entry.endpoint.host != asked.endpoint.host
            and (entry.endpoint.pay_to is None or entry.endpoint.pay_to != asked.endpoint.pay_to)
        ):
            price = (entry.endpoint.price_micro_usd is None, entry.endpoint.price_micro_usd or 0)
            rows.append((-percent, -entry.endpoint.score_tenths, price, entry.endpoint.id))
    return [Match(id_, -percent) for percent, _, _, id_ in sorted(rows)]


entries_strategy = st.integers(0, 2**32 - 1).flatmap(
    lambda seed: st.integers(2, 60).map(lambda size: invent_services(seed, size))
)


def invent_services(seed: int, size: int) -> list[IndexedEndpoint]:
    """Entries over few terms, so that many are similar; the most frequent weigh so little that the
    index looks them up last.
    """
    dice = random.Random(seed)
    vocabulary = [dice.randrange(2**32) for _ in range(dice.choice((6, 30, 200)))]
    common = [dice.randrange(2**32) for _ in range(dice.choice((4, 20)))]
    return [
        IndexedEndpoint(
            endpoint=make_rated(
                f"{number:04x}",
                host=f"h{dice.randrange(max(2, size // 2))}",
                pay_to=dice.choice((None, "0xa", "0xb", "0xc", "0xd")),
                score_tenths=dice.choice((None, *range(0, 1001, 50))),
                price=dice.choice((None, 1, 5, 10)),
                public=False,
                recommendation="proceed" if dice.random() < 0.9 else "avoid",
            ),
            terms=terms(
                *((dice.choice(vocabulary), dice.choice((20, 90, 250))) for _ in range(6)),
                *((dice.choice(common), dice.choice((1, 3, 10, 17))) for _ in range(12)),
            ),
        )
        for number in range(size)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(entries_strategy)
def test_index_finds_what_comparing_every_pair_finds(entries: list[IndexedEndpoint]) -> None:
    index = build_index(entries)
    counts = dict(index.count_alternatives(0, index.size))
    assert len(counts) == len(entries)
    for asked in entries:
        least = (asked.endpoint.score_tenths or 0) + 50
        expected = brute(entries, asked, least)
        matches = index.find_alternatives(
            asked.terms,
            host=asked.endpoint.host,
            pay_to=asked.endpoint.pay_to,
            least_tenths=least,
            limit=100,
        )
        assert list(matches) == expected
        assert counts[asked.endpoint.id] == min(len(expected), MAX_COUNT)


def test_counting_in_the_best_first_agrees_with_counting_all() -> None:
    """More candidates than TOP_RANKED, so that both steps of the count run."""
    dice = random.Random(3)
    rows = invent_services(5, 12) + [
        replace(
            one,
            endpoint=structs.replace(
                one.endpoint,
                id=f"x{number:05}",
                host=f"g{number}",
                score_tenths=dice.randrange(1001),
            ),
        )
        for number in range(6_000)
        for one in invent_services(number % 40, 2)[:1]
    ]
    index = build_index(rows)
    counts = dict(index.count_alternatives(0, index.size))
    for asked in dice.sample(rows, 40):
        matches = index.find_alternatives(
            asked.terms,
            host=asked.endpoint.host,
            pay_to=asked.endpoint.pay_to,
            least_tenths=(asked.endpoint.score_tenths or 0) + 50,
            limit=MAX_COUNT,
        )
        assert counts[asked.endpoint.id] == len(matches)


def test_index_does_not_depend_on_the_order_of_its_entries() -> None:
    rows = invent_services(11, 50)
    shuffled = random.Random(1).sample(rows, len(rows))
    one, two = build_index(rows), build_index(shuffled)
    assert dict(one.count_alternatives(0, 50)) == dict(two.count_alternatives(0, 50))
    for asked in rows:
        first, second = (
            index.find_alternatives(
                asked.terms,
                host=asked.endpoint.host,
                pay_to=asked.endpoint.pay_to,
                least_tenths=0,
                limit=50,
            )
            for index in (one, two)
        )
        assert first == second


def make_service(name: str, text: str, **changes: object) -> IndexedEndpoint:
    return entry(name, text, offered=False, public=True, **changes)


def answers(entries: Sequence[IndexedEndpoint], question: str, limit: int = 25) -> list[str]:
    index = build_index(entries)
    return [match.id for match in index.search(weigh_query(question), Filter(), limit=limit)]


def test_query_ranks_by_similarity_then_score_price_and_id() -> None:
    rows = [
        make_service("b", "weather forecast", score_tenths=500),
        make_service("a", "weather forecast", score_tenths=500),
        make_service("cheap", "weather forecast", score_tenths=500, price=1),
        make_service("good", "weather forecast", score_tenths=900, price=None),
        make_service("part", "weather radar pictures", score_tenths=990),
        make_service("unmeasured", "weather forecast", score_tenths=None),
        make_service("other", "translate texts"),
    ]
    expected = ["good", "cheap", "a", "b", "unmeasured", "part"]
    assert answers(rows, "weather forecast") == expected
    assert answers(rows[::-1], "Forecasts of the weather?")[:5] == expected[:5]
    assert answers(rows, "weather forecast", limit=2) == expected[:2]


def test_best_answers_are_the_first_of_all_answers() -> None:
    said = ("weather", "forecast", "radar", "pictures", "texts", "prices")
    rows = [
        make_service(
            f"{number:03d}", " ".join(words), score_tenths=number % 7 * 100, price=number % 3
        )
        for number, words in enumerate(itertools.permutations(said, 3))
    ]
    every = answers(rows, "weather forecast texts", limit=len(rows))
    assert len(every) > 50
    for limit in (1, 2, 5, 40, len(every) - 1):
        assert answers(rows, "weather forecast texts", limit=limit) == every[:limit]


def test_garbage_collector_does_not_traverse_the_index() -> None:
    rows = [make_service(f"e{number}", "weather forecast") for number in range(300)]
    index = build_index(rows)
    del rows
    gc.collect()
    looked_through = [one for one in gc.get_objects() if type(one) in (list, tuple, dict)]
    assert not [one for one in looked_through if len(one) >= index.size and "e299" in one]


def test_term_of_a_single_host_finds_it() -> None:
    rows = [make_service("a", "acme weather"), make_service("b", "weather forecast")]
    assert answers(rows, "acme") == ["a"]


def test_unused_terms_do_not_affect_the_results() -> None:
    rows = [make_service("a", "weather forecast"), *OTHERS]
    assert answers(rows, "zyxwv") == []
    assert answers(rows, "") == []
    assert answers(rows, "zyxwv weather") == answers(rows, "weather") == ["a"]


def test_query_finds_only_listed_endpoints() -> None:
    rows = [
        make_service("gone", "weather forecast", status=Listing.DELISTED),
        entry("hidden"),
        make_service("a", "weather forecast"),
    ]
    assert answers(rows, "weather") == ["a"]


def test_search_only_endpoints_are_not_alternatives() -> None:
    rows = [entry("a"), entry("b", score_tenths=900)]
    more = [
        make_service("avoided", "weather forecast", score_tenths=990),
        make_service("x", "weather"),
    ]
    assert search([*rows, *more]) == search(rows) == ["b", "a"]


def test_common_path_segment_does_not_outweigh_the_rare_word_of_a_query() -> None:
    others = [make_service(f"o{number}", f"convert files {number}") for number in range(99)]
    rows = [
        make_service("segment", "", path="/convert"),
        make_service("rates", "Current exchange rates of currency pairs", path="/rates"),
        *others,
    ]
    assert answers(rows, "convert currency")[0] == "rates"


def test_short_text_does_not_come_first_only_because_it_is_short() -> None:
    rows = [
        make_service("short", "posts"),
        make_service("long", "Search posts of influential accounts about any topic"),
        *OTHERS,
    ]
    assert answers(rows, "search posts")[0] == "long"


def test_query_that_nothing_fits_has_no_result() -> None:
    others = [make_service(f"o{number}", f"subject{number} data") for number in range(99)]
    text = " ".join(f"word{number}" for number in range(60))
    rows = [make_service("a", f"hotel {text}"), *others]
    assert answers(rows, "hotel") == ["a"]
    unknown = [letter * 6 for letter in "abcdefghijklmnop"]
    assert answers(rows, " ".join([*unknown, "hotel"])) == []
