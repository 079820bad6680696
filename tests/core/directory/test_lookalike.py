"""Paths that test whether a host sells everything."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.directory.lookalike import PATHS_MAX, describe_offer, lookalike_paths
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind

PARTS = st.sampled_from([*"abcxyzAZ019-_.~", "%41", "%C3%a9"])
SEGMENTS = st.lists(PARTS, min_size=1, max_size=9).map("".join)


@given(st.lists(SEGMENTS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_each_path_differs_in_one_segment_of_the_same_shape(
    segments: list[str], dice: random.Random
) -> None:
    path = "/" + "/".join(segments)
    paths = lookalike_paths(path, dice.randrange)
    assert len(paths) == min(len(segments), PATHS_MAX)
    for place, changed in enumerate(paths):
        others = changed.strip("/").split("/")
        different = [
            i for i, pair in enumerate(zip(segments, others, strict=True)) if len(set(pair)) > 1
        ]
        assert different == [len(segments) - 1 - place]
        index = different[0]
        if re.search(r"[A-Za-z0-9]", re.sub(r"%[0-9A-Fa-f]{2}", "", segments[index])):
            assert len(others[index]) == len(segments[index])
        assert re.findall("%..", changed) == re.findall("%..", path)


def test_they_differ_each_time() -> None:
    dice = random.Random(7)
    paths = [lookalike_paths("/v1/weather/oslo", dice.randrange) for _ in range(50)]
    assert len(set(paths)) == 50


@pytest.mark.parametrize("path", ["", "/", "/-", "/%20"])
def test_path_without_letters_has_one_too(path: str) -> None:
    (changed,) = lookalike_paths(path, random.Random(7).randrange)
    assert changed.startswith("/")
    assert changed != path


def make_exchange(path: str, **resource: str) -> Exchange:
    """The 402 of a path whose envelope names its own address."""
    url = f"https://a.dev{path}"
    envelope = {
        "x402Version": 1,
        "error": f"pay at {random.random()}",
        "resource": {"url": url, "description": f"Data of {path}", **resource},
        "accepts": [{"payTo": "0x1", "resource": url}],
    }
    answer = Answer(status=402, body=json.dumps(envelope).encode())
    return Exchange(url=url, method="GET", at=0, result=answer)


def test_paths_that_differ_only_in_their_address_sell_the_same() -> None:
    assert describe_offer(make_exchange("/items/17")) == describe_offer(make_exchange("/items/23"))
    other = make_exchange("/items/17", description="The weather of Oslo")
    assert describe_offer(make_exchange("/items/17")) != describe_offer(other)


def test_item_is_identified_by_name_not_by_number() -> None:
    first, second = (make_exchange(f"/items/{n}", title=f"Item no. {n}.") for n in (1, 12))
    assert describe_offer(first) == describe_offer(second)
    first, second = (
        make_exchange(f"/price/{coin}", title=f"Price of {coin}") for coin in ("btc", "eth")
    )
    assert describe_offer(first) != describe_offer(second)


def test_response_without_envelope_sells_nothing() -> None:
    fault = Fault(kind=FaultKind.TIMEOUT)
    for result in (Answer(status=402), Answer(status=404, body=b"{}"), fault):
        exchange = Exchange(url="https://a.dev/", method="GET", at=0, result=result)
        assert describe_offer(exchange) is None


def test_address_of_a_root_is_not_taken_out_of_other_addresses() -> None:
    said = describe_offer(make_exchange("/", schema="https://json-schema.org/x"))
    assert said is not None
    assert "https://json-schema.org/x" in said
