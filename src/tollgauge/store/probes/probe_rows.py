"""The stored forms of a probe: a row of `probe`, and the packed probes of a day.

Packed probes belong to one endpoint and UTC day. Format, version 4: JSON, a line feed and columns,
compressed by Zstandard with the raw-content dictionary `_PRIMER`. Members of the JSON:
- `v`: 4.
- `kinds`: the distinct judgements of the day in order of appearance, each `[outcome, attribution,
  up, status, compliance, compliant, payable, payable_by, version, quote, accepts,
  [[rule, severity], …], reason, method, tls_not_after]`, with `quote` and `payable_by` as in
  db/codec.
- `holds`: `[index, milliseconds]` of probes that are valid longer than HOLDS_MIN_MS; `confirms`:
  indices of confirmation probes.
- `full`: `[index, findings]` with messages, for the last scored probe and the last one with an
  envelope, which evidence may cite. Other findings have only rule and severity.
- `count`: the number of probes.
- `at`: the time of the first one (ms UTC).

Columns have a value for each probe: the index of its judgement; the time since the previous one;
`dns`, `connect`, `tls` and `ttfb` in milliseconds or null; and the total minus these. A column is
the size of its signed values (1, 2, 4 or 8 bytes), then the lowest byte of each value, then the
next byte of each. Null is the smallest number. As JSON, a day would be a quarter larger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Final

import orjson
import zstandard

from tollgauge.core.base.units import day_of
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HOLDS_MIN_MS, HistoryRow, ProbeJudgement, ProbeResult
from tollgauge.db.codec import (
    clients_from_bits,
    clients_to_bits,
    finding_fields,
    finding_from_fields,
    plain,
    quote_fields,
    quote_from_fields,
    small,
)
from tollgauge.store import rows


def result_to_row(endpoint_id: str, result: ProbeResult) -> dict[str, Any]:
    """Return a probe as column values of `probe`."""
    return rows.to_columns(
        result,
        "timings",
        "findings",
        "forms",
        "offers",
        "extensions",
        day=day_of(result.at),
        endpoint_id=endpoint_id,
        version=small(result.version),
        accepts=small(result.accepts),
        rules=result.findings,
        **{name: getattr(result.timings, name) for name in (*_PHASES, "total")},
    )


def result_from_row(row: Any) -> ProbeResult:
    """Build a probe from a row."""
    timings = Timings(dns=row.dns, connect=row.connect, tls=row.tls, ttfb=row.ttfb, total=row.total)
    return rows.from_columns(
        ProbeResult, row, timings=timings, findings=row.rules, forms=(), offers=(), extensions=()
    )


def history_row(row: Any) -> HistoryRow:
    """Return a row of `probe` as a history row."""
    return row.at, row.total, rows.from_columns(ProbeJudgement, row)


_VERSION: Final = 4
_LEVEL: Final = 9
_PHASES: Final = ("dns", "connect", "tls", "ttfb")
_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}  # of signed numbers in `struct`, by their size
_KIND: Final = (
    *("outcome", "attribution", "up", "status", "compliance", "compliant", "payable"),
    *("payable_by", "version", "quote", "accepts", "findings", "reason", "method", "tls_not_after"),
)
_MAX_BYTES: Final = 64 * 1024 * 1024
_PRIMER: Final = zstandard.ZstdCompressionDict(
    b'["server-error","theirs",0,500,0,0,0,null,null,null,[],"","GET",null]'
    b'["timeout","theirs",0,null,0,0,0,null,null,null,[],"","POST",null]'
    b'["eip155:84532","0x036cbd53842c5426634e7929541ec2318f3dcf7e","1000","0x'
    b'"error"],["warn"],["info"]],"full":[[47,[]]],"holds":[],"confirms":[],'
    b'{"v":4,"kinds":[["payment-required","theirs",true,402,100,true,true,2,'
    b'["eip155:8453","0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","10000","0x'
    b'"],1,[],"","GET",1800000000000]],"full":[],"holds":[],"confirms":[],"count":48,"at":17',
    dict_type=zstandard.DICT_TYPE_RAWCONTENT,
)


def pack(results: Sequence[ProbeResult]) -> bytes:
    """Pack a day's probes, which must be in ascending order of time, at least one."""
    kinds: dict[bytes, int] = {}
    index = [kinds.setdefault(_kind(result), len(kinds)) for result in results]
    columns = [
        index,
        [0, *(later.at - result.at for result, later in pairwise(results))],
        *([getattr(result.timings, name) for result in results] for name in _PHASES),
        [_rest(result.timings) for result in results],
    ]
    document = {
        "v": _VERSION,
        "kinds": [orjson.Fragment(kind) for kind in kinds],
        "full": _full_findings(results),
        "holds": [
            (place, result.holds)
            for place, result in enumerate(results)
            if result.holds != HOLDS_MIN_MS
        ],
        "confirms": [place for place, result in enumerate(results) if result.confirms],
        "count": len(results),
        "at": results[0].at,
    }
    compressor = zstandard.ZstdCompressor(
        level=_LEVEL, dict_data=_PRIMER, write_dict_id=False, write_checksum=False
    )
    text = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    return compressor.compress(text + b"".join(map(_column_to_bytes, columns)))


