"""A judgement that is remembered is the one that the linter would give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.lint_envelopes import GOOD_HEADERS, URL, V1, V2, changed, encoded

from tollgauge.core.lint import ALL_RULES, lint
from tollgauge.core.lint.examples import EXAMPLES
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Timings
from tollgauge.monitor.lint_cache import LintCache

ANSWER = Answer(
    status=402, headers=(*GOOD_HEADERS, ("payment-required", encoded(V2))), body=b'{"a": 1}'
)
EXCHANGE = Exchange(url=URL, method="GET", at=1, result=ANSWER)


@pytest.mark.parametrize("slug", [rule.slug for rule in ALL_RULES])
def test_every_rule_sees_what_it_reads(slug: str) -> None:
    cache = LintCache()
    for example in (EXAMPLES[slug].wrong, EXAMPLES[slug].right, EXAMPLES[slug].wrong):
        exchange = example.exchange()
        assert cache.lint("a", exchange) == cache.lint("a", exchange) == lint(exchange)


@pytest.mark.parametrize(
    "other",
    [
        replace(EXCHANGE, url=f"{URL}/other"),
        replace(EXCHANGE, method="POST"),
        replace(EXCHANGE, result=replace(ANSWER, headers=ANSWER.headers[1:])),
        replace(EXCHANGE, result=replace(ANSWER, headers=(*ANSWER.headers, ANSWER.headers[-1]))),
        replace(EXCHANGE, result=Answer(status=402, body=encoded(V1).encode())),
        replace(EXCHANGE, result=replace(ANSWER, status=500)),
        replace(EXCHANGE, result=Fault(kind=FaultKind.TIMEOUT)),
        replace(
            EXCHANGE,
            result=replace(
                ANSWER,
                headers=(("payment-required", encoded(changed(V2, "accepts.0.amount", "7"))),),
            ),
        ),
    ],
)
def test_an_answer_that_differs_is_judged_anew(other: Exchange) -> None:
    cache = LintCache()
    first = cache.lint("a", EXCHANGE)
    assert cache.lint("a", other) == lint(other) != first
    assert cache.lint("a", EXCHANGE) == first


def test_what_no_rule_reads_makes_no_difference() -> None:
    cache = LintCache()
    first = cache.lint("a", EXCHANGE)
    later = replace(
        EXCHANGE,
        at=2,
        timings=Timings(total=9),
        result=replace(ANSWER, headers=(*ANSWER.headers, ("date", "tomorrow"))),
    )
    assert cache.lint("a", later) is first
    assert cache.lint("b", later) is not first


def test_no_more_endpoints_are_remembered_than_there_is_room_for() -> None:
    cache = LintCache(most=1)
    first = cache.lint("a", EXCHANGE)
    assert cache.lint("b", EXCHANGE) is not cache.lint("b", EXCHANGE)
    assert cache.lint("a", EXCHANGE) is first
    other = replace(EXCHANGE, method="POST")
    assert cache.lint("a", other) is cache.lint("a", other)


def test_a_judgement_that_a_seller_made_large_is_not_remembered() -> None:
    cache = LintCache()
    large = changed(V2, "accepts", V2["accepts"] * 5)
    answer = replace(ANSWER, headers=(("payment-required", encoded(large)),))
    exchange = replace(EXCHANGE, result=answer)
    first = cache.lint("a", exchange)
    assert cache.lint("a", exchange) == first
    assert cache.lint("a", exchange) is not first
