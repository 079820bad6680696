"""What counts as a change: a table of cases for every type of event."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.probe_rows import QUOTE, START, STEP, probe

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.entry_record import EntryStatement
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.rule import set_id
from tollgauge.core.probe.attribution import is_slowness_shared
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch import changes
from tollgauge.core.watch.change_state import (
    CALM,
    HEAL,
    STEADY,
    ChangeState,
    ScoredProbe,
    advance,
    count_turns,
)
from tollgauge.core.watch.changes import EVENTS, Baseline, Change

FORM = TypeAdapter(ChangeState)
POLYGON = "eip155:137"
USDC_POLYGON = "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359"
OTHER_TOKEN = "0x" + "99" * 20


def detect_changes(
    results: list[ProbeResult],
    *,
    n: frozenset[int] = frozenset({2}),
    templated: bool = False,
    before: ChangeState | None = None,
) -> list[tuple[int, Change]]:
    """The changes of a series, each with the number of the probe that reported it."""
    reported: list[tuple[int, Change]] = []
    state = before or ChangeState()
    last_good = None
    for number, result in enumerate(results):
        probed = ScoredProbe(
            result=result, sensitivities=n, templated=templated, last_good=last_good
        )
        state, changes = advance(FORM.validate_json(FORM.dump_json(state)), probed)
        reported += [(number, change) for change in changes]
        last_good = result.at if result.up else last_good
    return reported


def line(text: str, *, n: int = 2) -> list[tuple[int, str]]:
    """The liveness changes of a series of `1` and `0`, for a sensitivity."""
    results = [probe(i, up=char == "1") for i, char in enumerate(text)]
    changes = detect_changes(results, n=frozenset({n}))
    return [(number, change.type) for number, change in changes if change.sensitivity == n]


TERMS = [
    ("nothing", QUOTE, []),
    ("payTo", replace(QUOTE, pay_to="0x" + "bb" * 20), ["payto_change"]),
    ("a rise", replace(QUOTE, amount=20_000), ["price_change"]),
    ("a fall", replace(QUOTE, amount=5_000), ["price_change"]),
    (
        "the same dollar elsewhere",
        replace(QUOTE, network=POLYGON, asset=USDC_POLYGON),
        ["asset_network_change"],
    ),
    (
        "another price elsewhere",
        replace(QUOTE, network=POLYGON, asset=USDC_POLYGON, amount=1),
        ["price_change", "asset_network_change"],
    ),
    ("another token", replace(QUOTE, asset=OTHER_TOKEN, amount=7), ["asset_network_change"]),
    (
        "all of it",
        Quote(network=POLYGON, asset=USDC_POLYGON, amount=3, pay_to="0x" + "cc" * 20),
        ["payto_change", "price_change", "asset_network_change"],
    ),
]


@pytest.mark.parametrize(("what", "after", "types"), TERMS, ids=lambda value: str(value)[:24])
def test_every_change_of_terms_is_reported_once(what: str, after: Quote, types: list[str]) -> None:
    results = [probe(0), *(probe(number, quote=after) for number in range(1, 5))]
    reported = detect_changes(results)
    assert [change.type for _, change in reported] == types
    assert {number for number, _ in reported} <= {1}


def test_change_has_before_after_and_reason() -> None:
    ((_, change),) = detect_changes([probe(0), probe(1, quote=replace(QUOTE, amount=20_000))])
    assert change.before == {"amount": "10000", "amountUsd": 0.01}
    assert change.after == {"amount": "20000", "amountUsd": 0.02}
    assert change.reason == "The price rose from $0.01 to $0.02."
    assert change.severity is Severity.ERROR
    assert change.evidence["source"] == "probe"


def test_price_decrease_is_a_warning() -> None:
    ((_, change),) = detect_changes([probe(0), probe(1, quote=replace(QUOTE, amount=1))])
    assert change.severity is Severity.WARN


def test_temporarily_missing_terms_are_not_a_change() -> None:
    assert not detect_changes([probe(0), probe(1, quote=None), probe(2)])


def test_terms_that_change_during_an_outage_are_reported_after_it() -> None:
    changed = replace(QUOTE, amount=1)
    reported = detect_changes([probe(0), probe(1, up=False), probe(2, quote=changed)])
    assert [(number, change.type) for number, change in reported] == [(2, "price_change")]


def test_terms_that_vary_are_reported_twice_and_then_once_as_a_warning() -> None:
    results = [probe(i, quote=replace(QUOTE, pay_to=f"0x{i:040x}")) for i in range(50)]
    reported = [change for _, change in detect_changes(results)]
    assert [change.severity.value for change in reported] == ["error", "error", "warn"]
    assert "It varies" in reported[-1].reason


def test_terms_that_vary_per_item_are_an_immediate_warning() -> None:
    results = [probe(i, quote=replace(QUOTE, amount=100 + i)) for i in range(50)]
    reported = [change for _, change in detect_changes(results, templated=True)]
    assert [change.severity.value for change in reported] == ["warn"]


def test_terms_that_did_not_change_for_a_day_are_an_alarm_again() -> None:
    day = DAY_MS // STEP + 1
    amounts = [1, 2, 3, 4, *([4] * day), 5]
    results = [probe(i, quote=replace(QUOTE, amount=amount)) for i, amount in enumerate(amounts)]
    reported = detect_changes(results)
    assert [number for number, _ in reported] == [1, 2, 3, len(amounts) - 1]
    assert reported[-1][1].severity is Severity.ERROR


SERIES = [
    ("111111", 2, []),
    ("110111111", 2, []),
    ("1100", 2, [(3, "liveness_down")]),
    ("11000000", 2, [(3, "liveness_down")]),
    ("11001", 2, [(3, "liveness_down")]),
    ("110011", 2, [(3, "liveness_down"), (5, "liveness_recovered")]),
    ("10", 1, [(1, "liveness_down")]),
    ("1000111", 5, []),
    ("1000001", 5, [(5, "liveness_down")]),
    ("1" + "0" * 10, 10, [(10, "liveness_down")]),
    ("1" + "0" * 9 + "11", 10, []),
    ("0000", 2, []),  # never up before, so not a change
    ("000011", 2, [(5, "liveness_recovered")]),
]


@pytest.mark.parametrize(("text", "n", "expected"), SERIES)
def test_n_misses_are_down_and_two_answers_are_up(
    text: str, n: int, expected: list[tuple[int, str]]
) -> None:
    assert line(text, n=n) == expected


def test_up_and_down_in_turns_gives_two_notices() -> None:
    reported = line("1" * 20 + "01" * 40 + "1" * 20)
    assert [kind for _, kind in reported] == ["liveness_flapping", "liveness_recovered"]
    assert reported[0][0] <= 20 + 6


def test_down_again_before_it_was_steady_is_flapping_and_reported_once() -> None:
    reported = [kind for _, kind in line("1" * 10 + "0011" * 30 + "1" * 10)]
    assert reported == [
        "liveness_down",
        "liveness_recovered",
        "liveness_flapping",
        "liveness_recovered",
    ]


def test_flapping_that_ends_in_an_outage_is_reported_as_down() -> None:
    reported = [kind for _, kind in line("1" * 10 + "01" * 10 + "0" * 20)]
    assert reported == ["liveness_flapping", "liveness_down"]


def test_second_outage_after_a_steady_hour_is_an_outage() -> None:
    reported = [kind for _, kind in line("1" * 10 + "00" + "1" * 12 + "00" + "1" * 12)]
    assert reported == ["liveness_down", "liveness_recovered"] * 2


def test_single_miss_after_flapping_is_not_a_change() -> None:
    reported = line("1" * 10 + "01" * 8 + "1" * STEADY + "0" + "1" * 10)
    assert [kind for _, kind in reported] == ["liveness_flapping", "liveness_recovered"]


def test_turns_before_a_steady_time_do_not_count() -> None:
    assert count_turns("010101") == 5
    assert count_turns("010101" + "1" * STEADY) == 0
    assert count_turns("010101" + "1" * STEADY + "01") == 2


def test_outage_contains_its_start_and_the_last_success() -> None:
    results = [probe(0), probe(1), probe(2, up=False), probe(3, up=False)]
    ((_, change),) = detect_changes(results)
    assert change.before == {"up": True, "lastGoodAt": START + STEP}
    assert change.after == {"up": False, "since": START + 2 * STEP}
    assert change.reason == "Down: 2 checks in a row failed (HTTP 502)."
    ((*_, back),) = detect_changes([*results, probe(4), probe(5)])[1:]
    assert back.before == {"up": False, "since": START + 2 * STEP}


@settings(deadline=None)
@given(st.text(alphabet="01", max_size=200), st.integers(1, 10))
def test_notices_of_liveness_alternate(text: str, n: int) -> None:
    reported = [kind for _, kind in line("1" + text, n=n)]
    quiet = "1" + "1" * len(text)
    assert not line(quiet, n=n)
    bad = {"liveness_down", "liveness_flapping"}
    for before, after in itertools.pairwise(reported):
        assert not (before == after == "liveness_recovered")
        assert not (before == after and before in bad)
    assert not reported or reported[0] in bad


def test_every_sensitivity_has_its_own_flips() -> None:
    results = [probe(i, up=i < 3) for i in range(10)]
    reported = detect_changes(results, n=frozenset({1, 2, 5}))
    assert [(number, change.sensitivity) for number, change in reported] == [(3, 1), (4, 2), (7, 5)]


def test_new_sensitivity_inherits_the_known_state() -> None:
    state = ChangeState()
    for number in range(6):
        state, _ = advance(state, ScoredProbe(result=probe(number, up=number < 2)))
    _, changes = advance(
        state, ScoredProbe(result=probe(6, up=False), sensitivities=frozenset({2, 3}))
    )
    assert not changes


ENVELOPES = [
    ("a rule that breaks", [(), ("amount-form",), ("amount-form",)], [(2, ["amount-form"])]),
    ("once only", [(), ("amount-form",), (), ()], []),
    (
        "two at once",
        [(), ("a", "b"), ("a", "b"), ("a", "b")],
        [(2, ["a", "b"])],
    ),
    ("one after the other", [(), ("a",), ("a", "b"), ("a", "b")], [(2, ["a"]), (3, ["b"])]),
    ("broken from the start", [("a",), ("a",), ("a",)], []),
    ("mended and broken soon", [("a",), (), ("a",), ("a",)], []),
    (
        "mended for good and broken",
        [("a",), *[()] * HEAL, ("a",), ("a",)],
        [(HEAL + 2, ["a"])],
    ),
]


@pytest.mark.parametrize(("what", "series", "expected"), ENVELOPES, ids=lambda v: str(v)[:24])
def test_rule_that_breaks_is_named_once(
    what: str, series: list[tuple[str, ...]], expected: list[tuple[int, list[str]]]
) -> None:
    reported = detect_changes([probe(i, broken=rules) for i, rules in enumerate(series)])
    assert {change.type for _, change in reported} <= {"spec_regression"}
    names = [
        (number, sorted(rule["rule"] for rule in change.evidence["rules"]))
        for number, change in reported
    ]
    assert names == expected


OLD, NEW = "old rules", "new rules"


def judge_series(series: list[tuple[str, tuple[str, ...]]], state: ChangeState) -> list[list[str]]:
    """Return the changes of a series of responses under different rule versions."""
    reported: list[list[str]] = []
    for number, (rules, broken) in enumerate(series):
        state, changes = advance(
            state, ScoredProbe(result=probe(number, broken=broken), rules=rules)
        )
        reported += [[rule["rule"] for rule in change.evidence["rules"]] for change in changes]
    return reported


UPGRADES = [
    ("a new rule", [(OLD, ()), (NEW, ("c",)), (NEW, ("c",)), (NEW, ("c",))], []),
    ("broken later", [(OLD, ()), (NEW, ("c",)), (NEW, ("a", "c")), (NEW, ("a",))], [["a"]]),
    ("begun before", [(OLD, ()), (OLD, ("a",)), (NEW, ("a", "c"))], [["a"]]),
    ("a new rule, broken later", [(OLD, ()), (NEW, ()), (NEW, ("c",)), (NEW, ("c",))], [["c"]]),
    ("the way back", [(NEW, ()), (OLD, ("b",)), (OLD, ("b",)), (OLD, ("b", "a"))], []),
    ("two versions in turns", [(OLD, ("b",)), (NEW, ("b", "c"))] * 20, []),
    (
        "two versions, long turns",
        ([(OLD, ())] * (HEAL + 2) + [(NEW, ("b", "c"))] * (HEAL + 2)) * 3,
        [],
    ),
]


@pytest.mark.parametrize(("what", "series", "reported"), UPGRADES, ids=lambda v: str(v)[:24])
def test_findings_of_another_rule_version_are_not_a_change(
    what: str, series: list[tuple[str, tuple[str, ...]]], reported: list[list[str]]
) -> None:
    assert judge_series(series, ChangeState()) == reported


def test_state_without_rules_takes_all_current_rules_as_known() -> None:
    old = ChangeState(judged=True, broken={"a": 0})
    assert judge_series([(NEW, ("a", "b", "c"))] * 3, old) == []
    assert judge_series([(NEW, ("c",)), (NEW, ("b", "c")), (NEW, ("b", "c"))], old) == [["b"]]


def test_answer_without_payment_request_adds_no_rule() -> None:
    state = ChangeState(judged=True, rules=OLD)
    free = probe(0, outcome=Outcome.OPEN, status=200, quote=None)
    state, _ = advance(state, ScoredProbe(result=free, rules=NEW))
    assert judge_series([(NEW, ("c",))] * 3, state) == []


def test_state_can_be_read_by_a_version_that_knows_less() -> None:
    document = FORM.dump_python(ChangeState(recent="11", rules=NEW)) | {"later": {"x": 1}}
    assert FORM.validate_json(json.dumps(document)) == ChangeState(recent="11", rules=NEW)
    del document["rules"]
    assert FORM.validate_json(json.dumps(document)).rules is None


def test_sets_with_the_same_rules_have_the_same_id() -> None:
    one, other = (rule for rule in ALL_RULES[:2])
    assert set_id([one, other]) == set_id([other, one])
    stricter = replace(other, revision=other.revision + 1)
    assert len({set_id(rules) for rules in ([one], [one, other], [one, stricter])}) == 3


def test_outage_breaks_no_rule() -> None:
    results = [probe(0), *(probe(i, up=False, broken=("x",)) for i in range(1, 6))]
    assert [change.type for _, change in detect_changes(results)] == ["liveness_down"]


def test_regression_that_keeps_clients_from_paying_is_an_error() -> None:
    payable = [probe(0), probe(1, broken=("a",)), probe(2, broken=("a",))]
    ((_, warned),) = detect_changes(payable)
    ((_, failed),) = detect_changes([replace(answer, payable=False) for answer in payable])
    assert (warned.severity, failed.severity) == (Severity.WARN, Severity.ERROR)
    assert "can no longer pay" in failed.reason


BASELINE = Baseline(p50=200, p95=400, count=1_000, at=START)


def slow_series(*ms: int) -> list[tuple[int, str]]:
    results = [probe(i, ms=total) for i, total in enumerate(ms)]
    changes = detect_changes(results, before=ChangeState(baseline=BASELINE))
    return [(number, change.type) for number, change in changes]


LATENCIES = [
    ([200] * 20, []),
    ([200, 900, 200, 900, 200, 900], []),  # a slow answer now and then
    ([200, 900, 900], [(2, "latency_regression")]),
    ([200, 900, 900, 900, 900], [(2, "latency_regression")]),
    ([200, 900, 900, *[700] * 30, 900, 900], [(2, "latency_regression")]),  # never calm
    (
        [900, 900, *[200] * CALM, 900, 900],
        [(1, "latency_regression"), (3 + CALM, "latency_regression")],
    ),
    ([800] * 5, []),  # twice the p95 is the limit itself
]


@pytest.mark.parametrize(("ms", "expected"), LATENCIES)
def test_two_answers_far_above_the_usual_latency_are_a_regression(
    ms: list[int], expected: list[tuple[int, str]]
) -> None:
    assert slow_series(*ms) == expected


def test_nothing_is_slow_without_history() -> None:
    young = ChangeState(baseline=replace(BASELINE, count=10))
    results = [probe(i, ms=9_000) for i in range(10)]
    assert not detect_changes(results, before=young)
    assert not detect_changes(results)


def test_fast_endpoint_may_get_a_little_slower() -> None:
    fast = ChangeState(baseline=Baseline(p50=10, p95=20, count=500, at=START))
    assert not detect_changes([probe(i, ms=300) for i in range(5)], before=fast)
    assert detect_changes([probe(i, ms=320) for i in range(5)], before=fast)


def test_delisting_is_a_warning_with_its_source() -> None:
    change = changes.delisting(at=START, source="cdp")
    assert (change.type, change.severity) == ("delisting", Severity.WARN)
    assert change.before == {"status": "listed"}
    assert change.after == {"status": "delisted"}


def test_directory_that_drops_an_endpoint_is_named_with_its_reason() -> None:
    called = EntryStatement(last_called_at=START - 30 * DAY_MS)
    change = changes.directory_delisting(called, at=START, source="cdp")
    assert (change.type, change.severity) == ("delisted", Severity.WARN)
    assert change.reason.startswith("The directory cdp no longer lists this endpoint. The last")
    assert change.evidence == {"source": "cdp", "dropReason": "no-recent-call"}
    unexplained = changes.directory_delisting(None, at=START, source="cdp")
    assert unexplained.reason == "The directory cdp no longer lists this endpoint."
    assert unexplained.evidence == {"source": "cdp", "dropReason": None}


def test_types_are_those_of_published_clients() -> None:
    assert EVENTS == (
        "payto_change",
        "price_change",
        "asset_network_change",
        "spec_regression",
        "delisting",
        "listed",
        "delisted",
        "liveness_down",
        "liveness_recovered",
        "liveness_flapping",
        "latency_regression",
    )


def test_slowness_of_unrelated_endpoints_is_local() -> None:
    state = ChangeState(baseline=BASELINE)
    for number in range(5):
        slow_here = ScoredProbe(result=probe(number, ms=2_000), slow_here=True)
        state, changes = advance(state, slow_here)
        assert not changes
    slow = [(f"api.site{number}.com", True) for number in range(6)]
    fast = [(f"api.fast{number}.com", False) for number in range(5)]
    assert is_slowness_shared([*slow, *fast])
    assert not is_slowness_shared([*slow, *fast, ("another.com", False)])
    assert not is_slowness_shared(slow[:4])
    assert not is_slowness_shared([(f"{number}.one.com", True) for number in range(20)])
