"""Packed probes: what goes in comes out, in few bytes."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import zstandard
from tests.support.probe_archive import (
    DOWN,
    GOOD,
    OURS,
    QUOTE,
    START,
    WARNING,
    cadence,
    fields_in_history,
    lively,
    strip_messages,
)

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.probe.exchange import Severity, Timings
from tollgauge.store.probes.probe_rows import (
    pack,
    unpack,
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
    expected = strip_messages(results)
    expected[2] = results[2]  # the last scored probe keeps its messages
    expected[0] = results[0]  # and the last one with an envelope
    assert list(unpack(pack(results))) == expected


def test_packing_keeps_validity_and_confirmation() -> None:
    results = [
        GOOD,
        replace(DOWN, at=START + 7, holds=9),
        replace(DOWN, at=START + 9, confirms=True),
    ]
    assert list(unpack(pack(results))) == results


def test_unknown_version_is_rejected() -> None:
    packed = zstandard.ZstdCompressor().compress(b'{"v":3}')
    with pytest.raises(ValueError, match="unknown version 3"):
        unpack(packed)


@pytest.mark.parametrize("seed", range(3))
def test_history_rows_equal_the_fields_of_unpacked_probes(seed: int) -> None:
    packed = pack(lively(seed, first=START, last=START + DAY_MS - 1, number=100))
    seen = [(at, total, asdict(judgement)) for at, total, judgement in unpack_history(packed)]
    assert seen == [fields_in_history(result) for result in unpack(packed)]


@pytest.mark.parametrize("seed", range(5))
def test_random_day_is_unchanged_by_packing(seed: int) -> None:
    results = strip_messages(lively(seed, first=START, last=START + DAY_MS - 1, number=300))
    assert strip_messages(list(unpack(pack(results)))) == results


def test_packed_probe_takes_a_few_tens_of_bytes() -> None:
    sizes = []
    for seed in range(20):
        day = cadence(seed, days=1)
        sizes.append(len(pack(day)) / len(day))
    assert sum(sizes) / len(sizes) < 30
