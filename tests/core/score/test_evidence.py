from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from tests.support.evidences import EVIDENCE
from tests.support.examples import examples

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.rollup import Rollup, encode_histogram
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    LatestState,
    TermChange,
)
from tollgauge.core.score.evidence_document import (
    EvidenceError,
    digest,
    evidence_schema,
    from_json,
    from_stored,
    to_json,
)
from tollgauge.core.score.facts import facts_of
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.prices import Price
from tollgauge.core.score.scoring import score

AS_OF = 1_780_000_000_000


def shuffle(evidence: Evidence) -> Evidence:
    """The same evidence with everything that has no order turned around."""
    last = evidence.last
    return replace(
        evidence,
        days=evidence.days[::-1],
        changes=evidence.changes[::-1],
        last=None if last is None else replace(last, rules=last.rules[::-1]),
    )


@settings(max_examples=examples(100), deadline=None)
@given(EVIDENCE)
def test_canonical_text_is_that_of_rfc_8785(evidence: Evidence) -> None:
    text = to_json(evidence)
    assert text == rfc8785.dumps(json.loads(text))


@settings(max_examples=examples(60), deadline=None)
@given(EVIDENCE)
def test_digest_and_score_do_not_depend_on_order(evidence: Evidence) -> None:
    assert digest(shuffle(evidence)) == digest(evidence)
    assert score(shuffle(evidence)) == score(evidence)


@settings(max_examples=examples(60), deadline=None)
@given(EVIDENCE)
def test_arrays_of_a_document_are_sorted_when_it_is_read(evidence: Evidence) -> None:
    document = json.loads(to_json(evidence))
    document["days"].reverse()
    for day in document["days"]:
        day["latency"].reverse()
        day["excluded"].reverse()
    assert to_json(from_stored(json.dumps(document).encode())) == to_json(evidence)


@pytest.mark.parametrize("source", ["probe", "bazaar", "directory", "list"])
def test_changes_at_the_same_time_count_in_canonical_order(source: str) -> None:
    # The second is an increase whose price equals that of the first, which therefore only counts
    # if it comes first: a usual price before none.
    first = Price(unit="USD", before=None, after=0, usual=100, upper=100)
    changes = [
        TermChange(
            at=AS_OF - DAY_MS, kind="price-changed", source=source, before="1", after="2", price=one
        )
        for one in (first, replace(first, usual=None, upper=None))
    ]
    for ordered in (changes, changes[::-1]):
        evidence = Evidence(
            resource="https://a.dev", as_of=AS_OF, first_seen=0, changes=tuple(ordered)
        )
        assert facts_of(evidence, POLICY).price_cost == 30


def test_digest_does_not_depend_on_the_order_of_an_announced_change() -> None:
    change = TermChange(at=AS_OF, kind="payto-changed", source="probe", before="1", after="2")
    evidence = Evidence(
        resource="https://a.dev",
        as_of=AS_OF,
        first_seen=0,
        changes=(change, replace(change, announced=True)),
    )
    assert digest(shuffle(evidence)) == digest(evidence)


@settings(max_examples=examples(60), deadline=None)
@given(EVIDENCE)
def test_evidence_survives_its_json_form(evidence: Evidence) -> None:
    text = to_json(evidence)
    again = from_json(text)
    assert to_json(again) == text
    assert from_json(json.loads(text)) == again
    assert from_json(to_json(again)) == again


def test_digest_depends_on_every_property() -> None:
    base = small()
    others = {
        "resource": "https://b.dev/",
        "as_of": AS_OF + 1,
        "first_seen": 1,
        "listed": False,
        "templated": True,
        "wildcard": True,
        "injection": True,
        "quote": None,
        "days": (),
        "anchors": (),
        "last": None,
        "envelope": base.last,
        "changes": (),
        "chain": None,
        "state": None,
        "interval": 1,
        "site_median_tenths": 1,
        "paid_not_delivered": True,
        "forms": ("eip155:8453 upto",),
        "pay_to_varies": True,
        "other_chains": (ChainEvidence(network="eip155:137", pay_to="0xab"),),
    }
    assert {*others, "format"} == set(Evidence.__dataclass_fields__)
    changed = {digest(replace(base, **{name: value})) for name, value in others.items()}  # type: ignore[arg-type]
    assert len(changed | {digest(base)}) == len(others) + 1


def small() -> Evidence:
    return Evidence(
        resource="https://a.dev/x",
        as_of=AS_OF,
        first_seen=0,
        quote=Quote(network="eip155:8453", asset="0xa", amount=2**60, pay_to="0xb"),
        days=(
            Rollup(
                day=20_000, probes=2, scored=1, up=1, slots=1, latency=encode_histogram([(9, 1)])
            ),
        ),
        last=LastProbe(
            at=1, outcome="payment-required", up=True, payable=True, accepts=1, tls_not_after=None
        ),
        changes=(
            TermChange(
                at=1,
                kind="price-changed",
                source="probe",
                before="1",
                after="2",
                price=Price(unit="USD", before=1, after=2, usual=1, upper=1),
            ),
        ),
        anchors=(Anchor(owner="b.dev", since=1, addresses=("0x2", "0x1")),),
        chain=ChainEvidence(
            network="eip155:8453",
            pay_to="0xb",
            demand=DemandEvidence(volume=2**90, weights=(("b.dev", 7),)),
        ),
        state=LatestState(at=1, outcome="payment-required", up=True, payable=True),
    )


