"""The demo world as a whole, and its simulated history."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import httpx
import pytest
from tests.support.token_balance import balance

from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Perimeter, parse_resource
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Lint
from tollgauge.demo.behaviours import play
from tollgauge.demo.directory import items_at
from tollgauge.demo.past import BODY_CAP, DEADLINE_MS, exchanges, first_listed
from tollgauge.demo.seller import DemoRequest, Seller, Wire
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.world import BUYER_FUNDS, World

_END = 1_795_252_000_000
_START = _END - 30 * DAY_MS
_STEP = 30 * MINUTE_MS


def _one(kind: str) -> Seller:
    return next(seller for seller in SELLERS if seller.kind == kind)


def _month(seller: Seller, *, seed: int = 0) -> list[Exchange]:
    return list(exchanges(seller, start=_START, end=_END, step_ms=_STEP, seed=seed))


def _statuses(past: list[Exchange]) -> Counter[int]:
    return Counter(item.result.status for item in past if isinstance(item.result, Answer))


def _verdict(seller: Seller) -> Lint:
    """Lint the seller's own response, not one of its outages."""
    past = exchanges(seller, start=_START, end=_END, step_ms=HOUR_MS)
    return lint(
        next(
            item
            for item in past
            if seller.wire is not Wire.OPEN
            or (isinstance(item.result, Answer) and item.result.status not in (502, 503))
        )
    )


@pytest.mark.parametrize(
    "kind", ["perfect-v2", "dual", "header-only", "templated", "slow", "price-changing"]
)
def test_linter_has_no_findings_for_correct_sellers(kind: str) -> None:
    for seller in (seller for seller in SELLERS if seller.kind == kind):
        verdict = _verdict(seller)
        assert (verdict.payable, verdict.compliant, verdict.findings) == (True, True, ())


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("wrong-network", "network-form"),
        ("no-domain-name", "domain-missing"),
        ("wrong-domain-name", "domain-wrong"),
        ("decimal-amount", "amount-form"),
        ("v1-field-in-v2", "v1-fields"),
        ("text-version", "version-form"),
        ("empty-accepts", "accepts-empty"),
        ("validates-first", "status-validates-first"),
        ("unpaid-200", "status-unpaid"),
        ("not-found", "status-not-found"),
        ("server-error", "status-server-error"),
        ("redirect", "status-redirect"),
    ],
)
def test_linter_finds_the_mistake_of_each_faulty_seller(kind: str, rule: str) -> None:
    for seller in (seller for seller in SELLERS if seller.kind == kind):
        verdict = _verdict(seller)
        assert rule in {finding.rule for finding in verdict.findings}
        assert not verdict.compliant


def test_linter_warns_about_an_internal_url() -> None:
    for seller in (seller for seller in SELLERS if seller.kind == "internal-url"):
        verdict = _verdict(seller)
        assert "resource-mismatch" in {finding.rule for finding in verdict.findings}
        assert (verdict.payable, verdict.compliant) == (True, True)


async def test_world_starts_in_seconds_and_names_its_parts() -> None:
    began = time.process_time()
    async with World.start(clock=lambda: _END) as world:
        # CPU time: wall-clock time would include other programs
        assert time.process_time() - began < 3
        assert await balance(world.chain, world.buyer.address) == BUYER_FUNDS
        assert await balance(world.chain, world.pay_to) == 0
        assert world.ca_file.read_text().startswith("-----BEGIN CERTIFICATE-----")
        assert {seller.host for seller in SELLERS} < world.mapped.keys()
        assert httpx.URL(world.directory_url).host in world.mapped
        async with httpx.AsyncClient(
            timeout=30, trust_env=False, verify=public_authorities()
        ) as http:
            supported = await http.get(f"{world.facilitator_url}/supported")
            call = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
            chain_id = await http.post(world.rpc_url, json=call)
    assert supported.json()["kinds"]
    assert chain_id.json()["result"] == "0x2105"
    assert not world.ca_file.exists()


async def test_interrupted_world_leaves_nothing_running() -> None:
    with pytest.raises(RuntimeError, match="stop here"):
        async with World.start(clock=lambda: _END) as world:
            raise RuntimeError("stop here")
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http:
        for url in (world.rpc_url, world.facilitator_url):
            with pytest.raises(httpx.ConnectError):
                await http.get(url)