def unpack(data: bytes) -> tuple[ProbeResult, ...]:
    """Unpack a day's probes. Messages of findings are mostly missing."""
    document, index, times, columns = _read(data)
    kinds = [_from_kind(kind) for kind in document["kinds"]]
    holds = dict(document["holds"])
    confirms = frozenset(document["confirms"])
    results = [
        ProbeResult(
            at=at,
            timings=_timings(phases),
            holds=holds.get(place, HOLDS_MIN_MS),
            confirms=place in confirms,
            **kinds[kind],
        )
        for place, (at, kind, *phases) in enumerate(zip(times, index, *columns, strict=True))
    ]
    for place, findings in document["full"]:
        whole = tuple(finding_from_fields(fields) for fields in findings)
        results[place] = replace(results[place], findings=whole)
    return tuple(results)


def unpack_history(data: bytes) -> list[HistoryRow]:
    """Unpack a day's probes as history rows, with a fifth of the work of `unpack`."""
    document, index, times, columns = _read(data)
    kinds = [_judgement(kind) for kind in document["kinds"]]
    judgements = [kinds[kind] for kind in index]
    for place in document["confirms"]:
        judgements[place] = replace(judgements[place], confirms=True)
    totals = map(sum, zip(*([value or 0 for value in column] for column in columns), strict=True))
    return list(zip(times, totals, judgements, strict=True))


def _column_to_bytes(values: Sequence[int | None]) -> bytes:
    largest = max((abs(value) for value in values if value is not None), default=0)
    size = next(size for size in _CODES if largest < -_null(size))
    numbers = [_null(size) if value is None else value for value in values]
    raw = struct.pack(f"<{len(values)}{_CODES[size]}", *numbers)
    return bytes([size]) + b"".join(raw[place::size] for place in range(size))


def _columns_from_bytes(data: bytes, count: int) -> Iterator[list[int | None]]:
    at = 0
    while at < len(data):
        size, at = data[at], at + 1
        raw = bytearray(size * count)
        for place in range(size):
            raw[place::size] = data[at + place * count : at + (place + 1) * count]
        values = struct.unpack(f"<{count}{_CODES[size]}", raw)
        null = _null(size)
        yield [None if value == null else value for value in values]
        at += size * count


def _null(size: int) -> int:
    return -(1 << 8 * size - 1)


def _read(data: bytes) -> tuple[dict[str, Any], list[Any], list[int], list[list[int | None]]]:
    """Decode a packed day: its JSON, the index of each probe's judgement, its times, and the
    columns of its timings.

    Raises:
        ValueError: The format version is unknown.
    """
    decompressor = zstandard.ZstdDecompressor(dict_data=_PRIMER)
    text, _, raw = decompressor.decompress(data, max_output_size=_MAX_BYTES).partition(b"\n")
    document: dict[str, Any] = orjson.loads(text)
    if document["v"] != _VERSION:
        raise ValueError(f"packed probes of an unknown version {document['v']}")
    index, gaps, *columns = _columns_from_bytes(raw, document["count"])
    times = list(accumulate((gap or 0 for gap in gaps[1:]), initial=document["at"]))
    return document, index, times, columns


def _kind(result: ProbeResult) -> bytes:
    rules = [finding_fields(finding, slug_only=True) for finding in result.findings]
    return orjson.dumps(
        [
            result.outcome.value,
            result.attribution.value,
            result.up,
            result.status,
            result.compliance,
            result.compliant,
            result.payable,
            clients_to_bits(result.payable_by),
            small(result.version),
            result.quote and quote_fields(result.quote),
            small(result.accepts),
            rules,
            plain(result.reason),
            plain(result.method),
            result.tls_not_after,
        ]
    )


def _from_kind(kind: Sequence[Any]) -> dict[str, Any]:
    fields = dict(zip(_KIND, kind, strict=True))
    return fields | {
        "outcome": Outcome(fields["outcome"]),
        "attribution": Attribution(fields["attribution"]),
        "payable_by": clients_from_bits(fields["payable_by"]),
        "quote": fields["quote"] and quote_from_fields(fields["quote"]),
        "findings": tuple(finding_from_fields(finding) for finding in fields["findings"]),
    }


def _judgement(kind: Sequence[Any]) -> ProbeJudgement:
    fields = _from_kind(kind)
    names = ("outcome", "attribution", "up", "compliant", "payable", "status", "quote")
    return ProbeJudgement(**{name: fields[name] for name in names})


def _rest(timings: Timings) -> int:
    return timings.total - sum(getattr(timings, name) or 0 for name in _PHASES)


def _timings(times: Sequence[Any]) -> Timings:
    *phases, _ = times
    return Timings(**dict(zip(_PHASES, phases, strict=True)), total=sum(ms or 0 for ms in times))


def _full_findings(results: Sequence[ProbeResult]) -> list[tuple[int, list[list[str]]]]:
    scored = [index for index, result in enumerate(results) if result.scored]
    answered = [index for index in scored if results[index].accepts is not None]
    wanted = sorted({*scored[-1:], *answered[-1:]})
    return [
        (index, [finding_fields(finding) for finding in results[index].findings])
        for index in wanted
        if results[index].findings
    ]
