"""A flag rule with a condition is asked wherever it could fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.evidences import AS_OF, QUOTE, payable
from tests.support.examples import examples

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.score.evidence import Evidence, LastProbe, LatestState, TermChange
from tollgauge.core.score.facts import facts_of
from tollgauge.core.score.flag import grouped, raised_by
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.prices import Price
from tollgauge.core.score.scoring import FLAG_RULES

LIMITS = settings(max_examples=examples(300), deadline=None)
LATELY = st.sampled_from((0, 1, 12, 24)).map(lambda hours: AS_OF - hours * HOUR_MS)
OUTCOMES = st.sampled_from(
    (Outcome.PAYMENT_REQUIRED, Outcome.THROTTLED, Outcome.TLS, Outcome.VALIDATES)
).map(str)
LAST = st.none() | st.builds(
    LastProbe,
    at=LATELY,
    outcome=OUTCOMES,
    up=st.booleans(),
    payable=st.booleans(),
    accepts=st.sampled_from((None, 0, 1)),
    tls_not_after=st.sampled_from((None, AS_OF, AS_OF + 60 * DAY_MS)),
    rules=st.sampled_from(
        ((), (("envelope-mismatch", "warn", "m"),), (("x", "error", "b"), ("x", "warn", "a")))
    ),
)
STATE = st.none() | st.builds(
    LatestState, at=LATELY, outcome=OUTCOMES, up=st.booleans(), payable=st.booleans()
)
CHANGES = st.lists(
    st.builds(
        TermChange,
        at=LATELY,
        kind=st.just("payto-changed"),
        source=st.sampled_from(("probe", "file")),
        before=st.just("1"),
        after=st.sampled_from(("2", "3")),
        announced=st.booleans(),
    )
    | st.builds(
        TermChange,
        at=LATELY,
        kind=st.just("price-changed"),
        source=st.just("probe"),
        before=st.just("1"),
        after=st.sampled_from(("2", "3")),
        price=st.builds(
            Price,
            unit=st.just("USD"),
            before=st.just(1),
            after=st.sampled_from((2, 3)),
            usual=st.just(1),
            upper=st.just(1),
        ),
    ),
    max_size=2,
).map(tuple)
ODDITIES: dict[str, st.SearchStrategy[Any]] = {
    "first_seen": st.just(AS_OF - HOUR_MS),
    "days": st.just(()),
    "listed": st.just(False),
    "templated": st.just(True),
    "wildcard": st.just(True),
    "injection": st.just(True),
    "paid_not_delivered": st.just(True),
    "site_median_tenths": st.sampled_from((0, 700)),
    "quote": st.sampled_from((10**6, 10**6 + 1, 10**9)).map(
        lambda amount: replace(QUOTE, amount=amount)
    ),
    "last": LAST,
    "envelope": LAST,
    "state": STATE,
    "changes": CHANGES,
}
ODD = st.lists(
    st.sampled_from(sorted(ODDITIES)).flatmap(
        lambda name: st.tuples(st.just(name), ODDITIES[name])
    ),
    max_size=4,
).map(lambda oddities: payable(**dict(oddities)))
"""Evidence with something of what few endpoints have, contradictions among it."""
REFUSED_AND_PAID = payable(
    last=None, state=LatestState(at=AS_OF, outcome=Outcome.THROTTLED, up=True, payable=True)
)


@LIMITS
@given(ODD)
@example(REFUSED_AND_PAID)
def test_a_rule_that_fires_is_always_asked(evidence: Evidence) -> None:
    facts = facts_of(evidence, POLICY)
    fired = {rule.code for rule in FLAG_RULES if rule.check(facts) is not None}
    assert {code for _, code, _ in raised_by(grouped(FLAG_RULES), facts)} == fired
