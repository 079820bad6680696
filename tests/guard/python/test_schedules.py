"""Fault schedules against the official seller: never a second authorization for one purchase.

TOLLGAUGE_SCHEDULES sets the number of schedules, TOLLGAUGE_SCHEDULES_FROM the first seed, and
TOLLGAUGE_SCHEDULES_ON_ANVIL the number on a real chain with moved time.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.anvil_chain import AnvilChain
from tests.support.examples import THOROUGH
from tests.support.fault_schedules import WALLET, play

from tollgauge.demo.chain import run_chain

FIRST = int(os.environ.get("TOLLGAUGE_SCHEDULES_FROM", "0"))
COUNT = int(os.environ.get("TOLLGAUGE_SCHEDULES", "60"))
ON_ANVIL = int(os.environ.get("TOLLGAUGE_SCHEDULES_ON_ANVIL", "10" if THOROUGH else "3"))


async def test_no_schedule_leads_to_a_second_authorization(tmp_path: Path) -> None:
    wrong: dict[int, list[str]] = {}
    calls = answers = 0
    for seed in range(FIRST, FIRST + COUNT):
        world = await play(seed, tmp_path)
        calls, answers = calls + world.calls, answers + world.answers
        if world.wrong:
            wrong[seed] = world.wrong
    assert wrong == {}
    assert calls > answers > 0


async def test_no_schedule_on_anvil_leads_to_a_second_authorization(tmp_path: Path) -> None:
    answers, settled = 0, 0
    async with run_chain() as running:
        await running.mint(WALLET.address, 10**9)
        chain = AnvilChain(running)
        for seed in range(ON_ANVIL):
            world = await play(seed, tmp_path, chain)
            assert world.wrong == [], seed
            answers += world.answers
            settled += sum(chain.is_used(nonce, chain.height) for nonce in world.signed)
        chain.close()
    assert settled >= answers > 0
