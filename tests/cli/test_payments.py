"""`tollgauge payments` and its reconciliation."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.reconciliation import (
    PAY_TO,
    advance_to,
    deposit_in,
    header,
    nonce,
    read_to,
    start_index,
    store_payment,
)
from typer.testing import CliRunner

from tollgauge import cli
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store


def midnight() -> int:
    """Return the start of the current day (ms UTC)."""
    return time.time_ns() // 1_000_000 // DAY_MS * DAY_MS


def yesterday() -> int:
    """Return noon of the previous day (ms UTC)."""
    return midnight() - DAY_MS // 2


@pytest.fixture(autouse=True)
def place(one_day: None, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database)


async def run(*words: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, cli.app, ["payments", *words])


async def a_day(store: Store) -> None:
    """Store two sales of yesterday, one with its transfer, and transfers that paid for nothing."""
    cursor = await start_index(store, at=yesterday())
    block = header(101, at=yesterday())
    await store_payment(store, 1, at=yesterday())
    await store_payment(store, 9, State.REJECTED, at=yesterday())
    transfers = (
        deposit_in(block, 1, by=nonce(1)),
        deposit_in(block, 2, 700),
        deposit_in(block, 3, 60, by=nonce(9)),
    )
    await advance_to(store, cursor, [block], *transfers)
    await read_to(store, midnight() + 1)


async def test_empty_ledger_is_reported(store: Store) -> None:
    plain, shown = await run(), await run("--json")
    assert (plain.exit_code, shown.exit_code) == (0, 0)
    assert plain.stdout == "The ledger is empty: there are no payments yet.\n"
    assert orjson.loads(shown.stdout) == {"payments": [], "unattributed": []}
    books = await run("--books")
    assert books.exit_code == 0
    assert books.stdout.startswith("There is nothing to reconcile: sale.pay_to is not set")


async def test_unattributed_transfers_are_listed(store: Store) -> None:
    await a_day(store)
    plain, shown = await run(), await run("--json")
    assert "700 from 0x" in plain.stdout
    assert f"payment {9:032x} is rejected" in plain.stdout
    rows = orjson.loads(shown.stdout)["unattributed"]
    assert sorted((row["amount"], row["payment"]) for row in rows if row["payment"] is None) == [
        ("700", None)
    ]
    (known,) = [row for row in rows if row["payment"]]
    assert (known["amount"], known["payment"]["state"]) == ("60", "rejected")


async def test_matching_books_exit_0(store: Store) -> None:
    await a_day(store)
    plain, shown = await run("--books"), await run("--books", "--days", "2", "--json")
    assert (plain.exit_code, shown.exit_code) == (0, 0), plain.output
    document = orjson.loads(shown.stdout)
    assert document["unexplained"] == 0
    (day,) = document["days"]
    assert (day["payTo"], day["complete"], day["unexplained"]) == (PAY_TO, True, False)
    assert (day["sales"], day["settled"]) == (1, "5000")
    assert (day["transfers"], day["received"]) == (3, "5760")
    assert (day["unattributedTransfers"], day["unattributed"]) == (2, "760")
    assert (day["awaited"], day["difference"]) == ("0", "0")
    assert f"{day['day']}            1         5000         5760" in plain.stdout


async def test_unexplained_difference_on_a_complete_day_exits_1(store: Store) -> None:
    await a_day(store)
    await store_payment(store, 2, at=yesterday())
    plain, shown = await run("--books"), await run("--books", "--days", "2", "--json")
    assert (plain.exit_code, shown.exit_code) == (1, 1)
    assert "NOT EXPLAINED" in plain.stdout
    document = orjson.loads(shown.stdout)
    assert document["unexplained"] == 1
    assert [day["difference"] for day in document["days"]] == ["-5000"]


async def test_books_are_open_with_a_reason_if_the_chain_is_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLGAUGE_SALE_PAY_TO", PAY_TO)
    monkeypatch.setenv("TOLLGAUGE_FACILITATOR_URL", "https://facilitator.example")
    await store_payment(store, 1, at=yesterday())
    plain, shown = await run("--books"), await run("--books", "--json", "--days", "2")
    assert plain.exit_code == shown.exit_code == 0
    assert "The chain is not read for it" in plain.stdout
    days = orjson.loads(shown.stdout)["days"]
    assert [(day["settled"], day["awaited"], day["complete"]) for day in days] == [
        ("0", "0", False),
        ("5000", "5000", False),
    ]
