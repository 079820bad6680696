"""`tollgauge bench pay-twice`: a short form, with the official FastAPI seller."""

from __future__ import annotations

import sys

import pytest

from bench.pay_twice import Outcome, Results, client_of, list_clients, measure, total
from bench.pay_twice_page import PAGE, write_page
from bench.pay_twice_world import Fault

SHORT = (Fault.NONE, Fault.LOST_ANSWER, Fault.PENDING_WAITS, Fault.REDIRECT, Fault.SERVER_ERROR)


@pytest.fixture(scope="module")
def results() -> Results:
    names = {"httpx", "tollgauge-guard (httpx)", "tollgauge-guard (requests)"}
    clients = [client for client in list_clients() if client.name in names]
    return measure(clients, ["fastapi"], SHORT)


def find(results: Results, client: str, fault: Fault) -> Outcome:
    (found,) = (one for one in results.outcomes if (one.client, one.fault) == (client, fault))
    return found


def test_every_client_buys_once_without_a_fault(results: Results) -> None:
    for client in results.totals:
        bought = find(results, client, Fault.NONE)
        assert (bought.signed, bought.settled, bought.is_answered) == (1, 1, True)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.REDIRECT, Fault.SERVER_ERROR])
def test_official_client_with_a_retry_pays_twice(results: Results, fault: Fault) -> None:
    bought = find(results, "httpx", fault)
    assert bought.signed > 1
    assert bought.settled > 1


@pytest.mark.parametrize("client", ["tollgauge-guard (httpx)", "tollgauge-guard (requests)"])
def test_guard_never_signs_twice(results: Results, client: str) -> None:
    assert results.totals[client].signed_twice == 0
    assert results.totals[client].unpaid == 0
    assert not find(results, client, Fault.LOST_ANSWER).is_answered
    assert find(results, client, Fault.PENDING_WAITS).is_answered


@pytest.mark.node
def test_typescript_guard_never_signs_twice() -> None:
    clients = [one for one in list_clients() if one.name == "tollgauge-guard (fetch)"]
    results = measure(clients, ["fastapi"], [Fault.NONE, Fault.RESET_AFTER, Fault.CUT])
    (sums,) = results.totals.values()
    assert (sums.purchases, sums.signed_twice, sums.unpaid) == (3, 0, 0)


def test_program_that_does_not_pay_is_counted_as_unpaid() -> None:
    client = client_of(f"{sys.executable} -c 'print(1)'")
    results = measure([client], ["fastapi"], [Fault.NONE])
    (sums,) = results.totals.values()
    assert (sums.purchases, sums.unpaid, sums.answered) == (1, 1, 0)


def test_totals_count_purchases() -> None:
    def outcome(signed: int, settled: int, *, is_answered: bool) -> Outcome:
        return Outcome("a", "fastapi", Fault.NONE, signed, settled, is_answered)

    sums = total(
        [
            outcome(2, 2, is_answered=True),
            outcome(2, 1, is_answered=False),
            outcome(1, 0, is_answered=False),
        ]
    )
    assert (sums.purchases, sums.signed_twice, sums.paid_twice) == (3, 2, 1)
    assert (sums.answered, sums.paid_unanswered, sums.unpaid) == (1, 1, 1)


def test_page_has_the_sections_of_a_new_measurement(results: Results) -> None:
    page = write_page(results, list_clients(), "today")
    headings = [line for line in page.splitlines() if line.startswith("#")]
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("#")]
    assert headings == written
