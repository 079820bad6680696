"""Paths that test whether a host sells everything."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.lookalike import PATHS_MAX, lookalike_paths

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
def test_a_path_without_letters_has_one_too(path: str) -> None:
    (changed,) = lookalike_paths(path, random.Random(7).randrange)
    assert changed.startswith("/")
    assert changed != path