@pytest.mark.parametrize("seller", SELLERS, ids=lambda seller: seller.host)
def test_every_seller_has_a_history_that_a_store_accepts(seller: Seller) -> None:
    past = list(exchanges(seller, start=_START, end=_START + DAY_MS, step_ms=_STEP))
    assert [item.at for item in past] == list(range(_START, _START + DAY_MS, _STEP))
    perimeter = Perimeter(mapped=frozenset({seller.host}))
    resource = parse_resource(seller.url, perimeter)
    for item in past:
        assert parse_resource(item.url, perimeter).id == resource.id
        times = item.timings
        phases = [times.dns or 0, times.connect or 0, times.tls or 0, times.ttfb or 0]
        assert min(phases) >= 0
        assert 0 < times.total <= DEADLINE_MS
        assert sum(phases) <= times.total
        if isinstance(item.result, Answer):
            assert len(item.result.body) <= BODY_CAP
            assert item.tls_not_after is not None
            assert item.tls_not_after > item.at


def test_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    seller = _one("flapping")
    assert _month(seller) == _month(seller)
    assert _month(seller) != _month(seller, seed=1)


def test_overlapping_spans_agree() -> None:
    seller = _one("flapping")
    later = list(exchanges(seller, start=_START + 10 * _STEP, end=_END, step_ms=_STEP))
    assert _month(seller)[10:] == later


def test_history_equals_the_response_to_a_live_request() -> None:
    seller = _one("price-changing")
    request = DemoRequest(method=seller.method, path=seller.path)
    for item in _month(seller)[::48]:
        if isinstance(item.result, Answer) and item.result.status == 402:
            assert item.result == play(seller, request, item.at).answer


def test_responses_with_the_same_offer_are_one_object() -> None:
    past = _month(_one("perfect-v1"))
    assert len({id(item.result) for item in past if isinstance(item.result, Answer)}) <= 3


def test_good_sellers_are_nearly_always_up_and_flapping_ones_are_not() -> None:
    good = _statuses(_month(SELLERS[0]))[402]
    flapping = _statuses(_month(_one("flapping")))[402]
    assert good >= 1_425
    assert 800 < flapping < 1_100


def test_latencies_vary_around_the_sellers_own_median() -> None:
    seller = SELLERS[0]
    totals = sorted(item.timings.total for item in _month(seller))
    assert len(set(totals)) > 50
    assert seller.latency_ms <= totals[len(totals) // 2] <= seller.latency_ms * 1.25


def test_outages_last_for_hours_and_affect_few_days() -> None:
    seller = _one("flapping")
    down = [
        item.at
        for item in exchanges(seller, start=_END - 365 * DAY_MS, end=_END, step_ms=_STEP)
        if isinstance(item.result, Fault) or item.result.status == 502
    ]
    runs = [1]
    for before, after in pairwise(down):
        if after - before == _STEP:
            runs[-1] += 1
        else:
            runs.append(1)
    assert max(runs) * _STEP >= 2 * HOUR_MS
    assert max(runs) * _STEP <= 2 * DAY_MS


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("dead", FaultKind.CONNECT),
        ("expired-certificate", FaultKind.TLS_INVALID),
        ("wrong-certificate", FaultKind.TLS_INVALID),
    ],
)
def test_broken_wires_were_always_broken(kind: str, fault: FaultKind) -> None:
    faults = {item.result.kind for item in _month(_one(kind)) if isinstance(item.result, Fault)}
    assert faults == {fault}
    assert not _statuses(_month(_one(kind)))


def test_past_directory_shows_changed_terms_and_absent_sellers() -> None:
    terms: dict[str, set[tuple[str, str]]] = {}
    days_listed: Counter[str] = Counter()
    for at in range(_START, _END, DAY_MS):
        for item in items_at(at, present=_END):
            if isinstance(item, dict) and item.get("accepts") and isinstance(item["accepts"], list):
                entry = item["accepts"][0]
                amount = entry.get("amount") or entry["maxAmountRequired"]
                terms.setdefault(item["resource"], set()).add((amount, entry["payTo"]))
                days_listed[item["resource"]] += 1
    changed = {resource for resource, seen in terms.items() if len(seen) > 1}
    changing = ("price-changing", "payto-changing", "price-jumping", "payto-rotating")
    expected = {s.url for s in SELLERS if s.kind in changing}
    assert changed == expected
    forgetful = next(seller for seller in SELLERS if seller.hidden)
    assert 20 <= days_listed[forgetful.url] < 30
    assert days_listed[SELLERS[0].url] == 30


def test_young_sellers_were_listed_late_and_are_listed_now() -> None:
    for seller in (seller for seller in SELLERS if seller.age_days):
        began = first_listed(seller, start=_START, present=_END)
        assert _START < began <= _END - ((seller.age_days or 0) - 1) * DAY_MS
        assert any(
            isinstance(item, dict) and item.get("resource") == seller.url
            for item in items_at(_END, present=_END)
        )