def test_amounts_are_decimal_strings() -> None:
    document = json.loads(to_json(small()))
    assert document["quote"]["amount"] == str(2**60)
    assert document["chain"]["demand"]["volume"] == str(2**90)
    anchor = Anchor(owner="b.dev", since=1, addresses=("0x1", "0x2"))
    assert from_json(to_json(small())) == replace(small(), anchors=(anchor,))


def test_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(evidence_schema())


def with_value(path: str, value: Any) -> dict[str, Any]:
    """The small document with one value replaced; `path` like `days.0.up`."""
    document: Any = json.loads(to_json(small()))
    *parents, leaf = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = document
    for key in parents:
        place = place[key]
    place[leaf] = value
    return dict(document)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("asOf", 1.0, "asOf"),
        ("asOf", True, "asOf"),
        ("asOf", -1, "asOf"),
        ("asOf", 2**53, "asOf"),
        ("format", 2, "format"),
        ("extra", 1, "$"),
        ("quote.amount", 5_000, "quote.amount"),
        ("quote.amount", "05", "quote.amount"),
        ("days.0.up", "1", "days[0].up"),
        ("days.0.latency.0", [9, 0], "days[0].latency[0][1]"),
        ("days.0.latency.0", [9], "days[0].latency[0]"),
        ("changes.0.kind", "moved", "changes[0].kind"),
        ("changes.0.price", None, "changes[0].price"),
        ("changes.0.price.after", "-1", "changes[0].price.after"),
        ("changes.0.price.usual", "free", "changes[0].price.usual"),
        ("changes.0.kind", "payto-changed", "changes[0].price"),
        ("chain.demand.weights.0", ["b.dev"], "chain.demand.weights[0]"),
        ("days.0.up", 2, "days[0].up"),
        ("days.0.scored", 3, "days[0].scored"),
        ("days.0.slots", 3, "days[0].slots"),
        ("days.0.compliance", 101, "days[0].compliance"),
        ("days.0.latency.0", [9, 2], "days[0].latency"),
        ("days.0.blocked", 2, "days[0].blocked"),
        ("days.0.spans.refused", 1, "days[0].spans.refused"),
        ("days.0.spans.up", DAY_MS + 1, "days[0].spans.up"),
        ("days.0.spans.payable", 1, "days[0].spans.payable"),
        ("days.0.spans.compliance", 1, "days[0].spans.compliance"),
    ],
)
def test_wrong_document_is_refused_with_the_position(path: str, value: Any, where: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        from_json(with_value(path, value))
    assert caught.value.path == where
    assert str(caught.value).startswith(f"{where}: ")
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"NaN",
        b"\xff",
        b"[" * 900 + b"]" * 900,
        b"[" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"quote":' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    ],
)
def test_hostile_bytes_are_refused(text: bytes) -> None:
    with pytest.raises(EvidenceError) as caught:
        from_json(text)
    assert len(str(caught.value)) < 400


def test_missing_property_is_named() -> None:
    document = json.loads(to_json(small()))
    del document["firstSeen"]
    with pytest.raises(EvidenceError, match="firstSeen"):
        from_json(document)


def test_number_that_json_cannot_hold_exactly_has_no_canonical_form() -> None:
    with pytest.raises(EvidenceError):
        to_json(replace(small(), as_of=2**53))


def test_text_that_is_not_unicode_has_no_canonical_form() -> None:
    with pytest.raises(EvidenceError):
        to_json(replace(small(), resource="\ud800"))


@given(EVIDENCE)
def test_stored_evidence_is_read_unchanged(evidence: Evidence) -> None:
    text = to_json(evidence)
    assert to_json(from_stored(text)) == text


def test_only_an_announced_change_says_so() -> None:
    change = TermChange(
        at=AS_OF, kind="payto-changed", source="probe", before="0x1", after="0x2", announced=True
    )
    plain = replace(change, announced=False)
    text = to_json(Evidence(resource="r", as_of=1, first_seen=0, changes=(change, plain)))
    written = json.loads(text)
    assert sorted(map(len, written["changes"])) == [5, 6]
    read = from_json(to_json(Evidence(resource="r", as_of=1, first_seen=0, changes=(change,))))
    assert read.changes == (change,)


@pytest.mark.parametrize("value", [False, None, 1, "true"])
def test_unannounced_change_is_not_described_as_announced(value: object) -> None:
    document = json.loads(
        to_json(
            Evidence(
                resource="r",
                as_of=1,
                first_seen=0,
                changes=(
                    TermChange(
                        at=1, kind="payto-changed", source="probe", before="0x1", after="0x2"
                    ),
                ),
            )
        )
    )
    document["changes"][0]["announced"] = value
    with pytest.raises(EvidenceError):
        from_json(json.dumps(document).encode())
