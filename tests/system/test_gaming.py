"""The service scores sellers that game it as they deserve."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tollgauge import app
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.identity import parse_resource, site
from tollgauge.demo import seed
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.sellers.tricks import TRICKS
from tollgauge.demo.world import World
from tollgauge.jobs import score
from tollgauge.monitor.ranking import SITE_ROWS, SIZE
from tollgauge.monitor.reports.overview import leaderboard
from tollgauge.store.scores import scores

DAYS = 14
"""Without demand an honest seller has at most 82.5 points at this age, and A begins at 81."""
UNSEEN = {"cloaks-by-agent", "sybil-wallets", "recirculated-money", "ring"}
"""Kinds that probes find always payable, and that receive no payments in this test."""
VARYING = "payto-rotating"
"""Each offer names another payTo, from the first day on. No trick is detected, and the reason of
the verdict tells buyers which payTo to pin.
"""
HONEST = {"weather", "fx", "gas"}
HONEST_KINDS = {"perfect-v1", "perfect-v2", "dual"}
"""Kinds of the sellers that fill the leaderboard."""


async def _no_calibration(*_arguments: Any, **_options: Any) -> None:
    """Compute no forecasts: scores do not depend on them."""


async def test_no_trick_gets_an_undeserved_grade_or_leaderboard_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = [seller for seller in SELLERS if seller.kind in HONEST_KINDS]
    sellers = (*honest, *TRICKS)
    monkeypatch.setattr(seed, "SELLERS", sellers)  # the others have no history
    monkeypatch.setattr(seed, "CRAWLS_PER_DAY", 1)
    monkeypatch.setattr(seed, "STEP_MS", HOUR_MS)
    monkeypatch.setattr(score, "calibrate", _no_calibration)
    url = f"sqlite:///{tmp_path / 'demo.sqlite'}"
    async with (
        World.start(clock=app.now_ms) as world,
        app.open_resources(seed.configuration(world, port=0, store_url=url)) as service,
    ):
        await seed.prepare(service, history_days=DAYS, report=lambda *_: None)
        board = await service.store.reading(leaderboard, now=app.now_ms())
        ids = {seller: parse_resource(seller.url, world.perimeter).id for seller in sellers}
        by_id = await service.store.reading(scores.results, ids.values())
    rows = {seller: by_id[ids[seller]] for seller in sellers}
    for seller in sellers:
        if seller.label in HONEST:
            assert (rows[seller].grade, rows[seller].recommendation) == ("A", "proceed")
        if seller.kind == VARYING:
            assert "payto-varies" in {flag.code for flag in rows[seller].flags}
            assert "pin" in rows[seller].reason
    played = [seller for seller in TRICKS if seller.kind not in {*UNSEEN, VARYING}]
    assert len(played) >= 30
    for seller in played:
        assert rows[seller].grade != "A", seller.url
        # Between two jumps, the price is the original one.
        assert rows[seller].recommendation != "proceed" or seller.kind == "price-jumping"
    shown = [row.resource for row in board.rows]
    assert len(shown) == SIZE
    assert not {seller.url for seller in played} & set(shown)
    sites = Counter(site(urlsplit(resource).hostname or "") for resource in shown)
    assert max(sites.values()) <= SITE_ROWS
