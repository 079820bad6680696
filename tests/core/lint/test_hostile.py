"""The linter on bytes that were made to hurt it: it answers, quickly, and never raises."""

from __future__ import annotations

import base64
import json
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.lint.accepts import terms_of_accepts
from tollgauge.core.lint.diagnosis import diagnose
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.reading import read
from tollgauge.core.lint.schema import SchemaVerdict, evaluate, has_external_reference
from tollgauge.core.probe.exchange import Answer, Exchange, Lint, Severity

NAMES = """
x402Version accepts resource extensions error scheme network amount asset payTo extra name type
maxTimeoutSeconds maxAmountRequired url tags bazaar info schema input method version routeTemplate
iconUrl $ref $id $schema properties required items allOf const
"""
TEXTS = """
exact base eip155:8453 10000 http mcp POST # #/properties/x object http://[::1 https://a.b:99999/
0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913
"""
KEYS = st.sampled_from(NAMES.split())
WORDS = st.sampled_from(TEXTS.split()) | st.just("\x00")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=12)
    | WORDS
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "x402Version": st.sampled_from([1, 2, "2"]) | DOCUMENTS,
        "accepts": st.lists(st.dictionaries(KEYS, DOCUMENTS), max_size=3) | DOCUMENTS,
        "resource": st.dictionaries(KEYS, DOCUMENTS) | DOCUMENTS,
        "extensions": st.dictionaries(KEYS, DOCUMENTS) | DOCUMENTS,
        "error": DOCUMENTS,
    },
)


def sane(result: Lint) -> None:
    """What holds for every lint, whatever it was made from."""
    assert not (result.payable and result.version is None)
    assert not (result.payable and result.accepts in (None, 0))
    assert result.compliant == (result.errors == 0)
    for finding in result.findings:
        assert finding.rule
        assert finding.message
        assert finding.severity in Severity


def make_exchange(
    status: int, headers: tuple[tuple[str, str], ...], body: bytes, url: str = ""
) -> Lint:
    answer = Answer(status=status, headers=headers, body=body)
    exchange = Exchange(url=url, method="GET", at=0, result=answer)
    result = lint(exchange)
    check_diagnosis(exchange, result)
    return result


def check_diagnosis(exchange: Exchange, result: Lint) -> None:
    """Every finding is explained, and no account is made up."""
    diagnosis = diagnose(exchange, result)
    assert len(diagnosis.details) == len(result.findings)
    assert all(one.found and one.expected for one in diagnosis.details)
    if better := diagnosis.correction:
        original = repr(read(exchange))
        for terms in terms_of_accepts(better.envelope.get("accepts"), version=2):
            assert terms.pay_to in original


def challenge(raw: bytes) -> Lint:
    return make_exchange(402, (("payment-required", base64.b64encode(raw).decode()),), raw)


@given(
    st.integers(-1, 1_000) | st.just(402),
    st.lists(st.tuples(st.sampled_from(["payment-required", "cache-control", "x"]), st.binary())),
    st.binary(),
    st.text(max_size=30),
)
def test_no_bytes_make_it_raise(
    status: int, headers: list[tuple[str, bytes]], body: bytes, url: str
) -> None:
    sane(
        make_exchange(
            status, tuple((name, raw.decode("latin-1")) for name, raw in headers), body, url
        )
    )


@given(st.binary())
def test_no_decoded_header_makes_it_raise(raw: bytes) -> None:
    sane(challenge(raw))


@given(ENVELOPES | DOCUMENTS)
def test_no_json_makes_it_raise(document: object) -> None:
    sane(challenge(json.dumps(document).encode()))


