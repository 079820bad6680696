"""The form in which evidence is kept, against its canonical text."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.evidences import EVIDENCE
from tests.support.examples import examples

from tollgauge.core.evidence import (
    ChainEvidence,
    ChainSums,
    Evidence,
    EvidenceError,
    LastProbe,
    LatestState,
    PayerSums,
    TermChange,
    to_json,
)
from tollgauge.core.kept_evidence import keep, open_document, with_earlier_days
from tollgauge.core.rollup import Rollup
from tollgauge.core.terms import Quote
from tollgauge.core.window import day_text

CHANGE = TermChange(at=1, kind="payto-changed", source="probe", before="0x1", after="0x2")
FULL = Evidence(
    resource="https://a.com/",
    as_of=1_780_000_000_000,
    first_seen=0,
    quote=Quote(network="eip155:8453", asset="0xa", amount=10**70, pay_to="0xb"),
    days=(Rollup(day=20_000, probes=2, scored=1, up=1, slots=1, latency=((9, 1),)),),
    recent=(6, 5),
    last=LastProbe(
        at=3,
        outcome="timeout",
        up=False,
        payable=False,
        accepts=None,
        tls_not_after=7,
        rules=(("rule", "warn", "Said so."), ("other", "warn", "Said more.")),
    ),
    envelope=LastProbe(at=2, outcome="ok", up=True, payable=True, accepts=1, tls_not_after=None),
    changes=(replace(CHANGE, announced=True), replace(CHANGE, at=0)),
    chain=ChainEvidence(
        network="eip155:8453",
        pay_to="0xb",
        indexed_ms=5,
        sums=ChainSums(transfers=3, own=1, raw=PayerSums(payers=2, squares=2**90, weight=9)),
    ),
    state=LatestState(at=3, outcome="timeout", up=False, payable=False, unconfirmed=True),
)
KEPT = (
    b'[["https://a.com/",1780000000000,0,true,false,false,false,["eip155:8453","0xa","1'
    + b"0" * 70
    + b'","0xb"],[6,5],[3,"timeout",false,false,null,7,[["rule","warn","Said so."],["other",'
    b'"warn","Said more."]]],[2,"ok",true,true,1,null,[]],[[1,"payto-changed","probe","0x1",'
    b'"0x2",true],[0,"payto-changed","probe","0x1","0x2",false]],["eip155:8453","0xb",5,null,'
    b'null,1,[3,"1","0",0,[2,"0","1237940039285380274899124224","0",9],[0,"0","0","0",0],'
    b'[0,"0","0","0",0],[0,"0","0","0",0]]],[3,"timeout",false,false,true,null],1800000,null,false,2'
    b',[],false],[{"compliance":0,"compliant":0,"day":20000,"excluded":[],"latency":[[9,1]],"latencySum"'
    b':0,"payable":0,"probes":2,"scored":1,"slots":1,"spans":{"compliance":0,"down":0,"failures'
    b'":0,"payable":0,"repairs":0,"up":0},"up":1}]]'
)
"""What a database may hold: it is read for ever."""


def texts(days: tuple[Rollup, ...]) -> bytes:
    return b",".join(map(day_text, days))


@settings(max_examples=examples(200), deadline=None)
@given(EVIDENCE, st.integers(0, 3))
def test_its_text_is_that_of_the_evidence(evidence: Evidence, closed: int) -> None:
    by_day = {sums.day: sums for sums in evidence.days}
    days = tuple(by_day[day] for day in sorted(by_day))
    kept = keep(replace(evidence, days=()), texts(days[closed:]))
    whole = replace(evidence, days=days)
    assert with_earlier_days(kept, texts(days[:closed])) == to_json(whole)
    assert open_document(kept) == orjson.loads(to_json(replace(whole, days=days[closed:])))


def test_what_was_kept_is_read_for_ever() -> None:
    assert keep(FULL, texts(FULL.days)) == KEPT
    assert with_earlier_days(KEPT) == to_json(FULL)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(FULL, as_of=2**53),
        replace(FULL, resource="\ud800"),
        replace(FULL, chain=ChainEvidence(network="", pay_to="", indexed_ms=2**53)),
        replace(FULL, changes=(replace(CHANGE, after="\ud800"),)),
    ],
)
def test_what_the_canonical_text_cannot_hold_is_not_kept(wrong: Evidence) -> None:
    with pytest.raises(EvidenceError):
        to_json(wrong)
    with pytest.raises(EvidenceError):
        keep(wrong, b"")
