"""Packed probes and histograms: what goes in comes out, in few bytes."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace

import pytest
import zstandard
from tests.support.probe_archive import (
    DAY,
    DOWN,
    GOOD,
    OURS,
    QUOTE,
    START,
    WARNING,
    cadence,
    lively,
    observed,
    stripped,
)

from tollgauge.core.exchange import Timings
from tollgauge.core.finding import Severity
from tollgauge.core.rollup import rollup
from tollgauge.core.units import DAY_MS, MINUTE_MS
from tollgauge.db.packing import (
    pack,
    pack_histogram,
    unpack,
    unpack_histogram,
    unpack_history,
)


def test_packing_keeps_every_field() -> None:
    odd = replace(
        GOOD,
        at=START + 5,
        timings=Timings(dns=None, connect=0, tls=None, ttfb=7, total=3),
        version=None,
        quote=replace(QUOTE, network="", asset="é", amount=2**256 - 1, pay_to="\u2028"),
        accepts=None,
        method="DELETE",
        tls_not_after=None,
        findings=(WARNING, replace(WARNING, severity=Severity.ERROR, message="", where="body")),
    )
    results = [GOOD, DOWN, odd, OURS]
    results = [replace(one, at=START + i * 7) for i, one in enumerate(results)]
    expected = stripped(results)
    expected[2] = results[2]  # the last scored probe keeps its messages
    expected[0] = results[0]  # and the last one with an envelope
    assert list(unpack(pack(results))) == expected


def test_how_long_a_probe_holds_and_that_it_confirms_is_kept() -> None:
    results = [
        GOOD,
        replace(DOWN, at=START + 7, holds=9),
        replace(DOWN, at=START + 9, confirms=True),
    ]
    assert list(unpack(pack(results))) == results


def test_what_version_1_packed_is_still_read() -> None:
    packed = base64.b85decode(
        "D77#BV6Xrc1OU=R5Eh`NZ3D17UVgv)`yU9KNg~@TkNrPa1%UbQf*5oOXvxYbTL}i~>`1&S#sQy?RxUXsOz%N|li;4Jo"
        "*DgUEFTsiK!S!SU=R9O0C_Q!!tvm@!LAxuUdIDpSSLn;IW=YG)<p0I-z33`0L0)Lgib4EyAV@79V<;emJ?Y4"
    )
    assert list(unpack(packed)) == [
        replace(GOOD, findings=()),
        replace(DOWN, at=START + 30 * MINUTE_MS),
    ]


def test_an_unknown_version_is_refused() -> None:
    packed = zstandard.ZstdCompressor().compress(b'{"v":3}')
    with pytest.raises(ValueError, match="unknown version 3"):
        unpack(packed)


@pytest.mark.parametrize("seed", range(3))
def test_history_rows_are_the_fields_of_the_same_probes_that_a_history_shows(seed: int) -> None:
    packed = pack(lively(seed, first=START, last=START + DAY_MS - 1, number=100))
    seen = [(at, total, asdict(judgement)) for at, total, judgement in unpack_history(packed)]
    assert seen == [observed(result) for result in unpack(packed)]


@pytest.mark.parametrize("seed", range(5))
def test_packing_a_random_day_and_unpacking_it_is_the_same_day(seed: int) -> None:
    results = stripped(lively(seed, first=START, last=START + DAY_MS - 1, number=300))
    assert stripped(list(unpack(pack(results)))) == results


def test_a_histogram_of_any_bucket_is_packed() -> None:
    histogram = ((0, 1), (127, 200), (128, 3), (5_000, 1_000_000))
    assert unpack_histogram(pack_histogram(histogram)) == histogram
    assert unpack_histogram(pack_histogram(())) == ()


def test_a_packed_probe_takes_a_few_tens_of_bytes() -> None:
    sizes = []
    for seed in range(20):
        day = cadence(seed, days=1)
        sizes.append((len(pack(day)) + len(pack_histogram(rollup(DAY, day).latency))) / len(day))
    assert sum(sizes) / len(sizes) < 30
