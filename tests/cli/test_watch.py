"""The operator's commands for watches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.support.command_line import Command, Done
from tests.support.receivers import ALERTS
from tests.support.watch_service import (
    QUOTE,
    open_watch_service,
)

from tollgauge.store.watches import outbox


async def test_operator_lists_shows_and_resends(tollgauge: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"

    async def command(*words: str) -> Done:
        """Run a command and return its result while the service has the same database open."""
        return await asyncio.to_thread(tollgauge, "watch", *words, DATABASE_URL=url)

    async with open_watch_service(url, tmp_path) as watch_service:
        bought = await watch_service.buy(
            delivery={"webhook_url": f"https://{ALERTS}/averysecretpath"}
        )
        await watch_service.probe()
        await watch_service.probe(quote=replace(QUOTE, amount=1))
        watch_service.receivers.answers[ALERTS] = [410]
        await watch_service.alert()
        listed = await command("list", "--json")
        assert listed.code == 1
        assert [watch["watchId"] for watch in listed.json["watches"]] == [bought["watch_id"]]
        (letter,) = listed.json["dead"]
        shown = await command("show", bought["watch_id"], "--json")
        assert shown.code == 0
        assert shown.json["destinations"][0]["disabled"] == "http-410"
        assert "averysecret" not in shown.out
        assert bought["secret"] not in shown.out
        assert (await command("resend", letter["id"])).code == 0
        depth = await watch_service.store.reading(outbox.depth)
        (again,) = await watch_service.store.reading(outbox.of_watch, bought["watch_id"], limit=9)
        assert (depth.queued, depth.dead) == (1, 0)
        assert (again.attempts, again.alert.event_id) == (0, letter["event"])
