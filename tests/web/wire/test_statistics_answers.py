"""The short form of the statistics for agents."""

from __future__ import annotations

import json

from docs.statistics_examples import ecosystem_response
from tollgauge.store.chain.periods import ChainPeriods
from tollgauge.store.chain.submitters import FacilitatorPeriod
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.statistics_answers import brief_ecosystem, network_settlements

AGENT_BYTES = 8_000


def test_statistics_for_agents_are_short_with_long_names() -> None:
    names = tuple((f"{number:x}" * 64, 10**6) for number in range(13))
    whole = ecosystem_response(
        networks=names, offered_networks=names, extensions=names, sources=names
    )
    text = dump(brief_ecosystem(whole)).decode()
    brief = json.loads(text)
    assert brief["distributions"]["extensions"][-1] == {"name": None, "count": 10 * 10**6}
    assert brief["settlements"][0]["byDay"] == []
    assert brief["settlements"][0]["facilitators"] == []
    # A tool result contains its answer twice: as structured content and as text.
    assert len(text) + len(json.dumps(text)) < AGENT_BYTES


def test_settlements_have_their_facilitators_in_each_period() -> None:
    (chain,) = json.loads(dump(ecosystem_response()))["settlements"]
    assert [period["days"] for period in chain["facilitators"]] == [1, 7, 30]
    assert chain["facilitators"][-1] | {"top": chain["facilitators"][-1]["top"][:1]} == {
        "days": 30,
        "settlements": 9_120,
        "lookedUpShare": 0.75,
        "submitters": 3,
        "top": [
            {
                "address": "0x01" + "c0" * 19,
                "configured": True,
                "settlements": 5_130,
                "volumeUsd": 10_260.0,
                "buyers": 642,
            }
        ],
    }


def test_share_of_looked_up_settlements_is_null_without_settlements() -> None:
    none = FacilitatorPeriod(days=1, settlements=0, looked_up=0, submitters=0, top=())
    period = ChainPeriods(
        chain=8453, as_of=0, last_day=1, comparisons=(), by_day=(), facilitators=(none,)
    )
    (found,) = network_settlements(period, measured=True).facilitators
    assert (found.looked_up_share, found.top) == (None, [])