@given(DOCUMENTS, DOCUMENTS)
def test_no_schema_makes_the_evaluation_raise(info: object, schema: object) -> None:
    assert evaluate(info, schema) in SchemaVerdict
    assert has_external_reference(schema) in (True, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 120_000,
        b'{"accepts":' * 20_000,
        b"[" * 900 + b"]" * 900,
        b'{"x402Version":2,"accepts":' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"x402Version":1,"x402Version":2,"accepts":[],"accepts":[{}]}',
        b'{"x402Version":2,"accepts":[{"amount":NaN,"maxTimeoutSeconds":Infinity}]}',
        b'{"x402Version":2,"accepts":[{"amount":"\\ud800","payTo":"\\udfff"}]}',
        b'{"x402Version":2,"accepts":[{"maxTimeoutSeconds":' + b"9" * 5_000 + b"}]}",
        b'{"x402Version":2,"accepts":[{"amount":"' + b"9" * 100_000 + b'"}]}',
        b'{"x402Version":1e400}',
        b'\xef\xbb\xbf{"x402Version":2}',
        b'"' + b"\\" * 99_999,
        b'{"accepts":[' + b"{}," * 100_000 + b"{}]}",
    ],
    ids=lambda raw: raw[:24].decode("latin-1"),
)
def test_bomb_is_an_ordinary_bad_answer(raw: bytes) -> None:
    started = time.process_time()
    result = challenge(raw)
    sane(result)
    assert not result.payable
    assert time.process_time() - started < 2


def test_deep_nesting_is_safe_with_a_raised_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        sane(challenge(b"[" * 120_000))
        assert evaluate({}, {"$ref": "#"}) is SchemaVerdict.TOO_COMPLEX
    finally:
        sys.setrecursionlimit(before)


def make_doubling_schema(levels: int) -> dict[str, Any]:
    """A schema whose evaluation doubles with each level."""
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "object"}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def wide(levels: int) -> dict[str, Any]:
    """A schema without references that branches at every level."""
    return {"type": "object"} if levels == 0 else {"allOf": [wide(levels - 1)] * 8}


@pytest.mark.parametrize(
    ("schema", "verdict"),
    [
        ({"$ref": "#"}, SchemaVerdict.TOO_COMPLEX),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, SchemaVerdict.TOO_COMPLEX),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, SchemaVerdict.TOO_COMPLEX),
        (make_doubling_schema(5), SchemaVerdict.FITS),
        (make_doubling_schema(30), SchemaVerdict.TOO_COMPLEX),
        (wide(3), SchemaVerdict.FITS),
        (wide(5), SchemaVerdict.TOO_COMPLEX),
        ({"anyOf": [{"enum": list(range(2_000))}] * 10}, SchemaVerdict.TOO_COMPLEX),
    ],
    ids=["self", "twice", "circle", "doubling", "doubling-30", "wide", "wide-5", "enums"],
)
def test_evaluation_of_an_endless_schema_is_aborted(
    schema: dict[str, Any], verdict: SchemaVerdict
) -> None:
    started = time.process_time()
    assert evaluate({"a": 1}, schema) is verdict
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("info", "schema"),
    [
        ([1] * 1_000, {"allOf": [{"items": {}}] * 100}),
        ([1] * 1_000, {"anyOf": [{"contains": False}] * 100}),
        ([[1] * 1_000], {"anyOf": [{"type": "string"}] * 100}),
        ([[1] * 1_000], {"anyOf": [{"const": [[1] * 999 + [2]]}] * 100}),
        ({str(name): 1 for name in range(1_000)}, {"allOf": [{"propertyNames": True}] * 100}),
        (
            1,
            {
                "$defs": {"a": {"$anchor": "a"}, "b": {"enum": list(range(1_000))}},
                "allOf": [{"$ref": "#a"}] * 100,
            },
        ),
    ],
    ids=["items", "contains", "messages", "constants", "names", "anchors"],
)
def test_value_that_is_validated_too_often_is_skipped(info: object, schema: dict[str, Any]) -> None:
    assert evaluate(info, schema) is SchemaVerdict.TOO_COMPLEX


def test_long_list_and_anchor_are_evaluated() -> None:
    schema = {"$defs": {"a": {"$anchor": "a", "not": {"type": "null"}}}, "items": {"$ref": "#a"}}
    assert evaluate([1] * 100, schema) is SchemaVerdict.FITS
    assert evaluate([1, None], schema) is SchemaVerdict.MISMATCH


