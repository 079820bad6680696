"""Sellers of the same thing, different in price, speed, correctness and reliability.

Together with the sellers of the other modules, each purpose has three to five, so that
alternatives can be compared. The only customer of the last one is its own second wallet.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.units import DAY_MS
from tollgauge.demo import behaviours
from tollgauge.demo.seller import Seller

_WEATHER: Final = (
    Seller(
        label="cloudline",
        path="/v1/weather/now",
        name="Cloudline Weather",
        description="Current weather conditions and an hourly forecast for any city, worldwide.",
        tags=("weather", "forecast"),
        kind="perfect-v1",
        behave=behaviours.perfect_v1,
        amounts=(2_000,),
        query=(("city", "Porto"),),
        version=1,
        latency_ms=240,
        trouble=8,
    ),
    Seller(
        label="barometer",
        path="/api/forecast",
        name="Barometer House",
        description="Weather forecast for a city: temperature, rain and wind for ten days.",
        tags=("weather", "forecast"),
        kind="plain-v2",
        behave=behaviours.plain_v2,
        amounts=(5_000,),
        query=(("city", "Bergen"),),
        latency_ms=410,
        trouble=15,
    ),
    Seller(
        label="stormglass",
        path="/v1/current",
        name="Penny Weather",
        description="Cheap current weather conditions by city from hobby stations.",
        tags=("weather",),
        kind="flapping",
        behave=behaviours.flap,
        amounts=(800,),
        query=(("city", "Cork"),),
        latency_ms=190,
        trouble=70,
    ),
)

_TOKEN_PRICES: Final = (
    Seller(
        label="coinmark",
        path="/v1/price",
        name="Coinmark Prices",
        description="Spot price of a crypto token in dollars, volume-weighted over nine exchanges.",
        tags=("crypto", "price", "market"),
        kind="perfect-v2",
        behave=behaviours.perfect_v2,
        amounts=(1_000,),
        query=(("token", "ETH"),),
        example='{"token":"ETH","usd":"3120.55"}',
        latency_ms=70,
        trouble=0,
    ),
    Seller(
        label="pricefeed",
        path="/v2/token/price",
        name="Plumbline Feed",
        description="Token price in dollars with 24-hour change and volume, for 9,000 tokens.",
        tags=("crypto", "price"),
        kind="dual",
        behave=behaviours.dual,
        amounts=(2_000,),
        query=(("symbol", "AERO"),),
        latency_ms=130,
    ),
    Seller(
        label="dexprice",
        path="/v1/price",
        name="Poolside Prices",
        description="Price of a token in dollars from the deepest pool of each exchange on Base.",
        tags=("crypto", "price", "dex"),
        kind="no-domain-name",
        behave=behaviours.twist_envelope(behaviours.no_domain_name),
        amounts=(500,),
        query=(("token", "0x4200000000000000000000000000000000000006"),),
        latency_ms=150,
    ),
    Seller(
        label="spotline",
        path="/v1/spot",
        name="Spotline",
        description="Spot prices of crypto tokens in dollars, refreshed every second.",
        tags=("crypto", "price", "market"),
        kind="price-changing",
        behave=behaviours.perfect_v2,
        amounts=(4_000, 9_000, 6_000),
        turn_ms=8 * DAY_MS,
        query=(("token", "SOL"),),
        latency_ms=85,
    ),
)

_WEB_SEARCH: Final = (
    Seller(
        label="searchlight",
        path="/v1/search",
        name="Searchlight",
        description="Web search for agents: ten results with titles, links and short extracts.",
        tags=("web", "search"),
        kind="perfect-v2",
        behave=behaviours.perfect_v2,
        amounts=(5_000,),
        query=(("q", "tidal power"),),
        also_on=("eip155:137",),
        latency_ms=320,
    ),
    Seller(
        label="needle",
        path="/api/search",
        name="Needle Web Search",
        description="Web search results with links and extracts from an independent index.",
        tags=("web", "search"),
        kind="plain-v2",
        behave=behaviours.plain_v2,
        amounts=(3_000,),
        query=(("query", "peat bogs"),),
        latency_ms=450,
        trouble=10,
    ),
    Seller(
        label="deepsearch",
        path="/v1/search",
        name="Plummet Deep Search",
        description="In-depth web search: fifty results, each page read and summarized.",
        tags=("web", "search", "research"),
        kind="slow",
        behave=behaviours.slow,
        amounts=(40_000,),
        query=(("q", "history of tolls"),),
        latency_ms=600,
    ),
)

_TRANSLATION: Final = (
    Seller(
        label="lingua",
        path="/v1/translate",
        name="Ferryman Translation",
        description="Machine translation of text between 40 languages, priced for bulk.",
        tags=("ai", "translation", "language"),
        kind="dual",
        behave=behaviours.dual,
        amounts=(4_000,),
        method="POST",
        body=b'{"text":"good evening","to":"de"}',
        latency_ms=280,
    ),
    Seller(
        label="idiom",
        path="/translate",
        name="Idiom Desk",
        description="Translation of a text between 25 languages that keeps its tone and idioms.",
        tags=("translation", "language"),
        kind="perfect-v1",
        behave=behaviours.perfect_v1,
        amounts=(12_000,),
        method="POST",
        body=b'{"text":"break a leg","to":"fr"}',
        version=1,
        latency_ms=520,
        trouble=20,
    ),
)

_IMAGES: Final = (
    Seller(
        label="easel",
        path="/v1/images",
        name="Easel",
        description="Image generation from a text prompt, 1024 by 1024 pixels, in four styles.",
        tags=("ai", "images", "generation"),
        kind="perfect-v2",
        behave=behaviours.perfect_v2,
        amounts=(20_000,),
        method="POST",
        body=b'{"prompt":"a lighthouse in fog"}',
        latency_ms=460,
    ),
    Seller(
        label="pixelmill",
        path="/v1/generate",
        name="Pixelmill",
        description="Image generation from a text prompt with a choice of models and sizes.",
        tags=("ai", "images", "generation"),
        kind="slow",
        behave=behaviours.slow,
        amounts=(30_000,),
        method="POST",
        body=b'{"prompt":"a mill by a river"}',
        latency_ms=640,
        trouble=20,
    ),
    Seller(
        label="sketchpad",
        path="/v1/draw",
        name="Sketchpad",
        description="Generates line-art images from a text prompt, as vector or as pixels.",
        tags=("ai", "images", "generation"),
        kind="header-only",
        behave=behaviours.header_only,
        amounts=(15_000,),
        method="POST",
        body=b'{"prompt":"a fox asleep"}',
        latency_ms=350,
        age_days=14,
    ),
)

_FRIENDS: Final = (
    Seller(
        label="whisper",
        path="/v1/signal",
        name="Alpha Whisper",
        description="The trading signal of the hour for a crypto token. Trusted by many.",
        tags=("crypto", "trading"),
        kind="perfect-v2",
        behave=behaviours.perfect_v2,
        amounts=(900_000,),
        query=(("token", "ETH"),),
        latency_ms=110,
    ),
)

ALTERNATIVES: Final = _WEATHER + _TOKEN_PRICES + _WEB_SEARCH + _TRANSLATION + _IMAGES + _FRIENDS
