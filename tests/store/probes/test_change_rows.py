"""Program upgrades cause no changes: change states of other rule versions, on both databases."""

from __future__ import annotations

import orjson
import pytest
import sqlalchemy as sa

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch import changes as core_flips
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, watched_changes

NOW = 1_795_000_000_000
RESOURCE = parse_resource("https://api.example.com/v1/weather")
FIRST, SECOND, *_ = (rule.slug for rule in ALL_RULES if rule.severity is Severity.ERROR)
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


async def record_results(store: Store, endpoint: Endpoint, *results: ProbeResult) -> list[str]:
    """Return the rules that these results report as regressions."""
    changed: list[core_flips.Change] = []
    for result in results:
        changed += await store.writing(watched_changes.observe_each, [(endpoint, result)])
    assert {change.type for change in changed} <= {core_flips.SPEC}
    return [rule["rule"] for change in changed for rule in change.evidence["rules"]]


@pytest.mark.parametrize("named", [{}, {"rules": "other rules"}])
async def test_change_state_of_other_rules_adopts_the_current_ones_silently(
    store: Store, named: dict[str, str]
) -> None:
    endpoint = await adopt_endpoint(store)
    state = orjson.dumps(OLD_FORM | named).decode()
    row = {"endpoint_id": endpoint.id, "state": state}
    insert = sa.text("INSERT INTO standing (endpoint_id, state) VALUES (:endpoint_id, :state)")
    await store.writing(lambda tx: tx.execute(insert, row))
    same = [answer(number, FIRST) for number in range(1, 5)]
    assert await record_results(store, endpoint, *same) == []
    more = [answer(number, FIRST, SECOND) for number in range(5, 8)]
    assert await record_results(store, endpoint, *more) == [SECOND]
