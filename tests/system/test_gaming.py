"""The service scores sellers that game it as they deserve."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tollgauge import app
from tollgauge.core.endpoint.identity import parse_resource, site
from tollgauge.demo.seed import configuration, prepare
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.sellers.tricks import TRICKS
from tollgauge.demo.world import World
from tollgauge.monitor.ranking import SITE_ROWS
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
HONEST = ("weather", "fx", "gas")


def _ignore_progress(_words: str, _done: int, _total: int) -> None:
    """Report no progress."""


async def test_no_trick_gets_an_undeserved_grade_or_leaderboard_row(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'demo.sqlite'}"
    async with (
        World.start(clock=app.now_ms) as world,
        app.open_resources(configuration(world, port=0, store_url=url)) as service,
    ):
        await prepare(service, history_days=DAYS, report=_ignore_progress)
        board = await service.store.reading(leaderboard, now=app.now_ms())
        ids = {seller: parse_resource(seller.url, world.perimeter).id for seller in SELLERS}
        by_id = await service.store.reading(scores.results, ids.values())
    rows = {seller: by_id[ids[seller]] for seller in SELLERS}
    for seller in SELLERS:
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
    assert not {seller.url for seller in played} & set(shown)
    sites = Counter(site(urlsplit(resource).hostname or "") for resource in shown)
    assert max(sites.values()) <= SITE_ROWS
