"""`tollgauge bench pay-twice`: a short form, with the official FastAPI seller."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.command_server import command

from bench import pay_twice
from bench.pay_twice import Client, Outcome, Results, client_of, list_clients, measure, total
from bench.pay_twice_page import PAGE, write_page
from bench.pay_twice_world import Fault

pytestmark = pytest.mark.node
SHORT = (Fault.NONE, Fault.LOST_ANSWER, Fault.PENDING_WAITS, Fault.REDIRECT, Fault.SERVER_ERROR)
GUARDS = ("tollgauge-guard (httpx)", "tollgauge-guard (requests)", "tollgauge-guard (fetch)")
NOT_PAYING = client_of(f"{sys.executable} -c 'print(1)'")


def fork(client: Client) -> Client:
    """Start a Python client as a fork, which saves the second of its imports."""
    program, *words = (client.command or ())[1:]
    if not program.endswith("official.py"):
        return client
    return replace(client, command=(*command("-m", "bench.purchases.official"), *words))


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    clients = [fork(one) for one in list_clients() if one.name in ("httpx", *GUARDS)]
    seller = tuple(command("-m", "bench.purchases.seller", "fastapi"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pay_twice, "_seller_command", lambda _name: seller)
        yield measure([*clients, NOT_PAYING], ["fastapi"], SHORT)


def find(results: Results, client: str, fault: Fault) -> Outcome:
    (found,) = (one for one in results.outcomes if (one.client, one.fault) == (client, fault))
    return found


def test_every_client_buys_once_without_a_fault(results: Results) -> None:
    for client in ("httpx", *GUARDS):
        bought = find(results, client, Fault.NONE)
        assert (bought.signed, bought.settled, bought.is_answered) == (1, 1, True)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.REDIRECT, Fault.SERVER_ERROR])
def test_official_client_with_a_retry_pays_twice(results: Results, fault: Fault) -> None:
    bought = find(results, "httpx", fault)
    assert bought.signed > 1
    assert bought.settled > 1


@pytest.mark.parametrize("client", GUARDS)
def test_guard_never_signs_twice(results: Results, client: str) -> None:
    assert results.totals[client].signed_twice == 0
    assert results.totals[client].unpaid == 0
    assert not find(results, client, Fault.LOST_ANSWER).is_answered
    assert find(results, client, Fault.PENDING_WAITS).is_answered


def test_installed_client_buys_once_from_the_installed_seller() -> None:
    (client,) = (one for one in list_clients() if one.name == "httpx")
    (sums,) = measure([client], ["fastapi"], [Fault.NONE]).totals.values()
    assert (sums.purchases, sums.signed_twice, sums.answered) == (1, 0, 1)


def test_program_that_does_not_pay_is_counted_as_unpaid(results: Results) -> None:
    sums = results.totals[NOT_PAYING.name]
    assert (sums.purchases, sums.unpaid, sums.answered) == (len(SHORT), len(SHORT), 0)


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