EVIL = "(a+)+$"
VICTIM = "a" * 64 + "!"


@pytest.mark.parametrize(
    ("info", "schema"),
    [
        (VICTIM, {"pattern": EVIL}),
        ({VICTIM: 1}, {"patternProperties": {EVIL: {}}}),
        ({VICTIM: 1}, {"patternProperties": {EVIL: {}}, "additionalProperties": False}),
        ({VICTIM: 1}, {"propertyNames": {"pattern": EVIL}}),
        (
            {"x": VICTIM},
            {
                "properties": {
                    "x": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}
                }
            },
        ),
        (VICTIM, {"$schema": "http://json-schema.org/draft-04/schema#", "pattern": EVIL}),
        (
            VICTIM,
            {
                "const": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL},
                "anyOf": [{"$ref": "#/const"}],
            },
        ),
        ({VICTIM: 1}, {"unevaluatedProperties": {"pattern": EVIL}, "allOf": [{"$ref": "#/x"}]}),
        ([[index] for index in range(5_000)], {"uniqueItems": True}),
    ],
    ids=[
        "pattern",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "inner-dialect",
        "outer-dialect",
        "reference-into-a-constant",
        "unevaluated",
        "unique",
    ],
)
def test_no_regular_expression_of_a_stranger_is_run(info: object, schema: dict[str, Any]) -> None:
    started = time.process_time()
    assert evaluate(info, schema) in SchemaVerdict
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"pattern": "^b"}},
        {"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        {"if": {"pattern": "^b"}, "then": False},
    ],
)
def test_keyword_that_is_left_out_never_makes_a_mismatch(schema: dict[str, Any]) -> None:
    assert evaluate("a", schema) is SchemaVerdict.FITS


def test_unknown_reference_is_a_broken_schema_and_fetches_nothing() -> None:
    assert evaluate({}, {"$ref": "#/nowhere"}) is SchemaVerdict.BROKEN
    assert evaluate({}, {"$ref": "http://127.0.0.1:9/s.json"}) is SchemaVerdict.BROKEN


@pytest.mark.parametrize(
    ("schema", "external"),
    [
        ({"$ref": "#/$defs/a"}, False),
        ({"properties": {"id": {"type": "string"}}}, False),
        ({"items": [{"$ref": "other.json"}]}, True),
        ({"$id": "https://a.b/c"}, True),
        ({"$dynamicRef": "https://a.b/c"}, True),
    ],
)
def test_references_out_of_the_document_count_at_any_depth(
    schema: dict[str, Any], external: bool
) -> None:
    assert has_external_reference({"a": [{"b": schema}]}) is external


@pytest.mark.parametrize(
    ("info", "schema", "verdict"),
    [
        ({"a": 1}, {"type": "object", "required": ["a"]}, SchemaVerdict.FITS),
        ({"a": 1}, {"type": "object", "required": ["b"]}, SchemaVerdict.MISMATCH),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}, SchemaVerdict.MISMATCH),
        ({"a": 1}, {"properties": {}, "additionalProperties": False}, SchemaVerdict.MISMATCH),
        ({"a": 1}, {"$defs": {"n": {"type": "number"}}, "properties": {"a": {"$ref": "#/$defs/n"}}},
         SchemaVerdict.FITS),
        ({"a": 1}, True, SchemaVerdict.FITS),
        ({"a": 1}, False, SchemaVerdict.MISMATCH),
        ({"a": 1}, {"type": "thing"}, SchemaVerdict.BROKEN),
        ({"a": 1}, {"properties": []}, SchemaVerdict.BROKEN),
        ({"a": 1}, "schema", SchemaVerdict.BROKEN),
    ],
)  # fmt: skip
def test_ordinary_schema_is_evaluated_in_full(
    info: object, schema: object, verdict: SchemaVerdict
) -> None:
    assert evaluate(info, schema) is verdict
