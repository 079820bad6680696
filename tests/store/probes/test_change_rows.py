"""Program upgrades cause no changes: change states of other rule versions, on both databases."""

from __future__ import annotations

import orjson
import sqlalchemy as sa

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.lint.judge import ERROR_RULES
from tollgauge.core.lint.rule import RuleSet
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch import changes as core_flips
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, watched_changes
from tollgauge.store.probes import change_rows as changes

NOW = 1_795_000_000_000
RESOURCE = parse_resource("https://api.example.com/v1/weather")
FIRST, SECOND, *_ = sorted(ERROR_RULES.revisions)
FEWER = RuleSet({slug: n for slug, n in ERROR_RULES.revisions.items() if slug != FIRST})
OLD_FORM: dict[str, object] = {
    "recent": "111111",
    "since": None,
    "last_good": None,
    "seen_up": True,
    "machines": [{"n": 2}],
    "quote": None,
    "changes": {},
    "judged": True,
    "broken": {},
    "suspects": [],
    "baseline": None,
    "slow": [],
    "calm": None,
}
"""A change state as it was written before it named its rules."""


def answer(number: int, *broken: str) -> ProbeResult:
    return ProbeResult(
        at=NOW + number * MINUTE_MS,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        status=402,
        timings=Timings(total=80),
        payable=True,
        findings=tuple(
            Finding(rule=rule, severity=Severity.ERROR, message="Mend it.") for rule in broken
        ),
    )


async def adopt_endpoint(store: Store) -> Endpoint:
    return await store.writing(discovery.adopt, RESOURCE, source="request", now=NOW)


async def record_results(
    store: Store, endpoint: Endpoint, *results: ProbeResult, rules: RuleSet = ERROR_RULES
) -> list[str]:
    """Return the rules that these results report as regressions."""
    changed: list[core_flips.Change] = []
    for result in results:
        changed += await store.writing(
            watched_changes.observe_each, [(endpoint, result)], rules=rules
        )
    assert {change.type for change in changed} <= {core_flips.SPEC}
    return [rule["rule"] for change in changed for rule in change.evidence["rules"]]


async def test_change_state_without_rule_set_adopts_it_silently(store: Store) -> None:
    endpoint = await adopt_endpoint(store)
    state = orjson.dumps(OLD_FORM).decode()
    row = {"endpoint_id": endpoint.id, "state": state}
    insert = sa.text("INSERT INTO standing (endpoint_id, state) VALUES (:endpoint_id, :state)")
    await store.writing(lambda tx: tx.execute(insert, row))
    same = [answer(number, FIRST) for number in range(1, 5)]
    assert await record_results(store, endpoint, *same) == []
    more = [answer(number, FIRST, SECOND) for number in range(5, 8)]
    assert await record_results(store, endpoint, *more) == [SECOND]


async def test_only_rules_of_both_versions_cause_changes(store: Store) -> None:
    endpoint = await adopt_endpoint(store)
    assert await record_results(store, endpoint, answer(0), answer(1), rules=FEWER) == []
    after = [answer(number, FIRST, SECOND) for number in range(2, 6)]
    assert await record_results(store, endpoint, *after) == [SECOND]


async def test_two_program_versions_on_one_database_cause_no_changes(store: Store) -> None:
    endpoint = await adopt_endpoint(store)
    for turn in range(3):
        start = turn * 20
        older = [answer(start + number) for number in range(10)]
        newer = [answer(start + 10 + number, FIRST) for number in range(10)]
        assert await record_results(store, endpoint, *older, rules=FEWER) == []
        assert await record_results(store, endpoint, *newer) == []


async def test_rule_sets_are_stored_once(store: Store) -> None:
    endpoint = await adopt_endpoint(store)
    await record_results(store, endpoint, answer(0), rules=FEWER)
    await record_results(store, endpoint, *(answer(number) for number in range(1, 5)))
    kept = await store.reading(
        lambda tx: (
            tx.execute(sa.text("SELECT key FROM meta WHERE key LIKE 'rules:%' ORDER BY key"))
            .scalars()
            .all()
        )
    )
    assert kept == sorted(f"rules:{rule.id}" for rule in (FEWER, ERROR_RULES))
    state = (await store.reading(changes.change_states, [endpoint.id]))[endpoint.id]
    assert state.rules == ERROR_RULES.id
