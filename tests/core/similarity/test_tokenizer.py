"""Terms of a provider's text, and the limited effect of repetition."""

from __future__ import annotations

from array import array

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rated_endpoints import IndexedEndpoint, build_index, make_rated

from tollgauge.core.similarity.tokenizer import (
    TERMS_MAX,
    WEIGHTS,
    ProviderText,
    WeightedTerms,
    tokenize,
    weigh_terms,
)


def ids(terms: WeightedTerms) -> list[int]:
    return array("I", terms.ids).tolist()


def weights(terms: WeightedTerms) -> dict[int, int]:
    return dict(zip(ids(terms), terms.weights, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Get the latest prices of tokens", ["latest", "price", "token"]),
        ("getTokenPrice", ["token", "price"]),
        ("image-to-text, OCR v2", ["image", "text", "ocr"]),
        ("cities countries status gas bus", ["city", "country", "status", "gas", "bus"]),
        ("ＷＥＡＴＨＥＲ", ["weather"]),
        ("Прогноз погоды", ["прогноз", "погоды"]),
        ("天气预报", ["天气", "气预", "预报"]),
        ("x 1 a", []),
        ("", []),
    ],
)
def test_text_is_read_as_words(text: str, expected: list[str]) -> None:
    assert tokenize(text) == expected


def test_endpoint_is_described_by_its_texts_its_path_and_its_inputs() -> None:
    resource = "https://api.example.com/v1/weather/:city"
    wording = ProviderText(
        resource=resource,
        query="units=metric&lang=en",
        body=b'{"station": 1, "nested": {"deep": 2}}',
        service_name="Skies",
        description="Weather now",
        tags=("forecast",),
    )
    assert wording.path == "/v1/weather/:city"
    assert wording.names == ["units", "lang", "station", "nested"]


@pytest.mark.parametrize("body", [b"not json", b"[1, 2]", b"\xff", b"{}", b"7"])
def test_declared_body_without_names_is_accepted(body: bytes) -> None:
    assert ProviderText(resource="https://a.example/", body=body).names == []


def test_repeated_word_weighs_slightly_more_at_most() -> None:
    once = weigh_terms(ProviderText(description="weather"))
    twice = weigh_terms(ProviderText(description="weather, good weather"))
    often = weigh_terms(ProviderText(description="weather " * 60))
    (word,) = (id_ for id_, weight in weights(once).items() if weight == WEIGHTS.once)
    assert weights(twice)[word] == weights(often)[word] == WEIGHTS.again


def test_words_of_one_origin_share_a_stem() -> None:
    verb, noun, other = (
        weigh_terms(ProviderText(description=word))
        for word in ("transcribe", "transcription", "tram")
    )
    (stem,) = {*ids(verb)} & {*ids(noun)}
    assert weights(verb)[stem] == WEIGHTS.stem
    assert not {*ids(verb)} & {*ids(other)}


def test_whole_tag_weighs_more_than_a_word_of_a_description() -> None:
    tagged = weights(weigh_terms(ProviderText(tags=("weather",))))
    assert sorted(tagged.values()) == [WEIGHTS.stem, WEIGHTS.once, WEIGHTS.whole]


def test_sale_words_are_not_path_segments() -> None:
    plain = weigh_terms(ProviderText(resource="/weather"))
    sold = weigh_terms(ProviderText(resource="/weather/{city}"))
    assert plain == sold == weigh_terms(ProviderText(resource="/api/v2/weather"))
    assert WEIGHTS.whole not in weigh_terms(ProviderText(resource="/api/x402")).weights


@given(
    st.builds(
        ProviderText,
        service_name=st.text(max_size=200),
        description=st.text(max_size=900),
        tags=st.lists(st.text(max_size=60), max_size=12).map(tuple),
        resource=st.text(max_size=400).map(lambda text: f"https://a.example/{text}"),
        query=st.text(max_size=400),
        body=st.none() | st.dictionaries(st.text(max_size=60), st.just(1)).map(orjson.dumps),
    )
)
def test_any_text_gives_a_bounded_number_of_terms_once_each(wording: ProviderText) -> None:
    terms = weigh_terms(wording)
    assert len(terms) <= TERMS_MAX
    assert ids(terms) == sorted(set(ids(terms)))
    assert all(0 < weight <= WEIGHTS.again for weight in terms.weights)
    assert terms == weigh_terms(wording)


HONEST = "Current weather and forecasts for any city: temperature, wind, rain"
ASKED = "Weather forecast for a city with temperature and rain"


def percent(candidate: str) -> int:
    """How similar a candidate is to the question, among services of other purposes."""
    others = [
        "Translate a text to another language",
        "Price and volume of any token",
        "Resize and crop an image",
        "Search the news of a city",
    ]
    texts = {"asked": ASKED, "candidate": candidate, **{f"o{n}": t for n, t in enumerate(others)}}
    entries = [
        IndexedEndpoint(
            endpoint=make_rated(
                name,
                host=name,
                score_tenths=0 if name == "asked" else 900,
                public=False,
                recommendation="proceed",
            ),
            terms=weigh_terms(ProviderText(description=text)),
        )
        for name, text in texts.items()
    ]
    matches = build_index(entries).find_alternatives(
        entries[0].terms, host="asked", pay_to=None, least_tenths=50, limit=25
    )
    return next((match.percent for match in matches if match.id == "candidate"), 0)


def test_repeating_a_word_does_not_bring_a_service_closer_than_an_honest_one() -> None:
    honest = percent(HONEST)
    assert honest > 30
    assert percent("weather " * 60) < honest
    assert percent("weather forecast city temperature rain " * 12) <= 100
    assert percent(f"Translate a text. {'weather ' * 50}") < honest


def test_stuffing_every_purpose_into_one_text_leaves_it_close_to_none() -> None:
    everything = (
        "weather translate token image news video music search price wallet email sms "
        "stock sport game map route hotel flight job law tax chat voice code audit scan "
        "domain proxy crawl scrape pdf ocr qr barcode currency dictionary recipe health"
    )
    assert percent(everything) < percent(HONEST) / 2
