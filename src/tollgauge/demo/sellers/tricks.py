"""Sellers that try to get a better score than they deserve, one for each trick that is possible
over HTTP or on the chain. docs/gaming.md computes the gain of each.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.demo import behaviours, tricks
from tollgauge.demo.seller import Seller, payee

SPAM_PATHS: Final = 24
"""More endpoints than a host may have with the same terms before they are compared."""

_ONE_EACH: Final = (
    Seller(
        label="masked",
        path="/v1/ask",
        name="Fair Face",
        description="Answers any question with our own fine-tuned model.",
        tags=("ai", "assistant"),
        kind="cloaks-by-agent",
        behave=tricks.cloak,
        amounts=(9_000,),
        latency_ms=90,
        trouble=0,
    ),
    Seller(
        label="catchall",
        path="/v1/insights",
        name="Catchall Insights",
        description="Insights for agents.",
        tags=("data",),
        kind="cloaks-by-path",
        behave=tricks.hide_catch_all,
        amounts=(7_000,),
        every_path=True,
        latency_ms=60,
        trouble=0,
    ),
    Seller(
        label="toobusy",
        path="/v1/route",
        name="Detour Routing",
        description="Driving and walking routes that avoid closed roads.",
        tags=("maps", "routing"),
        kind="throttles-when-down",
        behave=tricks.throttle_when_down,
        amounts=(3_000,),
        latency_ms=80,
        trouble=0,
    ),
    Seller(
        label="backsoon",
        path="/v1/voice",
        name="Siesta Voices",
        description="Reads a text aloud in twelve voices.",
        tags=("audio", "speech"),
        kind="asks-for-silence",
        behave=tricks.ask_for_silence,
        amounts=(4_000,),
        latency_ms=110,
        trouble=0,
    ),
    Seller(
        label="relaunched",
        path="/v1/clean",
        name="Relaunch Data",
        description="Cleans a table: types, duplicates, missing values.",
        tags=("data", "tables"),
        kind="bad-record",
        behave=tricks.fail_openly,
        amounts=(5_000,),
        latency_ms=70,
        trouble=0,
    ),
    Seller(
        label="relaunched-1",
        same_host_as="relaunched",
        path="/v1/dedupe",
        name="Relaunch Dedupe",
        description="Finds duplicate rows in a table.",
        tags=("data", "tables"),
        kind="bad-record",
        behave=tricks.fail_openly,
        amounts=(5_000,),
        latency_ms=70,
        trouble=0,
    ),
    Seller(
        label="relaunched-2",
        same_host_as="relaunched",
        path="/v2/clean",
        name="Relaunch Data 2",
        description="Cleans a table. We have moved to a new payment address.",
        tags=("data", "tables"),
        kind="fresh-path",
        behave=behaviours.perfect_v2,
        amounts=(5_000,),
        age_days=3,
        latency_ms=70,
        trouble=0,
    ),
    Seller(
        label="teaser",
        path="/v1/plan",
        name="Teaser Travel",
        description="An hour-by-hour travel plan for any city.",
        tags=("travel",),
        kind="price-jumping",
        behave=behaviours.perfect_v2,
        amounts=(1_000, 100_000),
        turn_ms=3 * DAY_MS,
        latency_ms=95,
        trouble=0,
    ),
    Seller(
        label="manypockets",
        path="/v1/rates",
        name="Many Pockets",
        description="Current lending rates of the major DeFi protocols.",
        tags=("crypto", "rates"),
        kind="payto-rotating",
        behave=behaviours.perfect_v2,
        amounts=(2_000,),
        payees=tuple(payee(f"pocket-{turn}") for turn in range(60)),
        turn_ms=12 * HOUR_MS,
        latency_ms=75,
        trouble=0,
    ),
)

_SPAM: Final = tuple(
    Seller(
        label="flood" if number == 0 else f"flood-{number}",
        same_host_as="" if number == 0 else "flood",
        path=f"/agents/{number}",
        name=f"Flood Agent {number}",
        description="A helpful agent for any task.",
        tags=("agents",),
        kind="listing-spam",
        behave=behaviours.perfect_v2,
        amounts=(1_000,),
        payees=(payee("flood"),),
        age_days=1,
        latency_ms=20,
        trouble=0,
    )
    for number in range(SPAM_PATHS)
)

_FOR_MONEY: Final = tuple(
    Seller(
        label=label,
        path="/v1/signal",
        name=name,
        description=f"Live signals for {subject}, updated hourly.",
        tags=("signals",),
        kind=kind,
        behave=behaviours.perfect_v2,
        amounts=(amount,),
        latency_ms=100,
        trouble=0,
    )
    for label, name, subject, kind, amount in (
        ("moneybags", "Moneybags", "stock markets", "sybil-wallets", 10_000),
        ("roundabout", "Roundabout", "road traffic", "recirculated-money", 1_000_000),
        ("carousel-1", "Carousel One", "weather", "ring", 2_000_000),
        ("carousel-2", "Carousel Two", "tidal energy", "ring", 2_000_000),
        ("carousel-3", "Carousel Three", "space weather", "ring", 2_000_000),
        ("carousel-4", "Carousel Four", "breaking news", "ring", 2_000_000),
        ("carousel-5", "Carousel Five", "soil moisture", "ring", 2_000_000),
        ("carousel-6", "Carousel Six", "timber prices", "ring", 2_000_000),
    )
)
"""demo/customers defines their payers."""

TRICKS: Final = (*_ONE_EACH, *_FOR_MONEY, *_SPAM)
