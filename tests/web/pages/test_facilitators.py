"""The page of facilitators, and its JSON."""

from __future__ import annotations

from dataclasses import replace

from tests.support.http_service import Running, configuration, open_service
from tests.support.page_reader import BASE, NOW, Reader

from docs.statistics_examples import facilitators as example
from tollgauge.core.base.units import day_of
from tollgauge.monitor.facilitators import FacilitatorRecord, Facilitators
from tollgauge.store.chain.periods import ChainPeriods
from tollgauge.store.chain.submitters import (
    FacilitatorFigures,
    FacilitatorPeriod,
    FacilitatorSample,
)
from tollgauge.web.pages.render import render
from tollgauge.web.wire.facilitator_answers import facilitators

LISTED = FacilitatorFigures(
    address="0x" + "ab" * 20, configured=True, settlements=600, volume=9_000_000, buyers=70
)
MONTH = FacilitatorPeriod(days=30, settlements=1_200, looked_up=900, submitters=1, top=(LISTED,))
SAMPLE = FacilitatorSample(
    address=LISTED.address,
    forms=("eip3009",),
    outcomes=(("facilitator", 3), ("settled", 96), ("unknown", 1)),
    p50_delay_s=4,
    p95_delay_s=11,
)
CHAIN = ChainPeriods(
    chain=8453,
    as_of=NOW,
    last_day=day_of(NOW) - 1,
    comparisons=(),
    by_day=(),
    facilitators=(MONTH,),
    samples=(SAMPLE,),
)
RECORD = FacilitatorRecord(
    host="pay.example",
    checked_at=NOW,
    answered=False,
    kinds=("v2 exact <b>eip155:8453</b>",),
    days=((day_of(NOW), 4, 3),),
)


def words(known: Facilitators, *, indexes: bool = True) -> str:
    shown = facilitators(known)
    page = render("facilitators.html", BASE, known=shown, indexes=indexes)
    return Reader(page).words


def test_row_has_settlements_and_sampled_attempts() -> None:
    shown = words(Facilitators(chains=(CHAIN,), configured=None))
    assert "75.0% of 1,200 were looked up" in shown
    assert (
        f"{LISTED.address} used by this service 600 $9.00 70 100 4.0% facilitator 3, unknown 1 4 s"
        in shown
    )


def test_address_without_settlements_at_monitored_sellers_is_listed_after_the_others() -> None:
    other = replace(SAMPLE, address="0x" + "cd" * 20, outcomes=(("settled", 5),), p50_delay_s=None)
    (chain,) = facilitators(
        Facilitators(chains=(replace(CHAIN, samples=(other, SAMPLE)),), configured=None)
    ).networks
    assert [(row.address, row.settled is None) for row in chain.facilitators] == [
        (LISTED.address, False),
        (other.address, True),
    ]


def test_configured_facilitator_is_shown_with_its_availability() -> None:
    shown = words(Facilitators(chains=(), configured=RECORD))
    assert "pay.example settles the sales of this service. It answered 75.0%" in shown
    assert "the last one was not answered" in shown
    assert "v2 exact <b>eip155:8453</b>" in shown


def test_reason_is_stated_if_there_are_no_facilitators() -> None:
    empty = Facilitators(chains=(), configured=None)
    assert "this server does not index a chain" in words(empty, indexes=False)
    assert "The first complete day (UTC) has not been measured yet" in words(empty)


async def test_routes_answer_before_anything_was_measured() -> None:
    async with open_service(configuration()) as running:
        assert await _read(running, "/trust/facilitators") == {"networks": [], "configured": None}
        assert (await running.get("/facilitators")).status_code == 200


async def _read(running: Running, path: str) -> object:
    return (await running.get(path)).json()


def test_example_of_the_reference_has_every_figure() -> None:
    (network,) = example()["networks"]
    first = network["facilitators"][0]
    assert first["sampled"]["failures"] == {"facilitator": 2, "payer": 1}
    assert first["sampled"]["failedShare"] == 3 / 215
