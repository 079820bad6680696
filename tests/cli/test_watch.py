"""The operator's commands for watches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from tests.support.command_line import Command, Done, captured_exchange
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


def test_watch_once_compares_a_response_with_the_last_check(
    tollgauge: Command, tmp_path: Path
) -> None:
    answer, state = tmp_path / "answer.json", tmp_path / "state.json"

    def check(**changes: Any) -> Done:
        answer.write_bytes(orjson.dumps(captured_exchange(**changes)))
        return tollgauge("watch", "--once", str(answer), "--state", str(state), "--json")

    first = check()
    assert (first.code, first.json["first"], first.json["events"]) == (0, True, [])
    assert check().json == {"source": str(answer), "first": False, "events": []}
    moved = check(payTo="0x" + "cd" * 20)
    assert moved.code == 1
    assert [event["type"] for event in moved.json["events"]] == ["payto_change"]
    dearer = check(payTo="0x" + "cd" * 20, maxAmountRequired="20000")
    assert [event["type"] for event in dearer.json["events"]] == ["price_change"]
    broken = check(payTo="0x" + "cd" * 20, maxAmountRequired="20000", maxTimeoutSeconds=5)
    assert [event["type"] for event in broken.json["events"]] == ["spec_regression"]


def test_watch_once_reports_an_outage_until_it_ends(tollgauge: Command, tmp_path: Path) -> None:
    answer, state = tmp_path / "answer.json", tmp_path / "state.json"
    arguments = ("watch", "--once", str(answer), "--state", str(state))
    answer.write_bytes(orjson.dumps(captured_exchange()))
    assert tollgauge(*arguments).code == 0
    saved = state.read_bytes()
    answer.write_bytes(b'{"status": 500, "headers": {}, "body": ""}')
    for _ in range(2):
        done = tollgauge(*arguments)
        assert done.code == 1
        assert done.out.startswith("liveness_down (error): Down: 1 check in a row failed")
    assert state.read_bytes() == saved
    answer.write_bytes(orjson.dumps(captured_exchange()))
    assert (tollgauge(*arguments).code, tollgauge(*arguments).out) == (0, "no changes\n")


def test_watch_once_refuses_a_foreign_state_file(tollgauge: Command, tmp_path: Path) -> None:
    answer, state = tmp_path / "answer.json", tmp_path / "package.json"
    answer.write_bytes(orjson.dumps(captured_exchange()))
    state.write_text('{"name": "x"}')
    done = tollgauge("watch", "--once", str(answer), "--state", str(state))
    assert done.code == 2
    assert "was not written by `tollgauge watch --once`" in done.err
    assert state.read_text() == '{"name": "x"}'
