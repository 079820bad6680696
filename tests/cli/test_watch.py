"""The operator's commands for watches."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.receivers import ALERTS
from tests.support.watch_service import (
    QUOTE,
    opened,
)

from tollgauge.store.watches import outbox


def command(url: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "tollgauge"), "watch", *arguments],
        env={"DATABASE_URL": url, "PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


async def test_the_operator_lists_shows_and_resends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    async with opened(url, tmp_path) as watch_service:
        bought = await watch_service.buy(
            delivery={"webhook_url": f"https://{ALERTS}/averysecretpath"}
        )
        await watch_service.probe()
        await watch_service.probe(quote=replace(QUOTE, amount=1))
        watch_service.receivers.answers[ALERTS] = [410]
        await watch_service.alert()
        code, out = await asyncio.to_thread(command, url, "list", "--json")
        listed = json.loads(out)
        assert code == 1
        assert [each["watchId"] for each in listed["watches"]] == [bought["watch_id"]]
        (letter,) = listed["dead"]
        code, out = await asyncio.to_thread(command, url, "show", bought["watch_id"], "--json")
        shown = json.loads(out)
        assert code == 0
        assert shown["destinations"][0]["disabled"] == "http-410"
        assert "averysecret" not in out
        assert bought["secret"] not in out
        assert (await asyncio.to_thread(command, url, "resend", letter["id"]))[0] == 0
        depth = await watch_service.store.reading(outbox.depth)
        (again,) = await watch_service.store.reading(outbox.of_watch, bought["watch_id"], limit=9)
        assert (depth.queued, depth.dead) == (1, 0)
        assert (again.attempts, again.notice.event_id) == (0, letter["event"])
