"""The demo's simulated history equals the output of the service's loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.http_service import WEATHER_ID, configuration, fill, open_service

from tollgauge.demo import seed
from tollgauge.demo.sellers import SELLERS

DAYS = 6


async def test_every_day_has_scores_and_forecasts_with_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = next(seller for seller in SELLERS if seller.label == "weather")
    monkeypatch.setattr(seed, "SELLERS", (weather, *SELLERS[:5]))
    async with open_service(configuration(store_url=f"sqlite:///{tmp_path}/past.db")) as running:
        await fill(running, days=DAYS)
        page = (await running.get(f"/endpoint/{WEATHER_ID}")).text
        document = (await running.get("/calibration.json")).json()

    (scored,) = re.findall(r"(\d+) of \d+ days have a score", page)
    assert int(scored) == DAYS
    (policy,) = document["policies"]
    assert policy["payableNow"]["count"] >= 5 * (DAYS - 3)
